"""Eligibility: which gangs may be evicted, at what cost, and which pending gang may evict which of them.

A protected gang (see `protection`) is evicted only for the guarantee of another queue, and only if no other victims are
enough. A gang with system-critical pods is never evicted for a gang of a lower priority than these pods. A gang evicts
gangs of lower priority in its own queue, and gangs of other queues that use more than their entitlement. Both variants
of preemption, with and without the solver, follow these rules.

A gang that is disrupted as a whole is one eviction unit. An elastic gang has one unit for each elastic pod, and one for
the pods of its minimum.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import LAST_CHECKPOINT, Pod
from batchsched.api.decision import Eviction
from batchsched.api.priority import SYSTEM_CRITICAL_PRIORITY
from batchsched.api.snapshot import Snapshot
from batchsched.framework.preemption import PREEMPT_NEVER, may_preempt
from batchsched.framework.status import IntArray
from batchsched.queues.reclaim_rules import may_reclaim, may_reclaim_all, reclaimer_stays_within_guarantee
from batchsched.queues.sharing.sibling_queues import ReclaimRequest
from batchsched.queues.tree import QueueTree
from batchsched.session.gangs.fair_share_order import QueueUsageAndEntitlements
from batchsched.session.preemption.protection import ProtectedGangs, is_gang_protected, start_of_first_pod
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.gang import EntitlementClass, GangState, PendingGang
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
"""A pod of the gang's minimum costs this many times as much as an elastic pod."""
PREEMPTED: Final = "Preempted"
"""Eviction reason of a victim with a lower priority than the pending gang, as in kube-scheduler's Event."""
RECLAIMED: Final = "Reclaimed"
"""Eviction reason of a victim if the pending gang is of another queue."""
CONSOLIDATED: Final = "Consolidated"
"""Eviction reason of a pod that fits on another node at once."""
RECLAIMING_CLASSES: Final = frozenset({EntitlementClass.GUARANTEE, EntitlementClass.FAIR})
"""Entitlement classes that may reclaim. A borrowing gang may not: the two queues would evict each other in turn."""


def is_too_critical_to_evict(highest_pod_priority: int, priority: int) -> bool:
    """Return True if a gang's highest pod priority is system-critical and above the evicting gang's priority.

    `priority` is the priority of the evicting gang. The priority of the running gang itself is not compared, since its
    PodGroup may lower it.
    """
    return highest_pod_priority >= SYSTEM_CRITICAL_PRIORITY and highest_pod_priority > priority


def list_non_preempting_priority_classes(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the PriorityClasses with preemptionPolicy Never."""
    return frozenset(
        priority_class.metadata.name
        for priority_class in snapshot.priority_classes
        if priority_class.preemption_policy == PREEMPT_NEVER
    )


def reclaim_min_runtime_seconds(tree: QueueTree, queue: str) -> int:
    """Return for how many seconds after their start the gangs of a queue are safe from reclaim.

    It is the maximum of reclaimMinRuntimeSeconds of the queue and its ancestors.
    """
    ancestors = [tree.queues[name] for name in tree.queue_and_ancestors(queue) if name in tree.queues]
    return max((ancestor.spec.reclaim_min_runtime_seconds for ancestor in ancestors), default=0)


def preemption_policy_lets_pod_preempt(gang: PendingGang, pod: Pod, never_preempting: frozenset[str]) -> bool:
    """Return True unless a pod, its PodGroup or its PriorityClass has preemptionPolicy Never.

    The PriorityClass counts only if the pod itself has no preemptionPolicy.
    """
    group = gang.members.group
    never_by_group = group is not None and group.spec.preemption_policy == PREEMPT_NEVER
    return not never_by_group and may_preempt(pod, never_preempting)


def preemption_policy_lets_gang_preempt(gang: PendingGang, never_preempting: frozenset[str]) -> bool:
    """Return True unless the PodGroup, a pod or a pod's PriorityClass has preemptionPolicy Never."""
    return all(
        preemption_policy_lets_pod_preempt(gang, pod, never_preempting)
        for part in gang.parts
        for pod in part.pods
    )


def build_eviction(pod: Pod, members: GangState | None, gang: PendingGang, reason: str) -> Eviction:
    """Return the decision's record of an evicted pod: its gang, the gang for which it is evicted, and the reason."""
    name = members.key.partition("/")[2] if members is not None else pod.name
    return Eviction(namespace=pod.namespace, pod=pod.name, pod_group=name, for_=gang.key, reason=reason)


@dataclass(frozen=True, slots=True, eq=False)
class EvictionUnit:
    """Pods of one running gang that are evicted together, with the cost of their eviction.

    Args:
      members: the pods' gang.
      pods: the pods and the index of the node of each.
      cost: cost of the eviction, at least 1.
      ends: True if the gang no longer runs without these pods.
      total: [R] requests of those pods that count against a queue.
    """

    members: GangState
    pods: tuple[tuple[Pod, int], ...]
    cost: int
    ends: bool
    total: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class ElasticPodChooser:
    """The rule that chooses which elastic pods of a gang are evicted first: lowest `rank`, then youngest.

    Args:
      rank: returns the rank of a pod, given the pod and the index of its node.
      evicted: keys of pods that this session has evicted already; they count for no minimum.
    """

    rank: Callable[[Pod, int], int]
    evicted: Container[str] = ()


YOUNGEST_FIRST: Final = ElasticPodChooser(lambda _pod, _node: 0)


@dataclass(frozen=True, eq=False)
class VictimCandidate:
    """A running gang that may be evicted for a pending gang.

    Args:
      members: the gang.
      queue: name of its queue.
      priority: the gang's priority.
      highest_pod_priority: the highest priority of its pods.
      make_units: returns the gang's eviction units; the `ElasticPodChooser` chooses its elastic pods.
    """

    members: GangState
    queue: str
    priority: int
    highest_pod_priority: int
    make_units: Callable[[ElasticPodChooser], tuple[EvictionUnit, ...]]

    @cached_property
    def first_pod_start(self) -> float:
        """Seconds since 1970 at which the first pod of the gang started, infinity if none has."""
        # Computed on demand: only reclaim compares it.
        return start_of_first_pod(self.members.bound_pods)

    @cached_property
    def eviction_units(self) -> tuple[EvictionUnit, ...]:
        """The eviction units of the gang: each elastic pod by itself, and all other pods together."""
        # Computed on demand: most candidates are ruled out by queue and priority before their units matter.
        return self.make_units(YOUNGEST_FIRST)

    def is_too_critical_to_evict_for(self, gang: PendingGang) -> bool:
        """Return True if a pod of this gang is system-critical and has a higher priority than the pending gang."""
        return is_too_critical_to_evict(self.highest_pod_priority, gang.priority)


class EvictionUnitBuilder:
    """A builder that divides the bound pods of gangs into eviction units (pods evicted together) with costs.

    It refers to no `VictimCandidate`: a reference cycle would keep the tables of a session until a garbage collection.

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

    def terminating_unit(self, members: GangState) -> EvictionUnit | None:
        """Return the terminating pods of a gang as one eviction unit; None if no pod of the gang is terminating."""
        bound = sorted(members.bound.items())
        pods = [(pod, node) for _, (pod, node) in bound if pod.terminating and node >= 0]
        if not pods:
            return None
        return self._unit(members, pods, 0, not any(_stays(pod, node) for _, (pod, node) in bound))

    def build_eviction_units(
        self, members: GangState, factor: int, preference: ElasticPodChooser
    ) -> tuple[EvictionUnit, ...]:
        """Return the eviction units of a gang: one for each elastic pod, then one for all other pods.

        Args:
          members: the gang.
          factor: the factor by which its priority multiplies the costs.
          preference: chooses the elastic pods among its pods.
        """
        staying = [
            (pod, node)
            for _, (pod, node) in sorted(members.bound.items())
            if _stays(pod, node) and pod.key not in preference.evicted
        ]
        surplus = self._surplus(members, staying, preference)
        # An incomplete gang makes no progress, so that its eviction is nearly free: it goes before any complete gang.
        if not members.to_pod_counts().has_minimum_placed:
            factor = 0
        minimum = [(pod, node) for pod, node in staying if pod.key not in surplus]
        units = [
            self._unit(members, [(pod, node)], factor, False) for pod, node in staying if pod.key in surplus
        ]
        # The minimum comes last: `VictimChooser` bonds it to all units before it, which have to be evicted first.
        units.append(self._unit(members, minimum, MINIMUM_COST_FACTOR * factor, True))
        return tuple(units)

    def _surplus(
        self, members: GangState, staying: Iterable[tuple[Pod, int]], preference: ElasticPodChooser
    ) -> frozenset[str]:
        """Return the keys of the pods without which an elastic gang is still complete, the preferred ones first."""
        group = members.group
        if group is None or group.spec.disruption_mode != "Elastic":
            return frozenset()
        surplus = set()
        count = members.to_pod_counts()
        for pod in members.nonterminating_bound_pods:
            if pod.key in preference.evicted:
                count.change_placed_counts(pod, -1)
        ranked = sorted(
            (preference.rank(pod, node), -pod.start_time(unknown=math.inf), pod.key, pod)
            for pod, node in staying
        )
        for *_, pod in ranked:
            # A pod of a subGroup at its minimum is no surplus, although a pod after it, of another subGroup, may be.
            count.change_placed_counts(pod, -1)
            if count.has_minimum_placed and members.are_subgroups_complete_without_pod(pod, count):
                surplus.add(pod.key)
            else:
                count.change_placed_counts(pod, 1)
        return frozenset(surplus)

    def counts_against_queue(self, pod: Pod) -> bool:
        """Return True if a pod counts as usage of its queue; pods of other schedulers do not count."""
        return counts_against_queue(pod, (self._scheduler_name,))

    def _unit(
        self, members: GangState, pods: Iterable[tuple[Pod, int]], factor: int, ends: bool
    ) -> EvictionUnit:
        placed = tuple(pods)
        total = np.zeros(len(self._tables.node_table.resources), np.int64)
        for pod, _ in placed:
            if self.counts_against_queue(pod):
                total += self._tables.request_vector(pod)
        cost = sum(self._cost(members, pod) for pod, _ in placed) * factor
        return EvictionUnit(members, placed, max(1, cost), ends, total)

    def _cost(self, members: GangState, pod: Pod) -> int:
        """Return the cost of a pod before priorities: the eviction itself, and the work since the last checkpoint."""
        started = pod.start_time(unknown=self._now)
        annotations = [pod.metadata.annotations]
        if members.group is not None:
            annotations.append(members.group.metadata.annotations)
        checkpoints = [
            parse_timestamp((values or {}).get(LAST_CHECKPOINT), -math.inf) for values in annotations
        ]
        lost_hours = min(MAX_LOST_HOURS, max(0.0, self._now - max(started, *checkpoints)) / 3600)
        requests = self._tables.request_vector(pod)
        # The dominant share of the largest node, of those resources only by which queues are compared.
        share = float((requests / self._largest)[self._weighed].max(initial=0.0))
        return POD_COST + int(NODE_HOUR_COST * lost_hours * min(1.0, share))


class VictimCandidates:
    """The running gangs of a session that may be evicted, and the pods that are being deleted.

    Args:
      tables: the session's tables.
      now: seconds since 1970.
      scheduler_name: scheduler name of the profile.
    """

    def __init__(self, tables: SessionTables, now: float, scheduler_name: str) -> None:
        self._tables = tables
        self._now = now
        self._units = EvictionUnitBuilder(tables, now, scheduler_name)
        running = sorted(tables.running.items())
        self.terminating = [unit for _, members in running if (unit := self._units.terminating_unit(members))]
        """One unit of cost 1 for each gang with pods that are being deleted."""

    @cached_property
    def unprotected_candidates(self) -> list[VictimCandidate]:
        """The running gangs that may be evicted and are not protected, sorted by the identity of the gang."""
        return self._list_candidates(protected=False)

    @cached_property
    def protected_candidates(self) -> list[VictimCandidate]:
        """The running gangs that are protected from eviction, sorted by the identity of the gang.

        Their eviction costs are those of gangs with the highest priority.
        """
        return self._list_candidates(protected=True)

    def _list_candidates(self, *, protected: bool) -> list[VictimCandidate]:
        tables = self._tables
        running = [
            members
            for _, members in sorted(tables.running.items())
            if is_gang_protected(members, tables.queues, self._now) == protected
            and members.bound.keys().isdisjoint(tables.refused_evictions)
            and any(_stays(pod, node) for pod, node in members.bound.values())
        ]
        table = tables.classes.priorities
        highest = [table.highest_pod_priority(members.bound_pods) for members in running]
        priorities = [
            table.priority_capped_by_pod_group(members.group, highest_pod_priority)
            for members, highest_pod_priority in zip(running, highest, strict=True)
        ]
        # The rank, not the value: two priorities that are a million apart cost the same as two that are 1 apart.
        ranks = {
            priority: MAX_PRIORITY_DOUBLINGS if protected else rank
            for rank, priority in enumerate(sorted(set(priorities)))
        }
        return [
            VictimCandidate(
                members,
                members.queue,
                priority,
                highest_pod_priority,
                partial(
                    self._units.build_eviction_units,
                    members,
                    2 ** min(ranks[priority], MAX_PRIORITY_DOUBLINGS),
                ),
            )
            for members, priority, highest_pod_priority in zip(running, priorities, highest, strict=True)
        ]

    def eviction_reduces_queue_usage(self, candidate: VictimCandidate) -> bool:
        """Return True if the eviction of a running gang would reduce the usage of the gang's queue."""
        return any(
            _stays(pod, node) and self._units.counts_against_queue(pod)
            for pod, node in candidate.members.bound.values()
        )

    def list_unprotected_candidates_in_queue(self, queue: str) -> list[VictimCandidate]:
        """Return the running gangs of one queue that may be evicted and are not protected."""
        return self._by_queue.get(queue, [])

    @cached_property
    def _by_queue(self) -> dict[str, list[VictimCandidate]]:
        by_queue: dict[str, list[VictimCandidate]] = {}
        for candidate in self.unprotected_candidates:
            by_queue.setdefault(candidate.queue, []).append(candidate)
        return by_queue


def _stays(pod: Pod, node: int) -> bool:
    """Return True for a pod on a known node that is not being deleted."""
    return node >= 0 and not pod.terminating


def _amounts_by_gang(units: Iterable[EvictionUnit]) -> dict[tuple[str, str], IntArray]:
    """Return [R] the sum of the units of each gang, by its queue and its identity.

    The surplus and the minimum of one gang are evicted as one workload, so that their amounts add up.
    """
    amounts: dict[tuple[str, str], IntArray] = {}
    for unit in units:
        key = unit.members.queue, unit.members.identity
        amounts[key] = amounts[key] + unit.total if key in amounts else unit.total
    return amounts


class EvictionRules:
    """The component that decides which running gangs a pending gang may evict; it tracks queue usage.

    Args:
      tables: for queues and priority classes.
      queue_usage: usage and entitlements of the queues; None if queues have no entitlements.
      now: seconds since 1970.
      protected: the protected gangs.
      placements: gangs that the session placed after `queue_usage` was measured.
    """

    def __init__(
        self,
        tables: SessionTables,
        queue_usage: QueueUsageAndEntitlements | None,
        now: float,
        protected: ProtectedGangs,
        placements: Iterable[GangPlacement] = (),
    ) -> None:
        self._tables = tables
        self._queue_usage = queue_usage
        self._protected = protected
        self._now = now
        # A copy, since `add_usage` writes to it: the order of gangs still reads the usage as it was measured.
        self._usage = (
            queue_usage.shares.usage.copy() if queue_usage is not None else np.zeros((0, 0), np.int64)
        )
        self._never_preempting = list_non_preempting_priority_classes(tables.snapshot)
        self._reclaim_seconds: dict[str, int] = {}
        """By queue, the result of `_reclaim_min_runtime`."""
        for placement in placements:
            if placement.placed:
                self.add_usage(
                    placement.gang.queue, placement.total_requests(len(tables.node_table.resources))
                )

    def add_usage(self, queue: str, amount: IntArray) -> None:
        """Add an array of requests [R], negative for an eviction, to the usage of a queue and its ancestors."""
        # The usage of a queue that was deleted counts nowhere.
        if self._queue_usage is not None and queue in self._tables.queues:
            shares = self._queue_usage.shares
            self._usage[shares.row_and_ancestors_without_root(shares.own_gangs_row(queue))] += amount
            self._usage[0] += amount  # The rows above do not include the root.

    def record_eviction(self, unit: EvictionUnit) -> None:
        """Subtract the requests of evicted pods from the usage of their queue.

        Pods of a protected gang are also subtracted from the queue's usage by protected gangs.
        """
        self.add_usage(unit.members.queue, -unit.total)
        self._protected.subtract_evicted_usage(unit.members, unit.total)

    def may_preempt_by_policy(self, gang: PendingGang) -> bool:
        """Return True unless the PodGroup, a pod or a PriorityClass of a gang has preemptionPolicy Never."""
        return preemption_policy_lets_gang_preempt(gang, self._never_preempting)

    def entitlement_class_allows_reclaim(self, gang: PendingGang) -> bool:
        """Return True if the entitlement class of a pending gang allows it to evict gangs of other queues."""
        return gang.entitled in RECLAIMING_CLASSES

    def has_run_for_reclaim_min_runtime(self, candidate: VictimCandidate) -> bool:
        """Return True if a running gang has already run for its queue's reclaimMinRuntimeSeconds.

        Other queues may not reclaim from it earlier, and never if its queue does not exist.
        """
        if candidate.queue not in self._tables.queues:
            return False
        return self._now - candidate.first_pod_start >= self._reclaim_min_runtime(candidate.queue)

    def eviction_reason(self, gang: PendingGang, candidate: VictimCandidate) -> str:
        """Return the reason for which a pending gang may evict a running gang; "" if it may not evict it."""
        if candidate.is_too_critical_to_evict_for(gang):
            return ""
        if gang.queue == candidate.queue:
            return PREEMPTED if candidate.priority < gang.priority else ""
        if not self.entitlement_class_allows_reclaim(gang) or not self.has_run_for_reclaim_min_runtime(
            candidate
        ):
            return ""
        return (
            RECLAIMED if any(self._may_reclaim_unit(gang, unit) for unit in candidate.eviction_units) else ""
        )

    def may_override_protection(self, gang: PendingGang, candidate: VictimCandidate) -> bool:
        """Return True if a pending gang may evict a protected gang to get the guarantee of its own queue.

        The pending gang has to be inside the guarantee of its own queue, and the protected gang in another queue.
        """
        return (
            gang.entitled is EntitlementClass.GUARANTEE
            and gang.queue != candidate.queue
            and not candidate.is_too_critical_to_evict_for(gang)
            and self.has_run_for_reclaim_min_runtime(candidate)
            and any(
                self._may_reclaim_unit(gang, unit) and self._may_override_all(gang, [unit])
                for unit in candidate.eviction_units
            )
        )

    def belongs_to_protected_gang(self, unit: EvictionUnit) -> bool:
        """Return True if an eviction unit (pods that are evicted together) belongs to a protected gang."""
        return unit.members.identity in self._protected

    def may_evict_all(self, gang: PendingGang, units: Iterable[EvictionUnit]) -> bool:
        """Return True if a pending gang may evict all of the given eviction units together.

        `eviction_reason` judges each unit by itself. Several units of one queue may each be permitted, and together
        take the queue below its entitlement.
        """
        queue_usage = self._queue_usage
        reclaimed = [unit for unit in units if unit.members.queue != gang.queue and unit.total.any()]
        if queue_usage is None or not reclaimed:
            return True
        shares = queue_usage.shares.with_usage(self._usage)
        victims = [
            (shares.own_gangs_row(queue), amount)
            for (queue, _), amount in _amounts_by_gang(reclaimed).items()
        ]
        reclaimer = shares.own_gangs_row(gang.queue)
        gains = self._gains(queue_usage, gang)
        return self._may_override_all(gang, reclaimed) and may_reclaim_all(
            shares, queue_usage.entitled, queue_usage.policies, reclaimer, gains, victims
        )

    def _may_override_all(self, gang: PendingGang, units: Iterable[EvictionUnit]) -> bool:
        """Return True if no protected gang loses pods that its queue's guarantee covers.

        Each protected gang must still exceed the guarantee of its queue, together with the other protected gangs there,
        when all other units are evicted. The guarantee of the queue itself is compared, not that of an ancestor:
        otherwise the protected gangs of a queue without a guarantee could use up what an ancestor guarantees to others.
        """
        queue_usage = self._queue_usage
        lost_by_gang = _amounts_by_gang(filter(self.belongs_to_protected_gang, units))
        if queue_usage is None or not lost_by_gang:
            return not lost_by_gang
        shares, gains = queue_usage.shares.with_usage(self._usage), self._gains(queue_usage, gang)
        remaining = {queue: self._protected.usage_of_protected_gangs(queue) for queue, _ in lost_by_gang}
        for (queue, _), amount in lost_by_gang.items():
            remaining[queue] = remaining[queue] - amount
        for (queue, _), amount in lost_by_gang.items():
            row = shares.own_gangs_row(queue)
            request = ReclaimRequest(shares.own_gangs_row(gang.queue), row, gains, amount)
            above = (
                remaining[queue] + amount > queue_usage.entitled.guarantee[row]
            ) & request.affected_resources
            if not above.any() or not reclaimer_stays_within_guarantee(shares, queue_usage.entitled, request):
                return False
        return True

    def protected_usage_above_guarantee(self, queue: str, gang: PendingGang) -> Mapping[int, int]:
        """Return how much of each resource a queue's protected gangs use above the queue's guarantee.

        Returns: by index of each resource that the pending gang requests, the amount; negative below the guarantee.
        """
        queue_usage = self._queue_usage
        if queue_usage is None:
            return {}
        above = (
            self._protected.usage_of_protected_gangs(queue)
            - queue_usage.entitled.guarantee[queue_usage.shares.own_gangs_row(queue)]
        )
        return {r: int(above[r]) for r in np.flatnonzero(self._gains(queue_usage, gang)).tolist()}

    def usage_above_entitlement(self, queue: str, gang: PendingGang) -> Mapping[int, int]:
        """Return by how much a queue exceeds its entitlement, for each resource that a pending gang needs.

        This is the usage of the queue above its guarantee if the gang stays inside the guarantee of its own queue, else
        the usage above its fair share.

        Returns: The amount by index of the resource; negative below the entitlement.
        """
        queue_usage = self._queue_usage
        if queue_usage is None:
            return {}
        shares = queue_usage.shares
        reclaimer, row = shares.own_gangs_row(gang.queue), shares.own_gangs_row(queue)
        guarantee, fair = queue_usage.entitled.guarantee, queue_usage.entitled.fair
        gains = self._gains(queue_usage, gang)
        guaranteed = ((self._usage[reclaimer] + gains <= guarantee[reclaimer]) | (gains == 0)).all()
        above = self._usage[row] - (guarantee if guaranteed else fair)[row]
        return {r: int(above[r]) for r in np.flatnonzero(gains).tolist()}

    def _gains(self, queue_usage: QueueUsageAndEntitlements, gang: PendingGang) -> IntArray:
        """Return [R] the requests of the gang that are compared with its entitlement.

        For a gang inside a guarantee these are the resources that are guaranteed to a queue on its way to the root.
        """
        if gang.entitled is not EntitlementClass.GUARANTEE:
            return gang.needs
        rows = queue_usage.shares.row_and_ancestors_without_root(queue_usage.shares.own_gangs_row(gang.queue))
        guaranteed = (queue_usage.entitled.guarantee[rows] > 0).any(axis=0)
        return np.where(guaranteed, gang.needs, 0)

    def _may_reclaim_unit(self, gang: PendingGang, unit: EvictionUnit) -> bool:
        queue_usage = self._queue_usage
        if queue_usage is None or not unit.total.any():
            return False
        shares = queue_usage.shares.with_usage(self._usage)
        reclaimer, victim = shares.own_gangs_row(gang.queue), shares.own_gangs_row(unit.members.queue)
        wish = ReclaimRequest(reclaimer, victim, self._gains(queue_usage, gang), unit.total)
        return may_reclaim(shares, queue_usage.entitled, queue_usage.policies, wish)

    def _reclaim_min_runtime(self, queue: str) -> int:
        """Return the result of `reclaim_min_runtime_seconds`, which is kept for each queue."""
        if queue not in self._reclaim_seconds:
            self._reclaim_seconds[queue] = reclaim_min_runtime_seconds(self._tables.queues, queue)
        return self._reclaim_seconds[queue]
