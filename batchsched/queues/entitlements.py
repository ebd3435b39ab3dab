"""Entitlements: the effective guarantee and the fair share of every queue.

    compute_entitlements(shares, policies) -> Entitlements
    kept_guarantees(shares) -> [Q, R]    what each queue lends to no other queue
    sibling_queues_below(shares, entitled, parent, head) -> SiblingQueues    children of a row, as input of a policy

The fair share of each row is divided among its children, from the root downwards. Each child first gets its floor:
the part of its guarantee that its subtree demands or does not lend. The remaining surplus is divided by the policy of
the row, up to the ceiling of each child. Under every policy, floor <= fair <= ceiling, and the fair shares of the
children of a row sum up to at most the row's share. The exception is a policy with a shared surplus, which grants
each child up to the whole surplus.

Source: max(min, guaranteed) of Koordinator's elastic quotas, min(quota, request) of Volcano and KAI; lending,
borrowing and the lendable amount of a row as `potentialAvailable` of Kueue.
"""

from collections.abc import Sequence

import numpy as np

from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import SharingPolicy
from batchsched.queues.sharing.sibling_queues import UNLIMITED, SiblingQueues


def compute_entitlements(shares: QueueTable, policies: Sequence[SharingPolicy]) -> Entitlements:
    """Compute the guarantee and the fair share of each queue in a queue table.

    Args:
      shares: the queue tree.
      policies: [Q] the policy that divides the share of row q among its children.
    """
    guarantee = effective_guarantees(shares)
    unlent = _not_lent(shares, guarantee)
    floor, ceiling = _bounds(shares, guarantee, unlent)
    lendable = _reach(shares, guarantee, unlent)
    fair = floor.copy()
    fair[0] = shares.capacity
    entitled = Entitlements(guarantee, fair, floor, ceiling, lendable)
    for row, (begin, end) in enumerate(shares.child_row_ranges().tolist()):
        if begin < end:
            below = slice(begin, end)
            surplus = np.maximum(0, fair[row] - floor[below].sum(axis=0))
            part = np.minimum(ceiling[below] - floor[below], surplus)
            if end - begin > 1 and (part.sum(axis=0) > surplus).any():
                division = policies[row].divide_surplus(build_sibling_queues(shares, entitled, row), surplus)
                part = np.clip(division, 0, part)
            fair[below] += part
    return entitled


def build_sibling_queues(
    shares: QueueTable, entitled: Entitlements, parent: int, head: FloatArray | None = None
) -> SiblingQueues:
    """Return the children of a queue as arrays, which are the input of a sharing policy.

    Args:
      shares: the queue table; the policy compares the usage in it.
      entitled: the entitlements of all rows.
      parent: the parent row.
      head: [S] position of each child's next gang in the order of gangs, or None if the order is not needed.
    """
    begin, end = np.searchsorted(shares.parent, [parent, parent + 1]).tolist()
    below = slice(begin, end)
    return SiblingQueues(
        names=shares.names[below],
        weight=shares.weight[below],
        priority=shares.priority[below],
        guarantee=entitled.guarantee[below],
        floor=entitled.floor[below],
        ceiling=entitled.ceiling[below],
        limit=shares.limit[below],
        usage=shares.usage[below],
        history=shares.history[below],
        fair=entitled.fair[below],
        head=np.zeros(end - begin) if head is None else head,
        lendable=entitled.lendable[parent],
        capacity=shares.capacity,
        weighed=shares.weighed,
    )


def effective_guarantees(shares: QueueTable) -> IntArray:
    """Return the guarantee of each queue, reduced to fit the queue's limit and its parent's guarantee.

    If the guarantees of siblings add up to more than the guarantee of their parent, all of them are scaled down.

    Returns:
      [Q, R] guarantees in base units, with the rows of the queue table.
    """
    guarantee = np.minimum(shares.guarantee, shares.limit)
    guarantee[0] = shares.capacity
    for level in shares.rows_by_level():
        parents = shares.parent[level]
        claimed = np.zeros_like(guarantee)
        np.add.at(claimed, parents, guarantee[level])
        over = claimed[parents] > guarantee[parents]
        for row, resource in np.argwhere(over & (guarantee[level] > 0)).tolist():
            row += level.start
            parent = int(shares.parent[row])
            # Python integers, because a product of two byte amounts does not fit into 64 bits.
            scaled = int(guarantee[row, resource]) * int(guarantee[parent, resource])
            guarantee[row, resource] = scaled // int(claimed[parent, resource])
    return guarantee


def kept_guarantees(shares: QueueTable) -> IntArray:
    """Return [Q, R] the kept guarantee of each queue: the part that its subtree lends to no queue outside of it.

    It includes what queues below it keep. Queues that keep nothing themselves have zeros.
    """
    unlent = _not_lent(shares, effective_guarantees(shares))
    kept = unlent.copy()
    for level in reversed(shares.rows_by_level()):
        np.add.at(kept, shares.parent[level], kept[level])
    return np.where(unlent.any(axis=1, keepdims=True), kept, 0)


def _not_lent(shares: QueueTable, guarantee: IntArray) -> IntArray:
    """Return [Q, R] the part of each guarantee that is never lent: the guarantee minus its lending limit."""
    lendable = guarantee.copy()
    unlent = np.zeros_like(guarantee)
    for level in reversed(shares.rows_by_level()):
        unlent[level] = np.maximum(0, lendable[level] - shares.lending[level])
        np.subtract.at(lendable, shares.parent[level], unlent[level])
        np.maximum(lendable, 0, out=lendable)
    return unlent


def _bounds(shares: QueueTable, guarantee: IntArray, unlent: IntArray) -> tuple[IntArray, IntArray]:
    """Return [Q, R] floor and ceiling of each row. The floor of a row contains the floors of its children."""
    demand = shares.request.copy()
    spans = shares.child_row_ranges()
    demand[spans[:, 0] < spans[:, 1]] = 0
    floor_of_children = np.zeros_like(guarantee)
    maximum = np.minimum(shares.limit, np.minimum(guarantee + shares.borrowing, UNLIMITED))
    floor, ceiling = np.zeros_like(guarantee), np.zeros_like(guarantee)
    for level in reversed(shares.rows_by_level()):
        floor[level] = np.minimum(
            guarantee[level], np.maximum(np.maximum(demand[level], unlent[level]), floor_of_children[level])
        )
        ceiling[level] = np.maximum(np.minimum(demand[level], maximum[level]), floor[level])
        np.add.at(floor_of_children, shares.parent[level], floor[level])
        np.add.at(demand, shares.parent[level], ceiling[level])
    floor[0], ceiling[0] = guarantee[0], demand[0]
    return floor, ceiling


def _reach(shares: QueueTable, guarantee: IntArray, unlent: IntArray) -> IntArray:
    """Return [Q, R] the amount that the children of each row can use together, computed from the root downwards."""
    available = guarantee.copy()
    for level in shares.rows_by_level():
        np.subtract.at(available, shares.parent[level], unlent[level])
    available = np.maximum(available, 0)
    reach = available.copy()
    for level in shares.rows_by_level():
        own = np.maximum(0, available[level] - shares.lending[level])
        above = own + reach[shares.parent[level]]
        bound = np.minimum(available[level] + shares.borrowing[level], shares.limit[level])
        reach[level] = np.minimum(bound, above)
    return reach
