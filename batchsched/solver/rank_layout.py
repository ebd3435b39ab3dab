"""Rank layout: move pods with ranks so that consecutive ranks cross as few topology domains as possible.

Pods with consecutive ranks exchange most data. The cost of a hop from one rank to the next is 0 on one node, 1 between
two nodes of one domain of the narrowest level, and twice as much for each wider level at which the domain changes: 2
between two racks of a block, 4 between two blocks. If the ranks are assigned domain by domain, each domain is entered
once, so the cost of a class follows from its nodes alone: the number of nodes, and the number of domains at each
level, each less one, times `network_costs_by_level`.

`DomainTree` finds the layout of least cost for one class, with all other pods in their places. The classes are laid out
one after the other.

Shapes: C classes, L levels, N nodes, P placements, R resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.solver.domain_tree import DomainTree, network_costs_by_level
from batchsched.solver.objective import list_topology_preferences
from batchsched.solver.problem import (
    NONE,
    BoolArray,
    IndexArray,
    IntArray,
    Problem,
    Solution,
    count_pods_that_fit,
)

PREFERRED_COST: Final = 1_000_000
"""Cost of one more domain of a preferred level. A preferred level goes before all hops."""
MAX_LAYOUT_WORK: Final = 40_000_000
"""Maximum array elements that the layouts of one call compute, about half a second; later classes are not moved."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedPodClass:
    """A pod class with pod ranks: its index, its topology levels, and the nodes with bound pods of its gang.

    Args:
      pod_class: index of the class in the problem.
      levels: the levels of its topology, the widest first.
      bound_nodes: nodes with bound pods of the gang; their domains cost nothing.
    """

    pod_class: int
    levels: tuple[int, ...]
    bound_nodes: IndexArray


def node_order_for_ranks(problem: Problem, ranked: RankedPodClass, nodes: IndexArray) -> IntArray:
    """Return the order of `nodes` by topology domain, so that pods with close ranks are on close nodes.

    The result has positions in `nodes`, domain by domain, then by node index. In this order, the nodes get pods of
    ascending rank.
    """
    keys = [nodes, *(problem.nodes.levels[level, nodes] for level in reversed(ranked.levels))]
    return np.lexsort(keys)


def lay_out_ranks(problem: Problem, solution: Solution, ranked: Sequence[RankedPodClass]) -> Solution:
    """Reduce the network cost between consecutive ranks by moving pods with ranks; return the new solution.

    Classes are moved one after the other, in the order of tiers and ranks of their gangs. A class is not moved if a
    plugin's row or a cut reads its placement, or if its gang or subgroup has slices.

    Args:
      problem: the problem.
      solution: a legal solution.
      ranked: the classes with ranks.
    """
    if not ranked or not len(solution.counts):
        return solution
    layout = _Layout(problem, solution)
    gangs, gang_of_class = problem.gangs, problem.classes.gang
    fixed = layout.find_fixed_classes()
    for item in sorted(
        ranked,
        key=lambda item: (
            int(gangs.tier[gang_of_class[item.pod_class]]),
            int(gangs.rank[gang_of_class[item.pod_class]]),
            item.pod_class,
        ),
    ):
        if item.pod_class not in fixed:
            layout.move_pods_if_cheaper(item)
    return layout.to_solution()


class _Layout:
    """The pods of a solution by class and node, with the capacity that they leave."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self._problem = problem
        self._solution = solution
        self._counts: dict[int, dict[int, int]] = {}
        for pod_class, node, count in zip(
            solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True
        ):
            self._counts.setdefault(pod_class, {})[node] = count
        self._free = problem.nodes.free.copy()
        used = problem.classes.demand[solution.classes] * solution.counts[:, np.newaxis]
        np.subtract.at(self._free, solution.nodes, used)
        self._preferences = list_topology_preferences(problem)
        self._work = 0
        self._moved = False

    def find_fixed_classes(self) -> frozenset[int]:
        """Return the pod classes that must keep their nodes because of a plugin constraint, cut or slice."""
        problem, classes = self._problem, self._problem.classes
        inside = classes.subgroup != NONE
        fixed = np.isin(classes.gang, [cut.gang for cut in problem.cuts]) | (
            problem.gangs.slice_size[classes.gang] > 0
        )
        fixed[inside] |= problem.subgroups.slice_size[classes.subgroup[inside]] > 0
        for row in problem.rows:
            fixed[row.classes] = True
        return frozenset(np.flatnonzero(fixed).tolist())

    def move_pods_if_cheaper(self, ranked: RankedPodClass) -> None:
        """Move the pods of a class to the nodes with the least network cost, if this lowers the cost."""
        problem, own = self._problem, self._counts.get(ranked.pod_class, {})
        pods = sum(own.values())
        if not pods:
            return
        now_on = np.array(sorted(own), np.int32)
        demand = problem.classes.demand[ranked.pod_class]
        free = self._free.copy()
        free[now_on] += demand * np.array([own[node] for node in now_on.tolist()])[:, np.newaxis]
        capacity = count_pods_that_fit(demand, free, pods)
        capacity[~self._allowed(ranked, now_on)] = 0
        nodes = np.flatnonzero(capacity).astype(np.int32)
        if self._work + len(nodes) * (pods + 1) * len(ranked.levels) > MAX_LAYOUT_WORK:
            return
        paths = problem.nodes.levels[list(ranked.levels)]
        tree = DomainTree(paths[:, nodes], self._prices(ranked), self._occupied_nodes(ranked, now_on)[nodes])
        counts = np.zeros(len(free), np.int64)
        counts[now_on] = [own[node] for node in now_on.tolist()]
        before = tree.layout_cost(counts[nodes])
        if before <= 0:
            return
        laid_out = tree.find_cheapest_layout(capacity[nodes], pods)
        self._work += tree.work
        if tree.layout_cost(laid_out) < before:
            self._replace(ranked.pod_class, nodes, laid_out, demand)

    def _replace(self, pod_class: int, nodes: IndexArray, counts: IntArray, demand: IntArray) -> None:
        """Take the new nodes of a class, unless a preferred level would then cost more."""
        before, cost_before = self._counts[pod_class], self._preferred_level_cost(pod_class)
        self._counts[pod_class] = {
            node: count for node, count in zip(nodes.tolist(), counts.tolist(), strict=True) if count
        }
        # The tree knows the preferred levels of the class itself, but neither those of the subgroups around it nor
        # domains that the gang uses on nodes outside of the problem.
        if self._preferred_level_cost(pod_class) > cost_before:
            self._counts[pod_class] = before
            return
        self._moved = True
        for placed, sign in ((before, 1), (self._counts[pod_class], -1)):
            for node, count in placed.items():
                self._free[node] += sign * count * demand

    def _preferred_level_cost(self, pod_class: int) -> float:
        """Return the penalty for the preferred levels that count the pods of a class."""
        cost = 0.0
        for preference in self._preferences:
            if preference.classes[pod_class]:
                members = np.flatnonzero(preference.classes).tolist()
                nodes = {node for member in members for node in self._counts.get(member, ())}
                cost += preference.cost(self._problem, np.array(sorted(nodes), np.int32))
        return cost

    def _allowed(self, ranked: RankedPodClass, now_on: IndexArray) -> BoolArray:
        """Return the nodes [N] on which pods of the class may be: those of its mask, in its required domains."""
        problem, pod_class = self._problem, ranked.pod_class
        allowed = problem.kinds.mask[problem.classes.kind[pod_class]].copy()
        gang, subgroup = int(problem.classes.gang[pod_class]), int(problem.classes.subgroup[pod_class])
        required = [int(problem.gangs.required[gang])]
        while subgroup != NONE:
            required.append(int(problem.subgroups.required[subgroup]))
            subgroup = int(problem.subgroups.parent[subgroup])
        for level in required:
            if level != NONE:
                domains = problem.nodes.levels[level]
                allowed &= domains == domains[now_on[0]]
        return np.asarray(allowed)

    def _occupied_nodes(self, ranked: RankedPodClass, now_on: IndexArray) -> BoolArray:
        """Return the nodes [N] with bound pods of the gang or placed pods of its other classes."""
        problem = self._problem
        occupied = np.zeros(len(problem.nodes.free), np.bool_)
        occupied[ranked.bound_nodes] = True
        siblings = np.flatnonzero(problem.classes.gang == problem.classes.gang[ranked.pod_class])
        for sibling in siblings.tolist():
            if sibling != ranked.pod_class:
                occupied[list(self._counts.get(sibling, ()))] = True
        return occupied

    def _prices(self, ranked: RankedPodClass) -> tuple[int, ...]:
        """Return the cost of one more domain at each level of the class's topology."""
        problem, pod_class = self._problem, ranked.pod_class
        subgroup = int(problem.classes.subgroup[pod_class])
        preferred = {int(problem.gangs.preferred[problem.classes.gang[pod_class]])}
        if subgroup != NONE:
            preferred.add(int(problem.subgroups.preferred[subgroup]))
        return tuple(
            PREFERRED_COST + price if level in preferred else price
            for level, price in zip(ranked.levels, network_costs_by_level(len(ranked.levels)), strict=True)
        )

    def _with_counts(self, counts: dict[int, dict[int, int]]) -> Solution:
        triples = sorted(
            (pod_class, node, count) for pod_class, placed in counts.items() for node, count in placed.items()
        )
        classes, nodes, numbers = zip(*triples, strict=True)
        return replace(
            self._solution,
            classes=np.array(classes, np.int32),
            nodes=np.array(nodes, np.int32),
            counts=np.array(numbers, self._solution.counts.dtype),
        )

    def to_solution(self) -> Solution:
        """Return the solution with the moved pods, or the original solution object if no pod was moved."""
        return self._with_counts(self._counts) if self._moved else self._solution
