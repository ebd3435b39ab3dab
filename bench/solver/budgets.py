"""The gap over the budget: a table, a plot, and whether a larger budget ever lost anything."""

import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from plotly import graph_objects

from batchsched.solver.objective import compare_tier_values


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """The results with one budget: the gap and the objectives by tier of each seed, and the median of CPU seconds."""

    budget: float
    gaps: list[float]
    objectives: list[list[float]]
    cpu: float

    @property
    def median(self) -> float:
        return statistics.median(self.gaps)


def lost_objectives(rows: list[BudgetRow]) -> list[tuple[float, int]]:
    """Return the budgets, with the position of the seed, that gave a worse solution than the budget before."""
    lost = []
    for fewer, more in pairwise(rows):
        for position, pair in enumerate(zip(more.objectives, fewer.objectives, strict=True)):
            if compare_tier_values(np.array(pair[0]), np.array(pair[1])) < 0:
                lost.append((more.budget, position))
    return lost


def show_budgets(rows: list[BudgetRow]) -> None:
    """Print a line per budget, with a bar of the median gap, and the budgets that lost something."""
    print(f"{'budget':>7} {'median':>8} {'worst':>8} {'cpu s':>6}")
    widest = max(row.median for row in rows) or 1.0
    for row in rows:
        bar = "#" * round(40 * row.median / widest)
        print(f"{row.budget:7g} {row.median:8.2%} {max(row.gaps):8.2%} {row.cpu:6.2f}  {bar}")
    for budget, position in lost_objectives(rows):
        print(f"A BUDGET OF {budget:g} GIVES A WORSE SOLUTION THAN THE ONE BEFORE, seed number {position}")


def plot_budgets(rows: list[BudgetRow], seeds: list[int], path: Path) -> None:
    """Write a page with the gap of each seed and their median over the budget."""
    budgets = [row.budget for row in rows]
    figure = graph_objects.Figure()
    for position, seed in enumerate(seeds):
        gaps = [row.gaps[position] for row in rows]
        figure.add_scatter(x=budgets, y=gaps, name=f"seed {seed}", opacity=0.4, mode="lines+markers")
    figure.add_scatter(x=budgets, y=[row.median for row in rows], name="median", line={"width": 4})
    figure.update_xaxes(type="log", title="budget (deterministic units)", tickvals=budgets)
    figure.update_yaxes(tickformat=".1%", title="gap to the bound", rangemode="tozero")
    figure.write_html(path)
