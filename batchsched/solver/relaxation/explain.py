"""Why a gang was refused: the constraint that binds, what is missing, and the smallest change that admits it.

Quick: the other gangs stay where they are and only this one is asked for, on what is left. Thorough: the whole
changed problem is solved again by `resolve`, so that others may move, and may also take what was added.

Shapes: N nodes, R resources.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from batchsched.solver.problem import NONE, IntArray, Problem, Solution
from batchsched.solver.relaxation.admission import (
    best_domain,
    capacity_short,
    fits_alone,
    fits_with,
    fitted,
    passing,
    pods_short,
    quotas_short,
    size_short,
)
from batchsched.solver.relaxation.changes import (
    Relaxation,
    Rule,
    Together,
    apply,
    half,
    wider_levels,
)
from batchsched.solver.relaxation.fit_count import least, room
from batchsched.solver.relaxation.residual import Alone, alone, leftover
from batchsched.solver.relaxation.search import Family, Probe, RefusalCause, families, smallest

_QUICK: Final = 200
"""Questions about one gang alone."""
_THOROUGH: Final = 40
"""Whole sessions that are solved again for one gang."""
_TYPES: Final = 12
"""Node types that are offered as more nodes, the most frequent."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What speaks against one gang.

    Args:
      gang: its number.
      cause: the constraint that binds first.
      outbid: it would have fitted before this session's other gangs were placed.
      need: pods that it needs.
      fits: pods of its minimum that fit on what is left, in the best domain when a level is required.
      level, domain: its required level and the domain that comes nearest; NONE when there is no level.
      quota: the quota that lacks something, or NONE; row: the plugin's row that binds, or NONE.
      missing: [R] the amounts that are missing: of the quota, of all nodes together, or for the pods that do not
        fit in the best domain.
      missing_gangs: gangs that the quota lacks.
      relaxation: the smallest change found that admits the gang, None when there is none.
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


class Explainer:
    """Explains the refusals of one solution."""

    def __init__(
        self,
        problem: Problem,
        solution: Solution,
        *,
        resolve: Callable[[Problem], Solution] | None = None,
        wider: Sequence[int] | None = None,
    ) -> None:
        """Without `resolve` explanations are quick; with it thorough.

        `wider` says of each level the next wider one (-1: none); by default the levels that contain it.
        """
        self._problem = problem
        self._solution = solution
        self._resolve = resolve
        self._wider = wider
        self._known: dict[int, tuple[int, ...]] = {}

    # Most sessions refuse nobody: what stands is looked at for the first that is.

    @cached_property
    def _left(self) -> Problem:
        return leftover(self._problem, self._solution)

    @cached_property
    def _types(self) -> tuple[IntArray, ...]:
        return _types(self._problem)

    def gang(self, gang: int) -> Evidence:
        """Explain why a gang was refused."""
        own = alone(self._left, gang)
        if not self._problem.gangs.allowed[gang]:
            return self._evidence(own, RefusalCause.NOT_ALLOWED, None)
        quick = Probe(partial(fits_with, own.problem), _QUICK)
        thorough = Probe(lambda change: self._admits(own.named(change), gang), _THOROUGH)
        blamed: RefusalCause | None = None
        for family in families(own.problem, self._types, self._above, self._resolve is not None):
            blamed = blamed or (family.cause if family.cause in _FIRST else None)
            found = smallest(family, quick)
            if self._resolve is not None:
                found = self._again(family, found, thorough)
            if found is not None:
                return self._evidence(own, blamed or family.cause, found)
        return self._evidence(own, blamed or RefusalCause.CAPACITY, None)

    def fits_freely(self, gang: int) -> bool:
        """Tell whether a refused gang would fit if it had to keep neither rules nor a level of its own."""
        problem = alone(self._left, gang).problem
        return fits_alone(
            replace(
                problem,
                gangs=replace(problem.gangs, required=np.full_like(problem.gangs.required, NONE)),
                rows=(),
            )
        )

    def _above(self, level: int) -> tuple[int, ...]:
        """The levels wider than this one, the finest first."""
        if level not in self._known:
            self._known[level] = (
                wider_levels(self._problem, level) if self._wider is None else self._chain(level)
            )
        return self._known[level]

    def _chain(self, level: int) -> tuple[int, ...]:
        assert self._wider is not None
        chain = []
        while (level := self._wider[level]) != NONE:
            chain.append(level)
        return tuple(chain)

    def _admits(self, change: Relaxation, gang: int) -> bool:
        assert self._resolve is not None
        return bool(self._resolve(apply(self._problem, change)).taken[gang])

    def _again(self, family: Family, quick: Relaxation | None, thorough: Probe) -> Relaxation | None:
        """The quick answer when it holds and its half does not, else the smallest member when others may move.

        The quick one costs no other gang its place. Only a level can help together that does not help alone.
        """
        if quick is None and family.cause != RefusalCause.TOPOLOGY:
            return None
        if quick is not None and thorough(quick):
            less = half(quick)
            if less is None or not thorough(less):
                return quick
        return smallest(family, thorough)

    def _evidence(self, own: Alone, cause: RefusalCause, change: Relaxation | None) -> Evidence:
        problem = own.problem
        found = room(problem)
        quota, gangs = NONE, 0
        cause = self._refined(problem, cause)
        if cause == RefusalCause.QUOTA:
            lacking = quotas_short(problem)[0]
            quota, gangs = int(own.quotas[lacking.quota]), lacking.gangs
            missing = np.array(lacking.amounts, np.int64)
        elif cause == RefusalCause.CAPACITY:
            missing = capacity_short(problem)
        elif cause == RefusalCause.POD_TOO_LARGE:
            missing = size_short(problem)
        elif cause in (RefusalCause.ROW, RefusalCause.NOT_ALLOWED, RefusalCause.NO_NODE):
            missing = np.zeros(problem.classes.demand.shape[1], np.int64)
        else:
            missing = pods_short(problem, found)
        named = own.named(change) if change is not None else None
        return Evidence(
            gang=own.gang,
            cause=cause,
            outbid=cause != RefusalCause.NOT_ALLOWED and fitted(own.problem, self._before(own)),
            need=least(problem),
            fits=int(found.placed.sum(axis=1).max(initial=0)),
            level=int(problem.gangs.required[0]),
            domain=int(found.domains[best_domain(found)]),
            quota=quota,
            row=_row(named) if cause == RefusalCause.ROW else NONE,
            missing=missing,
            missing_gangs=gangs,
            relaxation=named,
        )

    def _before(self, own: Alone) -> Problem:
        """The gang's own problem before this session's other gangs were placed."""
        if own.problem.rows:
            return alone(self._problem, own.gang).problem
        whole = self._problem
        return replace(
            own.problem,
            nodes=replace(own.problem.nodes, free=whole.nodes.free),
            quotas=replace(
                own.problem.quotas, free=whole.quotas.free[own.quotas], gangs=whole.quotas.gangs[own.quotas]
            ),
        )

    def _refined(self, problem: Problem, cause: RefusalCause) -> RefusalCause:
        """Tell the ways apart in which capacity is lacking."""
        if cause != RefusalCause.CAPACITY:
            return cause
        passes = passing(problem)
        needed = room(problem).wanted > 0
        if not np.all(passes[needed].any(axis=1)):
            return RefusalCause.NO_NODE
        if size_short(problem).any():
            return RefusalCause.POD_TOO_LARGE
        return RefusalCause.CAPACITY if capacity_short(problem).any() else RefusalCause.FRAGMENTED


_FIRST: Final = (RefusalCause.TOO_FEW_PODS, RefusalCause.QUOTA)
"""Causes that hold whatever else is also lacking."""


def explain(
    problem: Problem,
    solution: Solution,
    gang: int,
    *,
    resolve: Callable[[Problem], Solution] | None = None,
    wider: Sequence[int] | None = None,
) -> Evidence:
    """Explain why a gang was refused; see `Explainer`."""
    return Explainer(problem, solution, resolve=resolve, wider=wider).gang(gang)


def _row(change: Relaxation | None) -> int:
    parts = change.parts if isinstance(change, Together) else (change,)
    return next((part.row for part in parts if isinstance(part, Rule)), NONE)


def _types(problem: Problem) -> tuple[IntArray, ...]:
    """The nodes of each size, the most frequent sizes first."""
    _, kind, counts = np.unique(problem.nodes.capacity, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_TYPES]
    return tuple(np.flatnonzero(kind.ravel() == which) for which in order.tolist())
