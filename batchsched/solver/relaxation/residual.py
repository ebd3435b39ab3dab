"""What a solution leaves to the gangs that it refused, and one gang's part of a problem.

Shapes: C classes, D domains, G gangs, N nodes, P placements, Q quotas, R resources, S subgroups.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.exact.nodewise import find_domains
from batchsched.solver.objective import required_pods
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    IntArray,
    Problem,
    ProblemQuotas,
    Row,
    Solution,
    UsedDomains,
)
from batchsched.solver.relaxation.changes import (
    CombinedChange,
    LevelChange,
    NodeChange,
    PodChange,
    QuotaChange,
    Relaxation,
    RowChange,
)

_NONE_OWNED: IntArray = np.zeros(0, np.int64)


def subtract_placements(problem: Problem, solution: Solution) -> Problem:
    """Return the problem after the solution's placements, which stay: only refused gangs may still be placed."""
    request = problem.classes.demand[solution.classes] * solution.counts.astype(np.int64)[:, None]
    free = problem.nodes.free.copy(order="F")  # column order: every question reads it resource by resource
    np.subtract.at(free, solution.nodes, request)
    return replace(
        problem,
        nodes=replace(problem.nodes, free=free, capacity=np.asfortranarray(problem.nodes.capacity)),
        quotas=_remaining_quotas(problem, solution, request),
        gangs=replace(problem.gangs, allowed=problem.gangs.allowed & ~solution.taken),
        rows=tuple(_remaining_row(problem, solution, row) for row in problem.rows),
        cuts=(),
    )


def _remaining_quotas(problem: Problem, solution: Solution, request: IntArray) -> ProblemQuotas:
    """The quotas after placements that request [P, R]."""
    quotas, gangs = problem.quotas, problem.gangs
    if not len(quotas.gangs):
        return quotas
    quota, gang = np.nonzero(quotas.covers)
    by_gang = np.zeros((len(gangs.need), request.shape[1]), np.int64)
    np.add.at(by_gang, problem.classes.gang[solution.classes], request)
    used = np.zeros_like(quotas.free)
    np.add.at(used, quota, by_gang[gang])
    counted = solution.taken & gangs.fresh & (required_pods(problem) > 0)
    taken = np.bincount(quota, counted[gang], minlength=len(quotas.gangs)).astype(np.int64)
    # A quota that is exceeded already leaves nothing; UNLIMITED stays UNLIMITED.
    free, gangs_left = np.maximum(quotas.free, 0), np.maximum(quotas.gangs, 0)
    return replace(
        quotas,
        free=np.where(quotas.free < UNLIMITED, free - used, quotas.free),
        gangs=np.where(quotas.gangs < UNLIMITED, gangs_left - taken, quotas.gangs),
    )


def _remaining_row(problem: Problem, solution: Solution, row: Row) -> Row:
    """The row with the solution's terms moved to its right side."""
    domain = find_domains(problem, row)[solution.nodes]
    coefficient = np.zeros(len(problem.classes.gang), np.int64)
    np.add.at(coefficient, row.classes, row.coefficients)
    used = np.zeros(len(row.right), np.int64)
    inside = domain >= 0
    np.add.at(used, domain[inside], (coefficient[solution.classes] * solution.counts)[inside])
    gang_coefficients = row.gang_coefficients
    if len(row.gangs):
        taken = solution.taken[row.gangs]
        used += gang_coefficients[:, taken].sum(axis=1)
        gang_coefficients = np.where(taken[None, :], 0, gang_coefficients)
    return replace(row, right=row.right - used, gang_coefficients=gang_coefficients)


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedGang:
    """One gang's own problem, in which it has number 0, and the numbers in the problem that it comes from.

    Args:
      problem: the gang's classes, quotas and rows; all nodes, and no cuts.
      gang: its number in the whole problem.
      classes, subgroups, quotas, rows: the numbers in the whole problem by the numbers in this one.
    """

    problem: Problem
    gang: int
    classes: IntArray
    subgroups: IntArray
    quotas: IntArray
    rows: IntArray

    def restore_numbers(self, relaxation: Relaxation) -> Relaxation:
        """Return the same change in the numbers of the whole problem."""
        match relaxation:
            case LevelChange(_, level, subgroup):
                number = NONE if subgroup == NONE else int(self.subgroups[subgroup])
                return LevelChange(self.gang, level, number)
            case NodeChange():
                return replace(relaxation, passing=NONE if relaxation.passing == NONE else self.gang)
            case QuotaChange():
                return replace(relaxation, quota=int(self.quotas[relaxation.quota]))
            case RowChange():
                return replace(relaxation, row=int(self.rows[relaxation.row]))
            case PodChange():
                return replace(relaxation, pod_class=int(self.classes[relaxation.pod_class]))
            case CombinedChange(parts):
                return CombinedChange(tuple(self.restore_numbers(part) for part in parts))


class GangProblems:
    """Cuts the problems of single gangs out of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @cached_property
    def _owned(self) -> tuple[dict[int, IntArray], ...]:
        """Classes, subgroups and quotas by gang: one pass over the problem for all gangs that are explained."""
        problem = self._problem
        if len(problem.quotas.gangs):
            member, quota = problem.quotas.covers.T.nonzero()
        else:
            member = quota = _NONE_OWNED
        return (
            _group_by_owner(problem.classes.gang, np.arange(len(problem.classes.gang))),
            _group_by_owner(problem.subgroups.gang, np.arange(len(problem.subgroups.gang))),
            _group_by_owner(member, quota),
        )

    def isolate(self, gang: int) -> IsolatedGang:
        """Return one gang's own problem."""
        problem = self._problem
        classes, subgroups, quotas = (owned.get(gang, _NONE_OWNED) for owned in self._owned)
        rows = [number for number, row in enumerate(problem.rows) if _concerns(row, classes, gang)]
        taken = problem.take_gangs(np.array([gang]), classes, subgroups)
        # Only whether the gang fits is asked: scores, weights, order and preferred levels would not matter.
        single = replace(
            taken,
            kinds=replace(taken.kinds, score=np.zeros_like(taken.kinds.score)),
            classes=replace(taken.classes, weight=np.ones(len(classes))),
            gangs=replace(
                taken.gangs,
                tier=np.zeros(1, np.int32),
                rank=np.zeros(1, np.int32),
                preferred=np.full(1, NONE, np.int32),
                allowed=np.ones(1, np.bool_),
            ),
            subgroups=replace(taken.subgroups, preferred=np.full(len(subgroups), NONE, np.int32)),
            used_domains=UsedDomains(),
            quotas=taken.quotas.take(quotas),
            rows=tuple(_own_terms(problem.rows[number], classes, gang) for number in rows),
        )
        return IsolatedGang(single, gang, classes, subgroups, quotas, np.array(rows, np.int64))


def _group_by_owner(owner: NDArray[np.integer], owned: IntArray) -> dict[int, IntArray]:
    """The items `owned` by owner, in their order."""
    order = owner.argsort(kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    parts = np.split(owned[order], first[1:])
    return dict(zip(owners.tolist(), parts, strict=False))


def _concerns(row: Row, classes: IntArray, gang: int) -> bool:
    """Whether a row has a term of the gang or of its classes."""
    named = np.isin(row.classes, classes) & (row.coefficients != 0)
    return bool(named.any()) or bool(np.any(row.gangs == gang))


def _own_terms(row: Row, classes: IntArray, gang: int) -> Row:
    """The row without other gangs' terms. `subtract_placements` has counted those that are placed."""
    own_classes: BoolArray = np.isin(row.classes, classes)
    own_gang: BoolArray = row.gangs == gang
    return replace(
        row,
        classes=np.searchsorted(classes, row.classes[own_classes]).astype(np.int32),
        coefficients=row.coefficients[own_classes],
        gangs=np.zeros(int(own_gang.sum()), np.int32),
        gang_coefficients=row.gang_coefficients[:, own_gang] if len(row.gangs) else row.gang_coefficients,
    )
