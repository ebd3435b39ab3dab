"""Making room by moving pods of this session: before a class falls short, others step aside.

Nothing here is bound yet, so a pod may go elsewhere for free. For a class that fits nowhere any more, every other class
is asked: on which nodes would one (two, three) of its pods leave just what is missing, and does it fit on other
nodes of its own domain? Whole batches of such moves are made at once.
"""

from typing import Final

import numpy as np

from batchsched.solver.packing.node_order import augmented_free
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, IndexArray, IntArray
from batchsched.solver.tiered.swap import PodSwap

TOGETHER: Final = 3
"""At most so many pods of one class leave a node to make room for one pod."""
CLEARED: Final = 32
"""At most so many nodes are emptied, or tried, to make room for pods with devices."""
PATIENCE: Final = 64
"""At most so many classes are asked, the smallest pods first."""


class PodRelocation:
    """The pods of a packing by class and node, kept in step with the packing's trail."""

    def __init__(self, packing: Packing) -> None:
        """Start from a packing; it may already hold pods."""
        self._packing = packing
        problem = packing.problem
        self._counts = np.zeros((len(problem.classes.count), len(problem.nodes.free)), np.int32)
        self._seen = 0
        self._empty = augmented_free(problem)
        self._exchange = PodSwap(packing)
        slots = packing.room.slots
        small = np.array([slots.dominant(c) for c in range(len(problem.classes.count))])
        self._small_first = np.argsort(small, kind="stable")

    def rewind(self) -> None:
        """Forget what was seen: the trail was cut back or thinned."""
        self._counts = np.zeros_like(self._counts)  # fresh pages: clearing would touch every one
        self._exchange.clear()
        self._seen = 0

    def make_room(self, klass: int, want: int, nodes: IntArray | None) -> int:
        """Place up to `want` pods of a class on `nodes` (all when None) by moving others; returns how many."""
        room = self._packing.room
        if klass in room.rows.of_class:
            return 0
        left = want
        for together in range(1, TOGETHER + 1):
            for other in self._movable(klass)[:PATIENCE]:
                if left <= 0:
                    return want
                left -= self._swap(klass, other, together, left, nodes)
        if left > 0 and room.slots.device_of[klass] >= 0:
            left -= self._clear(klass, left, nodes)
        if left > 0:
            self._catch_up()
            left -= self._exchange.make_room(klass, left, nodes, self._counts)
            self._seen = len(room.trail)
        return want - left

    def _movable(self, klass: int) -> list[int]:
        """Classes with pods placed, no rows to respect, the smallest first."""
        room, problem = self._packing.room, self._packing.problem
        waiting = np.array(room.waiting, np.int64)
        placed = (problem.classes.count - waiting)[self._small_first] > 0
        return [c for c in self._small_first[placed].tolist() if c != klass and c not in room.rows.of_class]

    def _sources(self, klass: int, other: int, together: int, nodes: IntArray | None) -> IntArray:
        """Nodes where the class fits once so many pods of the other have left."""
        room = self._packing.room
        self._catch_up()
        where = np.flatnonzero(self._counts[other] >= together) if nodes is None else (
            nodes[self._counts[other][nodes] >= together]
        )  # fmt: skip
        where = where[room.usable(klass)[where]]
        demand, gain = room.slots.demand[klass], room.slots.demand[other] * together
        for r, amount in room.slots.needs[klass]:
            where = where[room.free[r][where] + gain[r] >= amount]
        return where if (demand > 0).any() else where[:0]

    def _swap(self, klass: int, other: int, together: int, want: int, nodes: IntArray | None) -> int:
        """Move pods of `other` away from nodes that `klass` then takes; returns how many pods of `klass` went."""
        room = self._packing.room
        sources = self._sources(klass, other, together, nodes)
        if not sources.size:
            return 0
        fit = room.fit(other, None)
        cell = self._cell(other)
        if cell is not None:
            inside = np.zeros(len(fit), np.bool_)
            inside[cell] = True
            fit = fit * inside
        # A source is no target: those that could take the fewest themselves are cleared first.
        sources = sources[np.argsort(fit[sources], kind="stable")][: self._admitted(klass, want)]
        others = int(fit.sum()) - np.cumsum(fit[sources])
        moves = int(np.count_nonzero(others >= together * np.arange(1, len(sources) + 1)))
        if moves <= 0:
            return 0
        sources = np.sort(sources[:moves])
        fit[sources] = 0
        targets = np.flatnonzero(fit)
        room.put(other, sources, np.full(moves, -together, np.int64))
        fit_after = room.fit(other, targets)
        mark = room.mark()
        if (
            int(fit_after.sum()) < moves * together
            or room.place(other, moves * together, targets) < moves * together
        ):
            room.rollback(mark - 1)
            self._seen = min(self._seen, len(room.trail))
            return 0
        room.put(klass, sources, np.ones(moves, np.int64))
        return moves

    def _clear(self, klass: int, want: int, nodes: IntArray | None) -> int:
        """Empty nodes that would hold a pod of the class if no pod of the session stood in the way."""
        self._catch_up()
        room, problem = self._packing.room, self._packing.problem
        want = self._admitted(klass, want)
        mine = room.usable(klass) if nodes is None else np.isin(np.arange(len(problem.nodes.free)), nodes)
        where = np.flatnonzero(mine & room.usable(klass))
        for r, amount in room.slots.needs[klass]:
            where = where[self._empty[r][where] >= amount]
        pods = self._counts[:, where]
        device = room.slots.device_of[klass]
        small = room.slots.demand[:, device] < room.slots.demand[klass, device]
        movable = small & np.array([c not in room.rows.of_class for c in range(len(small))])
        pods, where = pods[:, ~(pods[~movable] > 0).any(axis=0)], where[~(pods[~movable] > 0).any(axis=0)]
        came = 0
        for column in np.argsort(pods.sum(axis=0), kind="stable")[:CLEARED].tolist():
            if came >= want:
                break
            came += self._empty_node(klass, int(where[column]), pods[:, column])
        return came

    def _empty_node(self, klass: int, node: int, pods: IndexArray) -> bool:
        """Let a pod of the class take a node whose pods all find another place in their domains."""
        room = self._packing.room
        mark, at = room.mark(), np.array([node])
        here = [(c, int(pods[c])) for c in self._small_first[::-1].tolist() if pods[c] > 0]
        for c, count in here:
            room.put(c, at, np.array([-count]))
        if not room.fit(klass, at)[0]:
            room.rollback(mark)
            return False
        room.put(klass, at, np.ones(1, np.int64))
        for c, count in here:
            if room.place(c, count, self._cell(c), whole=True) < count:
                room.rollback(mark)
                return False
        return True

    def _admitted(self, klass: int, want: int) -> int:
        room = self._packing.room
        return room.quotas.room(int(self._packing.problem.classes.gang[klass]), room.slots.needs[klass], want)

    def _cell(self, klass: int) -> IntArray | None:
        """Where the pods of a class may go by the domains chosen."""
        problem = self._packing.problem
        gang, sub = int(problem.classes.gang[klass]), int(problem.classes.subgroup[klass])
        if problem.gangs.required[gang] == NONE and (sub == NONE or problem.subgroups.required[sub] == NONE):
            return None
        return self._packing.cell_of(klass)

    def _catch_up(self) -> None:
        trail = self._packing.room.trail
        for entry in trail[self._seen :]:
            if entry.klass >= 0:
                self._counts[entry.klass, entry.nodes] += entry.counts.astype(np.int32)
                self._exchange.count(entry.klass, entry.nodes, entry.counts)
        self._seen = len(trail)
