"""Local search: move pods that this session has placed, so that pods of another class fit, too.

No pod of this session is bound yet, so a move costs nothing. Four neighbourhoods are tried in turn, from the
one with the least computing work to the one with the most:

* *Relocation*: pods of other classes move to other nodes of their domains. For each other class the nodes are sought
  where one, two or three of its pods leave just the amount that is missing. If these pods fit on other nodes, all
  such moves are made in one batch.
* *Clearing*: all pods of this session leave a node for a pod with devices.
* *Exchange*: two pods swap their nodes, so that what is free on one node is the amount that a third pod lacks. If
  nearly all CPU is allocated, no pod can be relocated any more; yet one node may have free memory and another one
  free CPU. Devices do not change hands: only pods with equal device requests are exchanged. Several exchanges may be
  needed for one pod.
* *Repacking*: all pods of the session on a few nodes are placed again by an exact model (`solver.repacking`).

Shapes: C classes, H groups, N nodes, P partners of a group, R resources.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.packing.node_order import free_amounts_with_plugin_limits
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, IndexArray, IntArray
from batchsched.solver.repacking import Repacking, RepackingSearch

Move = TypeVar("Move")


@dataclass(slots=True)
class CapacityRequest:
    """A request to the local search: free enough capacity for pods of a pod class that do not fit now.

    Args:
      class_index: the class.
      missing_pods: pods that are not placed yet; `LocalSearch` counts down after each move.
      nodes: ascending node numbers that the pods may use, None for all.
    """

    class_index: int
    missing_pods: int
    nodes: IntArray | None


class Neighbourhood(Protocol[Move]):
    """One kind of move of the local search: it frees capacity for a pod by moving other pods of the session.

    `LocalSearch` draws moves from `propose_moves`, calls `try_move` for each, and undoes those that fail.
    """

    def propose_moves(self, request: CapacityRequest) -> Iterator[Move]:
        """Yield moves of placed pods that may free capacity for the requested pods.

        The packing changes between two moves.
        """
        ...

    def try_move(self, request: CapacityRequest, move: Move) -> int | None:
        """Make one move of the local search, and place requested pods in the capacity that it frees.

        Returns:
          how many pods of the request were placed; None if the move is impossible. Then the caller rolls the packing
          back to the state before the call.
        """
        ...


class PlacedPodCounts:
    """The number of pods of each pod class on each node, kept up to date with the solver's placements.

    `refresh` reads the new entries of the trail. If entries that were read already have been rolled back or
    withdrawn, it rebuilds the table: the packing reports both to its listeners, so that no caller has to.

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
        room.add_trail_removal_listener(self.mark_outdated_if_undone)

    def mark_outdated_if_undone(self, length: int) -> None:
        """Mark this table as outdated if placements that it counts were undone after its last update.

        The first `length` entries of the trail were kept; all later ones were undone or withdrawn.
        """
        self._stale |= length < self._read

    def update_counts_from_trail(self) -> None:
        """Bring the table of placed pods up to date with the changes of the packing."""
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

    def nodes_with_pods_of_group(self, group: int) -> IntArray:
        """Return the nodes, ascending, on which pods of a group of exchangeable pod classes are placed."""
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
    levelled |= packing.trees.is_tree[classes.gang]
    return [
        class_index
        for class_index in np.flatnonzero(~levelled).tolist()
        if class_index not in room.rows.of_class and class_index not in room.banned
    ]


MAX_PODS_PER_MOVE: Final = 3
"""Maximum pods of one class that leave a node to make room for one pod."""
MAX_CLASSES: Final = 64
"""Maximum classes that are tried, the smallest pods first."""
MAX_CLEARED_NODES: Final = 32
"""Maximum nodes that are cleared, or tried, to make room for pods with devices."""


class RelocationMove(NamedTuple):
    """A move of the local search: pods of one pod class leave several nodes, the same number from each."""

    class_index: int
    pods_per_node: int


class RelocationNeighbourhood:
    """Moves of the local search that relocate pods of one pod class from several nodes at once."""

    def __init__(self, packing: Packing, placed: PlacedPodCounts) -> None:
        self._packing, self._placed = packing, placed
        self._small_first = _small_first(packing)

    def propose_moves(self, request: CapacityRequest) -> Iterator[RelocationMove]:
        """Yield moves that relocate 1, 2 or 3 pods of another pod class from each of several nodes."""
        for pods_per_node in range(1, MAX_PODS_PER_MOVE + 1):
            for other in self._movable(request.class_index)[:MAX_CLASSES]:
                yield RelocationMove(other, pods_per_node)

    def try_move(self, request: CapacityRequest, move: RelocationMove) -> int | None:
        """Relocate pods away from as many nodes as needed, and place one requested pod on each of these nodes."""
        packing, room = self._packing, self._packing.room
        other, each = move
        sources = self._sources(request, move)
        if not sources.size:
            return None
        fit = room.count_fitting_pods(other, None)
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
        room.change_placed_pods_unchecked(other, sources, np.full(moves, -each, np.int64))
        # `fit` ignores rows and quotas of the other class; only placing tells whether all pods find a node.
        if (
            int(room.count_fitting_pods(other, targets).sum()) < moves * each
            or room.place_pods_up_to(other, moves * each, targets) < moves * each
        ):
            return None
        room.change_placed_pods_unchecked(request.class_index, sources, np.ones(moves, np.int64))
        return moves

    def _movable(self, class_index: int) -> list[int]:
        """Other classes that have pods placed and no rows to respect, the smallest first."""
        room, classes = self._packing.room, self._packing.problem.classes
        # The pods of a tree are placed together; none of them moves by itself.
        fixed = self._packing.trees.is_tree[classes.gang]
        waiting = np.array(room.waiting, np.int64)
        placed = (classes.count - waiting)[self._small_first] > 0
        return [
            other
            for other in self._small_first[placed].tolist()
            if other != class_index and other not in room.rows.of_class and not fixed[other]
        ]

    def _sources(self, request: CapacityRequest, move: RelocationMove) -> IntArray:
        """Nodes where the class fits once the pods of the move have left."""
        room, class_index = self._packing.room, request.class_index
        self._placed.update_counts_from_trail()
        counts = self._placed.by_class[move.class_index]
        nodes = request.nodes
        sources: IntArray = (
            np.flatnonzero(counts >= move.pods_per_node)
            if nodes is None
            else nodes[counts[nodes] >= move.pods_per_node]
        )
        sources = sources[room.permitted_nodes(class_index)[sources]]
        demand = room.slots.demand[class_index]
        gain = room.slots.demand[move.class_index] * move.pods_per_node
        for resource, amount in room.slots.needs[class_index]:
            sources = sources[room.free[resource][sources] + gain[resource] >= amount]
        return sources if (demand > 0).any() else sources[:0]


class ClearingMove(NamedTuple):
    """A move of the local search: all pods of this session leave one node."""

    node: int
    pods: IndexArray  # [C]


class ClearingNeighbourhood:
    """Moves of the local search that free a node of all pods of this session, to place a pod with devices there."""

    def __init__(self, packing: Packing, placed: PlacedPodCounts) -> None:
        self._packing, self._placed = packing, placed
        self._empty = free_amounts_with_plugin_limits(
            packing.problem
        )  # [R, N] free amounts before this session
        self._small_first = _small_first(packing)

    def propose_moves(self, request: CapacityRequest) -> Iterator[ClearingMove]:
        """Yield moves that clear a node of this session's pods if the requested pod would then fit there.

        The nodes with the fewest pods of this session come first.
        """
        room, problem, class_index = self._packing.room, self._packing.problem, request.class_index
        device = room.slots.device_of[class_index]
        if device < 0:
            return
        self._placed.update_counts_from_trail()
        goal = request.missing_pods - _admitted(self._packing, request)
        usable = room.permitted_nodes(class_index)
        if request.nodes is not None:
            usable = usable & np.isin(np.arange(len(problem.nodes.free)), request.nodes)
        nodes = np.flatnonzero(usable)
        for resource, amount in room.slots.needs[class_index]:
            nodes = nodes[self._empty[resource][nodes] >= amount]
        pods = self._placed.by_class[:, nodes]
        # Only pods that ask for fewer devices leave: larger ones are harder to place than the pod that comes.
        small = room.slots.demand[:, device] < room.slots.demand[class_index, device]
        movable = small & np.array([other not in room.rows.of_class for other in range(len(small))])
        movable &= ~self._packing.trees.is_tree[problem.classes.gang]
        clearable = ~(pods[~movable] > 0).any(axis=0)
        pods, nodes = pods[:, clearable], nodes[clearable]
        for column in np.argsort(pods.sum(axis=0), kind="stable")[:MAX_CLEARED_NODES].tolist():
            if request.missing_pods <= goal:
                return
            yield ClearingMove(int(nodes[column]), pods[:, column])

    def try_move(self, request: CapacityRequest, move: ClearingMove) -> int | None:
        """Place the requested pod on the node if all pods of this session on it find other nodes."""
        room, class_index = self._packing.room, request.class_index
        node = np.array([move.node])
        # The largest pods first: they are the hardest to place elsewhere.
        leaving = [(c, int(move.pods[c])) for c in self._small_first[::-1].tolist() if move.pods[c] > 0]
        for other, count in leaving:
            room.change_placed_pods_unchecked(other, node, np.array([-count]))
        if not room.count_fitting_pods(class_index, node)[0]:
            return None
        room.change_placed_pods_unchecked(class_index, node, np.ones(1, np.int64))
        for other, count in leaving:
            if room.place_pods_up_to(other, count, _allowed_nodes(self._packing, other), whole=True) < count:
                return None
        return 1


def _small_first(packing: Packing) -> IntArray:
    """Classes by the largest share of an average node that one pod requests, the smallest first."""
    share = packing.room.slots.largest_share_of_average_node
    sizes = np.array([share(c) for c in range(len(packing.problem.classes.count))])
    return np.argsort(sizes, kind="stable")


def _admitted(packing: Packing, request: CapacityRequest) -> int:
    """How many pods of the request the quotas of its gang admit."""
    room, gang = packing.room, int(packing.problem.classes.gang[request.class_index])
    return room.quotas.count_admitted_pods(gang, room.slots.needs[request.class_index], request.missing_pods)


def _allowed_nodes(packing: Packing, class_index: int) -> IntArray | None:
    """Nodes of the domains that were chosen for the class, None if no level is required."""
    problem = packing.problem
    gang, subgroup = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
    if problem.gangs.required[gang] == NONE and (
        subgroup == NONE or problem.subgroups.required[subgroup] == NONE
    ):
        return None
    return packing.nodes_of_chosen_domains(class_index)


PASSES: Final = (False, True, True, True)
"""Passes over all pairs of groups, by `partial`: first exchanges that make room at once, then partial ones."""
BASE_NODES: Final = 4096
"""Nodes that lack little are examined: this many, and one more for every pod that is to be placed."""
MAX_LACK: Final = 1.01
"""Nodes that lack this much of a request, summed over resources as fractions, are skipped: about one pod's worth."""
MAX_RECENT_ENTRIES: Final = 64
"""If no node could give a pod at most this many trail entries ago, only nodes of these entries are examined again."""


class SwapMove(NamedTuple):
    """A move of the local search: pods on the source nodes and pods on other nodes exchange their nodes."""

    leaving: int
    entering: int
    sources: IntArray


class SwapNeighbourhood:
    """Moves of the local search that exchange the nodes of pods with different requests, so that a third pod fits."""

    def __init__(self, packing: Packing, placed: PlacedPodCounts) -> None:
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

    def propose_moves(self, request: CapacityRequest) -> Iterator[SwapMove]:
        """Yield exchanges of pods with different requests: first those that make room at once, then partial ones."""
        room, class_index = self._packing.room, request.class_index
        self._refresh()
        usable = room.permitted_nodes(class_index)
        nodes = np.flatnonzero(usable) if request.nodes is None else request.nodes[usable[request.nodes]]
        for partial in PASSES:
            mark = room.checkpoint()
            yield from self._propose_pass(request, nodes, partial)
            if partial and room.checkpoint() == mark:
                return

    def _propose_pass(self, request: CapacityRequest, nodes: IntArray, partial: bool) -> Iterator[SwapMove]:
        """Yield exchanges of every pair of groups once; `partial`: also those that only reduce what a node lacks."""
        room, by_group = self._packing.room, self._placed.by_group
        demand = room.slots.demand[request.class_index]
        near = self._near(demand, nodes)[: BASE_NODES + request.missing_pods]
        for leaving in np.flatnonzero((by_group[:, near] > 0).any(axis=1)).tolist():
            sources = near[by_group[leaving, near] > 0]
            helped = self._helped(demand, leaving, sources, partial)
            promising, partner = np.flatnonzero(helped.any(axis=1)).tolist(), -1
            while promising:
                partner = promising.pop(0)
                mark = room.checkpoint()
                yield SwapMove(leaving, int(self._partners[leaving][partner]), sources[helped[partner]])
                if room.checkpoint() != mark:
                    # The exchange changed what is free: what was computed for the next partners is outdated.
                    sources = sources[by_group[leaving, sources] > 0]
                    helped = self._helped(demand, leaving, sources, partial)
                    promising = [p for p in np.flatnonzero(helped.any(axis=1)).tolist() if p > partner]

    def try_move(self, request: CapacityRequest, move: SwapMove) -> int | None:
        """Exchange as many pairs of pods as needed, then place the requested pods on the nodes where they fit."""
        room, placed, class_index = self._packing.room, self._placed, request.class_index
        leaving, entering, sources = move
        gain = placed.group_demand[leaving] - placed.group_demand[entering]
        targets = self._givers((leaving, entering), gain)
        if not targets.size:
            return None
        sources = sources[room.permitted_nodes(int(placed.members[entering][0]))[sources]]
        self._marked[sources] = True
        targets = targets[~self._marked[targets]]
        self._marked[sources] = False
        pairs = min(len(sources), len(targets))
        gang = int(self._packing.problem.classes.gang[class_index])
        want = room.quotas.count_admitted_pods(gang, room.slots.needs[class_index], request.missing_pods)
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
            room.change_placed_pods_unchecked(class_index, into, np.ones(len(into), np.int64))
            placed.update_counts_from_trail()
        return len(into)

    def _refresh(self) -> None:
        self._placed.update_counts_from_trail()
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
        givers = self._able(pair, gain, self._placed.nodes_with_pods_of_group(pair[1]))
        if givers.size:
            self._exhausted.pop(pair, None)
        else:
            self._exhausted[pair] = len(trail)
        return givers

    def _able(self, pair: tuple[int, int], gain: IntArray, nodes: IntArray) -> IntArray:
        """Those of `nodes`, holders of the second group, that have room for a pod of the first in its place."""
        room = self._packing.room
        nodes = nodes[room.permitted_nodes(int(self._placed.members[pair[0]][0]))[nodes]]
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
            self._packing.room.change_placed_pods_unchecked(
                class_index, nodes, np.concatenate([-step[own], step[own]])
            )
        self._placed.update_counts_from_trail()


class RepackingNeighbourhood:
    """Moves of the local search that place all pods of a few nodes again, by an exact model."""

    def __init__(self, packing: Packing, placed: PlacedPodCounts, budget: CpSatBudget) -> None:
        self._packing, self._placed = packing, placed
        self._repacking = RepackingSearch(packing, budget)

    def propose_moves(self, request: CapacityRequest) -> Iterator[Repacking]:
        """Yield one new placement of pods on a few nodes, if more of the requested pods fit with it."""
        self._placed.update_counts_from_trail()
        admitted = _admitted(self._packing, request)
        repacking = self._repacking.find_repacking(
            request.class_index, admitted, request.nodes, self._placed.by_class
        )
        if repacking is not None:
            yield repacking

    def try_move(self, request: CapacityRequest, repacking: Repacking) -> int | None:
        """Replace the placements on some nodes by the new placements of the repacking."""
        room = self._packing.room
        # Pods leave before others enter, so that no node is overcommitted in between.
        for sign in (-1, 1):
            for class_index, change in zip(repacking.classes.tolist(), repacking.change, strict=True):
                moved = np.flatnonzero(change * sign > 0)
                if moved.size:
                    room.change_placed_pods_unchecked(class_index, repacking.nodes[moved], change[moved])
        return repacking.placed


MAX_MOVES: Final = 100_000
"""Maximum moves that one search tries. With hundreds of different requests, trying all pairs of groups for each
pod takes minutes.
"""


class LocalSearch:
    """The local search: it places pods by moving other pods of the session, which are not bound yet.

    It owns the tables that the neighbourhoods share.
    """

    def __init__(self, packing: Packing, budget: CpSatBudget | None = None) -> None:
        """Start from a packing; it may hold pods already. Without a budget of CP-SAT, nothing is repacked."""
        self._packing = packing
        self._remaining_moves = MAX_MOVES
        placed = PlacedPodCounts(packing)
        self._neighbourhoods: tuple[Neighbourhood[Any], ...] = (
            RelocationNeighbourhood(packing, placed),
            ClearingNeighbourhood(packing, placed),
            SwapNeighbourhood(packing, placed),
        )
        if budget is not None:
            self._neighbourhoods += (RepackingNeighbourhood(packing, placed, budget),)

    def place_pods_by_moving_others(self, class_index: int, want: int, nodes: IntArray | None) -> int:
        """Place up to `want` pods of a pod class in capacity that is freed by moving other pods of the session.

        Args:
          class_index: the class.
          want: how many pods at most.
          nodes: ascending node numbers that the pods may use, None for all.

        Returns:
          how many pods were placed.
        """
        if class_index in self._packing.room.rows.of_class:
            return 0  # a move might break the row for pods that are placed already
        request = CapacityRequest(class_index, want, nodes)
        for neighbourhood in self._neighbourhoods:
            if request.missing_pods > 0:
                self._try_moves(neighbourhood, request)
        return want - request.missing_pods

    def _try_moves(self, neighbourhood: Neighbourhood[Any], request: CapacityRequest) -> None:
        room = self._packing.room
        # Before the first move is drawn: a generator computes it at once.
        if self._remaining_moves <= 0:
            return
        for move in neighbourhood.propose_moves(request):
            self._remaining_moves -= 1
            mark = room.checkpoint()
            placed = neighbourhood.try_move(request, move)
            if placed is None:
                room.roll_back_to(mark)
            else:
                request.missing_pods -= placed
            # Return before the next move is drawn: a generator computes it at once, and it would not be used.
            if request.missing_pods <= 0 or self._remaining_moves <= 0:
                return
