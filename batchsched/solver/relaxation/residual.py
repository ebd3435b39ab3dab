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
    IndexArray,
    IntArray,
    Problem,
    Row,
    Solution,
)
from batchsched.solver.relaxation.changes import Level, Nodes, Pods, Quota, Relaxation, Rule, Together


def leftover(problem: Problem, solution: Solution) -> Problem:
    """The problem after the solution's placements, which stay: only refused gangs may still be placed."""
    asked = problem.demand[solution.classes] * solution.counts.astype(np.int64)[:, None]
    free = problem.free.copy(order="F")  # whoever asks, asks resource by resource
    np.subtract.at(free, solution.nodes, asked)
    quota_free, quota_gangs = _quotas_left(problem, solution, asked)
    return replace(
        problem,
        free=free,
        capacity=np.asfortranarray(problem.capacity),
        quota_free=quota_free,
        quota_gangs=quota_gangs,
        allowed=problem.allowed & ~solution.taken,
        rows=tuple(_rest(problem, solution, row) for row in problem.rows),
        cuts=(),
    )


def _quotas_left(problem: Problem, solution: Solution, asked: IntArray) -> tuple[IntArray, IntArray]:
    """[Q, R] and [Q]: what quotas leave after placements that ask for `asked` [P, R]."""
    if not len(problem.quota_gangs):
        return problem.quota_free, problem.quota_gangs
    quota, gang = np.nonzero(problem.quota_member)
    by_gang = np.zeros((len(problem.need), asked.shape[1]), np.int64)
    np.add.at(by_gang, problem.gang[solution.classes], asked)
    used = np.zeros_like(problem.quota_free)
    np.add.at(used, quota, by_gang[gang])
    fresh = solution.taken & problem.fresh & (needs(problem) > 0)
    many = np.bincount(quota, fresh[gang], minlength=len(problem.quota_gangs)).astype(np.int64)
    free, gangs = np.maximum(problem.quota_free, 0), np.maximum(problem.quota_gangs, 0)
    return (
        np.where(problem.quota_free < UNLIMITED, free - used, problem.quota_free),
        np.where(problem.quota_gangs < UNLIMITED, gangs - many, problem.quota_gangs),
    )


def _rest(problem: Problem, solution: Solution, row: Row) -> Row:
    place = partition(problem, row)[solution.nodes]
    factor = np.zeros(len(problem.gang), np.int64)
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
    # A gang has few classes: Python sorts them faster than an array is made of them.
    kinds = sorted(set(problem.kind[classes].tolist()))
    number = np.full(len(problem.sub_gang) + 1, NONE, np.int32)
    number[subgroups] = np.arange(len(subgroups))
    touching = np.array([at for at, row in enumerate(problem.rows) if _touches(row, classes, gang)], np.int64)
    own = slice(gang, gang + 1)
    single = replace(
        problem,
        mask=problem.mask[kinds],
        score=np.zeros((len(kinds), len(problem.free)), np.int64),
        demand=problem.demand[classes],
        kind=np.array([kinds.index(one) for one in problem.kind[classes].tolist()], np.int32),
        gang=np.zeros(len(classes), np.int32),
        subgroup=number[problem.subgroup[classes]],
        count=problem.count[classes],
        weight=np.ones(len(classes)),
        need=problem.need[own],
        tier=np.zeros(1, np.int32),
        rank=np.zeros(1, np.int32),
        required=problem.required[own],
        preferred=np.full(1, NONE, np.int32),
        pinned=problem.pinned[own],
        fresh=problem.fresh[own],
        allowed=np.ones(1, np.bool_),
        sub_gang=np.zeros(len(subgroups), np.int32),
        sub_need=problem.sub_need[subgroups],
        sub_required=problem.sub_required[subgroups],
        sub_preferred=np.full(len(subgroups), NONE, np.int32),
        sub_pinned=problem.sub_pinned[subgroups],
        quota_member=np.ones((len(quotas), 1), np.bool_),
        quota_free=problem.quota_free[quotas],
        quota_gangs=problem.quota_gangs[quotas],
        used_gang=_EMPTY,
        used_sub=_EMPTY,
        used_level=_EMPTY,
        used_domain=_EMPTY,
        rows=tuple(_only(problem.rows[at], classes, gang) for at in touching.tolist()),
        cuts=(),
    )
    return Alone(single, gang, classes, subgroups, quotas, touching)


_EMPTY: IndexArray = np.zeros(0, np.int32)
_NOBODY: IntArray = np.zeros(0, np.int64)


@lru_cache(maxsize=2)
def _owned(problem: Problem) -> tuple[dict[int, IntArray], ...]:
    """By gang, its classes, its subgroups and its quotas: looked for once for all gangs that are asked about."""
    if len(problem.quota_gangs):
        member, quota = problem.quota_member.T.nonzero()
    else:
        member = quota = _NOBODY
    return (
        _by_owner(problem.gang, np.arange(len(problem.gang))),
        _by_owner(problem.sub_gang, np.arange(len(problem.sub_gang))),
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
