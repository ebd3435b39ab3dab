"""Trial: what a report shows of one policy's run, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsched.simulator.result import GangRecord, Metrics, RunResult

Floats = NDArray[np.float64]

GPUS = "GPUs"
PODS = "pods"


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy's run over a workload of G gangs, with T moments.

    Args:
      policy: its name.
      unit: in what gangs are measured: GPUs, or pods where nothing asks for GPUs.
      metrics: the figures that sum it up.
      gangs: the records, G.
      units: size of each gang in `unit`, G.
      submitted: seconds since the start of the run, G.
      started: the same; nan for a gang that never started, G.
      ended: the same; nan for a gang that did not end, G.
      wait: seconds from submission to start, nan for a gang that never started, G.
      slowdown: bounded slowdown, nan for a gang that did not end, G.
      times: seconds since the start from which the series hold, ascending, T.
      used: fraction of each resource that is in use, 0 to 1, T.
      busy: mean of `used` while gangs arrive. Later the last gangs run out, and a mean over all of it says little.
      waiting: gangs in the queue, T.
      end: seconds until the last thing happened.
    """

    policy: str
    unit: str
    metrics: Metrics
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


def trials(results: Sequence[RunResult]) -> tuple[Trial, ...]:
    """Lay runs out for drawing, on one clock that begins with the first thing that happened in any of them."""
    unit = GPUS if any(gang.gpus for result in results for gang in result.gangs) else PODS
    starts = [result.series.times[0] for result in results if result.series.times]
    starts += [gang.submitted for result in results for gang in result.gangs]
    return tuple(_trial(result, unit, min(starts, default=0)) for result in results)


def resources(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return the resources that anything used, GPUs first, then by the share in use."""
    shares: dict[str, float] = {}
    for trial in trials:
        for resource, share in trial.metrics.utilisation.items():
            shares[resource] = max(share, shares.get(resource, 0.0))
    used = [resource for resource, share in shares.items() if share > 0 and resource != "pods"]
    return tuple(sorted(used, key=lambda name: (not name.endswith("/gpu"), -shares[name], name)))


def eventful(trials: Sequence[Trial]) -> float:
    """Return the seconds until when something still starts, and a little more: a long tail would squeeze the rest."""
    end = max((trial.end for trial in trials), default=0.0)
    if any(np.isnan(trial.started).any() for trial in trials):
        return max(end, 1.0)
    starts = [float(trial.started.max()) for trial in trials if len(trial.started)]
    shown = 1.1 * max(starts, default=end)
    return max(shown if shown < 0.8 * end else end, 1.0)


def _trial(result: RunResult, unit: str, origin: int) -> Trial:
    gangs = result.gangs
    times = np.array(result.series.times, dtype=np.float64) - origin
    submitted = np.array([gang.submitted for gang in gangs], dtype=np.float64) - origin
    started = _moments([gang.started for gang in gangs], origin)
    ended = _moments([gang.ended for gang in gangs], origin)
    used = {name: _shares(amounts, result.series.total[name]) for name, amounts in result.series.used.items()}
    arrived = float(submitted.max(initial=0.0))
    last = np.concatenate((ended[~np.isnan(ended)], times, submitted, [0.0])).max()
    return Trial(
        policy=result.policy,
        unit=unit,
        metrics=result.metrics(),
        gangs=gangs,
        units=np.array([gang.gpus if unit == GPUS else gang.size for gang in gangs], dtype=np.int64),
        submitted=submitted,
        started=started,
        ended=ended,
        wait=started - submitted,
        slowdown=np.array([gang.slowdown if gang.finished else np.nan for gang in gangs], dtype=np.float64),
        times=times,
        used=used,
        busy={name: mean_until(times, share, arrived) for name, share in used.items()},
        waiting=np.array(result.series.waiting, dtype=np.float64),
        end=float(last),
    )


def _moments(seconds: Sequence[int | None], origin: int) -> Floats:
    return np.array([np.nan if at is None else at - origin for at in seconds], dtype=np.float64)


def _shares(used: Sequence[int], total: Sequence[int]) -> Floats:
    offered = np.array(total, dtype=np.float64)
    return np.array(used, dtype=np.float64) / np.maximum(offered, 1.0)


def mean_until(times: Floats, values: Floats, end: float) -> float:
    """Return the mean, weighted by time, of a step function from its first time to `end`."""
    if len(times) == 0 or end <= times[0]:
        return 0.0
    spans = np.diff(np.append(times, np.inf).clip(max=end))
    return float(spans @ values / spans.sum())
