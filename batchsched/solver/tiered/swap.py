"""Making room by exchange: two pods change places, so that what is left on one node is what a third pod lacks.

When CPU is nearly all taken, nobody can step aside any more, and yet memory is left on one node and CPU on another.
A pod that asks for more of what a node lacks leaves it, and one that asks for less comes in its place. Devices stay
where they are: only pods with equally many change places. What an exchange does not bring at once, several may.
"""

from typing import Final

import numpy as np

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, IndexArray, IntArray

STEPS: Final = (False, True, True, True)
"""Passes over all pairs: first exchanges that make room at once, then such that bring it nearer."""
BREADTH: Final = 4096
"""So many nodes that lack little are looked at, and one more for every pod that is wanted."""
MOST: Final = 1.01
"""Nodes that lack this much of a request, summed over resources, are left alone: one may be missing entirely."""
RECENT: Final = 64
"""So many placements may have happened since nobody could give anything, for only those to be looked at again."""


class PodSwap:
    """Exchanges in one packing, between classes without rows or required levels."""

    def __init__(self, packing: Packing) -> None:
        """Put together the classes that ask for the same and may use the same nodes."""
        problem, room = packing.problem, packing.room
        self._packing = packing
        inside = problem.classes.subgroup != NONE
        bound = problem.gangs.required[problem.classes.gang] != NONE
        bound[inside] |= problem.subgroups.required[problem.classes.subgroup[inside]] != NONE
        free = [
            c for c in np.flatnonzero(~bound).tolist() if c not in room.rows.of_class and c not in room.banned
        ]
        self._classes = np.array(free, np.int64)
        keys = np.hstack(
            [room.slots.demand[self._classes], problem.classes.kind[self._classes, None].astype(np.int64)]
        )
        found, self._group = np.unique(keys, axis=0, return_inverse=True)
        self._group = self._group.reshape(-1)
        self._demand = found[:, :-1]
        self._members = [self._classes[self._group == u] for u in range(len(found))]
        self._group_of = np.full(len(problem.classes.count), -1, np.int64)
        self._group_of[self._classes] = self._group
        self._held = np.zeros((len(found), len(problem.nodes.free)), np.int32)
        devices = self._demand[:, room.slots.devices]
        self._alike = [
            np.flatnonzero((devices == row).all(axis=1) & (self._demand != mine).any(axis=1))
            for row, mine in zip(devices, self._demand, strict=True)
        ]
        self._holders: dict[int, IntArray] = {}
        self._asked: dict[tuple[int, int], int] = {}
        self._marked = np.zeros(len(problem.nodes.free), np.bool_)

    def count(self, klass: int, nodes: IntArray, counts: IntArray) -> None:
        """Note pods of a class that came to nodes, or left them."""
        group = int(self._group_of[klass])
        if group >= 0:
            self._held[group, nodes] += counts.astype(np.int32)
            self._holders.pop(group, None)

    def clear(self) -> None:
        """Forget what was noted."""
        self._held = np.zeros_like(self._held)
        self._holders.clear()
        self._asked.clear()

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
            helped = self._helped(demand, a, here, partly)
            promising, at = np.flatnonzero(helped.any(axis=1)).tolist(), -1
            while promising and left > 0:
                at = promising.pop(0)
                moved, came = self._swap(klass, (a, int(self._alike[a][at])), here[helped[at]], left, counts)
                left -= came
                if moved:
                    here = here[self._held[a, here] > 0]
                    helped = self._helped(demand, a, here, partly)
                    promising = [one for one in np.flatnonzero(helped.any(axis=1)).tolist() if one > at]
            if left <= 0:
                break
        return want - left

    def _near(self, demand: IntArray, nodes: IntArray) -> IntArray:
        """The nodes that lack something, but do not lack most of it; those that lack the least first."""
        free, lack = self._packing.room.free, np.zeros(len(nodes))
        for r in np.flatnonzero(demand).tolist():
            lack += np.maximum(0.0, 1.0 - free[r][nodes] / demand[r])
        near = np.flatnonzero((lack > 0) & (lack < MOST))
        return nodes[near[np.argsort(lack[near], kind="stable")]]

    def _helped(self, demand: IntArray, group: int, nodes: IntArray, partly: bool) -> BoolArray:
        """[B, H] nodes that hold a pod with this demand once one of `group` left for one of its B alike.

        With `partly`, those that have enough of what they do not gain.
        """
        free, others = self._packing.room.free, self._alike[group]
        result = np.ones((len(others), len(nodes)), np.bool_)
        for r in range(len(demand)):
            gain = self._demand[group, r] - self._demand[others, r]
            if not demand[r] and not gain.any():
                continue
            enough = free[r][nodes] + gain[:, None] >= demand[r]
            if partly:
                enough |= gain[:, None] > 0
            result &= enough
        return result

    def _swap(
        self, klass: int, pair: tuple[int, int], sources: IntArray, want: int, counts: IndexArray
    ) -> tuple[bool, int]:
        """Let pods of the first group leave the sources for pods of the second.

        Returns:
          whether any did, and how many pods of the class came in.
        """
        room = self._packing.room
        a, b = pair
        gain = self._demand[a] - self._demand[b]
        targets = self._givers(pair, gain)
        if not targets.size:
            return False, 0
        sources = sources[room.usable(int(self._members[b][0]))[sources]]
        self._marked[sources] = True
        targets = targets[~self._marked[targets]]
        self._marked[sources] = False
        pairs = min(len(sources), len(targets))
        want = room.quotas.room(int(self._packing.problem.classes.gang[klass]), room.slots.needs[klass], want)
        if not pairs or want <= 0:
            return False, 0
        enough = np.ones(pairs, np.bool_)
        for r, amount in room.slots.needs[klass]:
            enough &= room.free[r][sources[:pairs]] + gain[r] >= amount
        came = enough.cumsum()
        pairs = min(pairs, int(came.searchsorted(want)) + 1)
        sources, targets = sources[:pairs], targets[:pairs]
        self._trade(a, sources, targets, counts)
        self._trade(b, targets, sources, counts)
        into = sources[enough[:pairs]]
        if into.size:
            self._put(klass, into, np.ones(len(into), np.int64), counts)
        return True, len(into)

    def _givers(self, pair: tuple[int, int], gain: IntArray) -> IntArray:
        """The nodes that can give a pod of the second group for one of the first.

        Where nobody could, nobody can unless something changed: only what the trail names since is looked at.
        """
        trail, nobody = self._packing.room.trail, np.zeros(0, np.int64)
        seen = self._asked.get(pair)
        if seen is not None and 0 <= len(trail) - seen <= RECENT:
            changed = np.concatenate([nobody, *(entry.nodes for entry in trail[seen:])])
            changed = changed[self._held[pair[1], changed] > 0]
            givers = self._able(pair, gain, changed) if changed.size else nobody
            if not givers.size:
                self._asked[pair] = len(trail)
                return nobody
        givers = self._able(pair, gain, self._holders_of(pair[1]))
        if givers.size:
            self._asked.pop(pair, None)
        else:
            self._asked[pair] = len(trail)
        return givers

    def _able(self, pair: tuple[int, int], gain: IntArray, nodes: IntArray) -> IntArray:
        """Those of these nodes, holders of the second group, that have room for a pod of the first in its place."""
        room = self._packing.room
        nodes = nodes[room.usable(int(self._members[pair[0]][0]))[nodes]]
        for r in np.flatnonzero(gain > 0).tolist():
            nodes = nodes[room.free[r][nodes] >= gain[r]]
        return nodes

    def _holders_of(self, group: int) -> IntArray:
        """The nodes with pods of a group, ascending."""
        if group not in self._holders:
            self._holders[group] = np.flatnonzero(self._held[group] > 0)
        return self._holders[group]

    def _trade(self, group: int, leave: IntArray, enter: IntArray, counts: IndexArray) -> None:
        """Move a pod of a group from each of the first nodes to its counterpart among the second."""
        members = self._members[group]
        movers = members[np.argmax(counts[members[:, None], leave] > 0, axis=0)]
        step = np.ones(len(leave), np.int64)
        for klass in np.unique(movers).tolist():
            mine = movers == klass
            nodes = np.concatenate([leave[mine], enter[mine]])
            self._put(klass, nodes, np.concatenate([-step[mine], step[mine]]), counts)

    def _put(self, klass: int, nodes: IntArray, pods: IntArray, counts: IndexArray) -> None:
        """Place pods, or take them away, and keep step."""
        self._packing.room.put(klass, nodes, pods)
        counts[klass, nodes] += pods.astype(np.int32)
        self.count(klass, nodes, pods)
