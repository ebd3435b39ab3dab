"""The results of a simulated run as arrays, from which the figures of a report are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsched.simulator.result import GangRecord, RunMetrics, RunResult

Floats = NDArray[np.float64]

GPUS = "GPUs"
PODS = "pods"


@dataclass(frozen=True, slots=True)
class RunColumns:
    """The results of a simulated run as arrays for figures, indexed by gang [G] or by time [T].

    Args:
      policy: The name of the policy.
      unit: The unit of gang sizes: GPUs, or pods if no gang requests GPUs.
      metrics: The summary of the run.
      gangs: [G] the records.
      units: [G] the size of each gang in `unit`.
      submitted: [G] seconds since the start of the run.
      started: [G] the same; nan if the gang did not start.
      ended: [G] the same; nan if the gang did not end.
      wait: [G] seconds from submission to start; nan if the gang did not start.
      slowdown: [G] bounded slowdown; nan if the gang did not end.
      times: [T] seconds since the start of the run, ascending; each value of the series holds until the next.
      used: [T] for each resource, the fraction in use, 0 to 1.
      busy: For each resource, the mean use over the measured period of the run, 0 to 1.
      waiting: [T] the number of pending gangs.
      end: Seconds until the last event.
    """

    policy: str
    unit: str
    metrics: RunMetrics
    gangs: tuple[GangRecord, ...]
    units: NDArray[np.int64]
    submitted: Floats
    started: Floats
    ended: Floats
    wait: Floats
    slowdown: Floats
    times: Floats
    used: Mapping[str, Floats]
    busy: Mapping[str, float]
    waiting: Floats
    end: float


def build_run_columns(results: Sequence[RunResult]) -> tuple[RunColumns, ...]:
    """Convert the results of simulated runs to arrays, from which the figures of a report are drawn.

    All times are in seconds since the first event of any of the runs.
    """
    unit = GPUS if any(gang.gpus for result in results for gang in result.gangs) else PODS
    starts = [result.series.times[0] for result in results if result.series.times]
    starts += [gang.submitted for result in results for gang in result.gangs]
    return tuple(_columns_of_run(result, unit, min(starts, default=0)) for result in results)


def resources_in_use(runs: Sequence[RunColumns]) -> tuple[str, ...]:
    """Return the resources that gangs used in the runs: GPUs first, all others by descending utilization."""
    shares: dict[str, float] = {}
    for run in runs:
        for resource, share in run.busy.items():
            shares[resource] = max(share, shares.get(resource, 0.0))
    used_at_all = {resource for run in runs for resource, share in run.used.items() if share.any()}
    used_at_all |= {resource for resource, share in shares.items() if share}
    used = [resource for resource in shares if resource in used_at_all and resource != "pods"]
    return tuple(sorted(used, key=lambda name: (not name.endswith("/gpu"), -shares[name], name)))


def short_resource_name(resource: str, *, plural: bool = False) -> str:
    """Return the short name of a resource, such as `GPU` (plural: `GPUs`) for `nvidia.com/gpu`."""
    name = resource.rpartition("/")[2]
    label = {"gpu": "GPU", "cpu": "CPU"}.get(name)
    return f"{label}s" if label and plural else label or name


def time_axis_end(runs: Sequence[RunColumns]) -> float:
    """Return where the time axis of a figure ends, in seconds: shortly after the last gang has started.

    The time after that, in which the last gangs only run, is left out if it is long.
    """
    end = max((run.end for run in runs), default=0.0)
    if any(np.isnan(run.started).any() for run in runs):
        return max(end, 1.0)
    starts = [float(run.started.max()) for run in runs if len(run.started)]
    shown = 1.1 * max(starts, default=end)
    return max(shown if shown < 0.8 * end else end, 1.0)


def _columns_of_run(result: RunResult, unit: str, origin: int) -> RunColumns:
    gangs = result.gangs
    times = np.array(result.series.times, dtype=np.float64) - origin
    submitted = np.array([gang.submitted for gang in gangs], dtype=np.float64) - origin
    started = _moments([gang.started for gang in gangs], origin)
    ended = _moments([gang.ended for gang in gangs], origin)
    used = {name: _shares(amounts, result.series.total[name]) for name, amounts in result.series.used.items()}
    metrics = result.metrics()
    last = np.concatenate((ended[~np.isnan(ended)], times, submitted, [0.0])).max()
    return RunColumns(
        policy=result.policy,
        unit=unit,
        metrics=metrics,
        gangs=gangs,
        units=np.array([gang.gpus if unit == GPUS else gang.size for gang in gangs], dtype=np.int64),
        submitted=submitted,
        started=started,
        ended=ended,
        wait=started - submitted,
        slowdown=np.array(
            [gang.bounded_slowdown if gang.is_finished else np.nan for gang in gangs], dtype=np.float64
        ),
        times=times,
        used=used,
        busy=metrics.utilisation,
        waiting=np.array(result.series.waiting, dtype=np.float64),
        end=float(last),
    )


def _moments(seconds: Sequence[int | None], origin: int) -> Floats:
    return np.array([np.nan if at is None else at - origin for at in seconds], dtype=np.float64)


def _shares(used: Sequence[int], total: Sequence[int]) -> Floats:
    offered = np.array(total, dtype=np.float64)
    return np.array(used, dtype=np.float64) / np.maximum(offered, 1.0)


def time_weighted_mean(times: Floats, values: Floats, end: float) -> float:
    """Return the mean of a step function from its first time to `end`, weighted by time."""
    if len(times) == 0 or end <= times[0]:
        return 0.0
    spans = np.diff(np.append(times, np.inf).clip(max=end))
    return float(spans @ values / spans.sum())
