"""Fair queue sorting of YuniKorn: the queue that uses the smallest part of its guarantee is next."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.max_min import by_resource
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import BoolArray, ReclaimRequest, SiblingQueues, portions


class GuaranteedRatio(FairShare):
    """Fair queue sorting of YuniKorn: share = max_r usage_r / guarantee_r.

    If a queue has no guarantee of a resource, its limit is used instead, or the capacity of the cluster. The queue
    with the smallest present share, without the candidate, is next. The surplus of each resource is divided so that
    usage / guarantee are equal, that is, by size of guarantee; weights have no effect. Only a queue below its
    guarantee reclaims, and only from a queue above its own.

    Invariants: queues that demand more than they have end with equal ratios, or at their ceiling; usage beyond
    guarantees is never reclaimed for usage beyond guarantees.

    Source: Apache YuniKorn, design/preemption and YUNIKORN-2678 for the denominators.
    """

    name = "guaranteed-ratio"

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide each resource by itself, with levels of usage over guarantee."""
        base = _denominator(siblings).astype(np.float64)
        start = np.divide(siblings.floor, base, out=np.zeros(base.shape), where=base > 0)
        return by_resource(siblings, surplus, base, start, self.late(siblings))

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return the share of each queue."""
        parts = portions(siblings.usage, _denominator(siblings), siblings.weighed)
        share: FloatArray = parts.max(axis=1, initial=0.0)
        return share

    @override
    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return the resources that are used beyond the guarantee."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return False: beyond guarantees no queue reclaims."""
        return False


def _denominator(siblings: SiblingQueues) -> IntArray:
    """Return [S, R] the guarantee, or the limit if there is none, or the capacity."""
    most = np.minimum(siblings.limit, siblings.capacity)
    return np.where(siblings.guarantee > 0, siblings.guarantee, most)
