"""Queues that share one pool: no sibling is entitled to a part of the surplus, an order of gangs decides."""

from typing_extensions import override

from batchsched.queues.gang_order.batch import Fcfs
from batchsched.queues.gang_order.policy import FloatArray, IntArray, Policy
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import BoolArray, ReclaimRequest, SiblingQueues


class SharedSurplus(FairShare):
    """One pool for all siblings, in the order of their gangs: what `sjf`, `saf`, `wfp3`, `f1` and `fcfs` do for queues.

    Every queue's fair share is all that it can use of the surplus; together they are bounded by the parent's alone.
    Who is next: the queue whose gang is first in the order.

    Invariants: guarantees and limits hold as ever; nobody reclaims surplus from a sibling, for nobody is entitled
    to a part of it; a guarantee is still won back.
    """

    pooled = True

    def __init__(self, gangs: Policy) -> None:
        self.name = gangs.name
        self.gangs = gangs

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Grant each what it can use of the pool."""
        from_pool: IntArray = siblings.demand.clip(max=surplus)
        return from_pool

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Order by the siblings' first gangs."""
        return siblings.head

    @override
    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """What is beyond the guarantee."""
        above: BoolArray = siblings.usage[sibling] > siblings.guarantee[sibling]
        return above

    @override
    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Never: who came first keeps it."""
        return False


class Fifo(SharedSurplus):
    """First come, first served over all PodGroups of the subtree; later ones pass one that does not fit.

    Every queue's fair share is all that it can use of the surplus; together they are bounded by the parent's alone.

    Invariants: as every pool: guarantees and limits hold; nobody reclaims surplus from a sibling; between gangs
    that both fit, the one submitted first starts first.

    Source: `BestEffortFIFO` of Kueue, `fifo` of YuniKorn.
    """

    name = "fifo"

    def __init__(self) -> None:
        super().__init__(Fcfs())
        self.name = "fifo"


class StrictFifo(SharedSurplus):
    """First come, first served, strictly: the first PodGroup that does not fit holds back all behind it in the subtree.

    Invariants: no gang starts before one of the same subtree that was submitted earlier; otherwise as `fifo`.

    Source: `StrictFIFO` of Kueue.
    """

    name = "strict-fifo"
    strict = True

    def __init__(self) -> None:
        super().__init__(Fcfs())
        self.name = "strict-fifo"
