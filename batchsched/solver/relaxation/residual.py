"""What a solution leaves to the gangs it refused, and one gang's part of a problem.

Shapes: C classes, D domains, G gangs, N nodes, Q quotas, R resources, S subgroups.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.exact.nodewise import partition
from batchsched.solver.objective import needs
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    IntArray,
    Problem,
    Row,
    Solution,
    UsedDomains,
)
from batchsched.solver.relaxation.changes import Level, Nodes, Pods, Quota, Relaxation, Rule, Together


def leftover(problem: Problem, solution: Solution) -> Problem:
    """The problem after the solution's placements, which stay: only refused gangs may still be placed."""
    asked = problem.classes.demand[solution.classes] * solution.counts.astype(np.int64)[:, None]
    free = problem.nodes.free.copy(order="F")  # whoever asks, asks resource by resource
    np.subtract.at(free, solution.nodes, asked)
    quota_free, quota_gangs = _quotas_left(problem, solution, asked)
    return replace(
        problem,
        nodes=replace(problem.nodes, free=free, capacity=np.asfortranarray(problem.nodes.capacity)),
        quotas=replace(problem.quotas, free=quota_free, gangs=quota_gangs),
        gangs=replace(problem.gangs, allowed=problem.gangs.allowed & ~solution.taken),
        rows=tuple(_rest(problem, solution, row) for row in problem.rows),
        cuts=(),
    )


def _quotas_left(problem: Problem, solution: Solution, asked: IntArray) -> tuple[IntArray, IntArray]:
    """[Q, R] and [Q]: what quotas leave after placements that ask for `asked` [P, R]."""
    if not len(problem.quotas.gangs):
        return problem.quotas.free, problem.quotas.gangs
    quota, gang = np.nonzero(problem.quotas.covers)
    by_gang = np.zeros((len(problem.gangs.need), asked.shape[1]), np.int64)
    np.add.at(by_gang, problem.classes.gang[solution.classes], asked)
    used = np.zeros_like(problem.quotas.free)
    np.add.at(used, quota, by_gang[gang])
    fresh = solution.taken & problem.gangs.fresh & (needs(problem) > 0)
    many = np.bincount(quota, fresh[gang], minlength=len(problem.quotas.gangs)).astype(np.int64)
    free, gangs = np.maximum(problem.quotas.free, 0), np.maximum(problem.quotas.gangs, 0)
    return (
        np.where(problem.quotas.free < UNLIMITED, free - used, problem.quotas.free),
        np.where(problem.quotas.gangs < UNLIMITED, gangs - many, problem.quotas.gangs),
    )


def _rest(problem: Problem, solution: Solution, row: Row) -> Row:
    place = partition(problem, row)[solution.nodes]
    factor = np.zeros(len(problem.classes.gang), np.int64)
    np.add.at(factor, row.classes, row.coefficients)
    used = np.zeros(len(row.right), np.int64)
    inside = place >= 0
    np.add.at(used, place[inside], (factor[solution.classes] * solution.counts)[inside])
    gangs = row.gang_coefficients
    if len(row.gangs):
        held = solution.taken[row.gangs]
        used += gangs[:, held].sum(axis=1)
        gangs = np.where(held[None, :], 0, gangs)
    return replace(row, right=row.right - used, gang_coefficients=gangs)


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """One gang's own problem, its number 0, and what its numbers are called in the problem it came from.

    classes, subgroups, quotas and rows hold the old numbers by the new ones.
    """

    problem: Problem
    gang: int
    classes: IntArray
    subgroups: IntArray
    quotas: IntArray
    rows: IntArray

    def named(self, relaxation: Relaxation) -> Relaxation:
        """The same change in the numbers of the problem that this gang came from."""
        match relaxation:
            case Level(_, level, subgroup):
                return Level(
                    self.gang, level, subgroup if subgroup == NONE else int(self.subgroups[subgroup])
                )
            case Nodes():
                return replace(relaxation, passing=NONE if relaxation.passing == NONE else self.gang)
            case Quota():
                return replace(relaxation, quota=int(self.quotas[relaxation.quota]))
            case Rule():
                return replace(relaxation, row=int(self.rows[relaxation.row]))
            case Pods():
                return replace(relaxation, pod_class=int(self.classes[relaxation.pod_class]))
            case Together(parts):
                return Together(tuple(self.named(part) for part in parts))


def alone(problem: Problem, gang: int) -> Alone:
    """One gang's own problem: its classes, quotas and rows; all nodes as they are, and no cuts."""
    classes, subgroups, quotas = (found.get(gang, _NOBODY) for found in _owned(problem))
    touching = np.array([at for at, row in enumerate(problem.rows) if _touches(row, classes, gang)], np.int64)
    own = problem.take_gangs(np.array([gang]), classes, subgroups)
    single = replace(
        own,
        kinds=replace(own.kinds, score=np.zeros_like(own.kinds.score)),
        classes=replace(own.classes, weight=np.ones(len(classes))),
        gangs=replace(
            own.gangs,
            tier=np.zeros(1, np.int32),
            rank=np.zeros(1, np.int32),
            preferred=np.full(1, NONE, np.int32),
            allowed=np.ones(1, np.bool_),
        ),
        subgroups=replace(own.subgroups, preferred=np.full(len(subgroups), NONE, np.int32)),
        used_domains=UsedDomains(),
        quotas=own.quotas.take(quotas),
        rows=tuple(_only(problem.rows[at], classes, gang) for at in touching.tolist()),
    )
    return Alone(single, gang, classes, subgroups, quotas, touching)


_NOBODY: IntArray = np.zeros(0, np.int64)


@lru_cache(maxsize=2)
def _owned(problem: Problem) -> tuple[dict[int, IntArray], ...]:
    """By gang, its classes, its subgroups and its quotas: looked for once for all gangs that are asked about."""
    if len(problem.quotas.gangs):
        member, quota = problem.quotas.covers.T.nonzero()
    else:
        member = quota = _NOBODY
    return (
        _by_owner(problem.classes.gang, np.arange(len(problem.classes.gang))),
        _by_owner(problem.subgroups.gang, np.arange(len(problem.subgroups.gang))),
        _by_owner(member, quota),
    )


def _by_owner(owner: NDArray[np.integer], owned: IntArray) -> dict[int, IntArray]:
    """By owner, what is its own, in the order in which it stands."""
    order = owner.argsort(kind="stable")
    found, first = np.unique(owner[order], return_index=True)
    parts = np.split(owned[order], first[1:])
    return dict(zip(found.tolist(), parts, strict=False))


def _touches(row: Row, classes: IntArray, gang: int) -> bool:
    named = np.isin(row.classes, classes) & (row.coefficients != 0)
    return bool(named.any()) or bool(np.any(row.gangs == gang))


def _only(row: Row, classes: IntArray, gang: int) -> Row:
    """The row with no other gang's terms; always-taken others would be constants, and count as such."""
    mine: BoolArray = np.isin(row.classes, classes)
    own: NDArray[np.bool_] = row.gangs == gang
    return replace(
        row,
        classes=np.searchsorted(classes, row.classes[mine]).astype(np.int32),
        coefficients=row.coefficients[mine],
        gangs=np.zeros(int(own.sum()), np.int32),
        gang_coefficients=row.gang_coefficients[:, own] if len(row.gangs) else row.gang_coefficients,
    )
