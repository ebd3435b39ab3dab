"""Figures of fairness: the error and Jain's index over time, and the held and fair shares of queues."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from batchsched.lab.fairness import Fairness
from batchsched.lab.figure import Figure, TimeUnit, axis, time_unit
from batchsched.lab.results import Outcome
from batchsched.lab.theme import SERIES, dash, series
from batchsched.lab.timelines import resource_label, slug, step_means
from batchsched.lab.trial import Floats

MAX_POINTS: Final = 300
"""Number of points of a line."""
OTHERS: Final = "other queues"


def error_over_time(policies: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Draw the fairness error over time, one line for each policy."""
    figure = Figure(
        "fairness-error",
        "Fairness error over time",
        "What queues miss of their demand-capped fair share, Σ max(0, fair share − held), in percent of the cluster.",
        (),
        {"yaxis": axis("fairness error (%)", rangemode="tozero")},
    )
    return _over_time(policies, lambda one: one.error * 100, figure)


def jain_over_time(policies: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Draw Jain's index over time, one line for each policy."""
    figure = Figure(
        "jain",
        "Jain's index over time",
        "Of held ÷ fair share over the queues that want anything; 1: all get the same part of what is theirs.",
        (),
        {},
    )
    drawn = _over_time(policies, lambda one: one.jain, figure)
    # Most values are close to 1; on an axis from 0 the lines would coincide.
    lowest = min((value for line in drawn.data for value in line["y"]), default=0.0)
    scale = axis("Jain's index", range=[max(0.0, math.floor(lowest * 10 - 0.1) / 10), 1.02])
    return replace(drawn, layout={**drawn.layout, "yaxis": scale})


def shares(policy: str, outcome: Outcome, span: float, key: str) -> Figure:
    """Draw held shares, and below them fair shares, as stacked areas.

    Args:
      policy: The name of the policy.
      outcome: The run.
      span: The length of the time axis, in seconds.
      key: The key of the figure.
    """
    fairness = outcome.fairness
    unit = time_unit(span)
    edges = np.linspace(0.0, span, MAX_POINTS + 1)
    data: list[dict[str, Any]] = []
    for at, (name, columns) in enumerate(_kept(fairness)):
        for row, values in enumerate((fairness.held, fairness.fair)):
            means = step_means(_since(outcome), values[:, columns].sum(axis=1), edges) * 100
            data.append(_area(name, at, row, edges[:-1] / unit.seconds, means))
    label = resource_label(fairness.resource, plural=True)
    layout = {
        "xaxis": axis(f"time since start ({unit.name})", range=[0, span / unit.seconds], anchor="y2"),
        "yaxis": axis(f"held (% of {label})", range=[0, 102], domain=[0.54, 1.0]),
        "yaxis2": axis("fair share (%)", range=[0, 102], domain=[0.0, 0.46]),
        "hovermode": "x unified",
    }
    return Figure(
        key,
        policy,
        "Above what each queue held, below its demand-capped fair share at that moment; under a perfectly fair policy "
        "the two look alike.",
        tuple(data),
        layout,
        460,
    )


def arrivals_end(outcome: Outcome) -> float:
    """Return the seconds from the first to the last arrival; afterwards the cluster drains."""
    submitted = [gang.submitted for gang in outcome.result.gangs]
    return float(max(submitted) - min(submitted)) if submitted else 0.0


def _over_time(
    policies: Mapping[str, Sequence[Outcome]], values: Callable[[Fairness], Floats], figure: Figure
) -> Figure:
    runs = [one for mine in policies.values() for one in mine]
    span = max((arrivals_end(one) for one in runs), default=0.0) or 1.0
    unit = time_unit(span)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": policy,
            "x": _short(np.linspace(0.0, span, MAX_POINTS + 1)[:-1] / unit.seconds),
            "y": _short(_means(mine, values, span)),
            "line": {"color": series(index), "width": 2, "shape": "hv", "dash": dash(index)},
            "hovertemplate": f"%{{y:.3g}}<extra>{policy}</extra>",
        }
        for index, (policy, mine) in enumerate(policies.items())
    ]
    count = max((len(mine) for mine in policies.values()), default=0)
    caption = figure.caption
    if count > 1:
        caption += f" Means over {count} seeds, of each while its gangs arrive."
    layout = {**figure.layout, "xaxis": _time_axis(unit, span), "hovermode": "x unified"}
    return Figure(figure.key, figure.title, caption, tuple(data), layout, figure.height)


def _means(outcomes: Sequence[Outcome], values: Callable[[Fairness], Floats], span: float) -> Floats:
    """Return the mean in each bin, over the runs with arrivals in this bin."""
    edges = np.linspace(0.0, span, MAX_POINTS + 1)
    rows = np.full((max(1, len(outcomes)), MAX_POINTS), np.nan)
    for row, outcome in enumerate(outcomes):
        active = edges[:-1] < max(arrivals_end(outcome), edges[1])
        rows[row, active] = step_means(_since(outcome), values(outcome.fairness), edges)[active]
    known = ~np.isnan(rows)
    return np.asarray(np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _since(outcome: Outcome) -> Floats:
    origin = min((gang.submitted for gang in outcome.result.gangs), default=0)
    return outcome.fairness.times - origin


def _kept(fairness: Fairness) -> list[tuple[str, list[int]]]:
    """Return the names and columns of the largest queues, and the sum of all other queues as one more."""
    columns = list(range(len(fairness.queues)))
    if len(columns) > SERIES:
        size = fairness.held.mean(axis=0) if len(fairness.held) else np.zeros(len(columns))
        columns = sorted(np.argsort(-size, kind="stable")[: SERIES - 1].tolist())
    kept = [(fairness.queues[at], [at]) for at in columns]
    rest = [at for at in range(len(fairness.queues)) if at not in columns]
    return [*kept, (OTHERS, rest)] if rest else kept


def _area(name: str, index: int, row: int, times: Floats, values: Floats) -> dict[str, Any]:
    kind = ("held", "fair share")[row]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "legendgroup": slug(name),
        "showlegend": row == 0,
        "stackgroup": kind,
        "yaxis": ("y", "y2")[row],
        "x": _short(times),
        "y": _short(values),
        "line": {"color": series(index), "width": 1, "shape": "hv"},
        "hovertemplate": f"%{{y:.1f}}<extra>{name}, {kind}</extra>",
    }


def _time_axis(unit: TimeUnit, span: float) -> dict[str, Any]:
    return axis(f"time since start ({unit.name})", range=[0, span / unit.seconds])


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
