"""Utilisation and queue length over time, one line per policy."""

from collections.abc import Sequence

import numpy as np

from batchsched.lab.figure import Figure, axis, duration, time_unit
from batchsched.lab.theme import dash, series
from batchsched.lab.trial import Floats, Trial, eventful

MAX_POINTS = 600
"""Number of points of a line: more cannot be distinguished on a screen."""


def step_means(times: Floats, values: Floats, edges: Floats) -> Floats:
    """Average a step function over bins, weighted by time.

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


def utilisation(trials: Sequence[Trial], resource: str) -> Figure:
    """Draw the utilization of a resource over time."""
    label, several = resource_label(resource), resource_label(resource, plural=True)
    return _lines(
        trials,
        [trial.used.get(resource, np.zeros(len(trial.times))) * 100 for trial in trials],
        Figure(
            key=f"utilisation-{slug(resource)}",
            title=f"{label} utilisation over time",
            caption=f"Share of all {several} that is allocated to running gangs, in percent.",
            data=(),
            layout={"yaxis": axis(f"{several} in use (%)", range=[0, 102])},
        ),
    )


def queue_length(trials: Sequence[Trial]) -> Figure:
    """Draw the number of pending gangs over time."""
    return _lines(
        trials,
        [trial.waiting for trial in trials],
        Figure(
            key="queue-length",
            title="Queue length over time",
            caption="Gangs that have been submitted and have not started.",
            data=(),
            layout={"yaxis": axis("gangs waiting", rangemode="tozero")},
        ),
    )


def resource_label(resource: str, *, plural: bool = False) -> str:
    """Return the short name of a resource: GPU or GPUs for nvidia.com/gpu."""
    name = resource.rpartition("/")[2]
    known = {"gpu": "GPU", "cpu": "CPU"}.get(name)
    return f"{known}s" if known and plural else known or name


def slug(text: str) -> str:
    """Return a name that is valid in an HTML id."""
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")


def _lines(trials: Sequence[Trial], values: Sequence[Floats], figure: Figure) -> Figure:
    """Add a line for each policy to a figure."""
    end = max((trial.end for trial in trials), default=0.0)
    shown = eventful(trials)
    unit = time_unit(shown)
    edges = np.linspace(0.0, shown, MAX_POINTS + 1)
    if shown < end:
        edges = np.concatenate((edges, np.linspace(shown, end, MAX_POINTS // 4)[1:]))
    data = []
    for index, (trial, line) in enumerate(zip(trials, values, strict=True)):
        mine = edges[edges <= trial.end] if trial.end > edges[1] else edges[:2]
        means = step_means(trial.times, line, mine)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": trial.policy,
                "x": _short(mine[:-1] / unit.seconds),
                "y": _short(means),
                "line": {"color": series(index), "width": 2, "shape": "hv", "dash": dash(index)},
                "hovertemplate": f"%{{y:.1f}}<extra>{trial.policy}</extra>",
            }
        )
    layout = {
        "xaxis": axis(f"time since start ({unit.name})", range=[0, shown / unit.seconds]),
        "hovermode": "x unified",
    }
    caption = figure.caption
    if shown < end:
        caption += f" The last gangs run until {duration(end)}: double-click to see all."
    return Figure(figure.key, figure.title, caption, tuple(data), {**figure.layout, **layout}, figure.height)


def _short(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
