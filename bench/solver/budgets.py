"""The gap over the budget: a table, a plot, and whether a larger budget ever gave a worse solution."""

import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from batchsched.lab.conclusion import Conclusion
from batchsched.lab.document import ReportDocument, Section
from batchsched.lab.figure import Figure, axis, policy_color
from batchsched.solver.objective import compare_objectives_by_tier

SMALLEST_RANGE: Final = 0.001
"""Least range of the axis of gaps."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """The results with one budget: the gap and the objectives by tier of each seed, and the median of CPU seconds."""

    budget: float
    gaps: list[float]
    objectives: list[list[float]]
    cpu: float

    @property
    def median(self) -> float:
        """Return the median of the gaps."""
        return statistics.median(self.gaps)


def lost_objectives(rows: list[BudgetRow]) -> list[tuple[float, int]]:
    """Return the budgets, with the position of the seed, that gave a worse solution than the budget before."""
    lost = []
    for fewer, more in pairwise(rows):
        for position, pair in enumerate(zip(more.objectives, fewer.objectives, strict=True)):
            if compare_objectives_by_tier(np.array(pair[0]), np.array(pair[1])) < 0:
                lost.append((more.budget, position))
    return lost


def show_budgets(rows: list[BudgetRow]) -> None:
    """Print a line for each budget with a bar of the median gap, and the budgets that gave a worse solution."""
    print(f"{'budget':>7} {'median':>8} {'worst':>8} {'cpu s':>6}")
    widest = max(row.median for row in rows) or 1.0
    for row in rows:
        bar = "#" * round(40 * row.median / widest)
        print(f"{row.budget:7g} {row.median:8.2%} {max(row.gaps):8.2%} {row.cpu:6.2f}  {bar}")
    for budget, position in lost_objectives(rows):
        print(f"A BUDGET OF {budget:g} GIVES A WORSE SOLUTION THAN THE ONE BEFORE, seed number {position}")


def plot_budgets(rows: list[BudgetRow], command: str, path: Path) -> None:
    """Write a page with the gap of each seed, as points, and their median over the budget."""
    budgets = [f"{row.budget:g}" for row in rows]
    data = (
        {
            "type": "scatter",
            "mode": "markers",
            "name": "each seed",
            "x": [name for name, row in zip(budgets, rows, strict=True) for _ in row.gaps],
            "y": [gap for row in rows for gap in row.gaps],
            "marker": {"color": policy_color(1), "size": 7},
            "hovertemplate": "%{y:.3%}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "median",
            "x": budgets,
            "y": [row.median for row in rows],
            "line": {"color": policy_color(0), "width": 3},
            "hovertemplate": "median %{y:.3%}<extra></extra>",
        },
    )
    layout = {
        "xaxis": axis("budget (deterministic units)", type="category"),
        "yaxis": axis("gap to the bound", tickformat=".2%", rangemode="tozero", range=[0, _top(rows)]),
    }
    caption = "Gap to the bound: the line is the median, each point one seed."
    figure = Figure("gap-over-budget", "Gap over budget", caption, data, layout)
    lost = lost_objectives(rows)
    sentence = (
        f"{len(lost)} times, a larger budget gave a worse solution than the budget before."
        if lost
        else "No larger budget gave a worse solution than the budget before."
    )
    document = ReportDocument(
        title="Solver: gap over budget",
        conclusion=Conclusion((sentence,)),
        tables=(),
        facts=(("Command", command),),
        definitions=(),
        legends=(),
        bars=Section("", ()),
        sections=(Section("Budgets", (figure,)),),
    )
    path.write_text(document.render(), encoding="utf-8")


def _top(rows: list[BudgetRow]) -> float:
    return max(SMALLEST_RANGE, 1.05 * max(gap for row in rows for gap in row.gaps))
