"""Sharing policies that divide each resource separately: max-min fairness and YuniKorn's guaranteed ratio."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairSharePolicy, GuaranteePolicy
from batchsched.queues.sharing.sibling_queues import SiblingQueues, capacity_shares
from batchsched.queues.sharing.water_filling import divide_surplus_by_water_filling, round_to_units


class MaxMin(FairSharePolicy):
    """Weighted max-min fairness: each resource is divided separately from the others.

    Beyond guarantees, each queue gets weight_q · l_r of every resource, but no more than its demand; l_r is the level
    at which the resource is exhausted. Whole units are assigned by the largest remainder. The next queue and reclaim
    are determined as under `drf`.

    Invariants: a queue that demands no more of a resource than its weighted part gets its whole demand; a queue that
    demands more gets no less than that part. Demand for one resource does not affect the division of another.

    Source: `proportion` of Volcano and of KAI-Scheduler; `elasticquota` of Koordinator.
    """

    name = "max-min"

    @override
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus of each resource separately, in proportion to the weights of the queues."""
        pace = np.repeat(siblings.weight[:, np.newaxis], len(surplus), axis=1)
        return divide_each_resource_separately(
            siblings, surplus, pace, np.zeros_like(pace), self.rounding_tie_break_keys(siblings)
        )


def divide_each_resource_separately(
    siblings: SiblingQueues, surplus: IntArray, pace: FloatArray, start: FloatArray, late: FloatArray
) -> IntArray:
    """Divide the surplus of each resource separately among sibling queues, by water-filling.

    Args:
      siblings: the queues that share.
      surplus: [R] amounts to divide.
      pace: [S, R] units that each queue gets per level; queues with 0 are served last, in equal parts.
      start: [S, R] level below which a queue gets nothing.
      late: [S] among queues with equal remainders, the queue with the smallest value gets the last whole unit.
    """
    demand, parts = siblings.surplus_demand, np.zeros_like(siblings.surplus_demand)
    for resource in np.flatnonzero((surplus > 0) & (demand > 0).any(axis=0)).tolist():
        column = slice(resource, resource + 1)
        column_demand = demand[:, column]
        if column_demand.sum() <= surplus[resource]:
            parts[:, column] = column_demand
            continue
        for paced in (pace[:, resource] > 0, pace[:, resource] <= 0):
            members = np.flatnonzero(paced & (column_demand[:, 0] > 0))
            remaining = np.maximum(0, surplus[column] - parts[:, column].sum(axis=0))
            if not len(members) or not remaining.any():
                continue
            units = np.where(pace[members, resource] > 0, pace[members, resource], 1.0)
            real = divide_surplus_by_water_filling(
                column_demand[members], remaining, units / column_demand[members, 0], start[members, resource]
            )
            parts[members, column] = round_to_units(real, column_demand[members], remaining, late[members])
    return parts


class GuaranteedRatio(GuaranteePolicy):
    """Fair queue sorting of YuniKorn: the share of a queue is max_r usage_r / guarantee_r over its resources r.

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
    def divide_surplus(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus so that the ratios of usage to guarantee become equal, for each resource separately."""
        base = _denominator(siblings).astype(np.float64)
        start = np.divide(siblings.floor, base, out=np.zeros(base.shape), where=base > 0)
        return divide_each_resource_separately(
            siblings, surplus, base, start, self.rounding_tie_break_keys(siblings)
        )

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return for each sibling queue the largest of its ratios of usage to guarantee over all resources.

        If a queue has no guarantee of a resource, its limit counts instead, at most the capacity of the cluster.
        """
        parts = capacity_shares(siblings.usage, _denominator(siblings), siblings.weighed)
        share: FloatArray = parts.max(axis=1, initial=0.0)
        return share


def _denominator(siblings: SiblingQueues) -> IntArray:
    """Return [S, R] the guarantee, or the limit if there is none, or the capacity."""
    most = np.minimum(siblings.limit, siblings.capacity)
    return np.where(siblings.guarantee > 0, siblings.guarantee, most)
