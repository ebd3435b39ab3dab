"""The measures of a run by name, shared by tables, reports, tuning and comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.crd.validation import nearest
from batchsched.errors import InvalidInput
from batchsched.lab.fairness import Fairness
from batchsched.lab.figure import HOUR, duration
from batchsched.lab.trial import mean_until, resources, trials
from batchsched.simulator.result import RunResult


def _times(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _index(value: float) -> str:
    return f"{value:.3f}"


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure by which policies are compared.

    Args:
      key: The name in results and scenarios.
      title: The name in reports.
      better: "lower" or "higher".
      show: Formats a value or a difference.
    """

    key: str
    title: str
    better: str
    show: Callable[[float], str]


MEASURES: Final = (
    Measure("fairnessError", "Fairness error", "lower", _percent),
    Measure("jain", "Jain's index", "higher", _index),
    Measure("meanWait", "Mean wait", "lower", duration),
    Measure("medianWait", "Median wait", "lower", duration),
    Measure("worstWait", "Worst wait", "lower", duration),
    Measure("meanSlowdown", "Mean bounded slowdown", "lower", _times),
    Measure("worstSlowdown", "Worst bounded slowdown", "lower", _times),
    Measure("utilisation", "Used", "higher", _percent),
    Measure("makespan", "Makespan", "lower", duration),
    Measure("unfinished", "Gangs not finished", "lower", _count),
    Measure("evictions", "Pods evicted", "lower", _count),
    Measure("lostHours", "Hours of work lost", "lower", _count),
    Measure("meanGap", "Mean solver gap", "lower", _percent),
    Measure("worstGap", "Worst solver gap", "lower", _percent),
)
BY_KEY: Final = {one.key: one for one in MEASURES}


def measure_named(key: str, field: str) -> Measure:
    """Return a measure by name.

    Raises:
      InvalidInput: No measure has this name.
    """
    measure = BY_KEY.get(key)
    if measure is None:
        raise InvalidInput(f"there is no measure {key!r}; {nearest(key, list(BY_KEY))}", field=field)
    return measure


def measure_run(result: RunResult, fairness: Fairness) -> dict[str, float]:
    """Return all measures of a run.

    Fairness and utilization are means from the first to the last arrival: after the last arrival the cluster drains.
    """
    (trial,) = trials((result,))
    metrics = trial.metrics
    origin = min((gang.submitted for gang in result.gangs), default=0)
    arrived = float(max((gang.submitted for gang in result.gangs), default=0) - origin)
    times = fairness.times - origin
    used = resources((trial,))
    return {
        "fairnessError": mean_until(times, fairness.error, arrived),
        "jain": mean_until(times, fairness.jain, arrived) if len(times) and arrived > 0 else 1.0,
        "meanWait": metrics.mean_wait,
        "medianWait": metrics.median_wait,
        "worstWait": float(metrics.worst_wait),
        "meanSlowdown": metrics.mean_slowdown,
        "worstSlowdown": metrics.worst_slowdown,
        "utilisation": trial.busy.get(used[0], 0.0) if used else 0.0,
        "makespan": float(metrics.makespan),
        "unfinished": float(metrics.unfinished),
        "evictions": float(sum(gang.evicted for gang in result.gangs)),
        "lostHours": float(np.dot([gang.lost for gang in result.gangs], trial.units)) / HOUR,
        "meanGap": result.mean_gap,
        "worstGap": result.worst_gap,
    }
