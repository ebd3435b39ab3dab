"""Fair sharing as in Kueue: the queue that borrows the smallest part of the lendable resources is next."""

from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import StrictModel
from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.policy import GuaranteePolicy
from batchsched.queues.sharing.sibling_queues import (
    ReclaimRequest,
    SiblingQueues,
    dominant_shares,
    dominant_shares_with_unweighed_fallback,
    shares_per_weight,
)

FINAL: Final = "LessThanOrEqualToFinalShare"
INITIAL: Final = "LessThanInitialShare"
_THOUSAND: Final = 1000.0


class DominantResourceShareArgs(StrictModel):
    """Arguments of the sharing policy `dominant-share`."""

    strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = Field(
        default=(FINAL, INITIAL),
        min_length=1,
        description="Comparison of the reclaimer's share including its gang: with the victim's share after it lost "
        "its workload, or with the one before. One of them has to hold.",
    )


class DominantResourceShare(GuaranteePolicy):
    """Fair sharing of Kueue by dominant resource share: DRS = max_r 1000 · borrowed_r / lendable_r / weight.

    borrowed_r = max(0, usage_r + candidate_r - guarantee_r). lendable_r is what the parent can use: the guarantees
    that its children lend, and what the parent may borrow. With weight 0, any borrowed amount means an infinite DRS.
    From the root downwards, the queue with the smallest DRS including the candidate is next. The surplus is divided
    so that DRS are equal. For reclaim, the two children of the lowest common ancestor are compared: the DRS of the
    reclaimer with its gang must be <= the DRS of the victim without its workload (LessThanOrEqualToFinalShare), or <
    the present DRS of the victim (LessThanInitialShare).

    Invariants: a queue within its guarantee loses nothing and may always reclaim up to it. The larger of the two
    shares falls with every reclaim, so two queues never evict each other in turn. Kueue also allows equality if the
    victim's workload uses nothing of its dominant resource; batchsched rejects that case.

    Source: Kueue, concepts/fair_sharing and KEP-1714; `dominantResourceShare` of its cache.
    """

    name = "dominant-share"
    Args: ClassVar[type[DominantResourceShareArgs]] = DominantResourceShareArgs

    def __init__(self, args: DominantResourceShareArgs | None = None) -> None:
        self.args = args or DominantResourceShareArgs()

    @override
    def demand_sizes(self, siblings: SiblingQueues, demand: IntArray) -> FloatArray:
        """Return the size of each sibling queue's demand: its dominant share of the lendable resources.

        If nothing of a resource is lent, the capacity is used instead.
        """
        base = np.where(siblings.lendable > 0, siblings.lendable, siblings.capacity)
        return dominant_shares_with_unweighed_fallback(demand, base, siblings.weighed)

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return the dominant resource share that each sibling queue would have with its next gang."""
        return dominant_resource_shares_of_borrowed(siblings, siblings.usage + candidate)

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Compare the dominant resource shares of both queues, and return whether the reclaim is allowed.

        With its gang, the reclaimer must have a smaller share than the victim has at present. If `strategies` lacks
        `LessThanInitialShare`, the share of the reclaimer must also be at most the share of the victim without its
        workload. The victim must use more than its guarantee of a resource that both the gang and the workload request.
        """
        if not (self.exceeded_resources(siblings, claim.victim) & claim.affected_resources).any():
            return False
        after = siblings.usage.copy()
        after[claim.reclaimer] += claim.gains
        after[claim.victim] -= claim.loses
        initial, final = (
            dominant_resource_shares_of_borrowed(siblings, siblings.usage),
            dominant_resource_shares_of_borrowed(siblings, np.maximum(0, after)),
        )
        reclaimer_share = final[claim.reclaimer]
        if reclaimer_share >= initial[claim.victim]:
            return False
        return INITIAL in self.args.strategies or bool(reclaimer_share <= final[claim.victim])


def dominant_resource_shares_of_borrowed(siblings: SiblingQueues, usage: IntArray) -> FloatArray:
    """Return the dominant resource share that each sibling queue has with the given usage, in thousandths.

    Args:
      siblings: the queues.
      usage: [S, R] the usage of each queue, which replaces the usage in `siblings`.
    """
    borrowed = np.maximum(0, usage - siblings.guarantee)
    # As in Kueue, a resource that no queue lends is ignored, except for queues of weight 0.
    lent = siblings.weighed & (siblings.lendable > 0)
    share = shares_per_weight(_THOUSAND * dominant_shares(borrowed, siblings.lendable, lent), siblings.weight)
    return np.where((siblings.weight <= 0) & (borrowed[:, siblings.weighed] > 0).any(axis=1), np.inf, share)
