"""Wait and bounded slowdown by gang size, as boxes per policy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchsched.lab.figure import Figure, axis, clock_axis
from batchsched.lab.theme import series
from batchsched.lab.trial import Floats, Trial

# The whiskers stand at these percentiles; a point marks the worst.
_FENCES = (5.0, 25.0, 50.0, 75.0, 95.0)


def size_bounds(trials: Sequence[Trial]) -> tuple[int, ...]:
    """Return upper bounds of size classes: powers of two up to the largest gang, before them 0 where there is one."""
    largest = max((int(trial.units.max()) for trial in trials if len(trial.units)), default=1)
    bounds = [0, 1] if any((trial.units == 0).any() for trial in trials) else [1]
    while bounds[-1] < largest:
        bounds.append(bounds[-1] * 2)
    return tuple(bounds)


def size_class(units: int, bounds: Sequence[int]) -> str:
    """Name the class of a gang's size: 1, 2, 3–4, 5–8 and so on."""
    at = next(index for index, bound in enumerate(bounds) if units <= bound)
    lowest = bounds[at - 1] + 1 if at else min(bounds[0], 1)
    return str(bounds[at]) if lowest >= bounds[at] else f"{lowest}–{bounds[at]}"


def wait_by_size(trials: Sequence[Trial]) -> Figure:
    """Draw how long gangs of each size waited."""
    return _boxes(
        trials,
        lambda trial: np.maximum(trial.wait, 1.0),
        "Wait by gang size",
        "Time from submission to start; waits below 1 s are drawn at 1 s.",
        clock_axis("wait (log scale)"),
        "wait",
    )


def slowdown_by_size(trials: Sequence[Trial]) -> Figure:
    """Draw the bounded slowdown of gangs of each size."""
    return _boxes(
        trials,
        lambda trial: trial.slowdown,
        "Bounded slowdown by gang size",
        "Time from submission to end, divided by the run time or 10 s, whichever is longer; 1 is no wait at all.",
        axis("bounded slowdown (×, log scale)", type="log", dtick=1),
        "slowdown",
    )


def _boxes(
    trials: Sequence[Trial],
    values: Callable[[Trial], Floats],
    title: str,
    caption: str,
    y_axis: dict[str, Any],
    key: str,
) -> Figure:
    bounds = size_bounds(trials)
    unit = trials[0].unit if trials else "pods"
    data = [_box(trial, index, values(trial), bounds) for index, trial in enumerate(trials)]
    order = {
        size_class(bound, bounds): None
        for bound in bounds
        if any(size_class(bound, bounds) in box["x"] for box in data)
    }
    layout = {
        "xaxis": axis(
            f"gang size ({unit})", type="category", categoryorder="array", categoryarray=list(order)
        ),
        "yaxis": y_axis,
        "boxmode": "group",
        "boxgap": 0.3,
        "boxgroupgap": 0.15,
    }
    marks = " Box: quartiles and median; whiskers: 5th and 95th percentile; point: the worst gang."
    return Figure(f"{key}-by-size", title, caption + marks, tuple(data), layout, 420)


def _box(trial: Trial, index: int, values: Floats, bounds: Sequence[int]) -> dict[str, Any]:
    """Summarise each size class; the samples stay out of the page."""
    edges = np.searchsorted(np.asarray(bounds), trial.units)
    known = ~np.isnan(values)
    sizes, rows, worst = [], [], []
    for at, bound in enumerate(bounds):
        mine = values[known & (edges == at)]
        if len(mine):
            sizes.append(size_class(bound, bounds))
            rows.append([float(f"{value:.5g}") for value in np.percentile(mine, _FENCES)])
            worst.append([float(f"{mine.max():.5g}")])
    low, first, middle, third, high = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    )
    return {
        "type": "box",
        "name": trial.policy,
        "x": sizes,
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
        "line": {"color": series(index), "width": 1.5},
        "marker": {"color": series(index), "size": 5, "symbol": index % 8},
    }
