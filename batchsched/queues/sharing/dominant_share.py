"""Kueue's fair sharing: who has borrowed least of what can be lent."""

from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.crd.base import SpecPart
from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import (
    BoolArray,
    ReclaimRequest,
    SiblingQueues,
    dominant,
    per_weight,
    sizes,
)

FINAL: Final = "LessThanOrEqualToFinalShare"
INITIAL: Final = "LessThanInitialShare"
_THOUSAND: Final = 1000.0


class DominantShareArgs(SpecPart):
    """Arguments of `dominant-share`."""

    strategies: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = Field(
        default=(FINAL, INITIAL),
        min_length=1,
        description="How the reclaimer's share with its gang is compared: with the victim's after it lost "
        "its workload, or with the one before. One of them has to hold.",
    )


class DominantShare(FairShare):
    """Kueue's dominant resource share: DRS = max_r 1000 · borrowed_r / lendable_r / weight.

    borrowed_r = max(0, usage_r + candidate_r - guarantee_r); lendable_r is what the parent can reach: the guarantees
    that its children lend, and what it may itself borrow from above. Weight 0 and anything borrowed is infinite.
    Who is next: the smallest DRS with the candidate, from the root down. The surplus is divided so that DRS are equal.
    Reclaim, compared between the two children of the lowest common ancestor: DRS of the reclaimer with its gang <=
    DRS of the victim without its workload (LessThanOrEqualToFinalShare), or < the victim's DRS as it stands
    (LessThanInitialShare).

    Invariants: a queue within its guarantee loses nothing and, within it, always wins. The larger of the two
    shares falls with every reclaim, so that no two queues evict each other in turn; Kueue allows equality when the
    victim's workload holds nothing of its dominant resource, here that is refused.

    Source: Kueue, concepts/fair_sharing and KEP-1714; `dominantResourceShare` of its cache.
    """

    name = "dominant-share"
    Args: ClassVar[type[DominantShareArgs]] = DominantShareArgs

    def __init__(self, args: DominantShareArgs | None = None) -> None:
        self.args = args or DominantShareArgs()

    @override
    def sizes(self, siblings: SiblingQueues, demand: IntArray) -> FloatArray:
        """Parts of what can be lent, or of the capacity where nothing can."""
        base = np.where(siblings.lendable > 0, siblings.lendable, siblings.capacity)
        return sizes(demand, base, siblings.weighed)

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """DRS with the candidate."""
        return shares_of(siblings, siblings.usage + candidate)

    @override
    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """What is borrowed: beyond the guarantee nothing is promised."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Compare DRS as the strategies say."""
        if not (self.above(siblings, claim.victim) & claim.touched).any():
            return False
        after = siblings.usage.copy()
        after[claim.reclaimer] += claim.gains
        after[claim.victim] -= claim.loses
        initial, final = shares_of(siblings, siblings.usage), shares_of(siblings, np.maximum(0, after))
        mine = final[claim.reclaimer]
        if mine >= initial[claim.victim]:
            return False
        return INITIAL in self.args.strategies or bool(mine <= final[claim.victim])


def shares_of(siblings: SiblingQueues, usage: IntArray) -> FloatArray:
    """[S] dominant resource shares, in thousandths, were this the usage [S, R]."""
    borrowed = np.maximum(0, usage - siblings.guarantee)
    # As in Kueue, a resource of which nobody lends anything is passed over, but for queues of weight 0.
    lent = siblings.weighed & (siblings.lendable > 0)
    share = per_weight(_THOUSAND * dominant(borrowed, siblings.lendable, lent), siblings.weight)
    return np.where((siblings.weight <= 0) & (borrowed[:, siblings.weighed] > 0).any(axis=1), np.inf, share)
