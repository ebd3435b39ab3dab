"""Victim candidates: the running gangs that may be evicted, the units they are evicted in, and the cost of each unit.

A gang that is disrupted as a whole is one unit. An elastic gang has one unit for each surplus pod, and one for the
pods of its minimum. Gangs that are not preemptible, or have not run for their minimum run time, are no candidates.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from batchsched.api.core.metadata import seconds
from batchsched.api.core.pod import LAST_CHECKPOINT, Pod
from batchsched.framework.status import IntArray
from batchsched.session.preemption.pod_preemption import run_start
from batchsched.session.tables.gang import PodGroupState
from batchsched.session.tables.session_tables import SessionTables
from batchsched.state.queue_usage import counts_against_queue

POD_COST: Final = 1000
"""Cost of the eviction of one pod, before any work is lost."""
NODE_HOUR_COST: Final = 4000
"""Cost of one lost hour of work on a whole node; a smaller pod costs its dominant share of it."""
MAX_LOST_HOURS: Final = 14 * 24.0
"""Hours of lost work beyond which the cost no longer grows."""
MAX_PRIORITY_DOUBLINGS: Final = 10
"""Each priority costs twice as much as the next lower one that runs; at most this number of doublings."""
MINIMUM_COST_FACTOR: Final = 4
"""A pod of the gang's minimum costs this many times as much as a surplus pod."""


@dataclass(frozen=True, slots=True, eq=False)
class EvictionUnit:
    """Pods of one gang that are evicted together.

    Args:
      members: the pods' gang.
      pods: the pods and the index of the node of each.
      cost: cost of the eviction, at least 1.
      ends: True if the gang no longer runs without these pods.
      total: [R] requests of those pods that count against a queue.
    """

    members: PodGroupState
    pods: tuple[tuple[Pod, int], ...]
    cost: int
    ends: bool
    total: IntArray


@dataclass(frozen=True, eq=False)
class VictimCandidate:
    """A running gang that may be evicted.

    Args:
      members: the gang.
      queue: name of its queue.
      priority: the gang's priority.
      started: seconds since 1970 at which the gang began to run.
      make_units: returns the gang's units.
    """

    members: PodGroupState
    queue: str
    priority: int
    started: float
    make_units: Callable[[], tuple[EvictionUnit, ...]]

    @cached_property
    def units(self) -> tuple[EvictionUnit, ...]:
        """The surplus pods, one unit each, and then the minimum, which is evictable only after all surplus."""
        # Computed on demand: most candidates are ruled out by queue and priority before their units matter.
        return self.make_units()


class VictimCandidates:
    """The victim candidates of a session.

    Args:
      tables: the session's tables.
      now: seconds since 1970.
      scheduler_name: scheduler name of the profile.
    """

    def __init__(self, tables: SessionTables, now: float, scheduler_name: str) -> None:
        self._tables = tables
        self._now = now
        self._scheduler_name = scheduler_name
        largest = tables.node_table.allocatable.max(axis=0, initial=0)
        self._weighed = tables.share_resources & (largest > 0)
        self._largest = np.maximum(1, largest)
        self.terminating = [
            unit for _, members in sorted(tables.running.items()) if (unit := self._terminating_unit(members))
        ]
        """One unit of cost 1 for each gang with pods that are being deleted."""

    @cached_property
    def candidates(self) -> list[VictimCandidate]:
        """All candidates, sorted by identity; computed for the first gang that may evict."""
        tables = self._tables
        running = [members for _, members in sorted(tables.running.items()) if self._may_be_evicted(members)]
        priorities = {
            members.identity: tables.classes.gang_priority(members, _bound_pods(members))
            for members in running
        }
        # The rank, not the value: two priorities that are a million apart cost the same as two that are 1 apart.
        ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities.values())))}
        return [
            VictimCandidate(
                members,
                members.queue,
                priorities[members.identity],
                run_start(members),
                partial(
                    self._units,
                    members,
                    2 ** min(ranks[priorities[members.identity]], MAX_PRIORITY_DOUBLINGS),
                ),
            )
            for members in running
        ]

    def list_in_queue(self, queue: str) -> list[VictimCandidate]:
        """Return the candidates of one queue."""
        return self._by_queue.get(queue, [])

    @cached_property
    def _by_queue(self) -> dict[str, list[VictimCandidate]]:
        by_queue: dict[str, list[VictimCandidate]] = {}
        for candidate in self.candidates:
            by_queue.setdefault(candidate.queue, []).append(candidate)
        return by_queue

    def _may_be_evicted(self, members: PodGroupState) -> bool:
        if not any(_stays(pod, node) for pod, node in members.bound.values()):
            return False
        group = members.group
        if group is None:
            return True
        min_runtime = group.spec.min_runtime_seconds
        return group.spec.preemptible and not (
            min_runtime > 0 and self._now - run_start(members) < min_runtime
        )

    def _terminating_unit(self, members: PodGroupState) -> EvictionUnit | None:
        """Return the pods of a gang that are being deleted as one unit, None if there are none."""
        bound = sorted(members.bound.items())
        pods = [(pod, node) for _, (pod, node) in bound if pod.terminating and node >= 0]
        if not pods:
            return None
        return self._unit(members, pods, 0, not any(_stays(pod, node) for _, (pod, node) in bound))

    def _units(self, members: PodGroupState, factor: int) -> tuple[EvictionUnit, ...]:
        """Return the units of a gang: its surplus pods and then its minimum.

        Args:
          members: the gang.
          factor: factor of its priority on the costs.
        """
        staying = [(pod, node) for _, (pod, node) in sorted(members.bound.items()) if _stays(pod, node)]
        surplus = self._surplus(members, [pod for pod, _ in staying])
        # An incomplete gang makes no progress, so that its eviction is nearly free: it goes before any complete gang.
        if not members.count().complete:
            factor = 0
        minimum = [(pod, node) for pod, node in staying if pod.key not in surplus]
        units = [
            self._unit(members, [(pod, node)], factor, False) for pod, node in staying if pod.key in surplus
        ]
        # The minimum comes last: `VictimSelection` bonds it to all units before it, which have to be evicted first.
        units.append(self._unit(members, minimum, MINIMUM_COST_FACTOR * factor, True))
        return tuple(units)

    def _surplus(self, members: PodGroupState, staying: Iterable[Pod]) -> frozenset[str]:
        """Return the keys of the pods without which an elastic gang is still complete, the latest started first."""
        group = members.group
        if group is None or group.spec.disruption_mode != "Elastic":
            return frozenset()
        surplus = set()
        count = members.count()
        for pod in sorted(staying, key=lambda pod: (-seconds(pod.status.start_time, math.inf), pod.key)):
            # A pod of a subGroup at its minimum is no surplus, although a pod after it, of another subGroup, may be.
            count.count(pod, -1)
            if count.complete:
                surplus.add(pod.key)
            else:
                count.count(pod, 1)
        return frozenset(surplus)

    def _unit(
        self, members: PodGroupState, pods: Iterable[tuple[Pod, int]], factor: int, ends: bool
    ) -> EvictionUnit:
        placed = tuple(pods)
        total = np.zeros(len(self._tables.node_table.resources), np.int64)
        for pod, _ in placed:
            # Pods of other schedulers free room on nodes, but no quota of a queue.
            if counts_against_queue(pod, (self._scheduler_name,)):
                total += self._tables.request_vectors(pod)[0]
        cost = sum(self._cost(members, pod) for pod, _ in placed) * factor
        return EvictionUnit(members, placed, max(1, cost), ends, total)

    def _cost(self, members: PodGroupState, pod: Pod) -> int:
        """Return the cost of a pod before priorities: the eviction itself, and the work since the last checkpoint."""
        started = seconds(pod.status.start_time, self._now)
        annotations = [pod.metadata.annotations]
        if members.group is not None:
            annotations.append(members.group.metadata.annotations)
        checkpoints = [seconds((values or {}).get(LAST_CHECKPOINT), -math.inf) for values in annotations]
        lost_hours = min(MAX_LOST_HOURS, max(0.0, self._now - max(started, *checkpoints)) / 3600)
        requests, _ = self._tables.request_vectors(pod)
        # The dominant share of the largest node, of those resources only by which queues are compared.
        share = float((requests / self._largest)[self._weighed].max(initial=0.0))
        return POD_COST + int(NODE_HOUR_COST * lost_hours * min(1.0, share))


def _stays(pod: Pod, node: int) -> bool:
    """Return True for a pod on a known node that is not being deleted."""
    return node >= 0 and not pod.terminating


def _bound_pods(members: PodGroupState) -> list[Pod]:
    return [pod for pod, _ in members.bound.values()]
