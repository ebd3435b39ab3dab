"""The greedy placement of gangs with subgroup trees or slices, all or nothing for each subgroup.

A tree is placed from the top: a domain is chosen for a subgroup that requires a level, and in its nodes the subgroups
below are placed, those with the fewest places first. If a subgroup finds no place, the next domain of the one above is
tried. If this fails, `solver.tree_search` decides.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from batchsched.solver.gang_tree import SubgroupTreeNode
from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.packing.slices import distribute_slices_over_domains
from batchsched.solver.problem import NONE, IntArray, Problem

MAX_DOMAINS: Final = 64
"""Maximum domains that are tried for one subgroup."""
MAX_PREFERRED_DOMAINS: Final = 8
"""Maximum domains of a preferred level that are tried for one subgroup."""
MAX_ATTEMPTS: Final = 4000
"""Maximum domains that are tried for one gang over all its subgroups."""


class DomainPacking(Protocol):
    """Interface of the packing in which `SubgroupTreePlacer` places a gang with a tree of subgroups."""

    problem: Problem
    room: FreeCapacity
    domain_of: dict[int, int]
    domain_of_subgroup: dict[int, int]

    def nodes_in_domains(self, level: int, domains: Sequence[int], cell: IntArray | None) -> IntArray:
        """Return the nodes in some topology domains of a level, as `Packing.nodes_in_domains` does."""
        ...

    def count_fitting_pods_by_domain(self, class_index: int, level: int, cell: IntArray | None) -> IntArray:
        """Return how many pods of a pod class fit in each topology domain of a level."""
        ...

    def place_pods_of_any_class(self, classes: Sequence[int], want: int, nodes: IntArray | None) -> int:
        """Place up to `want` pods of some pod classes; return how many were placed."""
        ...


@dataclass(frozen=True, slots=True)
class _PodDemand:
    """Pods with equal requests and filters that a subtree needs: one of their classes, and their number."""

    class_index: int
    pods: int


class SubgroupTreePlacer:
    """The algorithm that places a gang with a tree of subgroups on the nodes of a packing."""

    def __init__(self, packing: DomainPacking, gang: int) -> None:
        self._packing, self._gang = packing, gang
        self._attempts = 0

    # ------------------------------------------------------------------------------------ minimum

    def place_minimum(self, tree: SubgroupTreeNode) -> bool:
        """Place the minimum number of pods of the gang; return False if they do not fit.

        If the result is False, the caller must undo the placements.
        """
        if not self._place(tree, None):
            return False
        # The gang may need more pods than its subgroups do: any that keep the tree.
        missing = tree.need - self._placed(tree)
        if missing > 0:
            missing -= self._extend(tree, None, missing)
        # A whole subgroup or slice may exceed what is missing.
        return missing <= 0 or self._extend(tree, None, tree.pending_pod_count) >= missing

    def _place(self, node: SubgroupTreeNode, cell: IntArray | None) -> bool:
        """Place the minimum of a subtree inside a cell of nodes, or nothing."""
        if node.fewest_pods_to_run > node.pending_pod_count:
            return False
        if node.required == NONE:
            return self._place_preferring(node, cell)
        for domain in self._domains(node, node.required, node.pinned, cell):
            mark = self._packing.room.checkpoint()
            self._choose(node, domain)
            if self._place_preferring(node, self._packing.nodes_in_domains(node.required, [domain], cell)):
                return True
            self._packing.room.roll_back_to(mark)
            self._forget(node)
        return False

    def _choose(self, node: SubgroupTreeNode, domain: int) -> None:
        if node.subgroup == NONE:
            self._packing.domain_of[self._gang] = domain
        else:
            self._packing.domain_of_subgroup[node.subgroup] = domain

    def _forget(self, node: SubgroupTreeNode) -> None:
        for below in node.iterate_subtree():
            if below.subgroup == NONE:
                self._packing.domain_of.pop(self._gang, None)
            else:
                self._packing.domain_of_subgroup.pop(below.subgroup, None)

    def _place_preferring(self, node: SubgroupTreeNode, cell: IntArray | None) -> bool:
        if node.preferred != NONE:
            used = self._used_domains(node)
            domains = self._domains(node, node.preferred, NONE, cell)
            for domain in (used or list(domains)[:MAX_PREFERRED_DOMAINS])[:MAX_PREFERRED_DOMAINS]:
                mark = self._packing.room.checkpoint()
                if self._place_body(node, self._packing.nodes_in_domains(node.preferred, [domain], cell)):
                    return True
                self._packing.room.roll_back_to(mark)
        return self._place_body(node, cell)

    def _place_body(self, node: SubgroupTreeNode, cell: IntArray | None) -> bool:
        if node.children:
            return self._place_children(node, cell)
        if node.slice_size:
            return (
                self._place_slices(node, node.round_up_to_complete_slices(node.need), cell)
                if node.need
                else True
            )
        return self._packing.place_pods_of_any_class(self._order(node.classes), node.need, cell) >= node.need

    def _place_children(self, node: SubgroupTreeNode, cell: IntArray | None) -> bool:
        running = sum(child.is_running for child in node.children)
        candidates = [child for child in node.children if not child.is_running]
        missing = node.min_children - running
        for child in sorted(candidates, key=self._hardest if missing >= len(candidates) else self._cheapest):
            if missing <= 0:
                break
            mark = self._packing.room.checkpoint()
            if self._place(child, cell):
                missing -= 1
                continue
            self._packing.room.roll_back_to(mark)
            self._forget(child)
            if missing >= len(candidates):  # all of them are needed
                return False
        return missing <= 0

    def _hardest(self, node: SubgroupTreeNode) -> tuple[bool, float, int]:
        """Sort key: subgroups within domains first, then those with the largest requests."""
        levelled = any(below.required != NONE or below.slice_size for below in node.iterate_subtree())
        return not levelled, -self._share(node), node.subgroup

    def _cheapest(self, node: SubgroupTreeNode) -> tuple[float, int]:
        return self._share(node), node.subgroup

    def _share(self, node: SubgroupTreeNode) -> float:
        """What the minimum of a subtree requests, as the sum of the dominant shares of its pods."""
        slots = self._packing.room.slots
        return sum(
            slots.largest_share_of_average_node(ask.class_index) * ask.pods for ask in self._demands(node)
        )

    def _order(self, classes: Sequence[int]) -> list[int]:
        """The classes with the largest pods first."""
        slots = self._packing.room.slots
        return sorted(classes, key=lambda c: (-slots.largest_share_of_average_node(c), c))

    # ------------------------------------------------------------------------------------ domains

    def _demands(self, node: SubgroupTreeNode) -> list[_PodDemand]:
        """The pods of the minimum, grouped by equal requests; of subgroups that are not all needed, the smallest."""
        problem = self._packing.problem
        pods: dict[tuple[int, bytes], list[int]] = {}
        for class_index, count in self._minimum(node):
            key = int(problem.classes.kind[class_index]), problem.classes.demand[class_index].tobytes()
            pods.setdefault(key, [class_index, 0])[1] += count
        return [_PodDemand(class_index, count) for class_index, count in pods.values()]

    def _minimum(self, node: SubgroupTreeNode) -> list[tuple[int, int]]:
        if node.children:
            missing = node.min_children - sum(child.is_running for child in node.children)
            below = sorted(
                (child for child in node.children if not child.is_running),
                key=lambda child: child.fewest_pods_to_run,
            )
            return [pair for child in below[: max(0, missing)] for pair in self._minimum(child)]
        missing, result = node.fewest_pods_to_run, []
        waiting = self._packing.room.waiting
        for class_index in self._order(node.classes):
            count = min(missing, waiting[class_index])
            if count > 0:
                result.append((class_index, count))
                missing -= count
        return result

    def _domains(
        self, node: SubgroupTreeNode, level: int, pinned: int, cell: IntArray | None
    ) -> Iterator[int]:
        """Yield the domains of a level that may hold the minimum of a subtree, the tightest fit first."""
        if pinned != NONE:
            yield pinned
            return
        # All of these pods are needed only if no subgroup may be left out.
        rigid = all(
            below.min_children == len(below.children)
            and (len(below.classes) <= 1 or below.fewest_pods_to_run == sum(below.counts))
            for below in node.iterate_subtree()
        )
        key: IntArray | None = None
        for ask in self._demands(node):
            capacity = self._packing.count_fitting_pods_by_domain(ask.class_index, level, cell)
            fit = np.where(capacity >= ask.pods, capacity * 1000 // ask.pods, -1 if rigid else 0)
            key = fit if key is None else np.where((key < 0) | (fit < 0), -1, np.minimum(key, fit))
        if key is None:
            capacities = [
                self._packing.count_fitting_pods_by_domain(c, level, cell) for c in node.all_classes
            ]
            key = np.sum(capacities, axis=0) - 1 if capacities else np.zeros(0, np.int64)
        good = (key >= 0).nonzero()[0]
        # Domains that do not hold these pods may hold others, so they come last.
        order = good[np.lexsort((good, key[good], key[good] < 1000))]
        for domain in order[:MAX_DOMAINS].tolist():
            self._attempts += 1
            if self._attempts > MAX_ATTEMPTS:
                return
            yield domain

    def _used_domains(self, node: SubgroupTreeNode) -> list[int]:
        """The domains of the preferred level in which members run already."""
        used = self._packing.problem.used_domains
        own = (used.gang == self._gang) & (used.subgroup == node.subgroup) & (used.level == node.preferred)
        return [int(d) for d in np.unique(used.domain[own]) if d != NONE]

    # ------------------------------------------------------------------------------------ slices

    def _place_slices(self, node: SubgroupTreeNode, pods: int, cell: IntArray | None) -> bool:
        """Place a number of pods of a group with slices, or fail."""
        packing = self._packing
        classes = self._order(node.classes)
        for domain, missing in node.missing_slice_pods_by_domain.items():
            nodes = packing.nodes_in_domains(node.slice_level, [domain], cell)
            if packing.place_pods_of_any_class(classes, missing, nodes) < missing:
                return False
        slices = (pods - sum(node.missing_slice_pods_by_domain.values())) // node.slice_size
        if slices <= 0:
            return True
        division = distribute_slices_over_domains(
            slices, self._slices_that_fit(node, slices, cell), node.running_slices_by_domain
        )
        if division is None:
            return False
        for domain, count in sorted(division.items()):
            nodes = packing.nodes_in_domains(node.slice_level, [domain], cell)
            if (
                packing.place_pods_of_any_class(classes, count * node.slice_size, nodes)
                < count * node.slice_size
            ):
                return False
        return True

    def _slices_that_fit(self, node: SubgroupTreeNode, slices: int, cell: IntArray | None) -> IntArray:
        """How many slices fit in each domain [D]: exact for pods with equal requests, else by a trial."""
        packing, problem = self._packing, self._packing.problem
        first = node.classes[0]
        capacity = packing.count_fitting_pods_by_domain(first, node.slice_level, cell)
        equal = all(
            problem.classes.kind[c] == problem.classes.kind[first]
            and np.array_equal(problem.classes.demand[c], problem.classes.demand[first])
            for c in node.classes[1:]
        )
        if equal:
            return capacity // node.slice_size
        classes = self._order(node.classes)
        several = np.sum(
            [packing.count_fitting_pods_by_domain(c, node.slice_level, cell) for c in node.classes], axis=0
        )
        for domain in several.nonzero()[0].tolist():
            mark = packing.room.checkpoint()
            nodes = packing.nodes_in_domains(node.slice_level, [domain], cell)
            several[domain] = (
                packing.place_pods_of_any_class(classes, slices * node.slice_size, nodes) // node.slice_size
            )
            packing.room.roll_back_to(mark)
        return np.asarray(several, np.int64)

    # ------------------------------------------------------------------------------------ elastic pods

    def place_elastic_pods(self, tree: SubgroupTreeNode) -> int:
        """Place as many elastic pods of the gang as fit; return how many were placed.

        Whole subgroups come first, then single pods and whole slices.
        """
        return self._extend(tree, None, tree.pending_pod_count)

    def _extend(self, node: SubgroupTreeNode, cell: IntArray | None, most: int) -> int:
        """Add at most `most` pods to a subtree that runs, or start one that does not; return how many."""
        placed = self._placed(node)
        if not placed and not node.is_running:
            return self._start(node, cell, most)
        nodes = self._nodes_of(node, cell)
        if node.children:
            # Subgroups that run get their elastic pods last: a further subgroup is worth more than parts of it.
            order = sorted(node.children, key=lambda child: bool(child.is_running or self._placed(child)))
            added = 0
            for child in order:
                added += self._extend(child, nodes, most - added)
            return added + self._add_pods(node, nodes, most - added)
        return self._add_slices(node, nodes, most) if node.slice_size else self._add_pods(node, nodes, most)

    def _start(self, node: SubgroupTreeNode, cell: IntArray | None, most: int) -> int:
        if node.fewest_pods_to_run > most:
            return 0
        mark = self._packing.room.checkpoint()
        if self._place(node, cell) and self._keeps_rows():
            return self._placed(node)
        self._packing.room.roll_back_to(mark)
        self._forget(node)
        return 0

    def _keeps_rows(self) -> bool:
        rows = self._packing.room.rows
        return not rows.rows or rows.rows_of_gang_are_satisfied(self._gang)

    def _nodes_of(self, node: SubgroupTreeNode, cell: IntArray | None) -> IntArray | None:
        """The nodes of the chosen domain of a subtree; if there is none, the domain that takes the most is chosen."""
        if node.required == NONE:
            return cell
        chosen = self._packing.domain_of if node.subgroup == NONE else self._packing.domain_of_subgroup
        domain = chosen.get(self._gang if node.subgroup == NONE else node.subgroup, node.pinned)
        if domain == NONE:
            capacities = [
                np.minimum(
                    self._packing.count_fitting_pods_by_domain(c, node.required, cell),
                    self._packing.room.waiting[c],
                )
                for c in node.all_classes
            ]
            total = np.sum(capacities, axis=0) if capacities else np.zeros(0, np.int64)
            if not total.any():
                return np.zeros(0, np.int64)
            domain = int(np.argmax(total))
            self._choose(node, domain)
        return self._packing.nodes_in_domains(node.required, [domain], cell)

    def _add_pods(self, node: SubgroupTreeNode, cell: IntArray | None, most: int) -> int:
        if most <= 0 or not node.classes:
            return 0
        mark = self._packing.room.checkpoint()
        added = self._packing.place_pods_of_any_class(self._order(node.classes), most, cell)
        if added and not self._keeps_rows():
            self._packing.room.roll_back_to(mark)
            return 0
        return added

    def _add_slices(self, node: SubgroupTreeNode, cell: IntArray | None, most: int) -> int:
        """Place the group again with as many slices as fit, spread evenly over as few domains as possible."""
        room, placed = self._packing.room, self._placed(node)
        waiting = sum(room.waiting[c] for c in node.classes)
        target = placed + min(most, waiting)
        gaps = sum(node.missing_slice_pods_by_domain.values())
        target = gaps + max(0, target - gaps) // node.slice_size * node.slice_size
        if target <= placed or not waiting:
            return 0
        entries = room.withdraw_pods_of_classes(node.classes)
        for pods in range(target, placed, -node.slice_size):
            mark = room.checkpoint()
            if self._place_slices(node, pods, cell) and self._keeps_rows():
                return pods - placed
            room.roll_back_to(mark)
        for entry in entries:
            room.apply_trail_entry(entry)
        return 0

    def _placed(self, node: SubgroupTreeNode) -> int:
        """The number of pods of a subtree that are placed now."""
        waiting = self._packing.room.waiting
        counts = self._packing.problem.classes.count
        return sum(int(counts[c]) - waiting[c] for c in node.all_classes)
