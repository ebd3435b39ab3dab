"""Relocation: pods of other classes move to other nodes of their domains, so that a class finds room.

For each other class the nodes are sought where one, two or three of its pods leave just the amount that is missing.
If these pods fit on other nodes, all such moves are made in one batch.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from batchsched.solver.local_search.neighbourhood import PlacedPods, RoomRequest
from batchsched.solver.packing.node_order import augmented_free
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, IndexArray, IntArray

MAX_PODS_PER_MOVE: Final = 3
"""Maximum pods of one class that leave a node to make room for one pod."""
MAX_CLASSES: Final = 64
"""Maximum classes that are tried, the smallest pods first."""
MAX_CLEARED_NODES: Final = 32
"""Maximum nodes that are cleared, or tried, to make room for pods with devices."""


class RelocationMove(NamedTuple):
    """Pods of one class leave many nodes, equally many from each node."""

    class_index: int
    pods_per_node: int


class RelocationNeighbourhood:
    """The neighbourhood in which pods of one class move to other nodes, a batch at once."""

    def __init__(self, packing: Packing, placed: PlacedPods) -> None:
        self._packing, self._placed = packing, placed
        self._small_first = _small_first(packing)

    def propose(self, request: RoomRequest) -> Iterator[RelocationMove]:
        """Yield every other movable class with 1, 2 and 3 pods a node."""
        for pods_per_node in range(1, MAX_PODS_PER_MOVE + 1):
            for other in self._movable(request.class_index)[:MAX_CLASSES]:
                yield RelocationMove(other, pods_per_node)

    def apply(self, request: RoomRequest, move: RelocationMove) -> int | None:
        """Move the pods away from as many nodes as the request still needs."""
        packing, room = self._packing, self._packing.room
        other, each = move
        sources = self._sources(request, move)
        if not sources.size:
            return None
        fit = room.fit(other, None)
        cell = _allowed_nodes(packing, other)
        if cell is not None:
            inside = np.zeros(len(fit), np.bool_)
            inside[cell] = True
            fit = fit * inside
        # A source is no target. Sources that could take the fewest pods themselves are cleared first.
        sources = sources[np.argsort(fit[sources], kind="stable")][: _admitted(packing, request)]
        # fit_elsewhere[i]: pods that fit outside the first i + 1 sources.
        fit_elsewhere = int(fit.sum()) - np.cumsum(fit[sources])
        moves = int(np.count_nonzero(fit_elsewhere >= each * np.arange(1, len(sources) + 1)))
        if moves <= 0:
            return None
        sources = np.sort(sources[:moves])
        fit[sources] = 0
        targets = np.flatnonzero(fit)
        room.put(other, sources, np.full(moves, -each, np.int64))
        # `fit` ignores rows and quotas of the other class; only placing tells whether all pods find a node.
        if (
            int(room.fit(other, targets).sum()) < moves * each
            or room.place(other, moves * each, targets) < moves * each
        ):
            return None
        room.put(request.class_index, sources, np.ones(moves, np.int64))
        return moves

    def _movable(self, class_index: int) -> list[int]:
        """Other classes that have pods placed and no rows to respect, the smallest first."""
        room, classes = self._packing.room, self._packing.problem.classes
        waiting = np.array(room.waiting, np.int64)
        placed = (classes.count - waiting)[self._small_first] > 0
        return [
            other
            for other in self._small_first[placed].tolist()
            if other != class_index and other not in room.rows.of_class
        ]

    def _sources(self, request: RoomRequest, move: RelocationMove) -> IntArray:
        """Nodes where the class fits once the pods of the move have left."""
        room, class_index = self._packing.room, request.class_index
        self._placed.refresh()
        counts = self._placed.by_class[move.class_index]
        nodes = request.nodes
        sources: IntArray = (
            np.flatnonzero(counts >= move.pods_per_node)
            if nodes is None
            else nodes[counts[nodes] >= move.pods_per_node]
        )
        sources = sources[room.usable(class_index)[sources]]
        demand = room.slots.demand[class_index]
        gain = room.slots.demand[move.class_index] * move.pods_per_node
        for resource, amount in room.slots.needs[class_index]:
            sources = sources[room.free[resource][sources] + gain[resource] >= amount]
        return sources if (demand > 0).any() else sources[:0]


class ClearingMove(NamedTuple):
    """A node and its pods of this session."""

    node: int
    pods: IndexArray  # [C]


class ClearingNeighbourhood:
    """The neighbourhood in which all pods of this session leave a node for a pod with devices."""

    def __init__(self, packing: Packing, placed: PlacedPods) -> None:
        self._packing, self._placed = packing, placed
        self._empty = augmented_free(packing.problem)  # [R, N] free amounts before this session
        self._small_first = _small_first(packing)

    def propose(self, request: RoomRequest) -> Iterator[ClearingMove]:
        """Yield nodes that would hold a pod of the class without the pods of this session, the fewest pods first."""
        room, problem, class_index = self._packing.room, self._packing.problem, request.class_index
        device = room.slots.device_of[class_index]
        if device < 0:
            return
        self._placed.refresh()
        goal = request.left - _admitted(self._packing, request)
        usable = room.usable(class_index)
        if request.nodes is not None:
            usable = usable & np.isin(np.arange(len(problem.nodes.free)), request.nodes)
        nodes = np.flatnonzero(usable)
        for resource, amount in room.slots.needs[class_index]:
            nodes = nodes[self._empty[resource][nodes] >= amount]
        pods = self._placed.by_class[:, nodes]
        # Only pods that ask for fewer devices leave: larger ones are harder to place than the pod that comes.
        small = room.slots.demand[:, device] < room.slots.demand[class_index, device]
        movable = small & np.array([other not in room.rows.of_class for other in range(len(small))])
        clearable = ~(pods[~movable] > 0).any(axis=0)
        pods, nodes = pods[:, clearable], nodes[clearable]
        for column in np.argsort(pods.sum(axis=0), kind="stable")[:MAX_CLEARED_NODES].tolist():
            if request.left <= goal:
                return
            yield ClearingMove(int(nodes[column]), pods[:, column])

    def apply(self, request: RoomRequest, move: ClearingMove) -> int | None:
        """Place a pod of the class on the node if all its pods find other nodes in their domains."""
        room, class_index = self._packing.room, request.class_index
        node = np.array([move.node])
        # The largest pods first: they are the hardest to place elsewhere.
        leaving = [(c, int(move.pods[c])) for c in self._small_first[::-1].tolist() if move.pods[c] > 0]
        for other, count in leaving:
            room.put(other, node, np.array([-count]))
        if not room.fit(class_index, node)[0]:
            return None
        room.put(class_index, node, np.ones(1, np.int64))
        for other, count in leaving:
            if room.place(other, count, _allowed_nodes(self._packing, other), whole=True) < count:
                return None
        return 1


def _small_first(packing: Packing) -> IntArray:
    """Classes by the dominant share of one pod, the smallest first."""
    slots = packing.room.slots
    sizes = np.array([slots.dominant(c) for c in range(len(packing.problem.classes.count))])
    return np.argsort(sizes, kind="stable")


def _admitted(packing: Packing, request: RoomRequest) -> int:
    """How many pods of the request the quotas of its gang admit."""
    room, gang = packing.room, int(packing.problem.classes.gang[request.class_index])
    return room.quotas.room(gang, room.slots.needs[request.class_index], request.left)


def _allowed_nodes(packing: Packing, class_index: int) -> IntArray | None:
    """Nodes of the domains that were chosen for the class, None if no level is required."""
    problem = packing.problem
    gang, subgroup = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
    if problem.gangs.required[gang] == NONE and (
        subgroup == NONE or problem.subgroups.required[subgroup] == NONE
    ):
        return None
    return packing.cell_of(class_index)
