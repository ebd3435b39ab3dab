"""Exchange: two pods swap their nodes, so that what is free on one node is the amount that a third pod lacks.

If nearly all CPU is allocated, no pod can be relocated any more; yet one node may have free memory and another one
free CPU. A pod that requests more of what a node lacks leaves it, and one that requests less takes its place.
Devices do not change hands: only pods with equal device requests are exchanged. Several exchanges may be needed
for one pod.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from batchsched.solver.local_search.neighbourhood import PlacedPods, RoomRequest
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import BoolArray, IntArray

PASSES: Final = (False, True, True, True)
"""Passes over all pairs of groups, by `partial`: first exchanges that make room at once, then partial ones."""
BASE_NODES: Final = 4096
"""Nodes that lack little are examined: this many, and one more for every pod that is to be placed."""
MAX_LACK: Final = 1.01
"""Nodes that lack this much of a request, summed over resources as fractions, are skipped: about one pod's worth."""
MAX_RECENT_ENTRIES: Final = 64
"""If no node could give a pod at most this many trail entries ago, only nodes of these entries are examined again."""


class SwapMove(NamedTuple):
    """Pods of one group leave the sources, pods of another group take their places."""

    leaving: int
    entering: int
    sources: IntArray


class SwapNeighbourhood:
    """The neighbourhood of exchanges between two groups of classes."""

    def __init__(self, packing: Packing, placed: PlacedPods) -> None:
        self._packing, self._placed = packing, placed
        demand = placed.group_demand
        devices = demand[:, packing.room.slots.devices]
        self._partners = [
            np.flatnonzero((devices == own_devices).all(axis=1) & (demand != own).any(axis=1))
            for own_devices, own in zip(devices, demand, strict=True)
        ]
        # By pair of groups, the length of the trail when no node could give a pod; valid until a rebuild.
        self._exhausted: dict[tuple[int, int], int] = {}
        self._rebuilds = 0
        self._marked = np.zeros(len(packing.problem.nodes.free), np.bool_)

    def propose(self, request: RoomRequest) -> Iterator[SwapMove]:
        """Yield exchanges of every pair of groups, pass by pass, until a pass changes nothing."""
        room, class_index = self._packing.room, request.class_index
        self._refresh()
        usable = room.usable(class_index)
        nodes = np.flatnonzero(usable) if request.nodes is None else request.nodes[usable[request.nodes]]
        for partial in PASSES:
            mark = room.mark()
            yield from self._propose_pass(request, nodes, partial)
            if partial and room.mark() == mark:
                return

    def _propose_pass(self, request: RoomRequest, nodes: IntArray, partial: bool) -> Iterator[SwapMove]:
        """Yield exchanges of every pair of groups once; `partial`: also those that only reduce what a node lacks."""
        room, by_group = self._packing.room, self._placed.by_group
        demand = room.slots.demand[request.class_index]
        near = self._near(demand, nodes)[: BASE_NODES + request.left]
        for leaving in np.flatnonzero((by_group[:, near] > 0).any(axis=1)).tolist():
            sources = near[by_group[leaving, near] > 0]
            helped = self._helped(demand, leaving, sources, partial)
            promising, partner = np.flatnonzero(helped.any(axis=1)).tolist(), -1
            while promising:
                partner = promising.pop(0)
                mark = room.mark()
                yield SwapMove(leaving, int(self._partners[leaving][partner]), sources[helped[partner]])
                if room.mark() != mark:
                    # The exchange changed what is free: what was computed for the next partners is outdated.
                    sources = sources[by_group[leaving, sources] > 0]
                    helped = self._helped(demand, leaving, sources, partial)
                    promising = [p for p in np.flatnonzero(helped.any(axis=1)).tolist() if p > partner]

    def apply(self, request: RoomRequest, move: SwapMove) -> int | None:
        """Exchange as many pairs of pods as the request needs, and place its pods where enough is free then."""
        room, placed, class_index = self._packing.room, self._placed, request.class_index
        leaving, entering, sources = move
        gain = placed.group_demand[leaving] - placed.group_demand[entering]
        targets = self._givers((leaving, entering), gain)
        if not targets.size:
            return None
        sources = sources[room.usable(int(placed.members[entering][0]))[sources]]
        self._marked[sources] = True
        targets = targets[~self._marked[targets]]
        self._marked[sources] = False
        pairs = min(len(sources), len(targets))
        gang = int(self._packing.problem.classes.gang[class_index])
        want = room.quotas.room(gang, room.slots.needs[class_index], request.left)
        if not pairs or want <= 0:
            return None
        enough = np.ones(pairs, np.bool_)
        for resource, amount in room.slots.needs[class_index]:
            enough &= room.free[resource][sources[:pairs]] + gain[resource] >= amount
        # No more pairs than it takes to place `want` pods.
        pairs = min(pairs, int(enough.cumsum().searchsorted(want)) + 1)
        sources, targets = sources[:pairs], targets[:pairs]
        self._move_group(leaving, sources, targets)
        self._move_group(entering, targets, sources)
        into = sources[enough[:pairs]]
        if into.size:
            room.put(class_index, into, np.ones(len(into), np.int64))
            placed.refresh()
        return len(into)

    def _refresh(self) -> None:
        self._placed.refresh()
        if self._rebuilds != self._placed.rebuilds:
            self._exhausted.clear()
            self._rebuilds = self._placed.rebuilds

    def _near(self, demand: IntArray, nodes: IntArray) -> IntArray:
        """Nodes that lack something but less than `MAX_LACK`, those that lack the least first."""
        free, lack = self._packing.room.free, np.zeros(len(nodes))
        for resource in np.flatnonzero(demand).tolist():
            lack += np.maximum(0.0, 1.0 - free[resource][nodes] / demand[resource])
        near = np.flatnonzero((lack > 0) & (lack < MAX_LACK))
        return nodes[near[np.argsort(lack[near], kind="stable")]]

    def _helped(self, demand: IntArray, group: int, nodes: IntArray, partial: bool) -> BoolArray:
        """[P, n] whether a pod with this demand fits on a node once a pod of `group` left for one of each partner.

        With `partial`, resources of which the node gains are not required to suffice.
        """
        free, partners = self._packing.room.free, self._partners[group]
        group_demand = self._placed.group_demand
        result = np.ones((len(partners), len(nodes)), np.bool_)
        for resource in range(len(demand)):
            gain = group_demand[group, resource] - group_demand[partners, resource]
            if not demand[resource] and not gain.any():
                continue
            enough = free[resource][nodes] + gain[:, None] >= demand[resource]
            if partial:
                enough |= gain[:, None] > 0
            result &= enough
        return result

    def _givers(self, pair: tuple[int, int], gain: IntArray) -> IntArray:
        """Nodes that can give a pod of the second group for one of the first.

        Once no node can, none can until something changes there: only nodes that the trail names since are examined.
        """
        trail, by_group = self._packing.room.trail, self._placed.by_group
        none = np.zeros(0, np.int64)
        exhausted_at = self._exhausted.get(pair)
        if exhausted_at is not None and 0 <= len(trail) - exhausted_at <= MAX_RECENT_ENTRIES:
            changed = np.concatenate([none, *(entry.nodes for entry in trail[exhausted_at:])])
            changed = changed[by_group[pair[1], changed] > 0]
            givers = self._able(pair, gain, changed) if changed.size else none
            if not givers.size:
                self._exhausted[pair] = len(trail)
                return none
        givers = self._able(pair, gain, self._placed.holders(pair[1]))
        if givers.size:
            self._exhausted.pop(pair, None)
        else:
            self._exhausted[pair] = len(trail)
        return givers

    def _able(self, pair: tuple[int, int], gain: IntArray, nodes: IntArray) -> IntArray:
        """Those of `nodes`, holders of the second group, that have room for a pod of the first in its place."""
        room = self._packing.room
        nodes = nodes[room.usable(int(self._placed.members[pair[0]][0]))[nodes]]
        for resource in np.flatnonzero(gain > 0).tolist():
            nodes = nodes[room.free[resource][nodes] >= gain[resource]]
        return nodes

    def _move_group(self, group: int, leave: IntArray, enter: IntArray) -> None:
        """Move one pod of a group from each node of `leave` to its counterpart in `enter`."""
        members, by_class = self._placed.members[group], self._placed.by_class
        movers = members[np.argmax(by_class[members[:, None], leave] > 0, axis=0)]
        step = np.ones(len(leave), np.int64)
        for class_index in np.unique(movers).tolist():
            own = movers == class_index
            nodes = np.concatenate([leave[own], enter[own]])
            self._packing.room.put(class_index, nodes, np.concatenate([-step[own], step[own]]))
        self._placed.refresh()
