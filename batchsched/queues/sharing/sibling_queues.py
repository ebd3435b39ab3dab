"""What a fairness policy may know: the children of one queue, as arrays, and who would take from whom.

Letters: S siblings, R resources. Amounts are int64 in base units and never compared across resources: `portions`
divides them by what the whole cluster has first.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.queues.gang_order.policy import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

UNLIMITED: Final = np.iinfo(np.int64).max // 4
"""The amount where nothing is set; the same as the solver's, and small enough to be added up."""


@dataclass(frozen=True, slots=True, eq=False)
class SiblingQueues:
    """The children of one queue.

    Args:
      names: S queues.
      weight: [S] float, 0 or more.
      priority: [S] the higher the sooner.
      guarantee: [S, R] the guarantee in effect: scaled to what the parent has.
      floor: [S, R] what each keeps before any surplus is divided: the guarantee as far as it is wanted or not lent.
      ceiling: [S, R] the most that each can use: request, limit and borrowing limit; floor <= ceiling.
      limit: [S, R] the queue's own limit, UNLIMITED where there is none.
      usage: [S, R] what runs in the subtree.
      history: [S, R] float, decayed usage in base units; zeros when nobody keeps it.
      fair: [S, R] the fair share, as `divide` and the floor made it; the floor while the surplus is being divided.
      head: [S] float, the place of each sibling's next gang in the order of gangs of this subtree: 0 is first, inf
        for one that has none.
      lendable: [R] what the parent can reach: its own, and what it may borrow from above.
      capacity: [R] what the cluster has, all nodes together.
      weighed: [R] bool, the resources by which shares are measured; limits and guarantees hold for all.
    """

    names: tuple[str, ...]
    weight: FloatArray
    priority: IntArray
    guarantee: IntArray
    floor: IntArray
    ceiling: IntArray
    limit: IntArray
    usage: IntArray
    history: FloatArray
    fair: IntArray
    head: FloatArray
    lendable: IntArray
    capacity: IntArray
    weighed: BoolArray

    def __len__(self) -> int:
        """The number of siblings."""
        return len(self.names)

    @property
    def demand(self) -> IntArray:
        """[S, R] what each can still use beyond its floor."""
        return self.ceiling - self.floor

    @property
    def borrowed(self) -> IntArray:
        """[S, R] what each uses beyond its guarantee."""
        borrowed: IntArray = np.maximum(0, self.usage - self.guarantee)
        return borrowed


@dataclass(frozen=True, slots=True, eq=False)
class ReclaimRequest:
    """One sibling would take from another: the workloads of the second leave, those of the first start.

    Args:
      reclaimer: index of the sibling that gains.
      victim: index of the sibling that loses.
      gains: [R] what the reclaimer's gang wants.
      loses: [R] what the victim's workload holds.
    """

    reclaimer: int
    victim: int
    gains: IntArray
    loses: IntArray

    @property
    def touched(self) -> BoolArray:
        """[R] the resources of which the reclaimer gains what the victim loses."""
        return (self.gains > 0) & (self.loses > 0)


def repeated(siblings: SiblingQueues, at: int, usage: IntArray, head: FloatArray) -> SiblingQueues:
    """Return one sibling as many: each with a usage [N, R] and a next gang [N] of its own, all else the same."""
    count = len(usage)
    # To copy few rows is cheaper than to broadcast one.
    chosen = np.full(count, at) if count > 1 else slice(at, at + 1)
    return replace(
        siblings,
        names=siblings.names[at : at + 1] * count,
        weight=siblings.weight[chosen],
        priority=siblings.priority[chosen],
        guarantee=siblings.guarantee[chosen],
        floor=siblings.floor[chosen],
        ceiling=siblings.ceiling[chosen],
        limit=siblings.limit[chosen],
        usage=usage,
        history=siblings.history[chosen],
        fair=siblings.fair[chosen],
        head=head,
    )


def portions(amounts: IntArray | FloatArray, capacity: IntArray, weighed: BoolArray) -> FloatArray:
    """[..., R] amounts as parts of the capacity, 0 where a resource is not weighed.

    An amount of a resource that the cluster does not have is infinitely much of it.
    """
    there = capacity > 0
    if there.all():
        return np.where(weighed, amounts / capacity, 0.0)
    parts = np.divide(amounts, capacity, out=np.zeros(np.shape(amounts)), where=there)
    parts = np.where(there | (np.asarray(amounts) <= 0), parts, np.inf)
    return np.where(weighed, parts, 0.0)


def dominant(amounts: IntArray | FloatArray, capacity: IntArray, weighed: BoolArray) -> FloatArray:
    """[...] dominant shares: the largest part of the capacity over all weighed resources."""
    share: FloatArray = portions(amounts, capacity, weighed).max(axis=-1, initial=0.0)
    return share


def sizes(amounts: IntArray, capacity: IntArray, weighed: BoolArray) -> FloatArray:
    """[S] dominant shares, over all resources for those that have nothing of a weighed one: 0 for nothing at all."""
    share = dominant(amounts, capacity, weighed)
    return np.where(share > 0, share, dominant(amounts, capacity, np.ones_like(weighed)))


def per_weight(share: FloatArray, weight: FloatArray) -> FloatArray:
    """Return shares divided by weights; with weight 0 nothing is 0, and anything is infinite."""
    some = weight > 0
    if some.all():
        return share / weight
    return np.where(
        some, np.divide(share, weight, out=np.zeros_like(share), where=some), np.where(share > 0, np.inf, 0.0)
    )
