"""The protocol of sharing policies, and the behaviour that most of them share.

A policy answers three questions for the children of one queue: how a surplus is divided, which queue is next, and
which resources a queue holds above its entitlement. Guarantees, limits, lending and borrowing hold under every
policy; `entitlements` and `reclaim_rules` enforce them.
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
from batchsched.queues.sharing.water_filling import fill_to_common_level, round_to_units

_LEAST = 1e-15


class FairnessPolicy(Protocol):
    """A sharing policy. The pydantic model `Args` and a constructor that takes one are optional.

    Attributes:
      name: registered name.
      strict: the first gang that does not fit blocks all gangs behind it in the subtree.
      pooled: the surplus is shared: the parts that `divide` returns may sum up to more than the surplus, and only the
        parent's share limits the siblings together.
      remembers: the policy reads decayed usage, which is recorded only for such policies.
      gangs: the order of the PodGroups in these queues; None uses the order of the profile.
    """

    name: str
    strict: bool
    pooled: bool
    remembers: bool
    gangs: Policy | None

    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Return [S, R] the part of a surplus [R] for each sibling beyond its floor: 0 <= part <= siblings.demand.

        It is called only if the surplus does not satisfy every demand.
        """
        ...

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return [S] keys, given a `candidate` [S, R] for each sibling.

        The sibling with the smallest key is next; ties are broken by `head`. A key of several parts is [S, K], most
        significant first. Each row must depend only on the same row of the siblings: the key of a queue does not
        depend on which other queues are passed.
        """
        ...

    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return [R] bool: the resources of which a sibling uses more than its entitlement."""
        ...

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return whether one sibling may reclaim from another. The caller has already checked the guarantees."""
        ...


class FairShare:
    """Base of most policies: divides along the demand, compares borrowed amounts, reclaims up to the fair share."""

    name = ""
    strict = False
    pooled = False
    remembers = False
    gangs: Policy | None = None

    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide by weight with water-filling; demand of queues with weight 0 is served last, in equal parts."""
        # A resource without surplus must not enlarge the dominant share of a demand.
        demand = np.where(surplus > 0, siblings.demand, 0)
        if (demand.sum(axis=0) <= surplus).all():
            return demand
        size, start = self.sizes(siblings, demand), self.start(siblings)
        parts = np.zeros_like(demand)
        for part, weight in _by_weight(self.weights(siblings)):
            remaining = np.maximum(0, surplus - parts.sum(axis=0))
            pace = weight[part] / np.maximum(size[part], _LEAST)
            real = fill_to_common_level(demand[part], remaining, pace, start[part])
            parts[part] = round_to_units(real, demand[part], remaining, self.late(siblings)[part])
        return parts

    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return borrowed amounts by weight: max_r (usage + candidate - guarantee)_r / capacity_r / weight."""
        borrowed = np.maximum(0, siblings.usage + candidate - siblings.guarantee)
        return per_weight(dominant(borrowed, siblings.capacity, siblings.weighed), siblings.weight)

    def above(self, siblings: SiblingQueues, sibling: int) -> BoolArray:
        """Return the resources that are used beyond the fair share."""
        above: BoolArray = siblings.usage[sibling] > siblings.fair[sibling]
        return above

    def may_reclaim(self, siblings: SiblingQueues, claim: ReclaimRequest) -> bool:
        """Return whether the reclaimer stays within its fair share and the victim exceeds its own."""
        after = siblings.usage[claim.reclaimer] + claim.gains
        within = (after <= siblings.fair[claim.reclaimer]) | (claim.gains == 0)
        return bool(within.all() and (self.above(siblings, claim.victim) & claim.touched).any())

    def weights(self, siblings: SiblingQueues) -> FloatArray:
        """Return [S] the weights for dividing the surplus."""
        return siblings.weight

    def sizes(self, siblings: SiblingQueues, demand: IntArray) -> FloatArray:
        """Return [S] the size of each demand [S, R] in the quantity that the policy equalises."""
        return sizes(demand, siblings.capacity, siblings.weighed)

    def start(self, siblings: SiblingQueues) -> FloatArray:
        """Return [S] the level at which each sibling begins to get surplus."""
        return np.zeros(len(siblings))

    def late(self, siblings: SiblingQueues) -> FloatArray:
        """Return [S] the rank for the last whole unit among equals: the smallest usage comes first."""
        return per_weight(dominant(siblings.history, siblings.capacity, siblings.weighed), siblings.weight)


def _by_weight(weight: FloatArray) -> list[tuple[IntArray, FloatArray]]:
    """Yield the siblings with a weight, then those without: member indices, and weights for all S."""
    weighted, none = np.flatnonzero(weight > 0), np.flatnonzero(weight <= 0)
    parts = [(weighted, weight)] if len(weighted) else []
    return [*parts, (none, np.ones(len(weight)))] if len(none) else parts
