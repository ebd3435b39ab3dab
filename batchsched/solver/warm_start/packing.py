"""The placements of a warm start, and the placement of the other pods of a plan around them.

A gang of the start keeps its nodes as far as its pods still fit there. The other pods of the plan are placed around
them: gangs with a required level first, because other gangs may use any node, and then the largest pods.

Shapes: C classes, G gangs, N nodes, P placements.
"""

import numpy as np

from batchsched.solver.greedy import fill_packing
from batchsched.solver.local_search import LocalSearch
from batchsched.solver.packing.packing import Packing, SubgroupPodClasses
from batchsched.solver.problem import NONE, BoolArray, IntArray, Problem, positions_by_group
from batchsched.solver.start import WarmStart
from batchsched.solver.tiered.rounding import (
    EjectingPlacer,
    place_withdrawn_gangs_again,
    withdraw_incomplete_or_violating_gangs,
)


class WarmStartPlacements:
    """The placements that a warm start plans, grouped by pod class of the present problem."""

    def __init__(self, problem: Problem, start: WarmStart) -> None:
        self._problem = problem
        self._nodes, self._counts = start.nodes.astype(np.int64), start.counts.astype(np.int64)
        self._of_class = positions_by_group(start.classes, len(problem.classes.count))
        gangs = len(problem.gangs.need)
        self.planned = np.zeros(gangs, np.bool_)
        """The gangs [G] with a placement."""
        self.planned[problem.classes.gang[start.classes]] = True
        self.pods = np.bincount(start.classes, start.counts, minlength=len(problem.classes.count)).astype(
            np.int64
        )
        """The pods of each class [C] that the start places."""
        parts = problem.subgroups
        self.levelled = problem.gangs.required != NONE
        """The gangs [G] with a required level, or a subgroup that has one."""
        self.levelled[parts.gang[parts.required != NONE]] = True

    def place_plan_on_start_nodes(self, planned_pods: IntArray, *, moving: bool) -> Packing:
        """Place a plan's pods, preferably on their nodes in the warm start; then add other pods that fit.

        Args:
          planned_pods: [C] pods of a plan. A gang is placed with its minimum at least, or not at all.
          moving: whether to move pods and remove gangs of lower tiers, to make room for pods that do not fit.
        """
        return _PlanPlacement(self._problem, self, planned_pods).place_plan(moving=moving)

    def first_planned_node_of_classes(self, classes: tuple[int, ...]) -> int:
        """Return the index of the first node on which the start places pods of these classes; -1 if there is none."""
        return next((int(self._nodes[self._of_class[c][0]]) for c in classes if self._of_class[c].size), NONE)

    def planned_placements_of_class(self, class_index: int) -> tuple[IntArray, IntArray]:
        """Return the nodes on which the start plans pods of a class, and how many pods it plans on each.

        Shapes: two arrays of equal length.
        """
        own = self._of_class[class_index]
        return self._nodes[own], self._counts[own]


class _PlanPlacement:
    """Places the gangs of one plan."""

    def __init__(self, problem: Problem, start: WarmStartPlacements, planned_pods: IntArray) -> None:
        self._problem, self._start = problem, start
        self._planned_pods = np.minimum(planned_pods, problem.classes.count)
        self._packing = Packing(problem)
        self._lost: set[int] = set()
        self._missing: list[int] = []

    def place_plan(self, *, moving: bool) -> Packing:
        problem, start, packing = self._problem, self._start, self._packing
        chosen = np.zeros(len(problem.gangs.need), np.bool_)
        chosen[problem.classes.gang[self._planned_pods > 0]] = True
        chosen &= problem.gangs.allowed
        trees, levelled, planned = packing.trees.is_tree, start.levelled, start.planned
        # Trees have the fewest places, and gangs without a level may use the nodes that the others leave.
        self._place_whole(chosen & trees & ~packing.taken)
        self._place_on_start(chosen & ~trees & levelled & planned)
        self._place_missing_pods(None)
        self._lose_incomplete(chosen & ~trees & levelled & planned)
        self._place_whole(chosen & ~trees & levelled & ~packing.taken)
        self._place_on_start(chosen & ~trees & ~levelled & planned)
        # `place_minimum_of_gang` keeps a preferred level; the other gangs are placed class by class.
        preferring = problem.gangs.preferred != NONE
        self._place_whole(chosen & ~trees & ~levelled & ~planned & preferring & ~packing.taken)
        unplanned = chosen & ~trees & ~levelled & ~planned
        self._lost -= set(np.flatnonzero(unplanned & ~packing.taken).tolist())
        self._place_on_start(unplanned)
        search = LocalSearch(packing)
        self._place_missing_pods(search if moving else None)
        standing = np.array(packing.needs) > 0
        self._lost |= withdraw_incomplete_or_violating_gangs(
            packing, np.flatnonzero(packing.taken & standing).tolist()
        )
        if moving:
            place_withdrawn_gangs_again(
                packing, EjectingPlacer(packing, search), set(self._lost), lambda _: None
            )
            withdraw_incomplete_or_violating_gangs(packing, np.flatnonzero(packing.taken & standing).tolist())
        fill_packing(packing)
        return packing

    def _in_precedence(self, gangs: BoolArray) -> list[int]:
        table, chosen = self._problem.gangs, np.flatnonzero(gangs)
        ordered: list[int] = chosen[np.lexsort((table.rank[chosen], table.tier[chosen]))].tolist()
        return ordered

    def _place_whole(self, gangs: BoolArray) -> None:
        """Place the minimum of each gang where it fits."""
        for gang in self._in_precedence(gangs):
            if self._packing.place_minimum_of_gang(gang) is None:
                self._lost.add(gang)
            else:
                self._lost.discard(gang)

    def _place_on_start(self, gangs: BoolArray) -> None:
        """Place the planned pods of each gang on the nodes of the start, as far as they fit."""
        packing = self._packing
        for gang in self._in_precedence(gangs):
            if not packing.taken[gang]:
                if not packing.room.quotas.allows_one_more_running_gang(gang):
                    self._lost.add(gang)
                    continue
                packing.room.count_gang_as_placed(gang)
                packing.taken[gang] = True
            members = packing.pod_classes_of_gang(gang)
            self._settle_domains(gang, members.parts)
            for class_index in members.classes:
                self._place_class(class_index)
                if self._count_pods_left(class_index):
                    self._missing.append(class_index)

    def _settle_domains(self, gang: int, parts: tuple[SubgroupPodClasses, ...]) -> None:
        """Record the domains of the start, unless running pods pin others."""
        problem, packing = self._problem, self._packing
        level = int(problem.gangs.required[gang])
        if level != NONE:
            classes = packing.pod_classes_of_gang(gang).classes
            domain = self._domain(level, int(problem.gangs.pinned[gang]), classes)
            if domain != NONE:
                packing.domain_of[gang] = domain
        for part in parts:
            if part.required != NONE:
                domain = self._domain(part.required, part.pinned, part.classes)
                if domain != NONE:
                    packing.domain_of_subgroup[part.index] = domain

    def _domain(self, level: int, pinned: int, classes: tuple[int, ...]) -> int:
        node = self._start.first_planned_node_of_classes(classes)
        return int(self._problem.nodes.levels[level, node]) if pinned == NONE and node != NONE else pinned

    def _place_class(self, class_index: int) -> None:
        room, missing = self._packing.room, self._count_pods_left(class_index)
        nodes, pods = self._start.planned_placements_of_class(class_index)
        if not nodes.size or missing <= 0:
            return
        counts = np.minimum(room.count_fitting_pods(class_index, nodes), pods)
        cell, is_chosen = self._cell(class_index)
        if not is_chosen:
            return
        if cell is not None:
            counts = np.where(np.isin(nodes, cell), counts, 0)
        if class_index in room.rows.of_class:
            counts = room.rows.clip_pod_limits_to_rows(class_index, nodes, counts)
        gang = int(self._problem.classes.gang[class_index])
        most = room.quotas.count_admitted_pods(
            gang, room.slots.needs[class_index], min(missing, int(counts.sum()))
        )
        counts = np.clip(most - (np.cumsum(counts) - counts), 0, counts)
        if counts.any():
            room.change_placed_pods_unchecked(class_index, nodes[counts > 0], counts[counts > 0])

    def _cell(self, class_index: int) -> tuple[IntArray | None, bool]:
        """The nodes of the domains of a class, None for all; False if a required domain is not chosen."""
        problem, packing = self._problem, self._packing
        gang, part = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        open_gang = problem.gangs.required[gang] != NONE and packing.domain_of.get(gang, NONE) == NONE
        open_part = (
            part != NONE
            and problem.subgroups.required[part] != NONE
            and packing.domain_of_subgroup.get(part, NONE) == NONE
        )
        return (
            (None, False) if open_gang or open_part else (packing.nodes_of_chosen_domains(class_index), True)
        )

    def _count_pods_left(self, class_index: int) -> int:
        placed = int(self._problem.classes.count[class_index]) - self._packing.room.waiting[class_index]
        return int(self._planned_pods[class_index]) - placed

    def _place_missing_pods(self, search: LocalSearch | None) -> None:
        """Place the pods that found no room on the nodes of the start, the largest first."""
        packing, problem = self._packing, self._problem
        slots = packing.room.slots

        def size_sort_key(class_index: int) -> tuple[int, float, int]:
            device = slots.device_of[class_index]
            devices = int(slots.demand[class_index, device]) if device >= 0 else 0
            return -devices, -slots.largest_share_of_average_node(class_index), class_index

        for class_index in sorted(self._missing, key=size_sort_key):
            gang, missing = int(problem.classes.gang[class_index]), self._count_pods_left(class_index)
            cell, is_chosen = self._cell(class_index)
            if gang in self._lost or not is_chosen or missing <= 0:
                continue
            placed = packing.room.place_pods_up_to(class_index, missing, cell)
            if placed < missing and search is not None:
                placed += search.place_pods_by_moving_others(class_index, missing - placed, cell)
            if placed < missing and packing.pod_classes_of_gang(gang).pods == packing.needs[gang]:
                packing.withdraw_gangs({gang})
                self._lost.add(gang)
        self._missing = []

    def _lose_incomplete(self, gangs: BoolArray) -> None:
        """Withdraw gangs below their minimum, so that they are tried in another domain."""
        taken = np.flatnonzero(gangs & self._packing.taken & (np.array(self._packing.needs) > 0))
        self._lost |= withdraw_incomplete_or_violating_gangs(self._packing, taken.tolist())
