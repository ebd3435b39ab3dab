"""YuniKorn's fair sorting: who has the smallest part of its guarantee."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.max_min import by_resource
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import BoolArray, ReclaimRequest, SiblingQueues, portions


class GuaranteedRatio(FairShare):
    """YuniKorn's fair queue sorting: share = max_r usage_r / guarantee_r.

    Where a queue has no guarantee of a resource, its limit stands in, or the cluster's capacity. Who is next: the
    smallest share as it stands, the candidate left out. The surplus of each resource is divided so that usage /
    guarantee are equal, so by size of guarantee; weights count for nothing. Reclaim: only a queue under its guarantee
    takes, only from one over its own.

    Invariants: queues that want more than they have end with equal ratios, or at their ceiling; beyond guarantees
    nobody reclaims anything.

    Source: Apache YuniKorn, design/preemption and YUNIKORN-2678 for the denominators.
    """

    name = "guaranteed-ratio"

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Fill every resource by itself, levels being usage over guarantee."""
        base = _denominator(siblings).astype(np.float64)
        start = np.divide(siblings.floor, base, out=np.zeros(base.shape), where=base > 0)
        return by_resource(siblings, surplus, base, start, self.late(siblings))

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Order by share."""
        parts = portions(siblings.usage, _denominator(siblings), siblings.weighed)
        share: FloatArray = parts.max(axis=1, initial=0.0)
        return share

    @override
    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """What is beyond the guarantee."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Never beyond a guarantee."""
        return False


def _denominator(siblings: SiblingQueues) -> IntArray:
    """[S, R] guarantee, else the limit, else the capacity."""
    most = np.minimum(siblings.limit, siblings.capacity)
    return np.where(siblings.guarantee > 0, siblings.guarantee, most)
