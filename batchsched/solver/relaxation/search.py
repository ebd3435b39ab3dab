"""The search for the smallest change that admits a gang: families of changes are tried in growing size.

Shapes: C classes, D domains, N nodes, R resources.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from batchsched.solver.problem import NONE, IntArray, Problem
from batchsched.solver.relaxation.budget import ExplanationBudget
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    LoosenedRow,
    RaisedQuota,
    Relaxation,
    RelaxedLevel,
    halve_change,
    resize_change,
)
from batchsched.solver.relaxation.residual import FitCounts, ResidualProblem

QUOTA_STEPS: Final = 8
"""Quotas are raised in eighths of what is missing."""
_MAX_FACTOR: Final = 16
"""Changes are tried up to this multiple of what the gang alone would need: other gangs may use part of them."""


class RefusalCause(StrEnum):
    """The constraint that prevents a refused gang from being placed."""

    NOT_ALLOWED = "not allowed"
    TOO_FEW_PODS = "too few pods"
    NO_NODE = "no node passes the filters"
    POD_TOO_LARGE = "a pod is larger than any node"
    QUOTA = "quota"
    TOPOLOGY = "topology level"
    STRUCTURE = "levels and slices of subgroups"
    ROW = "rule of a plugin"
    CAPACITY = "capacity"
    FRAGMENTED = "capacity, in pieces too small"


@dataclass(frozen=True, slots=True)
class ChangeFamily:
    """Changes of increasing size that loosen one constraint of a refused gang, such as 1, 2 or 3 more nodes.

    Args:
      cause: the constraint that the changes loosen.
      parts: the change of size `steps`. Quotas, rows and nodes grow with the size, pods and levels do not.
      start: a guess of the size that is needed.
      limit: the largest size to try.
      steps: the size at which the parts are as given; amounts are rounded up.
      fixed: the first parts, up to this number, never grow.
    """

    cause: RefusalCause
    parts: tuple[Relaxation, ...]
    start: int = 1
    limit: int = 1
    steps: int = 1
    fixed: int = 0

    def build_change(self, size: int) -> Relaxation:
        """Return the change of this family that has the given size, such as 3 more nodes for size 3."""
        if size == self.steps:
            return combine_changes(*self.parts)
        return combine_changes(
            *self.parts[: self.fixed], *(self._grown(part, size) for part in self.parts[self.fixed :])
        )

    def _grown(self, part: Relaxation, size: int) -> Relaxation:
        if isinstance(part, AddedPods | RelaxedLevel):
            return part
        # Amounts are positive, so that rounding up leaves something of every part.
        return resize_change(part, lambda amount: -(-amount * size // self.steps)) or part


class CachedFitCheck:
    """A cached test whether a refused gang would fit after a change of the problem, such as more nodes.

    It caches the answers. Once the maximum number of tests is used up, the answer to every new change is False.
    """

    def __init__(
        self,
        admits: Callable[[Relaxation], bool],
        most: int,
        budget: ExplanationBudget | None = None,
        work: float = 0,
    ) -> None:
        """Compute at most `most` answers with `admits`; each answer costs `work` of the budget."""
        self._admits = admits
        self._answers: dict[Relaxation, bool] = {}
        self._budget = budget or ExplanationBudget()
        self._work = work
        self.remaining = most
        """How many more answers may be computed."""

    def __call__(self, relaxation: Relaxation) -> bool:
        """Return whether the change admits the gang; False also if no more tests are allowed."""
        if relaxation not in self._answers:
            if self.remaining <= 0 or self._budget.is_spent():
                return False
            self.remaining -= 1
            self._budget.spend(self._work)
            self._answers[relaxation] = self._admits(relaxation)
        return self._answers[relaxation]


def find_smallest_change(family: ChangeFamily, admits: CachedFitCheck) -> Relaxation | None:
    """Try changes of increasing size; return the smallest one with which the refused gang fits, or None.

    Doubles the size from the start, then bisects. If a larger change does not always admit more, the result is
    halved as long as its half admits too: at least half of the result then does not.
    """
    low, high = 0, family.start
    if not admits(family.build_change(high)):
        if high >= family.limit or not admits(family.build_change(family.limit)):
            return None
        low, high = high, min(2 * high, family.limit)
        while not admits(family.build_change(high)):
            low, high = high, min(2 * high, family.limit)
    # Invariant of the search: `high` admits the gang and `low` does not.
    # The start is a good guess: its predecessor decides most searches at once.
    if low == 0 and high > 1 and not admits(family.build_change(high - 1)):
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        if admits(family.build_change(middle)):
            high = middle
        else:
            low = middle
    smallest = _drop_parts(family.build_change(high), admits)
    while (smaller := halve_change(smallest)) is not None and admits(smaller):
        smallest = smaller
    return smallest


def _drop_parts(change: Relaxation, admits: CachedFitCheck) -> Relaxation:
    """The change without the parts that are not needed."""
    if not isinstance(change, CombinedChange):
        return change
    kept = list(change.parts)
    for part in change.parts:
        rest = [other for other in kept if other is not part]
        if rest and admits(combine_changes(*rest)):
            kept = rest
    return combine_changes(*kept)


def propose_change_families(
    residual: ResidualProblem,
    node_types: Sequence[IntArray],
    wider: Sequence[int],
) -> Iterator[ChangeFamily]:
    """Yield families of changes that may admit a refused gang, such as more nodes, least disruptive first.

    Args:
      residual: the gang's own problem on what is left.
      node_types: node numbers by type; nodes of one type have equal capacity.
      wider: [L] the next wider level of each level, NONE for the widest.
    """
    missing = residual.uncreated_pods_by_class
    pods = tuple(AddedPods(c, int(missing[c])) for c in np.flatnonzero(missing).tolist())
    if pods:
        yield ChangeFamily(RefusalCause.TOO_FEW_PODS, pods)
        # Every further change includes the missing pods: without them nothing admits the gang.
        residual = residual.with_changes(pods)
    problem, quotas = residual.problem, residual.quota_shortages
    fixed: tuple[Relaxation, ...] = (*pods, *quotas)
    # If counting decides, a quota needs exactly the amount that it lacks.
    if quotas and not residual.may_be_decided_by_counting_pods:
        limit = QUOTA_STEPS * _MAX_FACTOR
        yield ChangeFamily(RefusalCause.QUOTA, fixed, QUOTA_STEPS, limit, QUOTA_STEPS)
    elif quotas:
        yield ChangeFamily(RefusalCause.QUOTA, fixed)
    for change in _level_changes(problem, wider):
        yield ChangeFamily(RefusalCause.TOPOLOGY, (*fixed, change))
    limits = [_row_reach(problem, row) for row in range(len(problem.rows))]
    rows = tuple(LoosenedRow(row, 1) for row in range(len(limits)))
    for row, limit in zip(rows, limits, strict=True):
        yield ChangeFamily(RefusalCause.ROW, (*fixed, row), 1, limit, fixed=len(fixed))
    if len(limits) > 1:
        yield ChangeFamily(RefusalCause.ROW, (*fixed, *rows), 1, max(limits), fixed=len(fixed))
    yield from _node_families(residual, fixed, node_types)


def combine_changes(*parts: Relaxation) -> Relaxation:
    """Merge changes, such as more nodes and a higher queue limit, into one change."""
    return parts[0] if len(parts) == 1 else CombinedChange(parts)


def _level_changes(problem: Problem, wider: Sequence[int]) -> Iterator[Relaxation]:
    """The gang at ever wider levels and at none; then the same for its subgroups; then all of them at none."""
    unbound = _without_levels(problem)
    for change in unbound:
        level = int(
            problem.gangs.required[0]
            if change.subgroup == NONE
            else problem.subgroups.required[change.subgroup]
        )
        while (level := wider[level]) != NONE:
            yield RelaxedLevel(0, level, change.subgroup)
        yield change
    if len(unbound) > 1:
        yield combine_changes(*unbound)


def _without_levels(problem: Problem) -> tuple[RelaxedLevel, ...]:
    """No level required, for the gang and each of its subgroups that requires one."""
    required = [(NONE, problem.gangs.required[0]), *enumerate(problem.subgroups.required)]
    return tuple(RelaxedLevel(0, NONE, subgroup) for subgroup, level in required if level != NONE)


def _row_reach(problem: Problem, number: int) -> int:
    """The largest amount by which a row can refuse the gang: loosened by more, it refuses nothing."""
    row = problem.rows[number]
    pods = int(np.abs(row.coefficients) @ problem.classes.count[row.classes])
    gangs = int(np.abs(row.gang_coefficients).sum(axis=1).max(initial=0)) if len(row.gangs) else 0
    return max(1, pods + gangs)


def _node_families(
    residual: ResidualProblem, fixed: tuple[Relaxation, ...], node_types: Sequence[IntArray]
) -> Iterator[ChangeFamily]:
    """More nodes; then also all rows loose; then also no level required; then also more of every quota."""
    problem = residual.problem
    rows = tuple(LoosenedRow(number, _row_reach(problem, number)) for number in range(len(problem.rows)))
    levels, minimum = _without_levels(problem), residual.minimum_by_class
    # Neither quotas nor rows change how many nodes suffice, so the rows share the residual without them.
    stages: list[tuple[tuple[Relaxation, ...], ResidualProblem]] = [((), residual)]
    if rows:
        stages.append((rows, residual))
    if levels:
        stages.append(((*rows, *levels), residual.with_changes(levels)))
    tried: list[tuple[tuple[Relaxation, ...], AddedNodes]] = []
    for loosened, changed in stages:
        nodes = _estimate_nodes(changed, node_types)
        if nodes is not None:
            tried.append((loosened, nodes))
            limit = max(int(minimum.sum()), _MAX_FACTOR * nodes.count)
            parts = (*fixed, *loosened, replace(nodes, count=1))
            yield ChangeFamily(RefusalCause.CAPACITY, parts, nodes.count, limit, fixed=len(parts) - 1)
    # Other gangs may use what is added, so enough is added for them too.
    request = tuple((minimum @ problem.classes.demand).tolist())
    quotas = tuple(RaisedQuota(quota, request, 1) for quota in range(len(problem.quotas.gangs)))
    pods = tuple(part for part in fixed if isinstance(part, AddedPods))
    for loosened, nodes in tried:
        yield ChangeFamily(RefusalCause.CAPACITY, (*pods, *quotas, *loosened, nodes), 1, _MAX_FACTOR)


def _estimate_nodes(residual: ResidualProblem, node_types: Sequence[IntArray]) -> AddedNodes | None:
    """Return about how many nodes suffice, with their type and domain; None if the cluster has no node."""
    problem, counts = residual.problem, residual.fit_counts
    best = min(_estimates(residual, counts, node_types), default=None)
    if best is None:
        return None
    level = int(problem.gangs.required[0])
    domain = int(counts.domains[best.position]) if level != NONE else NONE
    subgroups = problem.subgroups
    for inner, pinned in zip(subgroups.required.tolist(), subgroups.pinned.tolist(), strict=True):
        if level == NONE and inner != NONE:
            level = inner
            domain = pinned if pinned != NONE else int(problem.nodes.levels[inner].max(initial=0))
    return AddedNodes(best.count, best.like, level, domain, 0 if best.filtered else NONE, best.extra)


@dataclass(frozen=True, slots=True, order=True)
class _NodeEstimate:
    """New nodes of one type that may suffice. The order of the fields is the order of preference.

    Args:
      filtered: no node of the type passes the gang's filters.
      extra: [R] how much larger than the type the nodes must be; () if the type is large enough.
      count: how many nodes.
      size: dominant share of one node, summed over resources.
      like: a node of the type.
      position: position of the domain among `FitCounts.domains`.
    """

    filtered: bool
    extra: tuple[int, ...]
    count: int
    size: float
    like: int
    position: int


def _estimates(
    residual: ResidualProblem, counts: FitCounts, node_types: Sequence[IntArray]
) -> Iterator[_NodeEstimate]:
    """One estimate for each node type, in the domain where the fewest nodes are needed."""
    problem, passes, needed = (
        residual.problem,
        residual.nodes_passing_filters(),
        residual.minimum_by_class > 0,
    )
    total = np.maximum(problem.nodes.capacity.sum(axis=0), 1)
    short = np.maximum(counts.unplaced_pod_counts, 0)
    if not needed.any() or not len(short):
        return
    largest = problem.classes.demand[needed].max(axis=0)
    all_pass = np.asarray(passes[needed].all(axis=0))
    # A node type that is too small for one pod is enlarged, since more of the same would not help.
    for nodes in node_types:
        passing = nodes[all_pass[nodes]]
        like = int(passing[0] if len(passing) else nodes[0])
        size = np.maximum(problem.nodes.capacity[like], largest)
        extra = size - problem.nodes.capacity[like]
        needed_nodes = _count_nodes(problem, short, size)
        position = int(np.argmin(needed_nodes))
        yield _NodeEstimate(
            filtered=not len(passing),
            extra=tuple(extra.tolist()) if extra.any() else (),
            count=int(needed_nodes[position]),
            size=float((size / total).sum()),
            like=like,
            position=position,
        )


def _count_nodes(problem: Problem, short: IntArray, size: IntArray) -> IntArray:
    """[D] a lower bound on the nodes of a size [R] for the pods that are short in each domain [D, C]."""
    request = short @ problem.classes.demand
    counts = np.max(-(-request // np.maximum(size, 1)), axis=1, initial=1)
    for class_index in np.flatnonzero(short.any(axis=0)).tolist():
        demand = problem.classes.demand[class_index]
        used = demand > 0
        pods_per_node = int((size[used] // demand[used]).min(initial=2**31))
        counts = np.maximum(counts, -(-short[:, class_index] // max(1, pods_per_node)))
    return np.asarray(counts, np.int64)
