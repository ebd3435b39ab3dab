"""What every neighbourhood of the local search shares: the request, the protocol, and the table of placed pods."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, IndexArray, IntArray

Move = TypeVar("Move")


@dataclass(slots=True)
class RoomRequest:
    """Pods of one class that do not fit as the packing is now.

    Args:
      class_index: the class.
      left: pods that are not placed yet; `LocalSearch` counts down after each move.
      nodes: ascending node numbers that the pods may use, None for all.
    """

    class_index: int
    left: int
    nodes: IntArray | None


class Neighbourhood(Protocol[Move]):
    """One kind of move that makes room for a pod by moving other pods of the session.

    `LocalSearch` draws moves from `propose`, calls `apply` for each, and undoes those that fail.
    """

    def propose(self, request: RoomRequest) -> Iterator[Move]:
        """Yield moves that may make room. The packing changes between two moves."""
        ...

    def apply(self, request: RoomRequest, move: Move) -> int | None:
        """Make a move.

        Returns:
          how many pods of the request were placed; None if the move is impossible. Then the caller rolls the packing
          back to the state before the call.
        """
        ...


class PlacedPods:
    """Table of the pods of a packing by class and node, which follows the packing's trail.

    `refresh` reads the new entries of the trail. If entries that were read already have been rolled back or
    withdrawn, it rebuilds the table: the packing reports both through `cut_back`, so that no caller has to.

    A group is a set of classes with equal demand and kind. Their pods may be exchanged: neither a row, a required
    level nor a cut concerns them.
    """

    def __init__(self, packing: Packing) -> None:
        """Start with an empty table; the packing may hold pods already."""
        problem, room = packing.problem, packing.room
        self._room = room
        self._read = 0
        self._stale = False
        self.rebuilds = 0
        """How often the table was rebuilt. What was derived from the trail before a rebuild is no longer valid."""
        self.by_class: IndexArray = np.zeros((len(problem.classes.count), len(problem.nodes.free)), np.int32)
        """[C, N] pods of each class on each node."""
        free_classes = np.array(_exchangeable(packing), np.int64)
        keys = np.hstack(
            [room.slots.demand[free_classes], problem.classes.kind[free_classes, None].astype(np.int64)]
        )
        distinct, group = np.unique(keys, axis=0, return_inverse=True)
        group = group.reshape(-1)
        self.group_demand: IntArray = distinct[:, :-1]
        """[H, R] demand of one pod of each group."""
        self.members = [free_classes[group == number] for number in range(len(distinct))]
        """Classes of each group."""
        self._group_of = np.full(len(problem.classes.count), NONE, np.int64)
        self._group_of[free_classes] = group
        self.by_group: IndexArray = np.zeros((len(distinct), len(problem.nodes.free)), np.int32)
        """[H, N] pods of each group on each node."""
        self._holders: dict[int, IntArray] = {}
        room.trail_tables.append(self)

    def cut_back(self, length: int) -> None:
        """Note that only the first `length` entries of the trail are unchanged."""
        self._stale |= length < self._read

    def refresh(self) -> None:
        """Bring the table up to date with the trail."""
        if self._stale:
            # Fresh zero pages are cheaper than clearing: most pages are never written.
            self.by_class = np.zeros_like(self.by_class)
            self.by_group = np.zeros_like(self.by_group)
            self._holders.clear()
            self._read, self._stale = 0, False
            self.rebuilds += 1
        trail = self._room.trail
        for entry in trail[self._read :]:
            if entry.class_index < 0:
                continue
            counts = entry.counts.astype(np.int32)
            self.by_class[entry.class_index, entry.nodes] += counts
            group = int(self._group_of[entry.class_index])
            if group >= 0:
                self.by_group[group, entry.nodes] += counts
                self._holders.pop(group, None)
        self._read = len(trail)

    def holders(self, group: int) -> IntArray:
        """Return the nodes that hold pods of a group, ascending."""
        if group not in self._holders:
            self._holders[group] = np.flatnonzero(self.by_group[group] > 0)
        return self._holders[group]


def _exchangeable(packing: Packing) -> list[int]:
    """Classes without rows, cuts and required levels."""
    problem, room = packing.problem, packing.room
    classes, subgroups = problem.classes, problem.subgroups
    inside = classes.subgroup != NONE
    levelled: BoolArray = problem.gangs.required[classes.gang] != NONE
    levelled[inside] |= subgroups.required[classes.subgroup[inside]] != NONE
    return [
        class_index
        for class_index in np.flatnonzero(~levelled).tolist()
        if class_index not in room.rows.of_class and class_index not in room.banned
    ]
