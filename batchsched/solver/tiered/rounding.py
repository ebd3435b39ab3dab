"""Rounding: assign the pods that the tiered model chose to nodes, gangs with domains and large pods first.

A gang below its minimum is withdrawn as a whole and reported, and the rest of the session continues. In the end every
gang and elastic pod that still fits is added in the policy's order.

Ejection: a gang that fell short, and elastic pods that found no room, take the room of gangs in lower tiers, which are
then placed again if they fit. Only placements of this session are ejected. Running pods are the subject of
`solver.victims`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import fill_packing
from batchsched.solver.local_search import LocalSearch
from batchsched.solver.objective import compare_solutions, weights_by_gang
from batchsched.solver.packing.free_capacity import TrailEntry
from batchsched.solver.packing.packing import Packing, WithdrawnGangs
from batchsched.solver.problem import (
    NONE,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    Problem,
    Solution,
)
from batchsched.solver.tiered.model import OPEN, TieredModel

MAX_EJECTED_GANGS: Final = 16
"""Maximum gangs that are ejected for one gang."""
MAX_FULL_EJECTIONS: Final = 8
"""Maximum gangs for which all gangs of lower tiers are removed in one rounding: each takes time for all of them."""


class EjectingPlacer:
    """The algorithm that frees capacity for a gang by removing unbound gangs of lower tiers (ejection)."""

    def __init__(self, packing: Packing, search: LocalSearch) -> None:
        self._packing, self._search = packing, search
        self._full_ejections_left = MAX_FULL_EJECTIONS

    def place_gang_with_ejection(self, gang: int, nodes: IntArray | None) -> list[int] | None:
        """Place a gang in free capacity, by moving other pods, or by removing (ejecting) unbound gangs of lower tiers.

        The lowest tier is ejected first.

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
        for gangs in self._propose(self._packing.pod_classes_of_gang(gang).classes, nodes):
            if len(ejected) >= MAX_EJECTED_GANGS:
                break
            ejected += gangs
            withdrawn.append(self._packing.withdraw_gangs(set(gangs)))
            if self._try_place(gang):
                return ejected
        # In reverse, so that every gang finds the room that it left.
        for gangs_withdrawn in reversed(withdrawn):
            self._packing.reinstate_gangs(gangs_withdrawn)
        return None

    def place_elastic_pods_with_ejection(self, gang: int) -> list[int]:
        """Place elastic pods of a gang in free capacity, or by removing unbound gangs of lower tiers.

        Returns:
          the ejected gangs, which are not placed again here; none if they would not make room for any elastic pod.
        """
        packing = self._packing
        packing.place_elastic_pods(gang)
        ejected: list[int] = []
        for class_index in packing.pod_classes_of_gang(gang).classes:
            if not packing.room.waiting[class_index]:
                continue
            withdrawn: list[WithdrawnGangs] = []
            in_doubt: list[int] = []
            proposed = self._propose([class_index], packing.nodes_of_chosen_domains(class_index))
            for gangs in proposed[:MAX_EJECTED_GANGS]:
                if not packing.room.waiting[class_index]:
                    break
                in_doubt += gangs
                withdrawn.append(packing.withdraw_gangs(set(gangs)))
                if packing.place_elastic_pods(gang):
                    ejected += in_doubt
                    withdrawn, in_doubt = [], []
            # No pod was placed since these were removed, so their room is still free.
            for gangs_withdrawn in reversed(withdrawn):
                packing.reinstate_gangs(gangs_withdrawn)
        return ejected + self._place_elastic_pods_before_lower_tiers(gang)

    def _place_elastic_pods_before_lower_tiers(self, gang: int) -> list[int]:
        """Place elastic pods of a gang as if no gang of a lower tier were placed; return the gangs that gave way.

        The ejections one by one miss pods that need the room of many gangs, or of gangs on nodes of several kinds.
        """
        packing, problem = self._packing, self._packing.problem
        classes = packing.pod_classes_of_gang(gang).classes
        tier = problem.gangs.tier
        lower = np.flatnonzero(packing.taken & (np.array(packing.needs) > 0) & (tier > tier[gang])).tolist()
        # Gangs that are put back on their nodes are not checked for plugin constraints.
        if packing.room.rows.rows or not lower or not self._full_ejections_left:
            return []
        placements = self._placements_of_lower_tiers(gang)
        if not any(
            bool((packing.room.permitted_nodes(c) & _nodes_once_removed(packing, c, placements)).any())
            for c in classes
            if packing.room.waiting[c]
        ):
            return []
        self._full_ejections_left -= 1
        withdrawn = packing.withdraw_gangs(set(lower))
        if not packing.place_elastic_pods(gang):
            packing.reinstate_gangs(withdrawn)
            return []
        worth = weights_by_gang(problem)
        lower.sort(key=lambda g: (tier[g], -worth[g], problem.gangs.rank[g]))
        return packing.reinstate_gangs_that_fit(lower, withdrawn)

    def _placements_of_lower_tiers(self, gang: int) -> list[TrailEntry]:
        """The placed pods of gangs in lower tiers than the tier of a gang."""
        tier = self._packing.problem.gangs.tier
        return [
            entry
            for entry in self._packing.room.trail
            if entry.class_index >= 0 and tier[entry.gang] > tier[gang]
        ]

    def _try_place(self, gang: int) -> bool:
        """Place a gang as the greedy would, or class by class with local search; all or nothing."""
        packing = self._packing
        if packing.place_minimum_of_gang(gang) is not None:
            return True
        members, room, problem = packing.pod_classes_of_gang(gang), packing.room, packing.problem
        # The local search knows no minimum below all pods and chooses no domains.
        if members.levelled or members.pods != packing.needs[gang] or not problem.gangs.allowed[gang]:
            return False
        if not room.quotas.allows_one_more_running_gang(gang) or room.rows.touching.get(gang):
            return False
        mark = packing.checkpoint()
        room.count_gang_as_placed(gang)
        for class_index in members.classes:
            want = room.waiting[class_index]
            placed = room.place_pods_up_to(class_index, want)
            if (
                placed < want
                and self._search.place_pods_by_moving_others(class_index, want - placed, None) < want - placed
            ):
                packing.roll_back_to(mark)
                return False
        packing.taken[gang] = True
        return True

    def _propose(self, classes: Sequence[int], nodes: IntArray | None) -> list[list[int]]:
        """Gangs of lower tiers, in the order of ejection, that hold what these classes request on nodes for them.

        The classes are of one gang. First comes the set that costs least and holds enough together; then the other
        gangs one by one.
        """
        packing = self._packing
        problem, slots = packing.problem, packing.room.slots
        gang = int(problem.classes.gang[classes[0]])
        resource = _scarce_resource(packing, classes[0])
        usable = np.zeros(len(problem.nodes.free), np.bool_)
        for class_index in classes:
            usable |= packing.room.permitted_nodes(class_index)
        if nodes is not None:
            inside = np.zeros(len(usable), np.bool_)
            inside[nodes] = True
            usable &= inside
        tier = problem.gangs.tier
        lower = self._placements_of_lower_tiers(gang)
        usable &= _nodes_once_removed(packing, classes[0], lower)
        held = np.zeros(len(problem.gangs.need), np.int64)
        worth = np.zeros(len(problem.gangs.need))
        for entry in lower:
            worth[entry.gang] += problem.classes.weight[entry.class_index] * entry.pods
            amount = int(slots.demand[entry.class_index, resource])
            if amount:
                held[entry.gang] += amount * int(entry.counts[usable[entry.nodes]].sum())
        # Pods that fit already need no other gang's room.
        lacking = [
            max(0, packing.room.waiting[c] - int(packing.room.count_fitting_pods(c, nodes).sum()))
            for c in classes
        ]
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
    # Every ejected gang has to find another place, so larger sets are not tried.
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


MAX_RESETTLED_GANGS: Final = 48
"""Maximum gangs below their minimum, and maximum gangs with pending elastic pods, that eject others in one rounding."""


@dataclass(frozen=True, slots=True)
class UnplacedPods:
    """Pods of one class that the tiered model chose, but for which rounding found no room on the nodes."""

    gang: int
    class_index: int
    pods: int


@dataclass(frozen=True, slots=True, eq=False)
class RoundingResult:
    """The result of rounding: the packing, and the planned pods for which no node had room at first.

    Room may have been found for these pods later.
    """

    packing: Packing
    unplaced: tuple[UnplacedPods, ...]


@dataclass(frozen=True, slots=True)
class _Order:
    """Pods of one class to place, and the cell where the plan has them."""

    gang: int
    class_index: int
    pods: int
    cell: IntArray | None


def round_to_nodes(
    aggregate: TieredModel,
    values: IntArray,
    split: FloatArray,
    prefer: bool,
    budget: CpSatBudget | None = None,
) -> RoundingResult:
    """Assign the pods of a plan to single nodes, then place every other gang and elastic pod that fits.

    Args:
      aggregate: the model.
      values: [V] the plan: values of the model's variables.
      split: [C, P] the pods of the plan by class and node pool.
      prefer: use few domains of preferred levels, before the plan's pools.
      budget: the budget of CP-SAT, for packing the pods on a few nodes again; None to use moves of single pods only.
    """
    problem = aggregate.problem
    packing = Packing(problem)
    chosen = np.flatnonzero(values[aggregate.y] > 0).tolist()
    # Trees first: they have the fewest places, and the model knows only the levels of whole gangs.
    trees = packing.trees.is_tree
    lost = {
        g for g in chosen if trees[g] and not packing.taken[g] and packing.place_minimum_of_gang(g) is None
    }
    unplaced = [
        UnplacedPods(g, c, packing.room.waiting[c])
        for g in lost
        for c in packing.pod_classes_of_gang(g).classes
    ]
    lost |= {g for g in chosen if not trees[g] and not _begin(packing, g)}
    search = LocalSearch(packing, budget)
    elsewhere: set[int] = set()
    for order in _orders(aggregate, values):
        if order.gang in lost or order.gang in elsewhere or trees[order.gang]:
            continue
        placed = _place(packing, aggregate, order, split[order.class_index], prefer)
        if placed < order.pods:
            placed += search.place_pods_by_moving_others(order.class_index, order.pods - placed, order.cell)
        if placed < order.pods and aggregate.rigid[order.gang]:
            packing.withdraw_gangs({order.gang})
            # Gangs with domains are placed first: other domains may still hold the gang, since few pods are placed yet.
            if order.cell is not None and packing.place_minimum_of_gang(order.gang) is not None:
                elsewhere.add(order.gang)
                continue
            lost.add(order.gang)
        if placed < order.pods:
            unplaced.append(UnplacedPods(order.gang, order.class_index, order.pods - placed))
    # A row may have been satisfied only by a gang that was withdrawn since.
    failed = withdraw_incomplete_or_violating_gangs(packing, [g for g in chosen if g not in lost])
    ejection = EjectingPlacer(packing, search)
    place_withdrawn_gangs_again(
        packing, ejection, failed | lost, lambda gang: _meant(aggregate, values, gang)
    )
    # Ejections withdraw gangs, too: all minimums and rows are checked again before the rest is filled.
    standing = [g for g, need in enumerate(packing.needs) if need > 0 and packing.taken[g]]
    withdraw_incomplete_or_violating_gangs(packing, standing)
    fill_packing(packing)
    return RoundingResult(packing, tuple(unplaced))


def add_elastic_pods_ejecting_lower_tiers(problem: Problem, solution: Solution) -> Solution:
    """Return a solution with more elastic pods of higher tiers, in place of gangs of lower tiers if needed.

    The search moves gangs, so that elastic pods of a gang that it does not decide again may fit in place of others.

    Args:
      problem: the problem, without rows and cuts.
      solution: a legal solution of it.
    """
    packing = _packing_of(problem, solution)
    if not _gangs_with_pending_surplus(packing):
        return solution
    place_withdrawn_gangs_again(packing, EjectingPlacer(packing, LocalSearch(packing)), set(), lambda _: None)
    fill_packing(packing)
    settled = packing.to_solution(solution.stage)
    if compare_solutions(settled, solution) <= 0:
        return solution
    return replace(
        solution,
        classes=settled.classes,
        nodes=settled.nodes,
        counts=settled.counts,
        taken=settled.taken,
        objective=settled.objective,
        bound=np.maximum(solution.bound, settled.objective),
    )


def _packing_of(problem: Problem, solution: Solution) -> Packing:
    """A packing with the placements of a solution."""
    packing, gangs, subgroups = Packing(problem), problem.gangs, problem.subgroups
    for gang in np.flatnonzero(solution.taken & ~packing.taken).tolist():
        packing.room.count_gang_as_placed(gang)
        packing.taken[gang] = True
    edges = np.flatnonzero(np.diff(solution.classes, prepend=-1, append=-1))
    for begin, end in pairwise(edges.tolist()):
        class_index, nodes = int(solution.classes[begin]), solution.nodes[begin:end].astype(np.int64)
        packing.room.change_placed_pods_unchecked(
            class_index, nodes, solution.counts[begin:end].astype(np.int64)
        )
        gang, part = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        if gangs.required[gang] != NONE:
            packing.domain_of[gang] = int(problem.nodes.levels[gangs.required[gang], nodes[0]])
        if part != NONE and subgroups.required[part] != NONE:
            packing.domain_of_subgroup[part] = int(problem.nodes.levels[subgroups.required[part], nodes[0]])
    return packing


def place_withdrawn_gangs_again(
    packing: Packing,
    ejection: EjectingPlacer,
    fallen: set[int],
    planned_nodes: Callable[[int], IntArray | None],
) -> None:
    """Place withdrawn gangs again, tier by tier, and also the gangs that are ejected to make room for them.

    Args:
      packing: the placements, which are changed.
      ejection: removes gangs of lower tiers.
      fallen: the gangs to place.
      planned_nodes: the nodes that a plan has for a gang; None for anywhere.

    After the withdrawn gangs of a tier come its elastic pods that found no room: the plan was rounded in the order of
    the size of pods and domains, so gangs of lower tiers may have taken that room.
    """
    problem = packing.problem
    tier, rank, worth = problem.gangs.tier, problem.gangs.rank, weights_by_gang(problem)

    def precedence_sort_key(gang: int) -> tuple[int, float, int]:
        return int(tier[gang]), -float(worth[gang]), int(rank[gang])

    surplus = _gangs_with_pending_surplus(packing)
    fallen_left = surplus_left = MAX_RESETTLED_GANGS
    while fallen or surplus:
        gang = min(fallen, key=precedence_sort_key, default=NONE)
        elastic = min(surplus, key=precedence_sort_key, default=NONE)
        # Higher tiers first, and the more valuable gang first: what it ejects has a lower tier.
        if gang != NONE and (elastic == NONE or tier[gang] <= tier[elastic]):
            fallen.discard(gang)
            if not fallen_left:
                continue
            fallen_left -= 1
            ejected = ejection.place_gang_with_ejection(gang, planned_nodes(gang))
            if ejected is not None:
                fallen |= set(ejected)
                surplus.add(gang)
        else:
            surplus.discard(elastic)
            if surplus_left and packing.taken[elastic]:
                surplus_left -= 1
                fallen |= set(ejection.place_elastic_pods_with_ejection(elastic))


def _gangs_with_pending_surplus(packing: Packing) -> set[int]:
    """Gangs with pending elastic pods, in tiers above the lowest tier with a placed gang."""
    problem, waiting = packing.problem, np.array(packing.room.waiting)
    gangs = problem.gangs
    placed = np.flatnonzero(packing.taken & (np.array(packing.needs) > 0))
    pending = np.bincount(problem.classes.gang, waiting, minlength=len(gangs.need)) > 0
    above = gangs.tier < gangs.tier[placed].max(initial=0)
    return set(np.flatnonzero(packing.taken & gangs.allowed & pending & above).tolist())


def withdraw_incomplete_or_violating_gangs(packing: Packing, gangs: list[int]) -> set[int]:
    """Withdraw gangs that miss their minimum or violate a plugin constraint, until no such gang is left.

    A withdrawal may violate another constraint, so the gangs are checked repeatedly.

    Args:
      packing: the placements, which are changed.
      gangs: the gangs to check.

    Returns:
      the withdrawn gangs.
    """
    failed: set[int] = set()
    while broken := {g for g in gangs if g not in failed and not _holds(packing, g)}:
        packing.withdraw_gangs(broken)
        failed |= broken
    return failed


def _meant(aggregate: TieredModel, values: IntArray, gang: int) -> IntArray | None:
    """The nodes where the plan has a gang, or None for anywhere."""
    loads = np.flatnonzero((aggregate.owner == gang) & (aggregate.cell != NONE) & (aggregate.switch >= 0))
    loads = loads[values[aggregate.switch[loads]] > 0]
    return (
        np.unique(np.concatenate([aggregate.cells[aggregate.cell[j]].nodes for j in loads]))
        if loads.size
        else None
    )


def _begin(packing: Packing, gang: int) -> bool:
    """Count a selected gang against gang limits and rows before its pods are placed."""
    if packing.taken[gang]:
        return True
    if not packing.room.quotas.allows_one_more_running_gang(gang):
        return False
    packing.room.count_gang_as_placed(gang)
    packing.taken[gang] = True
    return True


def _orders(aggregate: TieredModel, values: IntArray) -> list[_Order]:
    """What to place, in this order: small cells first, then large devices, then large pods."""
    problem, slots = aggregate.problem, aggregate.packing.room.slots
    on = np.where(aggregate.switch == OPEN, 1, values[np.maximum(aggregate.switch, 0)])
    pods = aggregate.factor * values[aggregate.variable] * (on > 0)
    keyed_orders = []
    for load in np.flatnonzero(pods).tolist():
        class_index, cell = int(aggregate.class_index[load]), int(aggregate.cell[load])
        nodes = None if cell == NONE else aggregate.cells[cell].nodes
        device = slots.device_of[class_index]
        key = (
            len(problem.nodes.free) if nodes is None else len(nodes),
            -int(slots.demand[class_index, device]) if device >= 0 else 0,
            -slots.largest_share_of_average_node(class_index),
            class_index,
        )
        keyed_orders.append(
            (key, _Order(int(problem.classes.gang[class_index]), class_index, int(pods[load]), nodes))
        )
    keyed_orders.sort(key=lambda pair: pair[0])
    return [order for _, order in keyed_orders]


def _place(packing: Packing, aggregate: TieredModel, order: _Order, share: FloatArray, prefer: bool) -> int:
    """Place one order along the plan's pools, then wherever its cell has room; return the number of placed pods."""
    problem, room = aggregate.problem, packing.room
    placed = 0
    gang, part = order.gang, int(problem.classes.subgroup[order.class_index])
    nodes, settled = order.cell, True
    if problem.gangs.required[gang] != NONE or (part != NONE and problem.subgroups.required[part] != NONE):
        settled = _settle(packing, order)
    level = int(problem.subgroups.preferred[part]) if part != NONE else NONE
    level = int(problem.gangs.preferred[gang]) if level == NONE else level
    if prefer and level != NONE and settled:
        placed += packing.place_pods_of_class_on_few_domains(order.class_index, order.pods, level, nodes)
    if settled and placed < order.pods:
        pools = aggregate.pools
        for p, pods in _whole(share, order.pods):
            where = pools.nodes[p] if nodes is None else nodes[pools.of_node[nodes] == p]
            placed += room.place_pods_up_to(order.class_index, min(pods, order.pods - placed), where)
    if placed < order.pods and settled:
        placed += room.place_pods_up_to(order.class_index, order.pods - placed, nodes)
    return placed


def _settle(packing: Packing, order: _Order) -> bool:
    """Record the domains of an order's cell, so that elastic pods are placed in the same domains."""
    problem = packing.problem
    gang, part = order.gang, int(problem.classes.subgroup[order.class_index])
    if order.cell is None or not order.cell.size:
        return False
    first = int(order.cell[0])
    if problem.gangs.required[gang] != NONE:
        packing.domain_of[gang] = int(problem.nodes.levels[problem.gangs.required[gang], first])
    if part != NONE and problem.subgroups.required[part] != NONE:
        packing.domain_of_subgroup[part] = int(problem.nodes.levels[problem.subgroups.required[part], first])
    return True


def _whole(share: FloatArray, pods: int) -> list[tuple[int, int]]:
    """Round a fractional split over pools to whole pods, largest remainders first; the largest shares come first."""
    # The simplex returns 2.9999999 for 3: a plain floor would lose a pod.
    down = np.floor(share + 1e-6).astype(np.int64)
    missing = pods - int(down.sum())
    if missing > 0:
        rest = np.argsort(-(share - down), kind="stable")[: min(missing, len(share))]
        down[rest] += 1
    order = np.argsort(-down, kind="stable")
    return [(int(p), int(down[p])) for p in order if down[p] > 0]


def _holds(packing: Packing, gang: int) -> bool:
    """Whether a gang and its parts have their minimums, and all rows that concern the gang are satisfied."""
    placed = {
        c: int(packing.problem.classes.count[c]) - packing.room.waiting[c]
        for c in packing.pod_classes_of_gang(gang).classes
    }
    if sum(placed.values()) < packing.needs[gang]:
        return False
    for part in packing.pod_classes_of_gang(gang).parts:
        if sum(placed[c] for c in part.classes) < part.need:
            return False
    return packing.room.rows.rows_of_gang_are_satisfied(gang)
