"""Water-filling: a common level rises, and everybody gets what is below it, until nothing is left.

Source: progressive filling of Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types,
NSDI 2011, section 4; for tasks that end, Parkes et al., Beyond Dominant Resource Fairness, EC 2012.
"""

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.sibling_queues import BoolArray

_SATED = 1.0 - 1e-12


def fill(demand: IntArray, surplus: IntArray, pace: FloatArray, start: FloatArray) -> FloatArray:
    """Divide a surplus by raising one level for all, each along its own demand.

    At level l, sibling s has the part min(1, max(0, (l - start_s) · pace_s)) of its demand. Once a resource is
    spent, whoever still wants of it stops; the others go on. What nobody could take that way is divided
    again, among those who want of what is left, each from the level at which it stopped.

    Args:
      demand: [S, R] the most that each can use.
      surplus: [R] what there is.
      pace: [S] part of its demand that each gets a level; 0 gets nothing.
      start: [S] the level below which each gets nothing: whoever had much begins high.

    Returns: [S, R] real amounts; none above its demand, their sums not above the surplus but for rounding.
    """
    wanted = demand.astype(np.float64)
    left = surplus.astype(np.float64)
    given = np.zeros_like(wanted)
    part = np.zeros(len(demand))
    paced = pace > 0
    for _ in range(len(surplus)):
        still = np.where(
            (left > 0.5)[np.newaxis] & (part < _SATED)[:, np.newaxis] & paced[:, np.newaxis], wanted, 0.0
        )
        if not still.any():
            break
        before = part
        part, spent = _rise(still, left, pace, start, before)
        step = still * (part - before)[:, np.newaxis]
        given += step
        left = np.where(spent, 0.0, left - step.sum(axis=0))
    return np.minimum(given, wanted)


def _rise(
    wanted: FloatArray, left: FloatArray, pace: FloatArray, start: FloatArray, part: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return [S] parts when everybody is sated or stopped, and [R] the resources that are spent."""
    begun, part = part, part.copy()
    rising: BoolArray = np.asarray(wanted.any(axis=1))
    gone = np.zeros(wanted.shape[1])
    open_: BoolArray = np.asarray(wanted.any(axis=0))
    asked = open_.copy()
    while rising.any():
        at = np.flatnonzero(rising)
        mine = wanted[at]
        level, resource = _next_spent(mine, left - gone, pace[at], start[at], begun[at], open_)
        part[at] = (
            np.maximum(begun[at], np.clip((level - start[at]) * pace[at], 0.0, 1.0)) if resource >= 0 else 1.0
        )
        if resource < 0:
            break
        stopped = at[(mine[:, resource] > 0) | (part[at] >= _SATED)]
        gone += (wanted[stopped] * (part[stopped] - begun[stopped])[:, np.newaxis]).sum(axis=0)
        rising[stopped] = False
        open_[resource] = False
    return part, asked & ~open_


def _next_spent(
    wanted: FloatArray,
    left: FloatArray,
    pace: FloatArray,
    start: FloatArray,
    part: FloatArray,
    open_: BoolArray,
) -> tuple[float, int]:
    """Return the level at which the first resource is spent, and which; (0, -1) when all can be sated."""
    count = len(wanted)
    step = np.where(part > 0, start + part / pace, start)
    levels = np.concatenate([step, start + 1.0 / pace])
    slopes = wanted * pace[:, np.newaxis]
    bends = np.concatenate([slopes, -slopes])
    order = np.argsort(levels, kind="stable")
    levels, slope = levels[order], np.cumsum(bends[order], axis=0)
    taken = np.zeros((2 * count, wanted.shape[1]))
    np.cumsum(slope[:-1] * np.diff(levels)[:, np.newaxis], axis=0, out=taken[1:])
    over = (taken > left * (1 + 1e-12)) & open_
    if not over.any():
        return 0.0, -1
    first = np.argmax(over, axis=0)
    columns = np.flatnonzero(over.any(axis=0))
    before = first[columns] - 1
    reached = (
        levels[before] + (np.maximum(left[columns], 0.0) - taken[before, columns]) / slope[before, columns]
    )
    lowest = int(np.argmin(reached))
    return float(reached[lowest]), int(columns[lowest])


def whole(amounts: FloatArray, most: IntArray, surplus: IntArray, late: FloatArray) -> IntArray:
    """Round amounts to whole units by the largest remainder.

    Args:
      amounts: [S, R] real amounts.
      most: [S, R] none gets more.
      surplus: [R] together they get no more.
      late: [S] among equal remainders the smallest is first; then the order of siblings.

    Returns: [S, R] int64.
    """
    sated = amounts >= most * _SATED
    given = np.where(sated, most, np.minimum(np.floor(amounts), most).astype(np.int64))
    total = np.minimum(surplus, np.floor(amounts.sum(axis=0) * (1 + 1e-12) + 1e-9).astype(np.int64))
    spare = total - given.sum(axis=0)
    for resource in np.flatnonzero(spare > 0).tolist():
        room = np.flatnonzero(given[:, resource] < most[:, resource])
        rest = np.round(amounts[room, resource] - given[room, resource], 9)
        first = room[np.lexsort((late[room], -rest))][: spare[resource]]
        given[first, resource] += 1
    over = given.sum(axis=0) - surplus
    for resource in np.flatnonzero(over > 0).tolist():
        _cut(given[:, resource], int(over[resource]))
    return given


def _cut(given: IntArray, over: int) -> None:
    """Take back what rounding gave too much, from the largest first."""
    for at in np.argsort(-given, kind="stable").tolist():
        cut = min(over, int(given[at]))
        given[at] -= cut
        over -= cut
        if not over:
            return
