"""The protocol of fairness policies, and the answers that most of them share.

A policy answers for the children of one queue: how a surplus is divided, who is next, and who holds more than it is
entitled to. What holds whatever the policy is not asked of it: `entitlements` and `reclaim` keep to guarantees,
limits, lending and borrowing by themselves.
"""

from typing import Protocol

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, IntArray, Policy
from batchsched.queues.sharing.sibling_queues import (
    BoolArray,
    ReclaimRequest,
    SiblingQueues,
    dominant,
    per_weight,
    sizes,
)
from batchsched.queues.sharing.water_filling import fill, whole

_LEAST = 1e-15


class FairnessPolicy(Protocol):
    """How siblings share. `Args` (a pydantic model) is optional, as is a constructor that takes one.

    Attributes:
      name: under which it is registered.
      strict: the first gang that does not fit holds back all behind it in the subtree.
      pooled: the surplus is one pool: what `divide` grants may come to more than the surplus, and only the parent's
        own share bounds the siblings together.
      remembers: it looks at decayed usage, which is kept only for policies that do.
      gangs: the order of the PodGroups in these queues; None leaves it to the profile.
    """

    name: str
    strict: bool
    pooled: bool
    remembers: bool
    gangs: Policy | None

    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Return [S, R] what each gets of a surplus [R] beyond its floor: 0 <= part <= siblings.demand.

        It is asked only where there is not enough for all.
        """
        ...

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return [S] who is next, the smallest first, were each given its `candidate` [S, R]; ties go to `head`.

        A key of several parts is [S, K], the first part first. Each row follows from that row of the siblings only:
        the same sibling has the same key among whatever others it stands.
        """
        ...

    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return [R] of which resources a sibling holds more than it is entitled to keep."""
        ...

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Tell whether one sibling may take from another; `reclaim` has seen to guarantees already."""
        ...


class FairShare:
    """What most policies do: divide along the demand, compare what was borrowed, reclaim up to the fair share."""

    name = ""
    strict = False
    pooled = False
    remembers = False
    gangs: Policy | None = None

    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Fill by weight; what only queues of weight 0 want is theirs in equal parts."""
        # What there is none of is nobody's to have, and makes no demand larger.
        demand = np.where(surplus > 0, siblings.demand, 0)
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        size, start = self.sizes(siblings, demand), self.start(siblings)
        given = np.zeros_like(demand)
        for part, weight in _by_weight(self.weights(siblings)):
            left = np.maximum(0, surplus - given.sum(axis=0))
            pace = weight[part] / np.maximum(size[part], _LEAST)
            real = fill(demand[part], left, pace, start[part])
            given[part] = whole(real, demand[part], left, self.late(siblings)[part])
        return given

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Who has borrowed least by weight: max_r (usage + candidate - guarantee)_r / capacity_r / weight."""
        borrowed = np.maximum(0, siblings.usage + candidate - siblings.guarantee)
        return per_weight(dominant(borrowed, siblings.capacity, siblings.weighed), siblings.weight)

    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """What is beyond the fair share."""
        above: BoolArray = siblings.usage[sibling] > siblings.fair[sibling]
        return above

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """The reclaimer stays within its fair share; the victim is above its own in what changes hands."""
        after = siblings.usage[claim.reclaimer] + claim.gains
        within = (after <= siblings.fair[claim.reclaimer]) | (claim.gains == 0)
        return bool(within.all() and (self.above(siblings, claim.victim) & claim.touched).any())

    def weights(self, siblings: SiblingQueues) -> FloatArray:
        """[S] weights by which the surplus is divided."""
        return siblings.weight

    def sizes(self, siblings: SiblingQueues, demand: IntArray) -> FloatArray:
        """[S] how large each sibling's demand [S, R] is in terms of what is to be equal."""
        return sizes(demand, siblings.capacity, siblings.weighed)

    def start(self, siblings: SiblingQueues) -> FloatArray:
        """[S] the level at which each begins to get anything."""
        return np.zeros(len(siblings))

    def late(self, siblings: SiblingQueues) -> FloatArray:
        """[S] who gets the last whole unit among equals: whoever used least so far."""
        return per_weight(dominant(siblings.history, siblings.capacity, siblings.weighed), siblings.weight)


def _by_weight(weight: FloatArray) -> list[tuple[IntArray, FloatArray]]:
    """Those with a weight, then those without: members, and weights for all S."""
    some, none = np.flatnonzero(weight > 0), np.flatnonzero(weight <= 0)
    parts = [(some, weight)] if len(some) else []
    return [*parts, (none, np.ones(len(weight)))] if len(none) else parts
