"""Shared surplus: no queue is entitled to a part of the surplus; an order of gangs decides which queue gets it."""

from typing_extensions import override

from batchsched.queues.gang_order.batch import Fcfs
from batchsched.queues.gang_order.policy import FloatArray, IntArray, Policy
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import BoolArray, ReclaimRequest, SiblingQueues


class SharedSurplus(FairShare):
    """One surplus for all siblings, in the order of their gangs.

    The gang orders `sjf`, `saf`, `wfp3`, `f1` and `fcfs` use it as sharing policies. The fair share of each queue is
    all that it can use of the surplus; the parent's share limits the sum.
    The queue of the first gang in the order is next.

    Invariants: guarantees and limits hold; no queue reclaims surplus from a sibling, because no queue is entitled to
    a part of it; a queue below its guarantee still reclaims.
    """

    pooled = True

    def __init__(self, gangs: Policy) -> None:
        self.name = gangs.name
        self.gangs = gangs

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Grant each queue all that it can use of the surplus."""
        from_pool: IntArray = siblings.demand.clip(max=surplus)
        return from_pool

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return the position of each sibling's first gang."""
        return siblings.head

    @override
    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return the resources that are used beyond the guarantee."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return False: surplus is kept by the queue that got it first."""
        return False


class Fifo(SharedSurplus):
    """First come, first served over all PodGroups of the subtree, without blocking.

    A PodGroup that does not fit does not block later ones.

    The fair share of each queue is all that it can use of the surplus; the parent's share limits the sum.

    Invariants: guarantees and limits hold; no queue reclaims surplus from a sibling; of two gangs that both fit, the
    one submitted first starts first.

    Source: `BestEffortFIFO` of Kueue, `fifo` of YuniKorn.
    """

    name = "fifo"

    def __init__(self) -> None:
        super().__init__(Fcfs())
        self.name = "fifo"


class StrictFifo(SharedSurplus):
    """Strict first come, first served: the first PodGroup that does not fit blocks all later ones in the subtree.

    Invariants: no gang starts before a gang of the same subtree that was submitted earlier; otherwise as `fifo`.

    Source: `StrictFIFO` of Kueue.
    """

    name = "strict-fifo"
    strict = True

    def __init__(self) -> None:
        super().__init__(Fcfs())
        self.name = "strict-fifo"
