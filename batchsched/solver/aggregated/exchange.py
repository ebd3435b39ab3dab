"""Making room by exchange: two pods change places, so that what is left on one node is what a third pod lacks.

When CPU is nearly all taken, nobody can step aside any more, and yet memory is left on one node and CPU on another.
A pod that asks for more of what a node lacks leaves it, and one that asks for less comes in its place. Devices stay
where they are: only pods with equally many change places. What an exchange does not bring at once, several may.
"""

from typing import Final

import numpy as np

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, IndexArray, IntArray

STEPS: Final = (False, True, True, True)
"""Passes over all pairs: first exchanges that make room at once, then such that bring it nearer."""
BREADTH: Final = 256
"""So many nodes that lack little are looked at, and one more for every pod that is wanted."""
MOST: Final = 1.0
"""Nodes that lack this much of a request, summed over resources, are left alone."""


class Exchange:
    """Exchanges in one packing, between classes without rows or required levels."""

    def __init__(self, packing: Packing) -> None:
        """Put together the classes that ask for the same and may use the same nodes."""
        problem, room = packing.problem, packing.room
        self._packing = packing
        inside = problem.subgroup != NONE
        bound = problem.required[problem.gang] != NONE
        bound[inside] |= problem.sub_required[problem.subgroup[inside]] != NONE
        free = [
            c for c in np.flatnonzero(~bound).tolist() if c not in room.rows.of_class and c not in room.banned
        ]
        self._classes = np.array(free, np.int64)
        keys = np.hstack(
            [room.slots.demand[self._classes], problem.kind[self._classes, None].astype(np.int64)]
        )
        found, self._group = np.unique(keys, axis=0, return_inverse=True)
        self._group = self._group.reshape(-1)
        self._demand = found[:, :-1]
        self._members = [self._classes[self._group == u] for u in range(len(found))]
        self._group_of = np.full(len(problem.count), -1, np.int64)
        self._group_of[self._classes] = self._group
        self._held = np.zeros((len(found), len(problem.free)), np.int32)
        devices = self._demand[:, room.slots.devices]
        self._alike = [
            np.flatnonzero((devices == row).all(axis=1) & (self._demand != mine).any(axis=1)).tolist()
            for row, mine in zip(devices, self._demand, strict=True)
        ]

    def count(self, klass: int, nodes: IntArray, counts: IntArray) -> None:
        """Note pods of a class that came to nodes, or left them."""
        group = self._group_of[klass]
        if group >= 0:
            self._held[group, nodes] += counts.astype(np.int32)

    def clear(self) -> None:
        """Forget what was noted."""
        self._held = np.zeros_like(self._held)

    def make_room(self, klass: int, want: int, nodes: IntArray | None, counts: IndexArray) -> int:
        """Place up to `want` pods of a class by exchanges; returns how many.

        Args:
          klass: the class.
          want: how many pods at most.
          nodes: where they may go; anywhere when None.
          counts: [C, N] pods of each class on each node, kept in step here.
        """
        room = self._packing.room
        usable = np.flatnonzero(room.usable(klass)) if nodes is None else nodes[room.usable(klass)[nodes]]
        left = want
        for partly in STEPS:
            mark = room.mark()
            left -= self._pass(klass, left, usable, counts, partly)
            if left <= 0 or (partly and room.mark() == mark):
                break
        return want - left

    def _pass(self, klass: int, want: int, usable: IntArray, counts: IndexArray, partly: bool) -> int:
        """Every pair of groups once; `partly`: exchanges may bring a node only nearer to what it lacks."""
        demand = self._packing.room.slots.demand[klass]
        near = self._near(demand, usable)[: BREADTH + want]
        left = want
        for a in np.flatnonzero((self._held[:, near] > 0).any(axis=1)).tolist():
            here = near[self._held[a, near] > 0]
            for b in self._alike[a]:
                gain = self._demand[a] - self._demand[b]
                sources = self._lacking(demand, gain, here, partly)
                if not sources.size:
                    continue
                left -= self._swap(klass, (a, b), sources, left, counts)
                if left <= 0:
                    return want
                here = here[self._held[a, here] > 0]
        return want - left

    def _near(self, demand: IntArray, nodes: IntArray) -> IntArray:
        """The nodes that lack something, but do not lack most of it; those that lack the least first."""
        free, lack = self._packing.room.free, np.zeros(len(nodes))
        for r in np.flatnonzero(demand).tolist():
            lack += np.maximum(0.0, 1.0 - free[r][nodes] / demand[r])
        near = np.flatnonzero((lack > 0) & (lack < MOST))
        return nodes[near[np.argsort(lack[near], kind="stable")]]

    def _lacking(self, demand: IntArray, gain: IntArray, nodes: IntArray, partly: bool = False) -> IntArray:
        """The nodes that hold a pod with this demand once they have gained so much, or come nearer to it."""
        free = self._packing.room.free
        for r in np.flatnonzero(demand | gain).tolist():
            enough = free[r][nodes] + gain[r] >= demand[r]
            if partly and gain[r] > 0:
                continue
            nodes = nodes[enough]
        return nodes

    def _swap(
        self, klass: int, pair: tuple[int, int], sources: IntArray, want: int, counts: IndexArray
    ) -> int:
        """Let pods of the first group leave the sources for pods of the second; returns how many pods came in."""
        room = self._packing.room
        a, b = pair
        gain = self._demand[a] - self._demand[b]
        may_come = room.usable(int(self._members[b][0]))
        sources = sources[may_come[sources]]
        may_go = room.usable(int(self._members[a][0])).copy()
        may_go[sources] = False
        targets = self._lacking(np.zeros_like(gain), -gain, np.flatnonzero(may_go & (self._held[b] > 0)))
        want = room.quotas.room(int(self._packing.problem.gang[klass]), room.slots.needs[klass], want)
        demand, came = room.slots.demand[klass], 0
        for source, target in zip(sources.tolist(), targets.tolist(), strict=False):
            if came >= want:
                break
            leaving, coming = self._one(a, source, counts), self._one(b, target, counts)
            moves = [(leaving, source, -1), (coming, target, -1), (leaving, target, 1), (coming, source, 1)]
            if all(room.free[r][source] + gain[r] >= demand[r] for r in np.flatnonzero(demand).tolist()):
                moves.append((klass, source, 1))
                came += 1
            for c, node, pods in moves:
                room.put(c, np.array([node]), np.array([pods]))
                counts[c, node] += pods
                if self._group_of[c] >= 0:
                    self._held[self._group_of[c], node] += pods
        return came

    def _one(self, group: int, node: int, counts: IndexArray) -> int:
        """A class of the group with a pod on the node."""
        members = self._members[group]
        return int(members[np.argmax(counts[members, node] > 0)])
