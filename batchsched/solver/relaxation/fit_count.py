"""How many pods of one gang fit, in each domain at once: the quick answer that explanations are made from.

What is asked of the same problem again is remembered: answers are not to be written to.

Shapes: C classes, D domains, N nodes, R resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.objective import needs
from batchsched.solver.problem import NONE, BoolArray, FloatArray, IntArray, Problem


@dataclass(frozen=True, slots=True, eq=False)
class FitCounts:
    """What of a gang's minimum fits.

    Args:
      domains: [D] domains of the required level in which a pod fits, at least one; only NONE without such a level.
      placed: [D, C] pods that fit into each, when placed there as a whole.
      wanted: [C] pods that make the minimum.
    """

    domains: IntArray
    placed: IntArray
    wanted: IntArray

    @property
    def short(self) -> IntArray:
        """Pods that do not fit, [D, C]."""
        return self.wanted - self.placed

    @property
    def fits(self) -> bool:
        """Whether some domain takes the whole minimum."""
        return bool((self.placed.sum(axis=1) >= self.wanted.sum()).any())


@lru_cache(maxsize=8)
def least(problem: Problem) -> int:
    """How many pods a problem's only gang still needs."""
    return int(needs(problem)[0])


@lru_cache(maxsize=8)
def minimum(problem: Problem) -> IntArray:
    """Pods of each class [C] that make the minimum of a problem's only gang, the smallest pods first."""
    wanted = np.zeros(len(problem.classes.count), np.int64)
    if least(problem) >= int(problem.classes.count.sum()):
        return wanted + problem.classes.count
    order = np.argsort(_size(problem), kind="stable")
    for subgroup, need in enumerate(problem.subgroups.need.tolist()):
        wanted += _first(problem, order[problem.classes.subgroup[order] == subgroup], need, wanted)
    need = least(problem) - int(wanted.sum())
    return wanted + _first(problem, order, need, wanted)


def _first(problem: Problem, order: IntArray, need: int, taken: IntArray) -> IntArray:
    """Take `need` pods in the order of classes, from what is not taken yet."""
    more = np.zeros(len(taken), np.int64)
    left = problem.classes.count[order] - taken[order]
    before = np.concatenate([[0], np.cumsum(left)[:-1]]) if len(left) else left
    more[order] = np.clip(need - before, 0, left)
    return more


@lru_cache(maxsize=8)
def _size(problem: Problem) -> FloatArray:
    """The dominant share of each class's pod [C]; there is nothing to compare when there is one."""
    if len(problem.classes.demand) == 1:
        return np.zeros(1)
    total = np.maximum(problem.nodes.capacity.sum(axis=0), 1)
    share: FloatArray = problem.classes.demand / total
    return np.asarray(share.max(axis=1, initial=0.0), np.float64)


@lru_cache(maxsize=8)
def room(problem: Problem) -> FitCounts:
    """Fill every domain with the minimum of the problem's only gang, the largest pods first.

    Masks, free capacity, the gang's required level and pinned domain count. Quotas, rows and subgroups' levels do
    not. Exact for a gang of one class.
    """
    nodes, domains, first = _cells(problem)
    wanted = minimum(problem)
    return FitCounts(domains, _filled(problem, nodes, first, wanted, _largest_first(problem)), wanted)


def room_beside(problem: Problem, added: Problem) -> bool:
    """Whether the only gang's minimum fits once nodes are added that all lie in one domain.

    Args:
      problem: the gang's own, of which the room is known already.
      added: the same with the new nodes alone (`relaxation.added`).

    The new nodes are the last to be filled, with what the others of their domain leave.
    """
    found = room(problem)
    if found.fits:
        return True
    level, pinned = int(problem.gangs.required[0]), int(problem.gangs.pinned[0])
    domain = int(added.nodes.levels[level, 0]) if level != NONE else NONE
    if level != NONE and (domain < 0 or pinned not in (NONE, domain)):
        return False
    at = (found.domains == domain).nonzero()[0]
    wanted = found.short[at[0]] if len(at) else found.wanted
    nodes, first = np.arange(len(added.nodes.free)), np.zeros(1, np.int64)
    placed = _filled(added, nodes, first, wanted, _largest_first(problem))
    return bool(placed.sum() >= wanted.sum())


def _largest_first(problem: Problem) -> list[int]:
    """The classes, the largest pods first."""
    order: list[int] = (-_size(problem)).argsort(kind="stable").tolist()
    return order


def _filled(
    problem: Problem, nodes: IntArray, first: IntArray, wanted: IntArray, order: Sequence[int]
) -> IntArray:
    """Pods that fit into each domain [D, C] of those wanted [C], class by class in this order.

    `nodes` are sorted by their domain, `first` says where in them each begins.
    """
    placed = np.zeros((len(first), len(wanted)), np.int64)
    if not len(nodes):
        return placed
    order = [index for index in order if wanted[index]]
    free = problem.nodes.free.T.take(nodes, axis=1).T  # a copy in which resource follows on resource
    for index in order:
        want = int(wanted[index])
        fits = fitting(problem, index, free, nodes, want)
        placed[:, index] = np.minimum(want, np.add.reduceat(fits, first))
        if index == order[-1]:
            break
        before = fits.cumsum() - fits
        if len(first) > 1:
            before -= np.repeat(before[first], np.diff(first, append=len(nodes)))
        take = (want - before).clip(0, fits)
        at = take.nonzero()[0]  # as few as the pods that are wanted, in each domain
        for resource, amount in enumerate(problem.classes.demand[index].tolist()):
            if amount:
                free[at, resource] -= take[at] * amount
    return placed


def hopeful(problem: Problem) -> bool:
    """Whether in some domain each class fits by itself and the sums of all resources suffice.

    What is not hopeful does not fit, however it is packed, if the gang needs all of its pods.
    """
    nodes, _, first = _cells(problem)
    if not len(nodes):
        return False
    wanted, free = minimum(problem), problem.nodes.free[nodes]
    hope: BoolArray = np.all(np.add.reduceat(free, first) >= wanted @ problem.classes.demand, axis=1)
    for index in np.flatnonzero(wanted).tolist():
        if hope.any():
            fits = fitting(problem, index, free, nodes, int(wanted[index]))
            hope = hope & (np.add.reduceat(fits, first) >= wanted[index])
    return bool(hope.any())


@lru_cache(maxsize=8)
def _cells(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Nodes with room for a pod, sorted by their domain, the domains, and where in the nodes each begins.

    When there is no such node there is still one domain: the pinned one, or the first.
    """
    level, pinned = int(problem.gangs.required[0]), int(problem.gangs.pinned[0])
    useful = _useful(problem)
    if level == NONE:
        return useful.nonzero()[0], np.full(1, NONE, np.int64), np.zeros(1, np.int64)
    cell = problem.nodes.levels[level]
    nodes = (useful & (cell >= 0 if pinned == NONE else cell == pinned)).nonzero()[0]
    if not len(nodes):
        return nodes, np.full(1, max(pinned, 0), np.int64), np.zeros(1, np.int64)
    nodes = nodes[cell[nodes].argsort(kind="stable")]
    inside = cell[nodes]
    first = np.r_[0, (inside[1:] != inside[:-1]).nonzero()[0] + 1]
    return nodes, inside[first].astype(np.int64), first


def _useful(problem: Problem) -> BoolArray:
    """Which nodes [N] have room for a pod of a class that the minimum needs."""
    useful = np.zeros(len(problem.nodes.free), np.bool_)
    for index in minimum(problem).nonzero()[0].tolist():
        fits = problem.kinds.mask[problem.classes.kind[index]]
        for resource, amount in enumerate(problem.classes.demand[index].tolist()):
            if amount:
                fits = fits & (problem.nodes.free[:, resource] >= amount)
        useful |= fits
    return useful


def fitting(problem: Problem, index: int, free: IntArray, nodes: NDArray[np.integer], most: int) -> IntArray:
    """How many pods of a class, at most `most`, fit into the free capacity [n, R] of nodes [n]."""
    fits: IntArray = problem.kinds.mask[problem.classes.kind[index]][nodes] * np.int64(most)
    for resource, amount in enumerate(problem.classes.demand[index].tolist()):
        if amount:
            np.minimum(fits, free[:, resource] // amount, out=fits)
    return np.maximum(fits, 0, out=fits)
