"""Why a gang was refused: the limiting constraint, what is missing, and the smallest change that admits the gang.

The other gangs stay where they are, and only this one is placed on what is left. So the change is an estimate: in a
session, other gangs may use what is added. `session.explanation` verifies changes by deciding again.

Shapes: C classes, D domains, G gangs, N nodes, P placements, Q quotas, R resources, S subgroups.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from batchsched.solver.objective import count_pods_still_required
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    ConstraintRow,
    IndexArray,
    IntArray,
    Problem,
    ProblemQuotas,
    Solution,
    UsedPreferredDomains,
    positions_by_group,
)
from batchsched.solver.relaxation.budget import (
    WORK_PER_EFFORT,
    WORK_PER_VARIABLE,
    ExplanationBudget,
    estimate_fit_test_work,
)
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    LoosenedRow,
    RaisedQuota,
    Relaxation,
    RelaxedLevel,
    cap_at_unlimited,
)
from batchsched.solver.relaxation.residual import ResidualProblem
from batchsched.solver.relaxation.search import (
    CachedFitCheck,
    RefusalCause,
    find_smallest_change,
    propose_change_families,
)
from batchsched.solver.tree_search import (
    SEARCH_EFFORT,
    find_placement_or_proof,
    mask_gangs_that_greedy_may_miss,
)


def problem_of_refused_gangs(problem: Problem, solution: Solution) -> Problem:
    """Return the problem of placing the refused gangs on the capacity that a solution's placements leave free."""
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
    # Gangs with running members were counted when they started.
    counted = solution.taken & gangs.fresh & (count_pods_still_required(problem) > 0)
    taken = np.bincount(quota, counted[gang], minlength=len(quotas.gangs)).astype(np.int64)
    # A quota that is exceeded already leaves nothing; UNLIMITED stays UNLIMITED.
    free, gangs_left = np.maximum(quotas.free, 0), np.maximum(quotas.gangs, 0)
    return replace(
        quotas,
        free=np.where(quotas.free < UNLIMITED, free - used, quotas.free),
        gangs=np.where(quotas.gangs < UNLIMITED, gangs_left - taken, quotas.gangs),
    )


def _remaining_row(problem: Problem, solution: Solution, row: ConstraintRow) -> ConstraintRow:
    """The row with the solution's terms moved to its right side."""
    domain = row.domain_by_node(problem.nodes)[solution.nodes]
    coefficient = row.class_coefficients(len(problem.classes.gang))
    used = np.zeros(len(row.right), np.int64)
    inside = domain >= 0
    np.add.at(used, domain[inside], (coefficient[solution.classes] * solution.counts)[inside])
    gang_coefficients = row.gang_coefficients
    if len(row.gangs):
        taken = solution.taken[row.gangs]
        used += gang_coefficients[:, taken].sum(axis=1)
        gang_coefficients = np.where(taken[None, :], 0, gang_coefficients)
    return replace(
        row,
        right=row.right - used,
        gang_coefficients=gang_coefficients,
        used_side=_used_side(row, solution.classes[inside], domain[inside]),
    )


def _used_side(row: ConstraintRow, classes: IndexArray, domains: IndexArray) -> IndexArray | None:
    """The side of the pods in each domain [D] of a row, given the class and the domain of placements [P]."""
    if row.on_second_side is None:
        return None
    used = np.full(len(row.right), NONE, np.int32) if row.used_side is None else row.used_side.copy()
    for side, of_side in enumerate((row.classes[~row.on_second_side], row.classes[row.on_second_side])):
        used[domains[np.isin(classes, of_side)]] = side
    return used


@dataclass(frozen=True, slots=True, eq=False)
class IsolatedGangProblem:
    """The solver problem of one gang alone, with the indexes of its pod classes and subgroups in the whole problem.

    In its own problem, the gang has number 0.

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

    def to_change_of_whole_problem(self, relaxation: Relaxation) -> Relaxation:
        """Translate a change for the problem of one gang, such as a higher queue limit, to the whole problem."""
        match relaxation:
            case RelaxedLevel(_, level, subgroup):
                number = NONE if subgroup == NONE else int(self.subgroups[subgroup])
                return RelaxedLevel(self.gang, level, number)
            case AddedNodes():
                return replace(relaxation, passing=NONE if relaxation.passing == NONE else self.gang)
            case RaisedQuota():
                return replace(relaxation, quota=int(self.quotas[relaxation.quota]))
            case LoosenedRow():
                return replace(relaxation, row=int(self.rows[relaxation.row]))
            case AddedPods():
                return replace(relaxation, pod_class=int(self.classes[relaxation.pod_class]))
            case CombinedChange(parts):
                return CombinedChange(tuple(self.to_change_of_whole_problem(part) for part in parts))


class GangProblemIsolator:
    """Factory that derives the solver problem of one gang alone from the problem of all gangs."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @cached_property
    def _owned(self) -> tuple[list[IntArray], list[IntArray]]:
        """Classes and subgroups by gang: one pass over the problem for all gangs that are explained."""
        problem = self._problem
        gangs = len(problem.gangs.need)
        return positions_by_group(problem.classes.gang, gangs), positions_by_group(
            problem.subgroups.gang, gangs
        )

    @cached_property
    def _unscored(self) -> Problem:
        """The problem without scores, weights, order, preferred levels and limits, to find out whether a gang fits."""
        problem = self._problem
        gangs, subgroups = problem.gangs, problem.subgroups
        return replace(
            problem,
            kinds=replace(problem.kinds, score=np.broadcast_to(np.int64(0), problem.kinds.score.shape)),
            classes=replace(problem.classes, weight=np.ones(len(problem.classes.gang))),
            gangs=replace(
                gangs,
                tier=np.zeros_like(gangs.tier),
                rank=np.zeros_like(gangs.rank),
                preferred=np.full_like(gangs.preferred, NONE),
                allowed=np.ones_like(gangs.allowed),
            ),
            subgroups=replace(subgroups, preferred=np.full_like(subgroups.preferred, NONE)),
            used_domains=UsedPreferredDomains(),
            quotas=ProblemQuotas(),
        )

    def isolate_gang(self, gang: int) -> IsolatedGangProblem:
        """Return the problem of one gang alone: its pod classes, queue limits and plugin constraints, and all nodes."""
        problem = self._problem
        classes, subgroups = (owned[gang] for owned in self._owned)
        # Without quotas `covers` may be 0 x 0, which has no column of the gang.
        quotas = (
            np.flatnonzero(problem.quotas.covers[:, gang])
            if len(problem.quotas.gangs)
            else np.zeros(0, np.int64)
        )
        rows = [number for number, row in enumerate(problem.rows) if _concerns(row, classes, gang)]
        number = np.array([gang])
        # Selection in order formulates a problem for each gang. It contains nothing to leave out.
        is_alone = len(problem.gangs.need) == 1
        single = replace(
            self._unscored if is_alone else self._unscored.restrict_to_gangs(number, classes, subgroups),
            cuts=(),
            quotas=problem.quotas.select_entries(quotas).restrict_to_gangs(number),
            rows=tuple(_own_terms(problem.rows[number], classes, gang) for number in rows),
        )
        return IsolatedGangProblem(single, gang, classes, subgroups, quotas, np.array(rows, np.int64))


def _concerns(row: ConstraintRow, classes: IntArray, gang: int) -> bool:
    """Whether a row has a term of the gang or of its classes."""
    named = np.isin(row.classes, classes) & (row.coefficients != 0)
    return bool(named.any()) or bool(np.any(row.gangs == gang))


def _own_terms(row: ConstraintRow, classes: IntArray, gang: int) -> ConstraintRow:
    """The row without other gangs' terms. `problem_of_refused_gangs` has counted those that are placed."""
    own_classes: BoolArray = np.isin(row.classes, classes)
    own_gang: BoolArray = row.gangs == gang
    return replace(
        row,
        classes=np.searchsorted(classes, row.classes[own_classes]).astype(np.int32),
        coefficients=row.coefficients[own_classes],
        gangs=np.zeros(int(own_gang.sum()), np.int32),
        gang_coefficients=row.gang_coefficients[:, own_gang] if len(row.gangs) else row.gang_coefficients,
        on_second_side=None if row.on_second_side is None else row.on_second_side[own_classes],
    )


_MAX_PROBES: Final = 200
"""Maximum questions about one gang alone."""
_MAX_NODE_TYPES: Final = 12
"""Node types that are proposed as more nodes, the most frequent ones."""


@dataclass(frozen=True, slots=True, eq=False)
class RefusalEvidence:
    """Explanation of a gang's refusal: the limiting constraint, missing amounts, and a change that helps.

    Args:
      gang: its number.
      cause: the constraint that refuses it first.
      outbid: it would have fitted before this session's other gangs were placed.
      need: pods that it needs.
      fits: pods of its minimum that fit on what is left, in the best domain if a level is required; 0 for a quota.
      level: its required level, NONE without one.
      domain: the domain of that level that comes nearest; NONE for a quota.
      quota: the quota that lacks something, or NONE.
      row: the plugin's row that refuses it, or NONE.
      missing: [R] the missing amounts: of the quota, of all nodes together, or for the pods that do not fit in the
        best domain.
      missing_gangs: gangs that the quota lacks.
      relaxation: the smallest change found that admits the gang, None if there is none.
    """

    gang: int
    cause: RefusalCause
    outbid: bool
    need: int
    fits: int
    level: int
    domain: int
    quota: int
    row: int
    missing: IntArray
    missing_gangs: int
    relaxation: Relaxation | None


@dataclass(frozen=True, slots=True, eq=False)
class SearchEvidence:
    """The result of an exact search for a refused gang: whether it is proved that the gang cannot be placed.

    Args:
      proved: there is provably no placement on what is free.
      subgroup: the subgroup with slices without which a placement is found, NONE for the gang itself.
      slice_level: the level of these slices; NONE if the slices are not what excludes a placement.
    """

    proved: bool
    subgroup: int = NONE
    slice_level: int = NONE


class RefusalExplainer:
    """Explainer of refusals: it finds out why a solution of the solver does not place certain gangs."""

    def __init__(
        self,
        problem: Problem,
        solution: Solution,
        wider: Sequence[int],
        budget: ExplanationBudget | None = None,
    ) -> None:
        """Take a solved problem.

        Args:
          problem: the session.
          solution: its solution.
          wider: [L] the next wider level of each level, NONE for the widest.
          budget: the work that explanations may cost; None for that of a whole session.
        """
        self._problem = problem
        self._solution = solution
        self._wider = wider
        self._budget = budget or ExplanationBudget()
        self._last_isolated: IsolatedGangProblem | None = None

    # Most sessions refuse no gang. What all explanations share is computed for the first of them.

    @cached_property
    def _after(self) -> GangProblemIsolator:
        return GangProblemIsolator(problem_of_refused_gangs(self._problem, self._solution))

    @cached_property
    def _before(self) -> GangProblemIsolator:
        return GangProblemIsolator(self._problem)

    @cached_property
    def _node_types(self) -> tuple[IntArray, ...]:
        return _group_nodes_by_type(self._problem)

    def _isolate_gang(self, gang: int) -> IsolatedGangProblem:
        """The problem of one gang alone after the placements, kept until another gang is explained."""
        isolated = self._last_isolated
        if isolated is None or isolated.gang != gang:
            isolated = self._last_isolated = self._after.isolate_gang(gang)
        return isolated

    def explain_gang_refusal(self, gang: int) -> RefusalEvidence:
        """Explain why a gang was refused, and find the smallest change that admits the gang."""
        isolated = self._isolate_gang(gang)
        residual = ResidualProblem(isolated.problem, self._budget)
        if not self._problem.gangs.allowed[gang]:
            return self._evidence(isolated, residual, RefusalCause.NOT_ALLOWED, None)
        work = estimate_fit_test_work(isolated.problem)
        self._budget.spend(work)
        if self._budget.is_spent():
            return self._evidence(isolated, residual, _plain_cause(residual), None)
        admits = CachedFitCheck(residual.fits_after_change, _MAX_PROBES, self._budget, work)
        first_cause: RefusalCause | None = None
        for family in propose_change_families(residual, self._node_types, self._wider):
            # A decisive cause is kept although another change admits the gang in the end.
            first_cause = first_cause or (family.cause if family.cause in _DECISIVE_CAUSES else None)
            change = find_smallest_change(family, admits)
            if change is not None:
                return self._evidence(isolated, residual, first_cause or family.cause, change)
            if self._budget.is_spent():
                first_cause = first_cause or _plain_cause(residual)
                break
        return self._evidence(isolated, residual, first_cause or RefusalCause.CAPACITY, None)

    def check_refusal_by_exact_search(self, gang: int, seed: int = 0) -> SearchEvidence | None:
        """Search with an exact model for a placement that greedy packing may have missed for a refused gang.

        Return None if no search is needed: the greedy algorithm suffices for a gang with one pod class and no plugin
        constraints. For a gang without a tree of subgroups and without levels of these, return None also if the search
        proves nothing.
        """
        isolated = self._isolate_gang(gang)
        problem = isolated.problem
        is_tree = bool(mask_gangs_that_greedy_may_miss(problem)[0])
        needs_search = is_tree or bool(problem.rows) or len(problem.classes.gang) > 1
        if not needs_search or not self._problem.gangs.allowed[gang]:
            return None
        if self._budget.is_spent():
            return SearchEvidence(proved=False) if is_tree else None
        search = find_placement_or_proof(problem, SEARCH_EFFORT, seed)
        self._budget.spend(WORK_PER_EFFORT * search.effort + WORK_PER_VARIABLE * search.variables)
        proved = search.proved
        if not proved and not is_tree:
            return None
        sliced = [NONE] if problem.gangs.slice_size[0] else []
        for subgroup in sliced + np.flatnonzero(problem.subgroups.slice_size).tolist():
            whole, level = _without_slices(problem, subgroup)
            if Packing(whole).place_minimum_of_gang(0) is not None:
                number = NONE if subgroup == NONE else int(isolated.subgroups[subgroup])
                return SearchEvidence(proved, number, level)
        return SearchEvidence(proved)

    def fits_without_plugins_and_level(self, gang: int) -> bool:
        """Tell whether a refused gang fits if plugin constraints and its required level are ignored."""
        problem = self._isolate_gang(gang).problem
        gangs = replace(problem.gangs, required=np.full_like(problem.gangs.required, NONE))
        return ResidualProblem(replace(problem, gangs=gangs, rows=()), self._budget).gang_fits()

    def _evidence(
        self,
        isolated: IsolatedGangProblem,
        residual: ResidualProblem,
        cause: RefusalCause,
        change: Relaxation | None,
    ) -> RefusalEvidence:
        cause = _refine_cause(residual, cause)
        restored = isolated.to_change_of_whole_problem(change) if change is not None else None
        gap = residual.quota_shortages[0] if cause == RefusalCause.QUOTA else None
        # A queue limit refuses a gang whatever the nodes have: counting on all nodes would be for nothing.
        counts = residual.fit_counts if gap is None else None
        return RefusalEvidence(
            gang=isolated.gang,
            cause=cause,
            outbid=cause != RefusalCause.NOT_ALLOWED
            and residual.fitted_before_placements(
                ResidualProblem(self._problem_before(isolated), self._budget)
            ),
            need=residual.needed_pod_count,
            fits=int(counts.placed.sum(axis=1).max(initial=0)) if counts is not None else 0,
            level=int(residual.problem.gangs.required[0]),
            domain=int(counts.domains[counts.best_domain_position]) if counts is not None else NONE,
            quota=int(isolated.quotas[gap.quota]) if gap is not None else NONE,
            row=_first_row(restored) if cause == RefusalCause.ROW else NONE,
            missing=_missing_amounts(residual, cause),
            missing_gangs=gap.gangs if gap is not None else 0,
            relaxation=restored,
        )

    def _problem_before(self, isolated: IsolatedGangProblem) -> Problem:
        """The gang's own problem before this session's other gangs were placed."""
        if isolated.problem.rows:
            return self._before.isolate_gang(isolated.gang).problem
        # Without rows only what placements use differs.
        whole, own = self._problem, isolated.problem
        free, gangs = whole.quotas.free[isolated.quotas], whole.quotas.gangs[isolated.quotas]
        return replace(
            own,
            nodes=replace(own.nodes, free=whole.nodes.free),
            quotas=replace(own.quotas, free=free, gangs=gangs),
        )


def _without_slices(problem: Problem, subgroup: int) -> tuple[Problem, int]:
    """A gang's problem without the slices of a subgroup, NONE for the gang itself, and the level of these slices."""
    table = problem.gangs if subgroup == NONE else problem.subgroups
    size, level, index = table.slice_size.copy(), table.slice_level.copy(), max(subgroup, 0)
    removed = int(level[index])
    size[index], level[index] = 0, NONE
    if subgroup == NONE:
        return replace(problem, gangs=replace(problem.gangs, slice_size=size, slice_level=level)), removed
    parts = replace(problem.subgroups, slice_size=size, slice_level=level)
    return replace(problem, subgroups=parts), removed


_DECISIVE_CAUSES: Final = (RefusalCause.TOO_FEW_PODS, RefusalCause.QUOTA)
"""Causes that are reported whatever else is also missing."""


def _plain_cause(residual: ResidualProblem) -> RefusalCause:
    """The cause as far as counting tells it, without a question about changes."""
    if residual.uncreated_pods_by_class.any():
        return RefusalCause.TOO_FEW_PODS
    if residual.quota_shortages:
        return RefusalCause.QUOTA
    if residual.fit_counts.fits_in_some_domain:
        return RefusalCause.ROW
    return RefusalCause.CAPACITY if residual.problem.gangs.required[0] == NONE else RefusalCause.TOPOLOGY


def _refine_cause(residual: ResidualProblem, cause: RefusalCause) -> RefusalCause:
    """Distinguish the ways in which capacity is missing."""
    if cause != RefusalCause.CAPACITY:
        return cause
    needed = residual.minimum_by_class > 0
    if not np.all(residual.nodes_passing_filters()[needed].any(axis=1)):
        return RefusalCause.NO_NODE
    if residual.node_size_shortage().any():
        return RefusalCause.POD_TOO_LARGE
    return RefusalCause.CAPACITY if residual.capacity_shortage().any() else RefusalCause.FRAGMENTED


def _missing_amounts(residual: ResidualProblem, cause: RefusalCause) -> IntArray:
    """[R] the amounts that are missing, as far as the cause is about amounts."""
    if cause == RefusalCause.QUOTA:
        return cap_at_unlimited(residual.quota_shortages[0].amounts)
    if cause == RefusalCause.CAPACITY:
        return residual.capacity_shortage()
    if cause == RefusalCause.POD_TOO_LARGE:
        return residual.node_size_shortage()
    if cause in (RefusalCause.ROW, RefusalCause.NOT_ALLOWED, RefusalCause.NO_NODE):
        return np.zeros(residual.problem.classes.demand.shape[1], np.int64)
    return residual.shortage_in_best_domain()


def _first_row(change: Relaxation | None) -> int:
    parts = change.parts if isinstance(change, CombinedChange) else (change,)
    return next((part.row for part in parts if isinstance(part, LoosenedRow)), NONE)


def _group_nodes_by_type(problem: Problem) -> tuple[IntArray, ...]:
    """The nodes of each capacity, the most frequent capacities first."""
    capacity = problem.nodes.capacity
    # Selection in order explains each gang by itself, and sorting the nodes would take a tenth of that.
    if len(capacity) and np.all(capacity == capacity[0]):
        return (np.arange(len(capacity)),)
    _, node_type, counts = np.unique(capacity, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MAX_NODE_TYPES]
    return tuple(np.flatnonzero(node_type.ravel() == number) for number in order.tolist())
