"""Simulates a scheduler on a workload in virtual time.

At each time with events, the order is: completions, node failures and repairs, arrivals, then one session, or several
if `RunSettings.window` limits the gangs of a session. Assignments are bound immediately. There is no clock and no
thread: the same workload, scheduler and seed give the same run.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

from batchsched.ports.cluster import SchedulerFactory
from batchsched.simulator.cluster import SimulatedCluster, SimulatedGang
from batchsched.simulator.result import RunResult
from batchsched.simulator.workload import Workload

Progress = Callable[[int, int], None]
"""Receives the progress of a run: the number of finished gangs, and the number of all gangs."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one simulated run: policy name, seed, time between sessions, and gangs per session.

    Args:
      policy: name of the policy in the result.
      seed: seed of every session.
      session_interval: minimum seconds between two sessions; events in between wait for the next session. 0: a session
        at every time with events.
      window: number of gangs that a session considers. If a session starts as many gangs and others are pending,
        another session follows immediately. None: one session at each time.
    """

    policy: str
    seed: int = 0
    session_interval: int = 0
    window: int | None = None


class SimulationEventKind(IntEnum):
    """The kinds of events in a simulation, in the order in which events of the same second are processed."""

    END = 0
    NODE_DOWN = 1
    NODE_UP = 2
    ARRIVAL = 3
    SESSION = 4


@dataclass(frozen=True, slots=True, order=True)
class SimulationEvent:
    """An event at a given time of a simulation, such as the end of a gang or the failure of a node.

    `number` identifies the gang or the outage. `restarts` is the gang's number of restarts when the event was created.
    """

    time: int
    kind: SimulationEventKind
    number: int = 0
    restarts: int = 0


def simulate_workload(
    workload: Workload,
    scheduler: SchedulerFactory,
    settings: RunSettings,
    progress: Progress | None = None,
) -> RunResult:
    """Simulate a workload until every gang has finished, or no further event can occur.

    Args:
      workload: the cluster and the arrivals.
      scheduler: creates a scheduler from the initial state of the cluster.
      settings: settings of the run.
      progress: receives the number of finished gangs.
    """
    return _Run(workload, scheduler, settings, progress).process_all_events()


class _Run:
    """A simulated run in progress: the cluster, the remaining events, and the times of sessions."""

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
        """Earliest time of the next session."""
        self._foreseen: set[int] = set()
        """Seconds for which a session is scheduled already."""
        self._sessions = self._guards = 0
        self._gaps = self._worst_gap = 0.0

    def process_all_events(self) -> RunResult:
        """Simulate the run until no event is left, and return its result."""
        cluster = self._cluster
        self._foresee_everything()
        for now, events in self._moments():
            self._process(now, events)
            self._schedule(now)
            cluster.recorder.record_sample(now, cluster.waiting, cluster.running)
            if self._progress is not None:
                self._progress(cluster.finished, len(cluster.gangs))
        return RunResult(
            workload=self._workload.name,
            policy=self._settings.policy,
            gangs=tuple(gang.to_record() for gang in cluster.gangs),
            series=cluster.recorder.cluster_series(),
            sessions=self._sessions,
            mean_gap=self._gaps / max(1, self._sessions),
            worst_gap=self._worst_gap,
            guards=self._guards,
            failures=cluster.failures,
            queues=cluster.recorder.queue_series(),
        )

    def _foresee_everything(self) -> None:
        for gang in self._cluster.gangs:
            self._foresee(gang.arrival.time, SimulationEventKind.ARRIVAL, gang.number)
        for number, outage in enumerate(self._workload.outages):
            self._foresee(outage.time, SimulationEventKind.NODE_DOWN, number)
            if outage.until is not None:
                self._foresee(outage.until, SimulationEventKind.NODE_UP, number)

    def _foresee(self, time: int, kind: SimulationEventKind, number: int = 0, restarts: int = 0) -> None:
        heapq.heappush(self._events, SimulationEvent(time, kind, number, restarts))

    def _moments(self) -> Iterator[tuple[int, list[SimulationEvent]]]:
        """Yield each second with events, in order, as (second, events).

        A gang that starts and ends within the same second causes that second to be yielded again.
        """
        while self._events:
            now = self._events[0].time
            events = []
            while self._events and self._events[0].time == now:
                events.append(heapq.heappop(self._events))
            yield now, events

    def _process(self, now: int, events: Iterable[SimulationEvent]) -> None:
        cluster = self._cluster
        for event in events:
            match event.kind:
                case SimulationEventKind.END:
                    gang = cluster.gangs[event.number]
                    # A gang that was killed since runs again; its earlier end no longer holds.
                    if gang.restarts == event.restarts:
                        cluster.finish_gang(gang, now)
                case SimulationEventKind.NODE_DOWN:
                    cluster.fail_node(self._workload.outages[event.number].node, now)
                case SimulationEventKind.NODE_UP:
                    cluster.repair_node(self._workload.outages[event.number].node)
                case SimulationEventKind.ARRIVAL:
                    gang = cluster.gangs[event.number]
                    if cluster.add_gang(gang, now):
                        self._will_end(gang, now)
                case SimulationEventKind.SESSION:
                    self._foreseen.discard(now)

    def _will_end(self, gang: SimulatedGang, now: int) -> None:
        end = now + gang.remaining
        self._foresee(end, SimulationEventKind.END, gang.number, gang.restarts)

    def _schedule(self, now: int) -> None:
        """Run a session, or several if one session does not consider all pending gangs."""
        cluster, settings = self._cluster, self._settings
        if not cluster.has_pending_pods:
            return
        if now < self._earliest:
            self._session_at(ceil(self._earliest))
            return
        self._earliest = now + settings.session_interval
        repeat = True
        while repeat and cluster.has_pending_pods:
            decision = cluster.scheduler.decide(float(now), settings.seed)
            self._sessions += 1
            self._gaps += decision.solver.gap
            self._worst_gap = max(self._worst_gap, decision.solver.gap)
            self._guards += decision.solver.guard
            started = cluster.apply_decision(decision, now)
            for gang in started:
                self._will_end(gang, now)
            repeat = settings.window is not None and len(started) >= settings.window
        if decision.evictions:  # the gangs that they make room for are placed after the evictions
            self._session_at(now + 1)
        for held in decision.waiting:
            self._session_at(max(now + 1, ceil(held.deadline)))

    def _session_at(self, time: int) -> None:
        if time not in self._foreseen:
            self._foreseen.add(time)
            self._foresee(time, SimulationEventKind.SESSION)
