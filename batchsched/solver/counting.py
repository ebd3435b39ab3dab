"""How many pods of one gang fit, in each domain at once: the quick answer that explanations are made from.

Shapes: C classes, D domains, N nodes, R resources.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.problem import NONE, FloatArray, IntArray, Problem
from batchsched.solver.worth import needs


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What of a gang's minimum fits.

    Args:
      domains: [D] domains of the required level, at least one; only NONE when there is no such level.
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
        return bool(np.any(self.placed.sum(axis=1) >= self.wanted.sum()))


def minimum(problem: Problem) -> IntArray:
    """Pods of each class [C] that make the minimum of a problem's only gang, the smallest pods first."""
    wanted = np.zeros(len(problem.count), np.int64)
    order = np.argsort(_size(problem), kind="stable")
    for subgroup, need in enumerate(problem.sub_need.tolist()):
        wanted += _first(problem, order[problem.subgroup[order] == subgroup], need, wanted)
    need = int(needs(problem)[0]) - int(wanted.sum())
    return wanted + _first(problem, order, need, wanted)


def _first(problem: Problem, order: IntArray, need: int, taken: IntArray) -> IntArray:
    """Take `need` pods in the order of classes, from what is not taken yet."""
    more = np.zeros(len(taken), np.int64)
    left = problem.count[order] - taken[order]
    before = np.concatenate([[0], np.cumsum(left)[:-1]]) if len(left) else left
    more[order] = np.clip(need - before, 0, left)
    return more


def _size(problem: Problem) -> FloatArray:
    """The dominant share of each class's pod [C]."""
    total = np.maximum(problem.capacity.sum(axis=0), 1)
    share: FloatArray = problem.demand / total
    return np.asarray(share.max(axis=1, initial=0.0), np.float64)


def room(problem: Problem) -> Room:
    """Fill every domain with the minimum of the problem's only gang, the largest pods first.

    Masks, free capacity, the gang's required level and pinned domain count. Quotas, rows and subgroups' levels do
    not. Exact for a gang of one class.
    """
    level, pinned = int(problem.required[0]), int(problem.pinned[0])
    cell = problem.levels[level] if level != NONE else np.zeros(len(problem.free), np.int32)
    nodes = np.flatnonzero(cell >= 0 if pinned == NONE else cell == pinned)
    nodes = nodes[np.argsort(cell[nodes], kind="stable")]
    found, first = np.unique(cell[nodes], return_index=True)
    wanted = minimum(problem)
    if level != NONE and not len(found):
        return Room(np.array([max(pinned, 0)]), np.zeros((1, len(wanted)), np.int64), wanted)
    ends = np.append(first, len(nodes))
    placed = np.zeros((len(found), len(wanted)), np.int64)
    free = problem.free[nodes].copy()
    owner = np.repeat(np.arange(len(found)), np.diff(ends))
    for index in np.argsort(-_size(problem), kind="stable").tolist():
        want = int(wanted[index])
        if want == 0:
            continue
        fits = fitting(problem, index, free, nodes, want)
        before = np.cumsum(fits) - fits
        before -= before[first][owner] if len(nodes) else 0
        take = np.clip(want - before, 0, fits)
        placed[:, index] = np.add.reduceat(take, first) if len(nodes) else 0
        free -= take[:, None] * problem.demand[index]
    domains = found.astype(np.int64) if level != NONE else np.full(len(found), NONE, np.int64)
    return Room(domains, placed, wanted)


def fitting(problem: Problem, index: int, free: IntArray, nodes: NDArray[np.integer], most: int) -> IntArray:
    """How many pods of a class, at most `most`, fit into the free capacity [n, R] of nodes [n]."""
    fits = np.where(problem.mask[problem.kind[index], nodes], most, 0).astype(np.int64)
    asks = problem.demand[index]
    for resource in np.flatnonzero(asks).tolist():
        np.minimum(fits, free[:, resource] // asks[resource], out=fits)
    return np.maximum(fits, 0)
