"""Figures of utilization, queue length and fairness over time, with a line for each policy."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from batchsched.lab.fairness import QueueShareSeries
from batchsched.lab.figure import (
    SERIES,
    Figure,
    axis,
    line_dash,
    policy_color,
    queue_color,
    queue_pattern,
    round_significant,
    time_axis,
    time_unit,
)
from batchsched.lab.measures import RunOutcome
from batchsched.lab.run_columns import Floats, RunColumns, short_resource_name, time_axis_end

MAX_POINTS: Final = 600
"""Number of points of a line: more cannot be distinguished on a screen."""
MAX_FAIRNESS_POINTS: Final = 300
"""Number of points of a line of fairness, of which a report has two for each queue and policy."""
OTHER_QUEUES: Final = "other queues"
"""The name of all queues together that have no color of their own."""


def mean_per_interval(times: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the mean of a step function over time in each of B intervals (bins).

    Args:
      times: [T] times at which the function changes, ascending.
      values: [T] the value from each time on; it is 0 before the first.
      edges: [B + 1] edges of the bins, ascending.

    Returns:
      [B] the mean in each bin.
    """
    knots = np.union1d(times, edges)
    index = np.searchsorted(times, knots, side="right") - 1
    level = np.where(index < 0, 0.0, values[np.maximum(index, 0)]) if len(values) else np.zeros(len(knots))
    integral = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(knots))))
    area = np.diff(integral[np.searchsorted(knots, edges)])
    return np.asarray(area / np.diff(edges), dtype=np.float64)


def draw_utilisation(runs: Sequence[RunColumns], resource: str) -> Figure:
    """Draw the utilization of a resource over time, one line for each policy."""
    label, several = short_resource_name(resource), short_resource_name(resource, plural=True)
    return _lines(
        runs,
        [run.used.get(resource, np.zeros(len(run.times))) * 100 for run in runs],
        "%{y:.1f}%",
        Figure(
            key=f"utilisation-{html_id(resource)}",
            title=f"{label} utilisation over time",
            caption=f"Share of all {several} that is allocated to running gangs, in percent.",
            data=(),
            layout={"yaxis": axis(f"{several} in use (%)", range=[0, 102])},
        ),
    )


def draw_pending_gang_count(runs: Sequence[RunColumns]) -> Figure:
    """Draw the number of pending gangs over time, one line for each policy."""
    return _lines(
        runs,
        [run.waiting for run in runs],
        "%{y:,.0f} gangs",
        Figure(
            key="queue-length",
            title="Queue length over time",
            caption="Number of gangs that have been submitted and have not started.",
            data=(),
            layout={"yaxis": axis("pending gangs", rangemode="tozero")},
        ),
    )


def html_id(text: str) -> str:
    """Convert a text to a valid HTML id."""
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")


def _lines(runs: Sequence[RunColumns], values: Sequence[Floats], hover: str, figure: Figure) -> Figure:
    """Add a line for each policy to a figure.

    Args:
      runs: The runs.
      values: For each run, a value at each of its times.
      hover: The plotly template of a value with its unit.
      figure: The figure without lines.
    """
    end = max((run.end for run in runs), default=0.0)
    shown = time_axis_end(runs)
    unit = time_unit(shown)
    edges = np.linspace(0.0, shown, MAX_POINTS + 1)
    if shown < end:
        edges = np.concatenate((edges, np.linspace(shown, end, MAX_POINTS // 4)[1:]))
    data = []
    for index, (run, amounts) in enumerate(zip(runs, values, strict=True)):
        covered = edges[edges <= run.end] if run.end > edges[1] else edges[:2]
        means = mean_per_interval(run.times, amounts, covered)
        times = round_significant(covered[:-1] / unit.seconds)
        data.append(_line(run.policy, index, times, round_significant(means), hover))
    layout = {**figure.layout, "xaxis": time_axis(shown), "hovermode": "x unified"}
    if shown >= end:
        return replace(figure, data=tuple(data), layout=layout)
    whole = (0.0, float(f"{end / unit.seconds:.4g}"))
    caption = f"{figure.caption} {shown_period_sentence(shown, end)}"
    return replace(figure, caption=caption, data=tuple(data), layout=layout, whole_range=whole)


def shown_period_sentence(shown: float, end: float) -> str:
    """Return the sentence of a figure's caption that states which part of the run the figure shows."""
    unit = time_unit(shown)
    return (
        f"The first {shown / unit.seconds:,.0f} of {end / unit.seconds:,.0f} {unit.name} are shown; "
        "the last gangs run until the end."
    )


def _line(policy: str, index: int, times: list[float], values: list[float], hover: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": policy,
        "x": times,
        "y": values,
        "meta": {"policy": policy},
        "line": {"color": policy_color(index), "width": 2, "shape": "hv", "dash": line_dash(index)},
        "hovertemplate": f"{hover}<extra>{policy}</extra>",
    }


def draw_fairness_error(policies: Mapping[str, Sequence[RunOutcome]]) -> Figure:
    """Draw the fairness error over time, one line for each policy."""
    figure = Figure(
        "fairness-error",
        "Fairness error over time",
        "The resources that queues miss of their fair shares, in percent of the cluster: Σ max(0, fair share − held). "
        "A fair share is at most what the queue requests.",
        (),
        {"yaxis": axis("fairness error (%)", rangemode="tozero")},
    )
    return _over_time(policies, lambda fairness: fairness.fairness_error_over_time * 100, "%{y:.3g}%", figure)


def draw_jain_index(policies: Mapping[str, Sequence[RunOutcome]]) -> Figure:
    """Draw Jain's index over time, one line for each policy."""
    figure = Figure(
        "jain",
        "Jain's index over time",
        "Jain's fairness index of held ÷ fair share, over the queues that request anything. It is 1 if all queues hold "
        "the same part of their fair share.",
        (),
        {},
    )
    drawn = _over_time(policies, lambda fairness: fairness.jain_index_over_time, "%{y:.3f}", figure)
    # Most values are close to 1; on an axis from 0 the lines would coincide.
    lowest = min((value for line in drawn.data for value in line["y"]), default=0.0)
    scale = axis("Jain's index", range=[max(0.0, math.floor(lowest * 10 - 0.1) / 10), 1.02])
    return replace(drawn, layout={**drawn.layout, "yaxis": scale})


def draw_used_and_fair_shares(
    policy: str, outcome: RunOutcome, span: float, queues: Sequence[str], key: str
) -> Figure:
    """Draw two stacked area plots over time: above, what each queue used; below, the fair shares.

    Args:
      policy: The name of the policy.
      outcome: The run.
      span: The length of the time axis, in seconds.
      queues: The queues with colors, as `queue_legend_names` returns them.
      key: The key of the figure.
    """
    fairness = outcome.fairness
    unit = time_unit(span)
    edges = np.linspace(0.0, span, MAX_FAIRNESS_POINTS + 1)
    data: list[dict[str, Any]] = []
    for index, name in enumerate(queues):
        columns = [
            column
            for column, queue in enumerate(fairness.queues)
            if queue == name or (name == OTHER_QUEUES and queue not in queues)
        ]
        if not columns:
            continue
        for row, values in enumerate((fairness.held, fairness.fair)):
            means = mean_per_interval(_since_start(outcome), values[:, columns].sum(axis=1), edges) * 100
            data.append(_area(name, index, row, edges[:-1] / unit.seconds, means))
    label = short_resource_name(fairness.resource, plural=True)
    layout = {
        "xaxis": time_axis(span, anchor="y2"),
        "yaxis": axis(f"held (% of {label})", range=[0, 102], domain=[0.54, 1.0]),
        "yaxis2": axis("fair share (%)", range=[0, 102], domain=[0.0, 0.46]),
        "hovermode": "x unified",
    }
    return Figure(
        key,
        policy,
        "The upper plot shows what each queue held, the lower plot its fair share at that time. Under a "
        "perfectly fair policy both are equal. A queue can hold less than its share for some time, also less than its "
        "guarantee: a gang starts only as a whole, running gangs keep their resources unless the profile lets queues "
        "reclaim them, and a policy may hold gangs back.",
        tuple(data),
        layout,
        460,
        policy,
    )


def queue_legend_names(sizes: Mapping[str, float]) -> tuple[str, ...]:
    """Return the legend of a figure: the names of the largest queues, then one name for all other queues.

    Args:
      sizes: For each queue, its size in any unit.
    """
    largest = sorted(sizes, key=lambda queue: (-sizes[queue], queue))
    if len(largest) <= SERIES:
        return tuple(sorted(largest))
    return (*sorted(largest[: SERIES - 1]), OTHER_QUEUES)


def arrival_span_seconds(outcome: RunOutcome) -> float:
    """Return the seconds from the first to the last arrival of a gang in a run."""
    submitted = [gang.submitted for gang in outcome.result.gangs]
    return float(max(submitted) - min(submitted)) if submitted else 0.0


def _over_time(
    policies: Mapping[str, Sequence[RunOutcome]],
    values: Callable[[QueueShareSeries], Floats],
    hover: str,
    figure: Figure,
) -> Figure:
    span = max((arrival_span_seconds(run) for runs in policies.values() for run in runs), default=0.0) or 1.0
    times = round_significant(
        np.linspace(0.0, span, MAX_FAIRNESS_POINTS + 1)[:-1] / time_unit(span).seconds, 4
    )
    data = [
        _line(policy, index, times, round_significant(_means(runs, values, span), 4), hover)
        for index, (policy, runs) in enumerate(policies.items())
    ]
    count = max((len(runs) for runs in policies.values()), default=0)
    caption = figure.caption
    if count > 1:
        caption += f" Means over {count} seeds, of each while its gangs arrive."
    layout = {**figure.layout, "xaxis": time_axis(span), "hovermode": "x unified"}
    return replace(figure, caption=caption, data=tuple(data), layout=layout)


def _means(
    outcomes: Sequence[RunOutcome], values: Callable[[QueueShareSeries], Floats], span: float
) -> Floats:
    """Return the mean in each time interval (bin) over those runs in which gangs still arrive then."""
    edges = np.linspace(0.0, span, MAX_FAIRNESS_POINTS + 1)
    rows = np.full((max(1, len(outcomes)), MAX_FAIRNESS_POINTS), np.nan)
    for row, outcome in enumerate(outcomes):
        active = edges[:-1] < max(arrival_span_seconds(outcome), edges[1])
        rows[row, active] = mean_per_interval(_since_start(outcome), values(outcome.fairness), edges)[active]
    defined = ~np.isnan(rows)
    return np.asarray(np.where(defined, rows, 0.0).sum(axis=0) / np.maximum(defined.sum(axis=0), 1))


def _since_start(outcome: RunOutcome) -> Floats:
    origin = min((gang.submitted for gang in outcome.result.gangs), default=0)
    return outcome.fairness.times - origin


def _area(name: str, index: int, row: int, times: Floats, values: Floats) -> dict[str, Any]:
    kind = ("held", "fair share")[row]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "stackgroup": kind,
        "yaxis": ("y", "y2")[row],
        "x": round_significant(times, 4),
        "y": round_significant(values, 4),
        "line": {"color": queue_color(index), "width": 1, "shape": "hv"},
        "fillcolor": queue_color(index),
        "fillpattern": queue_pattern(index),
        "hovertemplate": f"%{{y:.1f}}%<extra>{name}, {kind}</extra>",
    }
