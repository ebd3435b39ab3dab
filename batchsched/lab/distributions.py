"""Box plots of wait and bounded slowdown by gang size and by queue, for each policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from batchsched.lab.figure import (
    Figure,
    axis,
    log_duration_axis,
    log_factor_axis,
    policy_color,
    round_significant,
)
from batchsched.lab.run_columns import Floats, RunColumns

_WAITS: Final = "Time from submission to start; waits below 1 s are drawn at 1 s."
_SLOWDOWNS: Final = (
    "Time from submission to end, divided by the run time or 10 s, whichever is longer; 1 is no wait at all."
)
_MARKS: Final = (
    " Box: quartiles and median; whiskers: 5th and 95th percentile; point: the worst gang. "
    "The boxes of a group are in the order of the legend."
)
# The whiskers are at these percentiles; a point marks the maximum.
_FENCES = (5.0, 25.0, 50.0, 75.0, 95.0)


def gang_size_bounds(runs: Sequence[RunColumns]) -> tuple[int, ...]:
    """Return the upper bounds of size ranges for gangs: 1, 2, 4 and so on, up to the largest gang.

    The first bound is 0 if a gang has size 0.
    """
    largest = max((int(run.units.max()) for run in runs if len(run.units)), default=1)
    bounds = [0, 1] if any((run.units == 0).any() for run in runs) else [1]
    while bounds[-1] < largest:
        bounds.append(bounds[-1] * 2)
    return tuple(bounds)


def gang_size_range_name(units: int, bounds: Sequence[int]) -> str:
    """Return the name of the size range to which a gang of this size belongs, such as 1, 2, 3–4 or 5–8."""
    index = next(index for index, bound in enumerate(bounds) if units <= bound)
    lowest = bounds[index - 1] + 1 if index else min(bounds[0], 1)
    return str(bounds[index]) if lowest >= bounds[index] else f"{lowest}–{bounds[index]}"


def box_plots_by_size(runs: Sequence[RunColumns]) -> tuple[Figure, Figure]:
    """Draw box plots of the waits and of the bounded slowdowns of gangs, by gang size."""
    return _figures(runs, _sizes(runs), "size", "gang size")


def box_plots_by_queue(runs: Sequence[RunColumns]) -> tuple[Figure, Figure]:
    """Draw box plots of the waits and of the bounded slowdowns of gangs, by queue."""
    return _figures(runs, _queues(runs), "queue", "queue")


def _figures(runs: Sequence[RunColumns], classes: "_Classes", key: str, label: str) -> tuple[Figure, Figure]:
    wait = Figure(f"wait-by-{key}", f"Wait by {label}", _WAITS, (), {})
    slowdown = Figure(f"slowdown-by-{key}", f"Bounded slowdown by {label}", _SLOWDOWNS, (), {})
    return (
        _with_scale(
            _boxes(runs, lambda run: np.maximum(run.wait, 1.0), classes, wait),
            log_duration_axis,
            "wait (log scale)",
        ),
        _with_scale(
            _boxes(runs, lambda run: run.slowdown, classes, slowdown),
            log_factor_axis,
            "bounded slowdown (log scale)",
        ),
    )


def _with_scale(
    figure: Figure, scale: Callable[[str, Sequence[float]], dict[str, Any]], title: str
) -> Figure:
    """Return the figure with a logarithmic vertical axis that covers all its values."""
    values = [value for box in figure.data for value in (*box["lowerfence"], *(y for (y,) in box["y"]))]
    return replace(figure, layout={**figure.layout, "yaxis": scale(title, values)})


@dataclass(frozen=True, slots=True)
class _Classes:
    """The classes of a box plot: names along the axis, and the class of each gang of a run."""

    title: str
    names: tuple[str, ...]
    of: Callable[[RunColumns], NDArray[np.int64]]


def _sizes(runs: Sequence[RunColumns]) -> _Classes:
    bounds = gang_size_bounds(runs)
    unit = runs[0].unit if runs else "pods"
    return _Classes(
        f"gang size ({unit})",
        tuple(gang_size_range_name(bound, bounds) for bound in bounds),
        lambda run: np.searchsorted(np.asarray(bounds), run.units),
    )


def _queues(runs: Sequence[RunColumns]) -> _Classes:
    names = sorted({gang.queue for run in runs for gang in run.gangs})
    place = {name: index for index, name in enumerate(names)}
    return _Classes(
        "queue",
        tuple(names),
        lambda run: np.array([place[gang.queue] for gang in run.gangs], dtype=np.int64),
    )


def _boxes(
    runs: Sequence[RunColumns], values: Callable[[RunColumns], Floats], classes: _Classes, figure: Figure
) -> Figure:
    """Add a box for each policy and class to a figure."""
    data = [_box(run, index, values(run), classes) for index, run in enumerate(runs)]
    order = [name for name in classes.names if any(name in box["x"] for box in data)]
    layout = {
        "xaxis": axis(classes.title, type="category", categoryorder="array", categoryarray=order),
        "boxmode": "group",
        "boxgap": 0.3,
        "boxgroupgap": 0.15,
    }
    return replace(
        figure,
        caption=figure.caption + _MARKS,
        data=tuple(data),
        layout={**figure.layout, **layout},
        height=420,
    )


def _box(run: RunColumns, index: int, values: Floats, classes: _Classes) -> dict[str, Any]:
    """Summarize each class. The page contains the summary only, without the samples."""
    places = classes.of(run)
    defined = ~np.isnan(values)
    names, rows, worst = [], [], []
    for position, name in enumerate(classes.names):
        class_values = values[defined & (places == position)]
        if len(class_values):
            names.append(name)
            rows.append(round_significant(np.percentile(class_values, _FENCES)))
            worst.append(round_significant([class_values.max()]))
    low, first, middle, third, high = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    )
    return {
        "type": "box",
        "name": run.policy,
        "x": names,
        "lowerfence": low,
        "q1": first,
        "median": middle,
        "q3": third,
        "upperfence": high,
        "y": worst,
        "boxpoints": "all",
        "pointpos": 0,
        "jitter": 0,
        "offsetgroup": str(index),
        "meta": {"policy": run.policy},
        "line": {"color": policy_color(index), "width": 1.5},
        "marker": {"color": policy_color(index), "size": 5, "symbol": index % 8},
    }
