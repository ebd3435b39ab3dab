"""How many pods of one gang fit, in each domain at once: the quick answer from which explanations are built.

Shapes: C classes, D domains, N nodes, R resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.objective import required_pods
from batchsched.solver.problem import NONE, BoolArray, FloatArray, IntArray, Problem


@dataclass(frozen=True, slots=True, eq=False)
class FitCounts:
    """How many pods of a gang's minimum fit in each domain.

    Args:
      domains: [D] domains of the required level in which a pod fits, at least one; only NONE without such a level.
      placed: [D, C] pods that fit into each domain if the whole minimum is placed there.
      minimum: [C] pods that make the minimum.
    """

    domains: IntArray
    placed: IntArray
    minimum: IntArray

    @property
    def short(self) -> IntArray:
        """Pods that do not fit, [D, C]."""
        return self.minimum - self.placed

    @property
    def fits(self) -> bool:
        """Whether some domain takes the whole minimum."""
        return bool((self.placed.sum(axis=1) >= self.minimum.sum()).any())

    @property
    def best_domain(self) -> int:
        """Position among `domains` of the one that lacks the fewest pods."""
        return int(np.argmin(self.short.sum(axis=1)))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Nodes that take a pod, by domain.

    Args:
      nodes: [n] the nodes, sorted by domain.
      domains: [D] the domains.
      first: [D] where in `nodes` each domain begins.
    """

    nodes: IntArray
    domains: IntArray
    first: IntArray


class FitCounter:
    """Counts the pods of a problem's only gang that fit.

    Every figure is computed once and kept with the object. The arrays are shared: do not write to them.
    """

    def __init__(self, problem: Problem) -> None:
        """Take the problem of a single gang (`IsolatedGang.problem`)."""
        self.problem = problem

    @cached_property
    def min_pods(self) -> int:
        """Pods that the gang still needs."""
        return int(required_pods(self.problem)[0])

    @cached_property
    def minimum(self) -> IntArray:
        """Pods of each class [C] that make the gang's minimum, the smallest pods first."""
        classes, subgroups = self.problem.classes, self.problem.subgroups
        chosen = np.zeros(len(classes.count), np.int64)
        if self.min_pods >= int(classes.count.sum()):
            return chosen + classes.count
        order = np.argsort(self._pod_sizes, kind="stable")
        for subgroup, need in enumerate(subgroups.need.tolist()):
            chosen += self._first_pods(order[classes.subgroup[order] == subgroup], need, chosen)
        return chosen + self._first_pods(order, self.min_pods - int(chosen.sum()), chosen)

    def _first_pods(self, order: IntArray, need: int, chosen: IntArray) -> IntArray:
        """Choose `need` pods [C] in this order of classes, of those that are not chosen yet."""
        more = np.zeros(len(chosen), np.int64)
        left = self.problem.classes.count[order] - chosen[order]
        before = np.concatenate([[0], np.cumsum(left)[:-1]]) if len(left) else left
        more[order] = np.clip(need - before, 0, left)
        return more

    @cached_property
    def _pod_sizes(self) -> FloatArray:
        """Dominant share of one pod of each class [C]; 0 if there is a single class, which needs no comparison."""
        demand = self.problem.classes.demand
        if len(demand) == 1:
            return np.zeros(1)
        total = np.maximum(self.problem.nodes.capacity.sum(axis=0), 1)
        share: FloatArray = demand / total
        return np.asarray(share.max(axis=1, initial=0.0), np.float64)

    @cached_property
    def _largest_first(self) -> list[int]:
        order: list[int] = (-self._pod_sizes).argsort(kind="stable").tolist()
        return order

    @cached_property
    def fit_counts(self) -> FitCounts:
        """The minimum filled into every domain, the largest pods first.

        Masks, free capacity, the gang's required level and its pinned domain count. Quotas, rows and levels of
        subgroups do not. Exact for a gang of one class.
        """
        cells = self._cells
        placed = _fill(self.problem, cells.nodes, cells.first, self.minimum, self._largest_first)
        return FitCounts(cells.domains, placed, self.minimum)

    def fits_with_nodes(self, added: Problem) -> bool:
        """Whether the minimum fits once nodes are added that are all in one domain.

        The new nodes are filled last, with the pods that the other nodes of their domain do not take.

        Args:
          added: the problem of the new nodes alone (`changes.added_nodes`).
        """
        counts = self.fit_counts
        if counts.fits:
            return True
        level, pinned = int(self.problem.gangs.required[0]), int(self.problem.gangs.pinned[0])
        domain = int(added.nodes.levels[level, 0]) if level != NONE else NONE
        if level != NONE and (domain < 0 or pinned not in (NONE, domain)):
            return False
        position = (counts.domains == domain).nonzero()[0]
        short = counts.short[position[0]] if len(position) else counts.minimum
        nodes, first = np.arange(len(added.nodes.free)), np.zeros(1, np.int64)
        placed = _fill(added, nodes, first, short, self._largest_first)
        return bool(placed.sum() >= short.sum())

    def may_fit(self) -> bool:
        """Whether in some domain each class fits by itself and the sums of all resources suffice.

        If not, the gang does not fit however it is packed, provided that it needs all of its pods.
        """
        cells = self._cells
        if not len(cells.nodes):
            return False
        free = self.problem.nodes.free[cells.nodes]
        request = self.minimum @ self.problem.classes.demand
        result: BoolArray = np.all(np.add.reduceat(free, cells.first) >= request, axis=1)
        for class_index in np.flatnonzero(self.minimum).tolist():
            if result.any():
                need = int(self.minimum[class_index])
                fits = _pods_that_fit(self.problem, class_index, free, cells.nodes, need)
                result = result & (np.add.reduceat(fits, cells.first) >= need)
        return bool(result.any())

    @cached_property
    def _cells(self) -> _Cells:
        """Nodes that take a pod of the minimum. Without such a node there is one domain: the pinned one or 0."""
        level, pinned = int(self.problem.gangs.required[0]), int(self.problem.gangs.pinned[0])
        usable = self._usable_nodes()
        if level == NONE:
            return _Cells(usable.nonzero()[0], np.full(1, NONE, np.int64), np.zeros(1, np.int64))
        domain_of = self.problem.nodes.levels[level]
        nodes = (usable & (domain_of >= 0 if pinned == NONE else domain_of == pinned)).nonzero()[0]
        if not len(nodes):
            return _Cells(nodes, np.full(1, max(pinned, 0), np.int64), np.zeros(1, np.int64))
        nodes = nodes[domain_of[nodes].argsort(kind="stable")]
        domains = domain_of[nodes]
        first = np.r_[0, (domains[1:] != domains[:-1]).nonzero()[0] + 1]
        return _Cells(nodes, domains[first].astype(np.int64), first)

    def _usable_nodes(self) -> BoolArray:
        """Which nodes [N] have room for a pod of a class that the minimum needs."""
        problem = self.problem
        usable = np.zeros(len(problem.nodes.free), np.bool_)
        for class_index in self.minimum.nonzero()[0].tolist():
            fits = problem.kinds.mask[problem.classes.kind[class_index]]
            for resource, amount in enumerate(problem.classes.demand[class_index].tolist()):
                if amount:
                    fits = fits & (problem.nodes.free[:, resource] >= amount)
            usable |= fits
        return usable


def _fill(
    problem: Problem, nodes: IntArray, first: IntArray, pods: IntArray, order: Sequence[int]
) -> IntArray:
    """Fill each domain, class by class.

    Args:
      problem: the gang's problem.
      nodes: [n] the nodes, sorted by domain.
      first: [D] where in `nodes` each domain begins.
      pods: [C] pods to place into each domain.
      order: classes in the order of placing.

    Returns:
      [D, C] the pods that fit.
    """
    placed = np.zeros((len(first), len(pods)), np.int64)
    if not len(nodes):
        return placed
    order = [class_index for class_index in order if pods[class_index]]
    free = problem.nodes.free.T.take(
        nodes, axis=1
    ).T  # a copy in column order: it is read resource by resource
    for class_index in order:
        want = int(pods[class_index])
        fits = _pods_that_fit(problem, class_index, free, nodes, want)
        placed[:, class_index] = np.minimum(want, np.add.reduceat(fits, first))
        if class_index == order[-1]:
            break
        # Pods on the earlier nodes of the same domain: a running sum that starts again with each domain.
        before = fits.cumsum() - fits
        if len(first) > 1:
            before -= np.repeat(before[first], np.diff(first, append=len(nodes)))
        take = (want - before).clip(0, fits)
        used = take.nonzero()[0]  # at most as many nodes as pods, in each domain
        for resource, amount in enumerate(problem.classes.demand[class_index].tolist()):
            if amount:
                free[used, resource] -= take[used] * amount
    return placed


def _pods_that_fit(
    problem: Problem, class_index: int, free: IntArray, nodes: NDArray[np.integer], most: int
) -> IntArray:
    """How many pods of a class, at most `most`, fit into the free capacity [n, R] of nodes [n]."""
    fits: IntArray = problem.kinds.mask[problem.classes.kind[class_index]][nodes] * np.int64(most)
    for resource, amount in enumerate(problem.classes.demand[class_index].tolist()):
        if amount:
            np.minimum(fits, free[:, resource] // amount, out=fits)
    return np.maximum(fits, 0, out=fits)
