"""Claims: from whom a gang may take, by priority inside its queue, or by right between queues."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from batchsched.framework.status import IntArray
from batchsched.queues.reclaim_rules import QueueReclaim, all_permitted, may_reclaim
from batchsched.session.gangs.fair_share_order import QueueStanding
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.preemption.candidates import EvictionUnit, VictimCandidate
from batchsched.session.preemption.pod_preemption import NEVER, PREEMPTED
from batchsched.session.tables.gang import EntitlementClass, PendingGang
from batchsched.session.tables.session_tables import SessionTables

RECLAIMED: Final = "Reclaimed"
"""Why a pod is evicted for a gang of another queue."""
ENTITLED: Final = frozenset({EntitlementClass.GUARANTEE, EntitlementClass.FAIR})
"""Whose gangs take from other queues. One that borrows could lose the room again to whom it took it from."""


class EvictionEligibility:
    """Who may take from whom, while usage moves.

    Args:
      tables: the queues and priority classes.
      standing: what queues have and are entitled to, None where they are entitled to nothing in particular.
      now: seconds since 1970.
      walked: who was placed since `standing` was measured.
    """

    def __init__(
        self,
        tables: SessionTables,
        standing: QueueStanding | None,
        now: float,
        walked: Iterable[GangPlacement] = (),
    ) -> None:
        self._tables = tables
        self._standing = standing
        self._now = now
        self._usage = standing.shares.usage.copy() if standing is not None else np.zeros((0, 0), np.int64)
        self._never = {
            one.metadata.name for one in tables.snapshot.priority_classes if one.preemption_policy == NEVER
        }
        self._patience: dict[str, int] = {}
        for one in walked:
            if one.placed:
                self.count(one.gang.queue, one.total(len(tables.node_table.resources)))

    def count(self, queue: str, amount: IntArray) -> None:
        """Count what a queue's gang gains [R], or with a minus loses."""
        if self._standing is not None:
            shares = self._standing.shares
            self._usage[shares.chain(shares.home(queue))] += amount
            self._usage[0] += amount

    def disturbs(self, gang: PendingGang) -> bool:
        """Whether a gang wants others to leave for it."""
        group = gang.members.group
        if group is not None and group.spec.preemption_policy == NEVER:
            return False
        return not any(
            pod.spec.preemption_policy == NEVER
            or (pod.spec.preemption_policy is None and pod.spec.priority_class_name in self._never)
            for part in gang.parts
            for pod in part.pods
        )

    def reclaims(self, gang: PendingGang) -> bool:
        """Whether a gang may take from other queues at all."""
        return gang.entitled in ENTITLED

    def ripe(self, tenant: VictimCandidate) -> bool:
        """Whether a tenant has run for so long that other queues may take from it."""
        return self._now - tenant.started >= self._reclaim_patience(tenant.queue)

    def reason(self, gang: PendingGang, tenant: VictimCandidate) -> str:
        """Why a tenant may have to leave for a gang, "" when it need not."""
        if gang.queue == tenant.queue:
            return PREEMPTED if tenant.priority < gang.priority else ""
        if not self.reclaims(gang) or not self.ripe(tenant):
            return ""
        return RECLAIMED if any(self._may(gang, unit) for unit in tenant.units) else ""

    def fair(self, gang: PendingGang, units: Iterable[EvictionUnit]) -> bool:
        """Whether the final set of those who leave is fair, in whatever order they go."""
        standing = self._standing
        others = [unit for unit in units if unit.members.queue != gang.queue and unit.total.any()]
        if standing is None or not others:
            return True
        shares = standing.shares.with_usage(self._usage)
        losing: dict[tuple[int, str], IntArray] = {}
        for unit in others:  # surplus and minimum of one gang leave as one workload
            key = shares.home(unit.members.queue), unit.members.identity
            losing[key] = losing.get(key, np.zeros_like(unit.total)) + unit.total
        victims = [(row, loses) for (row, _), loses in losing.items()]
        reclaimer = shares.home(gang.queue)
        gains = self._gains(standing, gang)
        return all_permitted(shares, standing.entitled, standing.policies, reclaimer, gains, victims)

    def above(self, queue: str, gang: PendingGang) -> Mapping[int, int]:
        """By resource that the gang asks for: what the queue holds beyond its guarantee, or fair share."""
        standing = self._standing
        if standing is None:
            return {}
        shares = standing.shares
        mine, row = shares.home(gang.queue), shares.home(queue)
        guarantee, fair = standing.entitled.guarantee, standing.entitled.fair
        gains = self._gains(standing, gang)
        within = ((self._usage[mine] + gains <= guarantee[mine]) | (gains == 0)).all()
        spare = self._usage[row] - (guarantee if within else fair)[row]
        return {r: int(spare[r]) for r in np.flatnonzero(gains).tolist()}

    def _gains(self, standing: QueueStanding, gang: PendingGang) -> IntArray:
        """[R] what a gang gains that counts; inside a guarantee only what is guaranteed."""
        if gang.entitled is not EntitlementClass.GUARANTEE:
            return gang.needs
        rows = standing.shares.chain(standing.shares.home(gang.queue))
        guaranteed = (standing.entitled.guarantee[rows] > 0).any(axis=0)
        return np.where(guaranteed, gang.needs, 0)

    def _may(self, gang: PendingGang, unit: EvictionUnit) -> bool:
        standing = self._standing
        if standing is None or not unit.total.any():
            return False
        shares = standing.shares.with_usage(self._usage)
        mine, theirs = shares.home(gang.queue), shares.home(unit.members.queue)
        wish = QueueReclaim(mine, theirs, self._gains(standing, gang), unit.total)
        return may_reclaim(shares, standing.entitled, standing.policies, wish)

    def _reclaim_patience(self, queue: str) -> int:
        """Seconds before which nobody takes a queue's gangs away: the longest that it, or one above it, states."""
        known = self._patience.get(queue)
        if known is None:
            tree = self._tables.queues
            above = [tree.queues[name] for name in tree.ancestry(queue) if name in tree.queues]
            known = max((one.spec.reclaim_min_runtime_seconds for one in above), default=0)
            self._patience[queue] = known
        return known
