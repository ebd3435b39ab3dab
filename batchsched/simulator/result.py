"""The result of a simulated run: gang records, time series, and summary metrics.

Everything is derived from the run's records, without a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from batchsched.api.decision import Refusal

MIN_RUNTIME_SECONDS: Final = 10
"""Minimum run time in seconds in the slowdown, so that very short gangs do not dominate it."""


@dataclass(frozen=True, slots=True)
class GangRecord:
    """The times, the size and the placement of one gang in a simulated run.

    Times are whole seconds since 1970.

    Args:
      key: `namespace/name` of the PodGroup or of the single pod.
      queue: the queue of the gang.
      size: number of pods.
      gpus: the number of GPUs that the gang's pods request together.
      submitted: arrival time.
      started: time at which its minimum was bound, for the last time after restarts; None while pending.
      ended: time at which the gang finished, or None.
      runtime: the run time of the gang in seconds.
      estimate: the expected run time of the gang in seconds, or None.
      placements: (node, number of units) in the order of the decision; a unit is a device if the gang requests
        devices, otherwise a pod.
      restarts: number of times that it was killed and queued again.
      lost: seconds of run time that kills discarded, including those before the simulation.
      evicted: number of its pods that decisions evicted, including pods that had to end with them.
      refusal: why the gang never finished, as `decide` states it for the cluster after the last event; None for a
        finished gang.
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
    refusal: Refusal | None = None

    @property
    def is_finished(self) -> bool:
        """True if the gang has finished."""
        return self.ended is not None

    @property
    def wait_seconds(self) -> int:
        """Seconds from the arrival of the gang to its last start; 0 for a gang that is pending.

        A pending gang never started, or was killed after its last start.
        """
        return 0 if self.started is None else self.started - self.submitted

    @property
    def bounded_slowdown(self) -> float:
        """The bounded slowdown of the gang: max(1, (wait + run time) / max(run time, 10 s)).

        Source: Feitelson et al., Theory and Practice in Parallel Job Scheduling, JSSPP 1997.
        """
        return max(1.0, (self.wait_seconds + self.runtime) / max(self.runtime, MIN_RUNTIME_SECONDS))


@dataclass(frozen=True, slots=True)
class ClusterSeries:
    """The usage of the cluster over time, with a row for each time at which something changed.

    A row holds until the next one.

    Args:
      times: [T] seconds since 1970, ascending.
      used: by resource, [T] requests of bound pods, in base units.
      total: by resource, [T] allocatable amounts of the nodes that are up.
      waiting: [T] number of pending gangs.
      running: [T] number of running gangs.
    """

    times: tuple[int, ...]
    used: Mapping[str, tuple[int, ...]]
    total: Mapping[str, tuple[int, ...]]
    waiting: tuple[int, ...]
    running: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QueueSeries:
    """The usage and the requests of each queue over time, with a row for each change.

    A row is valid until the queue's next row.

    Args:
      resources: names of the R resources.
      times: [S] seconds since 1970, ascending.
      queues: [S] the queue of each row.
      held: [S, R] requests of its bound pods, in base units.
      requested: [S, R] requests of all its pods, bound or pending.
    """

    resources: tuple[str, ...] = ()
    times: tuple[int, ...] = ()
    queues: tuple[str, ...] = ()
    held: tuple[tuple[int, ...], ...] = ()
    requested: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Summary metrics of one simulated run, such as mean wait, slowdown, makespan and utilization.

    Waits and makespan are in seconds; utilization by resource is a fraction of 1. Means and maxima are over finished
    gangs; `unfinished` counts the others. `utilisation` is the used amount ÷ the allocatable amount, both integrated
    over `RunResult.measured_period`.
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
    """The result of simulating one workload under one policy.

    Args:
      workload: name of the workload.
      policy: name of the policy in reports.
      gangs: gang records by arrival.
      series: the run over time.
      sessions: number of sessions.
      mean_gap, worst_gap: gap to the solver's bound over sessions; 0 with a strict order.
      guards: number of sessions that reached the wall-clock limit; such a run may not be reproducible.
      failures: number of node failures.
      queues: usage and demand of queues over time.
      kept_utilisation: the utilization by resource, if the series are left out.
      chosen_policies: the number of sessions under each candidate of the policy `auto`; empty for other policies.
    """

    workload: str
    policy: str
    gangs: tuple[GangRecord, ...]
    series: ClusterSeries
    sessions: int
    mean_gap: float = 0.0
    worst_gap: float = 0.0
    guards: int = 0
    failures: int = 0
    queues: QueueSeries = QueueSeries()
    kept_utilisation: Mapping[str, float] | None = None
    chosen_policies: Mapping[str, int] = field(default_factory=dict)

    @property
    def starts_with_backlog(self) -> bool:
        """True if at least half of the gangs arrive in the first second, so the run begins with a backlog."""
        first = min((gang.submitted for gang in self.gangs), default=0)
        return 2 * sum(gang.submitted == first for gang in self.gangs) >= len(self.gangs)

    @property
    def measured_period(self) -> tuple[int, int]:
        """The first and the last second of the period over which utilization and fairness are averaged.

        While gangs arrive, the period ends with the last arrival: afterwards the cluster drains. A run that starts with
        a backlog has no such time, so its period ends when the last gang ends.
        """
        submitted = [gang.submitted for gang in self.gangs]
        first, last = min(submitted, default=0), max(submitted, default=0)
        if self.starts_with_backlog:
            last = max((gang.ended for gang in self.gangs if gang.ended is not None), default=last)
        return first, last

    def metrics(self) -> RunMetrics:
        """Return the summary metrics of the run."""
        done = [gang for gang in self.gangs if gang.is_finished]
        waits = [gang.wait_seconds for gang in done]
        slowdowns = [gang.bounded_slowdown for gang in done]
        first = min((gang.submitted for gang in self.gangs), default=0)
        last = max((gang.ended for gang in done if gang.ended is not None), default=first)
        return RunMetrics(
            gangs=len(self.gangs),
            unfinished=len(self.gangs) - len(done),
            mean_wait=fmean(waits) if waits else 0.0,
            median_wait=float(median(waits)) if waits else 0.0,
            worst_wait=max(waits, default=0),
            mean_slowdown=fmean(slowdowns) if slowdowns else 0.0,
            worst_slowdown=max(slowdowns, default=0.0),
            makespan=last - first,
            utilisation=self._utilisation(),
        )

    def without_placements_and_series(self) -> "RunResult":
        """Return a copy without placements and time series, which has the same summary metrics."""
        gangs = tuple(replace(gang, placements=()) for gang in self.gangs)
        series = ClusterSeries((), {}, {}, (), ())
        return replace(
            self, gangs=gangs, series=series, queues=QueueSeries(), kept_utilisation=self._utilisation()
        )

    def _utilisation(self) -> Mapping[str, float]:
        if self.kept_utilisation is not None:
            return self.kept_utilisation
        return _utilisation(self.series, *self.measured_period)


def _utilisation(series: ClusterSeries, first: int, last: int) -> dict[str, float]:
    """Return the utilization of each resource from `first` to `last`: used amount ÷ allocatable amount.

    Both amounts are integrated over time.
    """
    times = [min(max(time, first), last) for time in (*series.times, last)]
    spans = [after - before for before, after in pairwise(times)]
    shares = {}
    for resource, used in series.used.items():
        offered = sum(amount * span for amount, span in zip(series.total[resource], spans, strict=False))
        taken = sum(amount * span for amount, span in zip(used, spans, strict=False))
        shares[resource] = taken / offered if offered else 0.0
    return shares
