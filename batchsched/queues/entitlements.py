"""Entitlements: what every queue may always have, and what its fair share of the rest is.

    entitlements(shares, policies) -> Entitlements
    siblings_of(shares, entitled, parent, head) -> Siblings    the children of a row, for policies

From the root down every row's fair share is divided among its children. Each keeps its floor: its guarantee as far as
it, or something below it, wants it or does not lend it. The rest is the surplus, which the policy of the row divides,
up to what each can use. So, whatever the policy: floor <= fair <= ceiling, and the children of a row get no
more than the row has (a pooled policy grants each child up to all of it).

Source: max(min, guaranteed) of Koordinator's elastic quotas, min(quota, request) of Volcano and KAI; lending, borrowing
and what a row can reach as `potentialAvailable` of Kueue.
"""

from collections.abc import Sequence

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.sibling_queues import UNLIMITED, SiblingQueues


def entitlements(shares: QueueTable, policies: Sequence[FairnessPolicy]) -> Entitlements:
    """Work out what every row is entitled to.

    Args:
      shares: the tree.
      policies: [Q] that of a row divides among its children.
    """
    guarantee = _guarantees(shares)
    kept = _not_lent(shares, guarantee)
    floor, ceiling = _bounds(shares, guarantee, kept)
    lendable = _reach(shares, guarantee, kept)
    fair = floor.copy()
    fair[0] = shares.capacity
    entitled = Entitlements(guarantee, fair, floor, ceiling, lendable)
    for row, (begin, end) in enumerate(shares.spans().tolist()):
        if begin < end:
            below = slice(begin, end)
            surplus = np.maximum(0, fair[row] - floor[below].sum(axis=0))
            most = np.minimum(ceiling[below] - floor[below], surplus)
            if end - begin > 1 and (most.sum(axis=0) > surplus).any():
                given = policies[row].divide(siblings_of(shares, entitled, row), surplus)
                most = np.clip(given, 0, most)
            fair[below] += most
    return entitled


def siblings_of(
    shares: QueueTable, entitled: Entitlements, parent: int, head: FloatArray | None = None
) -> SiblingQueues:
    """Return what policies may know of the children of a row.

    Args:
      shares: the tree; its usage is the one that is compared.
      entitled: what it entitles to.
      parent: the row.
      head: [S] places of the children's next gangs, None when nobody asks.
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


def _guarantees(shares: QueueTable) -> IntArray:
    """[Q, R] guarantees within limits; scaled where those of children come to more than the parent's."""
    found = np.minimum(shares.guarantee, shares.limit)
    found[0] = shares.capacity
    for level in shares.levels():
        parents = shares.parent[level]
        claimed = np.zeros_like(found)
        np.add.at(claimed, parents, found[level])
        over = claimed[parents] > found[parents]
        for row, resource in np.argwhere(over & (found[level] > 0)).tolist():
            row += level.start
            parent = int(shares.parent[row])
            # In Python's integers: bytes times bytes are more than 64 bits hold.
            scaled = int(found[row, resource]) * int(found[parent, resource])
            found[row, resource] = scaled // int(claimed[parent, resource])
    return found


def _not_lent(shares: QueueTable, guarantee: IntArray) -> IntArray:
    """[Q, R] what each keeps, wanted or not: its guarantee, as far as children lend it, less what it lends."""
    pool = guarantee.copy()
    kept = np.zeros_like(guarantee)
    for level in reversed(shares.levels()):
        kept[level] = np.maximum(0, pool[level] - shares.lending[level])
        np.subtract.at(pool, shares.parent[level], kept[level])
        np.maximum(pool, 0, out=pool)
    return kept


def _bounds(shares: QueueTable, guarantee: IntArray, kept: IntArray) -> tuple[IntArray, IntArray]:
    """[Q, R] the least and the most that each may have: a row's floor holds those of its children."""
    wanted = shares.request.copy()
    spans = shares.spans()
    wanted[spans[:, 0] < spans[:, 1]] = 0
    below = np.zeros_like(guarantee)
    most = np.minimum(shares.limit, np.minimum(guarantee + shares.borrowing, UNLIMITED))
    floor, ceiling = np.zeros_like(guarantee), np.zeros_like(guarantee)
    for level in reversed(shares.levels()):
        floor[level] = np.minimum(
            guarantee[level], np.maximum(np.maximum(wanted[level], kept[level]), below[level])
        )
        ceiling[level] = np.maximum(np.minimum(wanted[level], most[level]), floor[level])
        np.add.at(below, shares.parent[level], floor[level])
        np.add.at(wanted, shares.parent[level], ceiling[level])
    floor[0], ceiling[0] = guarantee[0], wanted[0]
    return floor, ceiling


def _reach(shares: QueueTable, guarantee: IntArray, kept: IntArray) -> IntArray:
    """[Q, R] what the children of a row can reach, from the root down."""
    pool = guarantee.copy()
    for level in shares.levels():
        np.subtract.at(pool, shares.parent[level], kept[level])
    pool = np.maximum(pool, 0)
    reach = pool.copy()
    for level in shares.levels():
        own = np.maximum(0, pool[level] - shares.lending[level])
        above = own + reach[shares.parent[level]]
        bound = np.minimum(pool[level] + shares.borrowing[level], shares.limit[level])
        reach[level] = np.minimum(bound, above)
    return reach
