"""Queues by priority: the higher ones are served first, and whole."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order import batch
from batchsched.queues.gang_order.policy import FloatArray, IntArray, Policy
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import SiblingQueues


class PrioritySharing(FairShare):
    """The queue of the highest priority first, and all that it wants; queues of equal priority share as `drf` has it.

    The surplus goes down the priorities: those of one priority divide it by dominant share and weight, what they
    do not want goes on to the next. PodGroups inside a queue go by their own priority, then first come.

    Invariants: a queue gets surplus only when all of higher priority have what they can use; guarantees of the lower
    hold all the same. It reclaims up to its fair share: a higher priority from lower ones, never the other way.

    Source: queue priority of Volcano and KAI-Scheduler.
    """

    name = "priority"
    gangs: Policy | None = batch.Priority()

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Fill priority by priority."""
        given = np.zeros_like(siblings.demand)
        for at in buckets(siblings.priority):
            given[at] = super().divide(some_of(siblings, at), surplus - given.sum(axis=0))
        return given

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """[S, 2]: by priority, then by what was borrowed by weight."""
        return np.stack([-siblings.priority.astype(np.float64), super().key(siblings, candidate)], axis=1)


def buckets(priority: IntArray) -> list[IntArray]:
    """Members of each priority, the highest first."""
    return [np.flatnonzero(priority == one) for one in np.unique(priority)[::-1]]


def some_of(siblings: SiblingQueues, at: IntArray) -> SiblingQueues:
    """Return some of the siblings."""
    return SiblingQueues(
        tuple(siblings.names[one] for one in at.tolist()),
        siblings.weight[at],
        siblings.priority[at],
        siblings.guarantee[at],
        siblings.floor[at],
        siblings.ceiling[at],
        siblings.limit[at],
        siblings.usage[at],
        siblings.history[at],
        siblings.fair[at],
        siblings.head[at],
        siblings.lendable,
        siblings.capacity,
        siblings.weighed,
    )
