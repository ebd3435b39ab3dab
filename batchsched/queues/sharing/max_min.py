"""Weighted max-min fairness, resource by resource."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import SiblingQueues
from batchsched.queues.sharing.water_filling import fill, whole


class MaxMin(FairShare):
    """Weighted max-min fairness, each resource by itself.

    Beyond guarantees, of every resource each queue gets weight_q · l_r, and no more than it wants; l_r is the level at
    which the resource is spent. Whole units go by the largest remainder. Who is next, and who may reclaim: as `drf`.

    Invariants: of every resource, who wants no more than its weighted part gets all it wants; who wants more gets
    no less than that part. Queues that want of one resource do not bear on another.

    Source: `proportion` of Volcano and of KAI-Scheduler; `elasticquota` of Koordinator.
    """

    name = "max-min"

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Fill every resource by itself."""
        pace = np.repeat(self.weights(siblings)[:, np.newaxis], len(surplus), axis=1)
        return by_resource(siblings, surplus, pace, np.zeros_like(pace), self.late(siblings))


def by_resource(
    siblings: SiblingQueues, surplus: IntArray, pace: FloatArray, start: FloatArray, late: FloatArray
) -> IntArray:
    """Fill every resource by itself.

    Args:
      siblings: who shares.
      surplus: [R] what there is.
      pace: [S, R] units that each gets a level; who has 0 is served after the others, in equal parts.
      start: [S, R] level below which each gets nothing.
      late: [S] who gets the last whole unit: the smallest.
    """
    demand, given = siblings.demand, np.zeros_like(siblings.demand)
    for at in np.flatnonzero((surplus > 0) & (demand > 0).any(axis=0)).tolist():
        column = slice(at, at + 1)
        mine = demand[:, column]
        if mine.sum() <= surplus[at]:
            given[:, column] = mine
            continue
        for paced in (pace[:, at] > 0, pace[:, at] <= 0):
            who = np.flatnonzero(paced & (mine[:, 0] > 0))
            left = np.maximum(0, surplus[column] - given[:, column].sum(axis=0))
            if not len(who) or not left.any():
                continue
            units = np.where(pace[who, at] > 0, pace[who, at], 1.0)
            real = fill(mine[who], left, units / mine[who, 0], start[who, at])
            given[who, column] = whole(real, mine[who], left, late[who])
    return given
