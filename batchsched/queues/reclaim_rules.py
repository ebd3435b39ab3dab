"""Who may take from whom: what holds whatever the policy, then the policy's own word.

    may_reclaim(shares, entitled, policies, Reclaim(reclaimer, victim, gains, loses)) -> bool

Two rows are compared at the children of their lowest common ancestor ("almost lowest common ancestor"), with the usage
that `shares` states: for a second victim, state what is left after the first (`shares.with_usage`). Of the *final* set
ask `all_may_go`, so that what was added back changes no answer.

Source: KEP-1714 of Kueue for where shares are compared; kueue#14543 for why the final set is asked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchsched.queues.entitlements import siblings_of
from batchsched.queues.gang_order.policy import IntArray
from batchsched.queues.queue_table import Entitlements, QueueTable
from batchsched.queues.sharing.policy import FairnessPolicy
from batchsched.queues.sharing.sibling_queues import ReclaimRequest


@dataclass(frozen=True, slots=True, eq=False)
class ReclaimRules:
    """A gang of one queue would take the place of a workload of another.

    Args:
      reclaimer: row of the queue that gains (`shares.home`).
      victim: row of the queue that loses.
      gains: [R] what the gang wants, base units.
      loses: [R] what the workload holds.
    """

    reclaimer: int
    victim: int
    gains: IntArray
    loses: IntArray


def may_reclaim(
    shares: QueueTable, entitled: Entitlements, policies: Sequence[FairnessPolicy], wish: ReclaimRules
) -> bool:
    """Tell whether one queue may take a workload of another.

    Never from the same queue, nor what is inside a guarantee: every queue above the victim, below the common
    ancestor, must be above its guarantee in something that changes hands. Whoever stays within its guarantee wins;
    else nobody may fall below a guarantee by it, every queue above the victim must hold more than it is entitled to,
    and the policy that divides between the two decides.
    """
    pair = _pair(shares, wish.reclaimer, wish.victim)
    if pair is None:
        return False
    parent, mine, path = pair
    touched = (wish.gains > 0) & (wish.loses > 0)
    over = (shares.usage[path] > entitled.guarantee[path]) & touched
    if not over.any(axis=1).all():
        return False
    after = shares.usage[mine] + wish.gains
    if ((after <= entitled.guarantee[mine]) | (wish.gains == 0)).all():
        return True
    left = shares.usage[path] - wish.loses
    if ((left < entitled.guarantee[path]) & (shares.usage[path] >= entitled.guarantee[path]) & touched).any():
        return False
    for row in path[:-1].tolist():
        above = int(shares.parent[row])
        siblings = siblings_of(shares, entitled, above)
        first = int(np.searchsorted(shares.parent, above))
        if not (policies[above].above(siblings, row - first) & touched).any():
            return False
    first = int(np.searchsorted(shares.parent, parent))
    claim = ReclaimRequest(mine - first, int(path[-1]) - first, wish.gains, wish.loses)
    return policies[parent].may_reclaim(siblings_of(shares, entitled, parent), claim)


def all_may_go(
    shares: QueueTable,
    entitled: Entitlements,
    policies: Sequence[FairnessPolicy],
    reclaimer: int,
    gains: IntArray,
    victims: Sequence[tuple[int, IntArray]],
) -> bool:
    """Tell whether a final set of victims is fair in whatever order they go: each may be taken as the last one.

    Args:
      shares: the tree with the usage before anybody went.
      entitled: what it entitles to.
      policies: [Q] of every row.
      reclaimer: row of the queue that gains.
      gains: [R] what its gang wants.
      victims: (row, [R] what it holds) of each workload.
    """
    left = shares.usage.copy()
    for row, loses in victims:
        left[shares.chain(row)] -= loses
    for row, loses in victims:
        usage = left.copy()
        usage[shares.chain(row)] += loses
        wish = ReclaimRules(reclaimer, row, gains, loses)
        if not may_reclaim(shares.with_usage(usage), entitled, policies, wish):
            return False
    return True


def _pair(shares: QueueTable, reclaimer: int, victim: int) -> tuple[int, int, IntArray] | None:
    """The lowest common ancestor, its child above the reclaimer, and the victim's rows up to its child above it."""
    if reclaimer == victim:
        return None
    ours, theirs = shares.chain(reclaimer), shares.chain(victim)
    common = np.isin(theirs, ours)
    path = theirs[~common]
    mine = ours[~np.isin(ours, theirs)]
    if not len(path) or not len(mine):
        return None
    return int(shares.parent[path[-1]]), int(mine[-1]), path
