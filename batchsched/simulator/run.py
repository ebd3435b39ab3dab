"""A run: a workload is played against a scheduler in virtual time.

At each moment at which something happens: first all completions, then nodes that fail or come back, then all
arrivals, then one session; what it decides is bound at once. There is no clock and no thread: the same workload,
scheduler and seed give the same run.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import ceil
from typing import Protocol

from batchsched.api.core.metadata import seconds
from batchsched.api.decision import Decision
from batchsched.ports.scheduler import SchedulerFactory
from batchsched.simulator.cluster import SimulatedCluster
from batchsched.simulator.gang_record import GangRun
from batchsched.simulator.result import RunResult
from batchsched.simulator.workload import Workload


class Progress(Protocol):
    """Is told how far a run has come."""

    def __call__(self, done: int, total: int) -> None:
        """Take in how many gangs finished, of how many."""
        ...


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How to run.

    Args:
      policy: the name under which the result is shown.
      seed: handed to every session.
      session_interval: least seconds between two sessions; what happens in between waits for the next. 0: a session
        at every moment at which something happened.
      window: gangs that a session looks at: when it started them all and more wait, it is asked again at once. None:
        one session a moment, whatever it started.
    """

    policy: str
    seed: int = 0
    session_interval: int = 0
    window: int | None = None


class SimulationEventKind(IntEnum):
    """What happens, in the order in which it does within one second."""

    END = 0
    NODE_DOWN = 1
    NODE_UP = 2
    ARRIVAL = 3
    SESSION = 4


@dataclass(frozen=True, slots=True, order=True)
class SimulationEvent:
    """Something that happens at a second; `number` is the gang's or the outage's, `restarts` the gang's so far."""

    at: int
    kind: SimulationEventKind
    number: int = 0
    restarts: int = 0


def run(
    workload: Workload,
    scheduler: SchedulerFactory,
    settings: RunSettings,
    progress: Progress | None = None,
) -> RunResult:
    """Play a workload to its end: until every gang has finished, or nothing can happen any more.

    Args:
      workload: the cluster and what arrives.
      scheduler: makes the scheduler from the cluster as it stands.
      settings: how to run.
      progress: is told how many gangs have finished.
    """
    return _Run(workload, scheduler, settings, progress).play()


class _Run:
    """The state of a run: what is still to happen, and when sessions may be."""

    def __init__(
        self,
        workload: Workload,
        scheduler: SchedulerFactory,
        settings: RunSettings,
        progress: Progress | None,
    ) -> None:
        self._workload = workload
        self._settings = settings
        self._progress = progress
        self._cluster = SimulatedCluster(workload, scheduler)
        self._events: list[SimulationEvent] = []
        self._earliest: float = float("-inf")
        """No session before."""
        self._foreseen: set[int] = set()
        """Seconds for which a session is in the events."""
        self._sessions = self._guards = 0
        self._gaps = self._worst_gap = 0.0

    def play(self) -> RunResult:
        """Go from moment to moment."""
        cluster = self._cluster
        self._foresee_everything()
        for now, happened in self._moments():
            self._happen(now, happened)
            self._schedule(now)
            cluster.meter.sample(now, cluster.waiting, cluster.running)
            cluster.ledger.sample(now)
            if self._progress is not None:
                self._progress(cluster.finished, len(cluster.lives))
        return RunResult(
            workload=self._workload.name,
            policy=self._settings.policy,
            gangs=tuple(life.record() for life in cluster.lives),
            series=cluster.meter.series(),
            sessions=self._sessions,
            mean_gap=self._gaps / max(1, self._sessions),
            worst_gap=self._worst_gap,
            guards=self._guards,
            failures=cluster.failures,
            queues=cluster.ledger.series(),
        )

    def _foresee_everything(self) -> None:
        for life in self._cluster.lives:
            self._foresee(SimulationEvent(life.arrival.at, SimulationEventKind.ARRIVAL, life.number))
        for number, outage in enumerate(self._workload.outages):
            self._foresee(SimulationEvent(outage.at, SimulationEventKind.NODE_DOWN, number))
            if outage.until is not None:
                self._foresee(SimulationEvent(outage.until, SimulationEventKind.NODE_UP, number))

    def _foresee(self, event: SimulationEvent) -> None:
        heapq.heappush(self._events, event)

    def _moments(self) -> Iterator[tuple[int, list[SimulationEvent]]]:
        """Everything that happens in one second, second by second.

        What a session starts may end in the same second: then that second comes again.
        """
        while self._events:
            now = self._events[0].at
            happened = []
            while self._events and self._events[0].at == now:
                happened.append(heapq.heappop(self._events))
            yield now, happened

    def _happen(self, now: int, happened: Iterable[SimulationEvent]) -> None:
        cluster = self._cluster
        nodes_moved = False
        for event in happened:
            if event.kind is SimulationEventKind.END:
                life = cluster.lives[event.number]
                if life.restarts == event.restarts:
                    cluster.end(life, now)
            elif event.kind is SimulationEventKind.ARRIVAL:
                if nodes_moved:
                    cluster.lay_out()
                    nodes_moved = False
                life = cluster.lives[event.number]
                if cluster.arrive(life, now):
                    self._will_end(life, now)
            elif event.kind is SimulationEventKind.SESSION:
                self._foreseen.discard(now)
            else:
                nodes_moved = True
                self._move_node(event)
        if nodes_moved:
            cluster.lay_out()

    def _move_node(self, event: SimulationEvent) -> None:
        node = self._workload.outages[event.number].node
        if event.kind is SimulationEventKind.NODE_DOWN:
            self._cluster.fail(node, event.at)
        else:
            self._cluster.repair(node)

    def _will_end(self, life: GangRun, now: int) -> None:
        self._foresee(
            SimulationEvent(now + life.arrival.runtime, SimulationEventKind.END, life.number, life.restarts)
        )

    def _schedule(self, now: int) -> None:
        """Ask for a session, or for several where one does not look at all that wait."""
        cluster, settings = self._cluster, self._settings
        if not cluster.anybody_waits:
            return
        if now < self._earliest:
            self._session_at(ceil(self._earliest))
            return
        self._earliest = now + settings.session_interval
        again = True
        while again and cluster.anybody_waits:
            decision = cluster.scheduler.decide(float(now), settings.seed)
            self._account(decision)
            started = cluster.bind(decision, now)
            for life in started:
                self._will_end(life, now)
            again = settings.window is not None and len(started) >= settings.window
        if decision.evictions:  # whoever they left for binds when they have
            self._session_at(now + 1)
        for one in decision.waiting:
            self._session_at(max(now + 1, ceil(seconds(one.until))))

    def _session_at(self, at: int) -> None:
        if at not in self._foreseen:
            self._foreseen.add(at)
            self._foresee(SimulationEvent(at, SimulationEventKind.SESSION))

    def _account(self, decision: Decision) -> None:
        self._sessions += 1
        self._gaps += decision.solver.gap
        self._worst_gap = max(self._worst_gap, decision.solver.gap)
        self._guards += decision.solver.guard
