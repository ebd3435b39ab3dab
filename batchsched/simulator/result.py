"""What a simulated run leaves behind: gang by gang, moment by moment, and the figures that sum it up.

Everything here follows from the run's records; nothing reads a clock. `to_json` writes all of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import msgspec

SHORTEST_RUN: Final = 10
"""Seconds below which a run time counts as so many in the slowdown, so that a gang of a second does not decide it."""


@dataclass(frozen=True, slots=True)
class GangRecord:
    """What became of one gang. Times in whole seconds since 1970.

    Args:
      key: `namespace/name` of the PodGroup, or of the pod that is a gang of one.
      queue: the queue it belongs to.
      size: its pods.
      gpus: devices that its pods ask for together.
      submitted: when it arrived.
      started: when its minimum was bound, the last time where it was restarted; None while it waits.
      ended: when it finished; None when it never did.
      runtime: seconds that it needs.
      estimate: seconds that it says it needs; None where it does not say.
      placements: (node, units there) in the order of the decision; a unit is a device where the gang asks for any,
        else a pod.
      restarts: how often it was killed and queued again.
      lost: seconds that it ran in vain before it was killed.
      evicted: its pods that decisions evicted, with those that had to go with them.
    """

    key: str
    queue: str
    size: int
    gpus: int
    submitted: int
    started: int | None
    ended: int | None
    runtime: int
    estimate: int | None
    placements: tuple[tuple[str, int], ...] = ()
    restarts: int = 0
    lost: int = 0
    evicted: int = 0

    @property
    def finished(self) -> bool:
        """True once it has run to its end."""
        return self.ended is not None

    @property
    def wait(self) -> int:
        """Seconds from arrival to the (last) start; of one that never started, 0."""
        return 0 if self.started is None else self.started - self.submitted

    @property
    def slowdown(self) -> float:
        """Bounded slowdown: max(1, (wait + run) / max(run, 10)).

        Source: Feitelson et al., Theory and Practice in Parallel Job Scheduling, JSSPP 1997.
        """
        return max(1.0, (self.wait + self.runtime) / max(self.runtime, SHORTEST_RUN))


@dataclass(frozen=True, slots=True)
class Series:
    """The run over time, a row for each moment at which something happened; a row holds until the next.

    Args:
      times: [T] seconds since 1970, ascending.
      used: by resource, [T] what bound pods request, in base units.
      total: by resource, [T] what the nodes that are up offer.
      waiting: [T] gangs that wait.
      running: [T] gangs that run.
    """

    times: tuple[int, ...]
    used: Mapping[str, tuple[int, ...]]
    total: Mapping[str, tuple[int, ...]]
    waiting: tuple[int, ...]
    running: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QueueSeries:
    """Queues over time: a row for each moment at which a queue's figures changed; it holds until the queue's next.

    Args:
      resources: R names.
      times: [S] seconds since 1970, ascending.
      queues: [S] whose row it is.
      held: [S, R] what its bound pods request, in base units.
      wanted: [S, R] what all its pods request, bound or waiting.
    """

    resources: tuple[str, ...] = ()
    times: tuple[int, ...] = ()
    queues: tuple[str, ...] = ()
    held: tuple[tuple[int, ...], ...] = ()
    wanted: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of a run. Waits and makespan in seconds; utilisation by resource as a fraction of 1.

    Means and worsts are over the gangs that finished; `unfinished` says how many did not. `utilisation` is what was
    used ÷ what was offered, both over the time from the first arrival to the last event.
    """

    gangs: int
    unfinished: int
    mean_wait: float
    median_wait: float
    worst_wait: int
    mean_slowdown: float
    worst_slowdown: float
    makespan: int
    utilisation: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of one workload under one policy.

    Args:
      workload: what was run.
      policy: the policy's name, as it is to be shown.
      gangs: by arrival.
      series: over time.
      sessions: how many times the scheduler was asked.
      mean_gap, worst_gap: distance to the solver's bound, over sessions; 0 where the policy's order is strict.
      guards: sessions that needed the wall-clock guard: such a run may not repeat.
      failures: nodes that failed.
      queues: who held and wanted what, over time.
    """

    workload: str
    policy: str
    gangs: tuple[GangRecord, ...]
    series: Series
    sessions: int
    mean_gap: float = 0.0
    worst_gap: float = 0.0
    guards: int = 0
    failures: int = 0
    queues: QueueSeries = QueueSeries()

    def metrics(self) -> Metrics:
        """Sum the run up."""
        done = [one for one in self.gangs if one.finished]
        waits = sorted(one.wait for one in done)
        slowdowns = [one.slowdown for one in done]
        first = min((one.submitted for one in self.gangs), default=0)
        last = max((one.ended for one in done if one.ended is not None), default=first)
        return Metrics(
            gangs=len(self.gangs),
            unfinished=len(self.gangs) - len(done),
            mean_wait=fmean(waits) if waits else 0.0,
            median_wait=_median(waits),
            worst_wait=max(waits, default=0),
            mean_slowdown=fmean(slowdowns) if slowdowns else 0.0,
            worst_slowdown=max(slowdowns, default=0.0),
            makespan=last - first,
            utilisation=_utilisation(self.series),
        )

    def by_queue(self) -> dict[str, tuple[GangRecord, ...]]:
        """Return the gangs of each queue, queues by name."""
        names = sorted({one.queue for one in self.gangs})
        return {name: tuple(one for one in self.gangs if one.queue == name) for name in names}


def to_json(results: Iterable[RunResult], *, gangs: bool = True) -> bytes:
    """Write runs as JSON: a list of objects with the policy, the figures and, unless left out, gangs and series."""
    written = []
    for run in results:
        told: dict[str, object] = {
            "workload": run.workload,
            "policy": run.policy,
            "metrics": run.metrics(),
            "sessions": run.sessions,
            "meanGap": run.mean_gap,
            "worstGap": run.worst_gap,
            "guards": run.guards,
            "failures": run.failures,
        }
        if gangs:
            told |= {"gangs": run.gangs, "series": run.series, "queues": run.queues}
        written.append(told)
    return msgspec.json.encode(written)


def _median(ascending: list[int]) -> float:
    if not ascending:
        return 0.0
    half = len(ascending) // 2
    return float(ascending[half]) if len(ascending) % 2 else (ascending[half - 1] + ascending[half]) / 2


def _utilisation(series: Series) -> dict[str, float]:
    spans = [after - before for before, after in zip(series.times, series.times[1:], strict=False)]
    shares = {}
    for resource, used in series.used.items():
        offered = sum(amount * span for amount, span in zip(series.total[resource], spans, strict=False))
        taken = sum(amount * span for amount, span in zip(used, spans, strict=False))
        shares[resource] = taken / offered if offered else 0.0
    return shares
