"""Ejection: a gang that fell short takes the room of gangs in lower tiers, which are then placed again if they fit.

Only placements of this session are ejected. Running pods are the subject of `solver.victims`.
"""

from typing import Final

import numpy as np

from batchsched.solver.local_search.search import LocalSearch
from batchsched.solver.packing.free_capacity import TrailEntry
from batchsched.solver.packing.packing import Packing, WithdrawnGangs
from batchsched.solver.problem import BoolArray, FloatArray, IndexArray, IntArray

MAX_EJECTED_GANGS: Final = 16
"""Maximum gangs that are ejected for one gang."""


class GangEjection:
    """Places gangs by ejecting gangs of lower tiers from one packing."""

    def __init__(self, packing: Packing, search: LocalSearch) -> None:
        self._packing, self._search = packing, search

    def place_gang(self, gang: int, nodes: IntArray | None) -> list[int] | None:
        """Place a gang by local search, or by ejecting gangs of lower tiers one by one, the lowest tier first.

        Args:
          gang: the gang that fell short.
          nodes: where the plan has it, None for anywhere.

        Returns:
          the ejected gangs, which are not placed again here; None if the gang is not placed. Then the packing is as
          before.
        """
        if self._try_place(gang):
            return []
        withdrawn: list[WithdrawnGangs] = []
        ejected: list[int] = []
        for gangs in self._propose(gang, nodes):
            if len(ejected) >= MAX_EJECTED_GANGS:
                break
            ejected += gangs
            withdrawn.append(self._packing.withdraw(set(gangs)))
            if self._try_place(gang):
                return ejected
        # In reverse, so that every gang finds the room that it left.
        for gone in reversed(withdrawn):
            self._packing.reinstate(gone)
        return None

    def _try_place(self, gang: int) -> bool:
        """Place a gang as the greedy would, or class by class with local search; all or nothing."""
        packing = self._packing
        if packing.try_gang(gang) is not None:
            return True
        members, room, problem = packing.members(gang), packing.room, packing.problem
        # The local search knows no minimum below all pods and chooses no domains.
        if members.levelled or members.pods != packing.needs[gang] or not problem.gangs.allowed[gang]:
            return False
        if not room.quotas.admits(gang) or room.rows.touching.get(gang):
            return False
        mark = packing.mark()
        room.take(gang)
        for class_index in members.classes:
            want = room.waiting[class_index]
            placed = room.place(class_index, want)
            if placed < want and self._search.make_room(class_index, want - placed, None) < want - placed:
                packing.rollback(mark)
                return False
        packing.taken[gang] = True
        return True

    def _propose(self, gang: int, nodes: IntArray | None) -> list[list[int]]:
        """Gangs of lower tiers that hold what the gang requests on nodes that it may use, in the order of ejection.

        First the set that costs least and holds enough together; then the other gangs one by one.
        """
        packing = self._packing
        problem, slots = packing.problem, packing.room.slots
        classes = packing.members(gang).classes
        resource = _scarce_resource(packing, classes[0])
        usable = np.zeros(len(problem.nodes.free), np.bool_)
        for class_index in classes:
            usable |= packing.room.usable(class_index)
        if nodes is not None:
            inside = np.zeros(len(usable), np.bool_)
            inside[nodes] = True
            usable &= inside
        tier = problem.gangs.tier
        lower = [
            entry for entry in packing.room.trail if entry.class_index >= 0 and tier[entry.gang] > tier[gang]
        ]
        usable &= _nodes_once_removed(packing, classes[0], lower)
        held = np.zeros(len(problem.gangs.need), np.int64)
        worth = np.zeros(len(problem.gangs.need))
        for entry in lower:
            worth[entry.gang] += problem.classes.weight[entry.class_index] * entry.pods
            amount = int(slots.demand[entry.class_index, resource])
            if amount:
                held[entry.gang] += amount * int(entry.counts[usable[entry.nodes]].sum())
        # Pods that fit already need no other gang's room.
        lacking = [max(0, packing.room.waiting[c] - int(packing.room.fit(c, nodes).sum())) for c in classes]
        goal = int(
            sum(
                max(1, pods) * slots.demand[c, resource]
                for c, pods in zip(classes, lacking, strict=True)
                if pods
            )
        )
        holders = np.flatnonzero((held > 0) & (np.array(packing.needs) > 0))
        price = worth / np.maximum(1, np.minimum(held, max(1, goal)))
        holders = holders[np.lexsort((holders, price[holders], -tier[holders]))]
        cover = _cover(holders, tier, held, worth, goal)
        return ([cover] if cover else []) + [[g] for g in holders.tolist() if g not in cover]


def _cover(holders: IntArray, tier: IndexArray, held: IntArray, worth: FloatArray, goal: int) -> list[int]:
    """The first holders that hold `goal` together, less those that are not needed for it, the dearest first.

    Args:
      holders: gangs in the order of ejection.
      tier: [G] tier of each gang.
      held: [G] amount that each gang holds.
      worth: [G] value of the placed pods of each gang.
      goal: the amount to cover.
    """
    enough = int(np.searchsorted(held[holders].cumsum(), goal)) + 1
    if enough > min(MAX_EJECTED_GANGS, len(holders)):
        return []
    cover: list[int] = holders[:enough].tolist()
    spare = int(held[cover].sum()) - goal
    for g in sorted(cover, key=lambda g: (-int(tier[g]), worth[g], g))[::-1]:
        if held[g] <= spare:
            spare -= int(held[g])
            cover.remove(g)
    return cover


def _nodes_once_removed(packing: Packing, class_index: int, entries: list[TrailEntry]) -> BoolArray:
    """[N] nodes where a pod of the class fits once these entries are removed."""
    room = packing.room
    result = np.ones(len(packing.problem.nodes.free), np.bool_)
    for resource, amount in room.slots.needs[class_index]:
        free = room.free[resource].copy()
        for entry in entries:
            free[entry.nodes] += entry.counts * int(room.slots.demand[entry.class_index, resource])
        result &= free >= amount
    return result


def _scarce_resource(packing: Packing, class_index: int) -> int:
    """The resource that decides for a class: its device, else its dominant resource."""
    slots = packing.room.slots
    device = slots.device_of[class_index]
    return device if device >= 0 else slots.dominant_resource(class_index)
