"""Reclaim rules: whether a queue may take capacity from another queue.

    may_reclaim(table, entitled, policies, ReclaimRequest(reclaimer, victim, gains, loses)) -> bool

Some rules hold under every policy; then the policy decides. Two rows are compared at the children of their lowest
common ancestor, with the usage of the table. For a second victim, pass the usage that remains after the first
(`table.with_usage`). Check the final set of victims with `may_reclaim_all`, because removing a victim from the set may
change the answer for the others.

Source: KEP-1714 of Kueue for the position at which shares are compared; kueue#14543 for the check of the final set.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from batchsched.queues.entitlements import build_sibling_queues
from batchsched.queues.gang_order import IntArray
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import SharingPolicy
from batchsched.queues.sharing.sibling_queues import ReclaimRequest


def may_reclaim(
    shares: QueueTable, entitled: Entitlements, policies: Sequence[SharingPolicy], request: ReclaimRequest
) -> bool:
    """Return whether a running workload of one queue may be evicted for a pending gang of another queue.

    A queue never reclaims from itself, and never from inside a guarantee: each row above the victim and below the
    common ancestor must exceed its guarantee in a resource that changes hands. If the reclaimer stays within its own
    guarantee, it may reclaim. Otherwise three conditions apply: no row falls below its guarantee, each row above the
    victim uses more than its entitlement, and the policy that divides between the two rows agrees.
    """
    pair = _pair(shares, request.reclaimer, request.victim)
    if pair is None:
        return False
    parent, gaining_row, path = pair
    over = (shares.usage[path] > entitled.guarantee[path]) & request.affected_resources
    if not over.any(axis=1).all():
        return False
    if _stays_within_guarantee(shares, entitled, gaining_row, request.gains):
        return True
    usage_after = shares.usage[path] - request.loses
    if (
        (usage_after < entitled.guarantee[path])
        & (shares.usage[path] >= entitled.guarantee[path])
        & request.affected_resources
    ).any():
        return False
    for row in path[:-1].tolist():
        above = int(shares.parent[row])
        siblings = build_sibling_queues(shares, entitled, above)
        first = int(np.searchsorted(shares.parent, above))
        if not (policies[above].exceeded_resources(siblings, row - first) & request.affected_resources).any():
            return False
    first = int(np.searchsorted(shares.parent, parent))
    claim = replace(request, reclaimer=gaining_row - first, victim=int(path[-1]) - first)
    return policies[parent].may_reclaim(build_sibling_queues(shares, entitled, parent), claim)


def reclaimer_stays_within_guarantee(
    shares: QueueTable, entitled: Entitlements, request: ReclaimRequest
) -> bool:
    """Return whether the reclaiming queue stays within its guarantee even with the pending gang.

    The guarantee is that of the reclaiming queue or of its ancestor directly below the lowest common ancestor of both
    queues.
    """
    pair = _pair(shares, request.reclaimer, request.victim)
    return pair is not None and _stays_within_guarantee(shares, entitled, pair[1], request.gains)


def _stays_within_guarantee(shares: QueueTable, entitled: Entitlements, row: int, gains: IntArray) -> bool:
    """Return whether a row that uses `gains` [R] more exceeds its guarantee in none of these resources."""
    after = shares.usage[row] + gains
    return bool(((after <= entitled.guarantee[row]) | (gains == 0)).all())


def may_reclaim_all(
    shares: QueueTable,
    entitled: Entitlements,
    policies: Sequence[SharingPolicy],
    reclaimer: int,
    gains: IntArray,
    victims: Sequence[tuple[int, IntArray]],
) -> bool:
    """Return whether all given victims together may be evicted for a gang of the reclaiming queue.

    Each victim is checked as if the other victims were already removed.

    Args:
      shares: the queue tree with the usage before any eviction.
      entitled: the entitlements of all rows.
      policies: [Q] the policy of each row.
      reclaimer: row of the queue that gains.
      gains: [R] requests of its gang.
      victims: pairs of a row and the [R] requests of a workload.
    """
    remaining = shares.usage.copy()
    for row, loses in victims:
        remaining[shares.row_and_ancestors_without_root(row)] -= loses
    for row, loses in victims:
        usage = remaining.copy()
        usage[shares.row_and_ancestors_without_root(row)] += loses
        request = ReclaimRequest(reclaimer, row, gains, loses)
        if not may_reclaim(shares.with_usage(usage), entitled, policies, request):
            return False
    return True


def _pair(shares: QueueTable, reclaimer: int, victim: int) -> tuple[int, int, IntArray] | None:
    """Return the lowest common ancestor, its child above the reclaimer, and the rows from the victim to its child."""
    if reclaimer == victim:
        return None
    # The chains have a few rows: Python compares its own ints faster than small arrays, and a session asks this often.
    reclaimer_chain = shares.row_and_ancestors_without_root(reclaimer).tolist()
    victim_chain = shares.row_and_ancestors_without_root(victim).tolist()
    path = [row for row in victim_chain if row not in reclaimer_chain]
    gaining_rows = [row for row in reclaimer_chain if row not in victim_chain]
    if not path or not gaining_rows:
        return None
    return int(shares.parent[path[-1]]), gaining_rows[-1], np.array(path, np.int64)
