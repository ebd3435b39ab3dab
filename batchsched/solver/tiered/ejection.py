"""Making way: a gang that fell short takes the place of gangs in lower tiers, which are then placed again if they fit.

Only this session's own placements give way; running pods are none of this file's business.
"""

from typing import Final

import numpy as np

from batchsched.solver.packing.free_capacity import Entry
from batchsched.solver.packing.packing import Packing, Withdrawn
from batchsched.solver.problem import BoolArray, FloatArray, IndexArray, IntArray
from batchsched.solver.tiered.relocate import PodRelocation

VICTIMS: Final = 16
"""At most so many gangs give way to one."""


def make_way(packing: Packing, mover: PodRelocation, gang: int, nodes: IntArray | None) -> list[int] | None:
    """Place a gang by moves, or by taking gangs of lower tiers back one by one, the lowest first.

    Args:
      packing: the packing; gangs that gave way are not placed again here.
      mover: its mover.
      gang: the gang that fell short.
      nodes: where the plan wanted it, or None for anywhere.

    Returns:
      the gangs that gave way, or None when the gang is not placed; then everybody is back in place.
    """
    if _settle(packing, mover, gang):
        return []
    gone: list[Withdrawn] = []
    out: list[int] = []
    for victims in _victims(packing, gang, nodes):
        if len(out) >= VICTIMS:
            break
        out += victims
        gone.append(packing.withdraw(set(victims)))
        mover.rewind()
        if _settle(packing, mover, gang):
            return out
    for withdrawn in reversed(gone):
        packing.reinstate(withdrawn)
    mover.rewind()
    return None


def _settle(packing: Packing, mover: PodRelocation, gang: int) -> bool:
    """Place a gang as the greedy would, or class by class with others stepping aside."""
    if packing.try_gang(gang) is not None:
        return True
    members, room, problem = packing.members(gang), packing.room, packing.problem
    if members.levelled or members.pods != packing.needs[gang] or not problem.gangs.allowed[gang]:
        return False
    if not room.quotas.admits(gang) or room.rows.touching.get(gang):
        return False
    mark = packing.mark()
    room.take(gang)
    for klass in members.classes:
        want = room.waiting[klass]
        placed = room.place(klass, want)
        if placed < want and mover.make_room(klass, want - placed, None) < want - placed:
            packing.rollback(mark)
            mover.rewind()
            return False
    packing.taken[gang] = True
    return True


def _victims(packing: Packing, gang: int, nodes: IntArray | None) -> list[list[int]]:
    """Gangs of lower tiers that hold what the gang wants where it may go, in the order of giving way.

    First those, together, that cost least and hold enough; then one after the other.
    """
    problem, slots = packing.problem, packing.room.slots
    classes = packing.members(gang).classes
    resource = _scarce(packing, classes[0])
    usable = np.zeros(len(problem.nodes.free), np.bool_)
    for klass in classes:
        usable |= packing.room.usable(klass)
    if nodes is not None:
        inside = np.zeros(len(usable), np.bool_)
        inside[nodes] = True
        usable &= inside
    lower = [
        entry
        for entry in packing.room.trail
        if entry.klass >= 0 and problem.gangs.tier[entry.gang] > problem.gangs.tier[gang]
    ]
    usable &= _cleared(packing, classes[0], lower)
    held = np.zeros(len(problem.gangs.need), np.int64)
    worth = np.zeros(len(problem.gangs.need))
    for entry in lower:
        worth[entry.gang] += problem.classes.weight[entry.klass] * entry.pods
        amount = int(slots.demand[entry.klass, resource])
        if amount:
            held[entry.gang] += amount * int(entry.counts[usable[entry.nodes]].sum())
    # What would fit already needs nobody's place.
    lack = [max(0, packing.room.waiting[c] - int(packing.room.fit(c, nodes).sum())) for c in classes]
    wanted = int(sum(max(1, n) * slots.demand[c, resource] for c, n in zip(classes, lack, strict=True) if n))
    holders = np.flatnonzero((held > 0) & (np.array(packing.needs) > 0))
    price = worth / np.maximum(1, np.minimum(held, max(1, wanted)))
    holders = holders[np.lexsort((holders, price[holders], -problem.gangs.tier[holders]))]
    cover = _cover(holders, problem.gangs.tier, held, worth, wanted)
    return ([cover] if cover else []) + [[g] for g in holders.tolist() if g not in cover]


def _cover(holders: IntArray, tier: IndexArray, held: IntArray, worth: FloatArray, wanted: int) -> list[int]:
    """Holders, cheapest first, that hold enough together: without whom that is not needed, dearest first."""
    enough = int(np.searchsorted(held[holders].cumsum(), wanted)) + 1
    if enough > min(VICTIMS, len(holders)):
        return []
    cover: list[int] = holders[:enough].tolist()
    spare = int(held[cover].sum()) - wanted
    for g in sorted(cover, key=lambda g: (-int(tier[g]), worth[g], g))[::-1]:
        if held[g] <= spare:
            spare -= int(held[g])
            cover.remove(g)
    return cover


def _cleared(packing: Packing, klass: int, lower: list[Entry]) -> BoolArray:
    """The nodes that hold a pod of the class once these entries are gone, [N]."""
    room = packing.room
    result = np.ones(len(packing.problem.nodes.free), np.bool_)
    for r, amount in room.slots.needs[klass]:
        free = room.free[r].copy()
        for entry in lower:
            free[entry.nodes] += entry.counts * int(room.slots.demand[entry.klass, r])
        result &= free >= amount
    return result


def _scarce(packing: Packing, klass: int) -> int:
    """The resource that decides for a class: its device, or its dominant one."""
    slots = packing.room.slots
    return slots.device_of[klass] if slots.device_of[klass] >= 0 else slots.dominant_resource(klass)
