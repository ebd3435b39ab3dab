"""Eligibility: which gang may evict which, by priority inside its queue and by entitlement from other queues."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from batchsched.framework.status import IntArray
from batchsched.queues.reclaim_rules import QueueReclaim, all_permitted, may_reclaim
from batchsched.session.gangs.fair_share_order import MeasuredQueues
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.preemption.candidates import EvictionUnit, VictimCandidate
from batchsched.session.preemption.pod_preemption import PREEMPT_NEVER, PREEMPTED
from batchsched.session.tables.gang import EntitlementClass, PendingGang
from batchsched.session.tables.session_tables import SessionTables

RECLAIMED: Final = "Reclaimed"
"""Eviction reason of a victim if the pending gang is of another queue."""
RECLAIMING_CLASSES: Final = frozenset({EntitlementClass.GUARANTEE, EntitlementClass.FAIR})
"""Entitlement classes that may reclaim. A borrowing gang may not: the two queues would evict each other in turn."""


class EvictionEligibility:
    """Decides which gang may evict which, and follows the usage of the queues while the session evicts.

    Args:
      tables: for queues and priority classes.
      standing: usage and entitlements of the queues; None if queues have no entitlements.
      now: seconds since 1970.
      placements: gangs that the session placed after `standing` was measured.
    """

    def __init__(
        self,
        tables: SessionTables,
        standing: MeasuredQueues | None,
        now: float,
        placements: Iterable[GangPlacement] = (),
    ) -> None:
        self._tables = tables
        self._standing = standing
        self._now = now
        # A copy, since `add_usage` writes to it: the order of gangs still reads the usage as it was measured.
        self._usage = standing.shares.usage.copy() if standing is not None else np.zeros((0, 0), np.int64)
        self._never_preempting = {
            priority_class.metadata.name
            for priority_class in tables.snapshot.priority_classes
            if priority_class.preemption_policy == PREEMPT_NEVER
        }
        """Names of the PriorityClasses with preemptionPolicy Never."""
        self._reclaim_seconds: dict[str, int] = {}
        """By queue, the result of `_reclaim_min_runtime`."""
        for placement in placements:
            if placement.placed:
                self.add_usage(placement.gang.queue, placement.total(len(tables.node_table.resources)))

    def add_usage(self, queue: str, amount: IntArray) -> None:
        """Add an amount [R], negative for an eviction, to the usage of a queue and of its ancestors."""
        if self._standing is not None:
            shares = self._standing.shares
            self._usage[shares.chain(shares.home(queue))] += amount
            self._usage[0] += amount  # chain() ends below the root

    def may_preempt(self, gang: PendingGang) -> bool:
        """Return True unless the gang, a pod of it or a pod's PriorityClass states preemptionPolicy Never."""
        group = gang.members.group
        if group is not None and group.spec.preemption_policy == PREEMPT_NEVER:
            return False
        return not any(
            pod.spec.preemption_policy == PREEMPT_NEVER
            or (pod.spec.preemption_policy is None and pod.spec.priority_class_name in self._never_preempting)
            for part in gang.parts
            for pod in part.pods
        )

    def may_reclaim(self, gang: PendingGang) -> bool:
        """Return True if the gang may evict gangs of other queues at all."""
        return gang.entitled in RECLAIMING_CLASSES

    def is_reclaimable(self, candidate: VictimCandidate) -> bool:
        """Return True if a candidate has run for its queue's reclaimMinRuntimeSeconds."""
        return self._now - candidate.started >= self._reclaim_min_runtime(candidate.queue)

    def eviction_reason(self, gang: PendingGang, candidate: VictimCandidate) -> str:
        """Return why a gang may evict a candidate, "" if it may not."""
        if gang.queue == candidate.queue:
            return PREEMPTED if candidate.priority < gang.priority else ""
        if not self.may_reclaim(gang) or not self.is_reclaimable(candidate):
            return ""
        return RECLAIMED if any(self._may_reclaim_unit(gang, unit) for unit in candidate.units) else ""

    def is_fair(self, gang: PendingGang, units: Iterable[EvictionUnit]) -> bool:
        """Return True if the gang may evict all these units together, in any order.

        `eviction_reason` judges each unit by itself. Several units of one queue may each be permitted, and together
        take the queue below its entitlement.
        """
        standing = self._standing
        reclaimed = [unit for unit in units if unit.members.queue != gang.queue and unit.total.any()]
        if standing is None or not reclaimed:
            return True
        shares = standing.shares.with_usage(self._usage)
        # The surplus and the minimum of one gang are evicted as one workload, so that their amounts add up.
        lost_by_gang: dict[tuple[int, str], IntArray] = {}
        for unit in reclaimed:
            key = shares.home(unit.members.queue), unit.members.identity
            lost_by_gang[key] = lost_by_gang.get(key, np.zeros_like(unit.total)) + unit.total
        victims = [(row, amount) for (row, _), amount in lost_by_gang.items()]
        reclaimer = shares.home(gang.queue)
        gains = self._gains(standing, gang)
        return all_permitted(shares, standing.entitled, standing.policies, reclaimer, gains, victims)

    def usage_above_entitlement(self, queue: str, gang: PendingGang) -> Mapping[int, int]:
        """Return how far a queue's usage is above what the gang may not reclaim.

        That is the queue's guarantee if the gang stays inside the guarantee of its own queue, else the queue's fair
        share.

        Returns: by index of each resource that the gang requests, the amount; negative below the entitlement.
        """
        standing = self._standing
        if standing is None:
            return {}
        shares = standing.shares
        reclaimer, row = shares.home(gang.queue), shares.home(queue)
        guarantee, fair = standing.entitled.guarantee, standing.entitled.fair
        gains = self._gains(standing, gang)
        guaranteed = ((self._usage[reclaimer] + gains <= guarantee[reclaimer]) | (gains == 0)).all()
        above = self._usage[row] - (guarantee if guaranteed else fair)[row]
        return {r: int(above[r]) for r in np.flatnonzero(gains).tolist()}

    def _gains(self, standing: MeasuredQueues, gang: PendingGang) -> IntArray:
        """Return [R] the requests of the gang that are compared with its entitlement.

        For a gang inside a guarantee these are the resources that are guaranteed to a queue on its way to the root.
        """
        if gang.entitled is not EntitlementClass.GUARANTEE:
            return gang.needs
        rows = standing.shares.chain(standing.shares.home(gang.queue))
        guaranteed = (standing.entitled.guarantee[rows] > 0).any(axis=0)
        return np.where(guaranteed, gang.needs, 0)

    def _may_reclaim_unit(self, gang: PendingGang, unit: EvictionUnit) -> bool:
        standing = self._standing
        if standing is None or not unit.total.any():
            return False
        shares = standing.shares.with_usage(self._usage)
        reclaimer, victim = shares.home(gang.queue), shares.home(unit.members.queue)
        wish = QueueReclaim(reclaimer, victim, self._gains(standing, gang), unit.total)
        return may_reclaim(shares, standing.entitled, standing.policies, wish)

    def _reclaim_min_runtime(self, queue: str) -> int:
        """Return the seconds for which gangs of a queue are safe from reclaim: the maximum over its ancestry."""
        if queue not in self._reclaim_seconds:
            tree = self._tables.queues
            ancestors = [tree.queues[name] for name in tree.ancestry(queue) if name in tree.queues]
            self._reclaim_seconds[queue] = max(
                (ancestor.spec.reclaim_min_runtime_seconds for ancestor in ancestors), default=0
            )
        return self._reclaim_seconds[queue]
