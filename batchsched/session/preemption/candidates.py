"""Tenants: gangs that run, in the units in which they may leave, and what it costs that they do.

A gang that is disrupted as one is one unit; an elastic one has its surplus pods, one by one, and then its minimum.
Who is not preemptible, or has not run for its minimum, is no tenant: it stays whoever asks.
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
from batchsched.session.preemption.pod_preemption import started
from batchsched.session.tables.gang import PodGroupState
from batchsched.session.tables.session_tables import SessionTables
from batchsched.state.queue_usage import counts_against_queue

POD: Final = 1000
"""What it costs that a pod leaves."""
HOUR: Final = 4000
"""What an hour of work costs that is lost on a whole node; of a smaller pod its dominant share of that."""
LONGEST: Final = 14 * 24.0
"""Hours of work after which more of it costs no more."""
STEPS: Final = 10
"""A priority costs twice as much as the next lower one that runs, so often at most."""
SURPLUS: Final = 4
"""A surplus pod costs so many times less than one of the minimum."""


@dataclass(frozen=True, slots=True, eq=False)
class EvictionUnit:
    """Pods that leave together.

    Args:
      members: their gang.
      pods: with their nodes' numbers.
      cost: what it costs that they leave.
      ends: the gang runs no more once they have left.
      total: [R] what counts against queues of what they hold.
    """

    members: PodGroupState
    pods: tuple[tuple[Pod, int], ...]
    cost: int
    ends: bool
    total: IntArray


@dataclass(frozen=True, eq=False)
class VictimCandidate:
    """A gang that runs and may leave."""

    members: PodGroupState
    queue: str
    priority: int
    started: float
    part: Callable[[], tuple[EvictionUnit, ...]]

    @cached_property
    def units(self) -> tuple[EvictionUnit, ...]:
        """Its surplus pods first, its minimum last, which needs all of them gone; of most tenants nobody asks."""
        return self.part()


class VictimCandidates:
    """All gangs that run, as those who may leave.

    Args:
      tables: the tables.
      now: seconds since 1970.
      scheduler_name: ours.
    """

    def __init__(self, tables: SessionTables, now: float, scheduler_name: str) -> None:
        self._tables = tables
        self._now = now
        self._scheduler_name = scheduler_name
        largest = tables.node_table.allocatable.max(axis=0, initial=0)
        self._weighed = tables.share_resources & (largest > 0)
        self._largest = np.maximum(1, largest)
        self.leaving = [
            self._unit(one, going, 0, not any(self._stands(*there) for there in one.bound.values()))
            for _, one in sorted(tables.running.items())
            if (going := [it for _, it in sorted(one.bound.items()) if it[0].terminating and it[1] >= 0])
        ]
        """What leaves already."""

    @cached_property
    def all(self) -> list[VictimCandidate]:
        """Who may leave; looked at for the first gang that wants it."""
        tables = self._tables
        running = [one for _, one in sorted(tables.running.items()) if self._may_leave(one)]
        priorities = {one.identity: tables.classes.gang_priority(one, _bound(one)) for one in running}
        ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities.values())))}
        return [
            VictimCandidate(
                one,
                one.queue,
                priorities[one.identity],
                started(one),
                partial(self._units, one, 2 ** min(ranks[priorities[one.identity]], STEPS)),
            )
            for one in running
        ]

    def of(self, queue: str) -> list[VictimCandidate]:
        """Those of one queue."""
        return self._by_queue.get(queue, [])

    @cached_property
    def _by_queue(self) -> dict[str, list[VictimCandidate]]:
        found: dict[str, list[VictimCandidate]] = {}
        for tenant in self.all:
            found.setdefault(tenant.queue, []).append(tenant)
        return found

    def _may_leave(self, members: PodGroupState) -> bool:
        if not any(self._stands(pod, node) for pod, node in members.bound.values()):
            return False
        group = members.group
        if group is None:
            return True
        least = group.spec.min_runtime_seconds
        return group.spec.preemptible and not (least > 0 and self._now - started(members) < least)

    def _stands(self, pod: Pod, node: int) -> bool:
        return node >= 0 and not pod.terminating

    def _units(self, members: PodGroupState, factor: int) -> tuple[EvictionUnit, ...]:
        there = [one for _, one in sorted(members.bound.items()) if self._stands(*one)]
        surplus = self._surplus(members, there)
        if not members.count().complete:
            factor = 0  # it cannot go on as it is: better that all of it leaves than somebody else
        minimum = [one for one in there if one[0].key not in surplus]
        units = [self._unit(members, [one], factor, False) for one in there if one[0].key in surplus]
        units.append(self._unit(members, minimum, SURPLUS * factor, True))
        return tuple(units)

    def _surplus(self, members: PodGroupState, there: list[tuple[Pod, int]]) -> dict[str, None]:
        """Name the pods that an elastic gang can do without, those that began last before the others."""
        group = members.group
        found: dict[str, None] = {}
        if group is None or group.spec.disruption_mode != "Elastic":
            return found
        count = members.count()
        latest_first = sorted(
            there, key=lambda one: (-seconds(one[0].status.start_time, math.inf), one[0].key)
        )
        for pod, _ in latest_first:
            count.count(pod, -1)
            if count.complete:
                found[pod.key] = None
            else:
                count.count(pod, 1)
        return found

    def _unit(
        self, members: PodGroupState, pods: Iterable[tuple[Pod, int]], factor: int, ends: bool
    ) -> EvictionUnit:
        placed = tuple(pods)
        total = np.zeros(len(self._tables.node_table.resources), np.int64)
        for pod, _ in placed:
            if counts_against_queue(pod, (self._scheduler_name,)):
                total += self._tables.request_vectors(pod)[0]
        cost = sum(self._cost(members, pod) for pod, _ in placed) * factor
        return EvictionUnit(members, placed, max(1, cost), ends, total)

    def _cost(self, members: PodGroupState, pod: Pod) -> int:
        """A pod's own cost: that it leaves, and the work since its last checkpoint."""
        began = seconds(pod.status.start_time, self._now)
        saved = [pod.metadata.annotations]
        if members.group is not None:
            saved.append(members.group.metadata.annotations)
        points = [seconds((one or {}).get(LAST_CHECKPOINT), -math.inf) for one in saved]
        lost = min(LONGEST, max(0.0, self._now - max(began, *points)) / 3600)
        requests, _ = self._tables.request_vectors(pod)
        share = float((requests / self._largest)[self._weighed].max(initial=0.0))
        return POD + int(HOUR * lost * min(1.0, share))


def _bound(members: PodGroupState) -> list[Pod]:
    return [pod for pod, _ in members.bound.values()]
