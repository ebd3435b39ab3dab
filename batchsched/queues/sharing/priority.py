"""Queue priority: queues of higher priority are served first and completely."""

import numpy as np
from typing_extensions import override

from batchsched.queues.gang_order import batch
from batchsched.queues.gang_order.policy import FloatArray, IntArray, Policy
from batchsched.queues.sharing.policy import FairShare
from batchsched.queues.sharing.sibling_queues import SiblingQueues


class PrioritySharing(FairShare):
    """Highest priority first, up to its whole demand; queues of equal priority share as under `drf`.

    The surplus is passed from priority to priority. Queues of one priority divide it by dominant share and weight,
    and the remainder goes to the next priority. Within a queue, PodGroups are ordered by their own priority, then by
    submission.

    Invariants: a queue gets surplus only after all queues of higher priority have what they can use; guarantees of
    lower priorities hold nevertheless. A queue reclaims up to its fair share, only from queues of lower or equal
    priority.

    Source: queue priority of Volcano and KAI-Scheduler.
    """

    name = "priority"
    gangs: Policy | None = batch.Priority()

    @override
    def divide(self, siblings: SiblingQueues, surplus: IntArray) -> IntArray:
        """Divide the surplus priority by priority."""
        parts = np.zeros_like(siblings.demand)
        for members in members_by_priority(siblings.priority):
            parts[members] = super().divide(select_siblings(siblings, members), surplus - parts.sum(axis=0))
        return parts

    @override
    def key(self, siblings: SiblingQueues, candidate: IntArray) -> FloatArray:
        """Return [S, 2] keys: priority, then borrowed amounts by weight."""
        return np.stack([-siblings.priority.astype(np.float64), super().key(siblings, candidate)], axis=1)


def members_by_priority(priority: IntArray) -> list[IntArray]:
    """Yield the members of each priority, highest first."""
    return [np.flatnonzero(priority == one) for one in np.unique(priority)[::-1]]


def select_siblings(siblings: SiblingQueues, members: IntArray) -> SiblingQueues:
    """Return the selected siblings."""
    return SiblingQueues(
        tuple(siblings.names[one] for one in members.tolist()),
        siblings.weight[members],
        siblings.priority[members],
        siblings.guarantee[members],
        siblings.floor[members],
        siblings.ceiling[members],
        siblings.limit[members],
        siblings.usage[members],
        siblings.history[members],
        siblings.fair[members],
        siblings.head[members],
        siblings.lendable,
        siblings.capacity,
        siblings.weighed,
    )
