"""Water-filling: a common level rises, and each queue gets what is below it, until the surplus is exhausted.

Source: progressive filling of Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types,
NSDI 2011, section 4; for tasks that end, Parkes et al., Beyond Dominant Resource Fairness, EC 2012.
"""

import numpy as np

from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.sibling_queues import BoolArray

_SATED = 1.0 - 1e-12


def divide_surplus_by_water_filling(
    demand: IntArray, surplus: IntArray, pace: FloatArray, start: FloatArray
) -> FloatArray:
    """Divide a surplus by water-filling: the parts of sibling queues grow together, each up to its demand.

    The level determines which part of its demand each sibling gets. At level l, sibling s has the part min(1, max(0,
    (l - start_s) · pace_s)) of its demand. When a resource is exhausted, siblings that demand it stop; the others
    continue. The rest is divided again among siblings with demand for remaining resources, each from the level at
    which it stopped.

    Args:
      demand: [S, R] the maximum that each sibling can use.
      surplus: [R] amounts to divide.
      pace: [S] part of its demand that each sibling gets per level; a sibling with 0 gets nothing.
      start: [S] the level below which a sibling gets nothing.

    Returns:
      [S, R] real amounts, none above its demand; their sums do not exceed the surplus except by rounding errors.
    """
    amounts = demand.astype(np.float64)
    remaining = surplus.astype(np.float64)
    total = np.zeros_like(amounts)
    part = np.zeros(len(demand))
    paced = pace > 0
    for _ in range(len(surplus)):
        still = np.where(
            (remaining > 0.5)[np.newaxis] & (part < _SATED)[:, np.newaxis] & paced[:, np.newaxis],
            amounts,
            0.0,
        )
        if not still.any():
            break
        before = part
        part, spent = _rise(still, remaining, pace, start, before)
        step = still * (part - before)[:, np.newaxis]
        total += step
        remaining = np.where(spent, 0.0, remaining - step.sum(axis=0))
    return np.minimum(total, amounts)


def _rise(
    amounts: FloatArray, remaining: FloatArray, pace: FloatArray, start: FloatArray, part: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return [S] parts at which every sibling is satisfied or stopped, and [R] the exhausted resources."""
    begun, part = part, part.copy()
    rising: BoolArray = np.asarray(amounts.any(axis=1))
    used = np.zeros(amounts.shape[1])
    open_: BoolArray = np.asarray(amounts.any(axis=0))
    demanded = open_.copy()
    while rising.any():
        rising_index = np.flatnonzero(rising)
        rising_amounts = amounts[rising_index]
        level, resource = _next_spent(
            rising_amounts,
            remaining - used,
            pace[rising_index],
            start[rising_index],
            begun[rising_index],
            open_,
        )
        part[rising_index] = (
            np.maximum(
                begun[rising_index], np.clip((level - start[rising_index]) * pace[rising_index], 0.0, 1.0)
            )
            if resource >= 0
            else 1.0
        )
        if resource < 0:
            break
        stopped = rising_index[(rising_amounts[:, resource] > 0) | (part[rising_index] >= _SATED)]
        used += (amounts[stopped] * (part[stopped] - begun[stopped])[:, np.newaxis]).sum(axis=0)
        rising[stopped] = False
        open_[resource] = False
    return part, demanded & ~open_


def _next_spent(
    amounts: FloatArray,
    remaining: FloatArray,
    pace: FloatArray,
    start: FloatArray,
    part: FloatArray,
    open_: BoolArray,
) -> tuple[float, int]:
    """Return the level at which the next resource is exhausted, and its index; (0, -1) if all demand can be met."""
    count = len(amounts)
    step = np.where(part > 0, start + part / pace, start)
    levels = np.concatenate([step, start + 1.0 / pace])
    slopes = amounts * pace[:, np.newaxis]
    bends = np.concatenate([slopes, -slopes])
    order = np.argsort(levels, kind="stable")
    levels, slope = levels[order], np.cumsum(bends[order], axis=0)
    taken = np.zeros((2 * count, amounts.shape[1]))
    np.cumsum(slope[:-1] * np.diff(levels)[:, np.newaxis], axis=0, out=taken[1:])
    over = (taken > remaining * (1 + 1e-12)) & open_
    if not over.any():
        return 0.0, -1
    first = np.argmax(over, axis=0)
    columns = np.flatnonzero(over.any(axis=0))
    before = first[columns] - 1
    reached = (
        levels[before]
        + (np.maximum(remaining[columns], 0.0) - taken[before, columns]) / slope[before, columns]
    )
    lowest = int(np.argmin(reached))
    return float(reached[lowest]), int(columns[lowest])


def round_to_units(amounts: FloatArray, most: IntArray, surplus: IntArray, late: FloatArray) -> IntArray:
    """Round fractional amounts of sibling queues to integers; the largest remainders are rounded up.

    Args:
      amounts: [S, R] real amounts.
      most: [S, R] the maximum of each sibling.
      surplus: [R] the maximum of the sum.
      late: [S] among equal remainders, the sibling with the smallest value comes first, then the order of siblings.

    Returns:
      [S, R] whole units, int64.
    """
    sated = amounts >= most * _SATED
    units = np.where(sated, most, np.minimum(np.floor(amounts), most).astype(np.int64))
    total = np.minimum(surplus, np.floor(amounts.sum(axis=0) * (1 + 1e-12) + 1e-9).astype(np.int64))
    spare = total - units.sum(axis=0)
    for resource in np.flatnonzero(spare > 0).tolist():
        room = np.flatnonzero(units[:, resource] < most[:, resource])
        rest = np.round(amounts[room, resource] - units[room, resource], 9)
        first = room[np.lexsort((late[room], -rest))][: spare[resource]]
        units[first, resource] += 1
    over = units.sum(axis=0) - surplus
    for resource in np.flatnonzero(over > 0).tolist():
        _cut(units[:, resource], int(over[resource]))
    return units


def _cut(units: IntArray, over: int) -> None:
    """Remove units that rounding added beyond the surplus, from the largest amount first."""
    for index in np.argsort(-units, kind="stable").tolist():
        cut = min(over, int(units[index]))
        units[index] -= cut
        over -= cut
        if not over:
            return
