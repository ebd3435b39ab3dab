"""The smallest change that admits a gang: families of changes, each tried in growing size.

Shapes: C classes, D domains, N nodes, R resources.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

import numpy as np

from batchsched.solver.problem import NONE, IntArray, Problem
from batchsched.solver.relaxation.admission import passing, plain, quotas_short, shortage_of_pods
from batchsched.solver.relaxation.changes import (
    Level,
    Nodes,
    Pods,
    Quota,
    Relaxation,
    Rule,
    Together,
    apply,
    half,
)
from batchsched.solver.relaxation.fit_count import FitCounts, minimum, room

EIGHTHS: Final = 8
"""Quotas are loosened in eighths of what is missing."""
_TIMES: Final = 16
"""Changes are tried up to so many times what the gang alone would need: others may take of them too."""


class RefusalCause(StrEnum):
    """Which constraint binds."""

    NOT_ALLOWED = "not allowed"
    TOO_FEW_PODS = "too few pods"
    NO_NODE = "no node passes the filters"
    POD_TOO_LARGE = "a pod is larger than any node"
    QUOTA = "quota"
    TOPOLOGY = "topology level"
    ROW = "rule of a plugin"
    CAPACITY = "capacity"
    FRAGMENTED = "capacity, in pieces too small"


@dataclass(frozen=True, slots=True)
class Family:
    """Changes of one kind by size: `make(k)` grows with k; `start` is a guess, `limit` the largest to try."""

    cause: RefusalCause
    make: Callable[[int], Relaxation]
    start: int = 1
    limit: int = 1


class Probe:
    """A question that costs something: does this change admit the gang? Asked at most so often."""

    def __init__(self, admits: Callable[[Relaxation], bool], most: int) -> None:
        self._admits = admits
        self._known: dict[Relaxation, bool] = {}
        self.left = most

    def __call__(self, relaxation: Relaxation) -> bool:
        """Ask, or remember the answer; out of questions it says no."""
        if relaxation not in self._known:
            if self.left <= 0:
                return False
            self.left -= 1
            self._known[relaxation] = self._admits(relaxation)
        return self._known[relaxation]


def smallest(family: Family, admits: Probe) -> Relaxation | None:
    """The smallest member of the family that admits, None when its largest does not.

    Doubles from the start, then bisects: where larger does not always admit more, half of the answer still does
    not admit.
    """
    low, high = 0, family.start
    if not admits(family.make(high)):
        if high >= family.limit or not admits(family.make(family.limit)):
            return None
        low, high = high, min(2 * high, family.limit)
        while not admits(family.make(high)):
            low, high = high, min(2 * high, family.limit)
    if low == 0 and high > 1 and not admits(family.make(high - 1)):
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        if admits(family.make(middle)):
            high = middle
        else:
            low = middle
    found = _pruned(family.make(high), admits)
    while (less := half(found)) is not None and admits(less):
        found = less
    return found


def _pruned(change: Relaxation, admits: Probe) -> Relaxation:
    """The change without the parts that it can do without."""
    if not isinstance(change, Together):
        return change
    kept = list(change.parts)
    for part in change.parts:
        rest = [other for other in kept if other is not part]
        if rest and admits(together(*rest)):
            kept = rest
    return together(*kept)


def families(
    problem: Problem, types: Sequence[IntArray], above: Callable[[int], Sequence[int]], others: bool = True
) -> Iterator[Family]:
    """What may admit the only gang of a problem (`leftover.alone`), the gentlest kind of change first.

    Args:
      problem: the gang's own problem on what is left.
      types: node numbers by type, equal in size.
      above: the levels wider than a level, the finest first.
      others: other gangs may take of what is added; where they do not and counting says all, a quota needs exactly
        what it is short of.
    """
    lacking = shortage_of_pods(problem)
    pods = tuple(Pods(c, int(lacking[c])) for c in np.flatnonzero(lacking).tolist())
    if pods:
        yield Family(RefusalCause.TOO_FEW_PODS, partial(_always, together(*pods)))
        problem = apply(problem, Together(pods))
    quotas = quotas_short(problem)
    if quotas and (others or not plain(problem)):
        yield Family(RefusalCause.QUOTA, partial(_loosened, pods, quotas), EIGHTHS, EIGHTHS * _TIMES)
    elif quotas:
        yield Family(RefusalCause.QUOTA, partial(_always, together(*pods, *quotas)))
    first: tuple[Relaxation, ...] = (*pods, *quotas)
    for change in _levels(problem, above):
        yield Family(RefusalCause.TOPOLOGY, partial(_always, together(*first, change)))
    limits = [_reach(problem, at) for at in range(len(problem.rows))]
    for at, limit in enumerate(limits):
        yield Family(RefusalCause.ROW, partial(_looser, first, (at,)), 1, limit)
    if len(limits) > 1:
        yield Family(RefusalCause.ROW, partial(_looser, first, tuple(range(len(limits)))), 1, max(limits))
    yield from _nodes(problem, first, types)


def _always(change: Relaxation, _size: int) -> Relaxation:
    return change


def _loosened(fixed: tuple[Relaxation, ...], quotas: tuple[Quota, ...], size: int) -> Relaxation:
    return together(*fixed, *(_eighths(quota, size) for quota in quotas))


def _looser(fixed: tuple[Relaxation, ...], rows: tuple[int, ...], size: int) -> Relaxation:
    return together(*fixed, *(Rule(row, size) for row in rows))


def _wider(fixed: tuple[Relaxation, ...], more: Nodes, size: int) -> Relaxation:
    return together(*fixed, replace(more, count=size))


def _plenty(parts: tuple[Relaxation, ...], size: int) -> Relaxation:
    return together(*(_times(part, size) for part in parts))


def _times(part: Relaxation, size: int) -> Relaxation:
    match part:
        case Quota():
            return _eighths(part, EIGHTHS * size)
        case Rule(row, by):
            return Rule(row, by * size)
        case Nodes(count):
            return replace(part, count=count * size)
        case _:
            return part


def together(*parts: Relaxation) -> Relaxation:
    """One change of several; a single one stays itself."""
    return parts[0] if len(parts) == 1 else Together(parts)


def _eighths(quota: Quota, eighths: int) -> Quota:
    amounts = tuple(-(-amount * eighths // EIGHTHS) for amount in quota.amounts)
    return Quota(quota.quota, amounts, -(-quota.gangs * eighths // EIGHTHS))


def _levels(problem: Problem, above: Callable[[int], Sequence[int]]) -> Iterator[Relaxation]:
    """The gang at ever wider levels and at none; then its subgroups; then all of them at none."""
    loose: list[Relaxation] = []
    bound = [(NONE, int(problem.gangs.required[0])), *enumerate(problem.subgroups.required.tolist())]
    for subgroup, level in bound:
        if level == NONE:
            continue
        for other in (*above(level), NONE):
            yield Level(0, other, subgroup)
        loose.append(Level(0, NONE, subgroup))
    if len(loose) > 1:
        yield together(*loose)


def _reach(problem: Problem, at: int) -> int:
    """By how much a row can bind at all: beyond that it is as good as gone."""
    row = problem.rows[at]
    pods = int(np.abs(row.coefficients) @ problem.classes.count[row.classes])
    gangs = int(np.abs(row.gang_coefficients).sum(axis=1).max(initial=0)) if len(row.gangs) else 0
    return max(1, pods + gangs)


def _nodes(problem: Problem, first: tuple[Relaxation, ...], types: Sequence[IntArray]) -> Iterator[Family]:
    """More nodes; then with all rules loose, then with no level binding, then with more of every quota."""
    rules = tuple(Rule(at, _reach(problem, at)) for at in range(len(problem.rows)))
    bound = [(NONE, problem.gangs.required[0]), *enumerate(problem.subgroups.required)]
    levels = tuple(Level(0, NONE, subgroup) for subgroup, level in bound if level != NONE)
    pods = int(minimum(problem).sum())
    # Neither quotas nor rules change how many nodes would do.
    stages: list[tuple[tuple[Relaxation, ...], Problem]] = [((), problem)]
    if rules:
        stages.append((rules, problem))
    if levels:
        stages.append(((*rules, *levels), apply(problem, Together(levels))))
    found: list[tuple[tuple[Relaxation, ...], Nodes]] = []
    for loose, changed in stages:
        more = _more(changed, types)
        if more is not None:
            found.append((loose, more))
            most = max(pods, _TIMES * more.count)
            yield Family(RefusalCause.CAPACITY, partial(_wider, (*first, *loose), more), more.count, most)
    # others may take what is added, so that there must be enough for them too
    asked = tuple((minimum(problem) @ problem.classes.demand).tolist())
    quotas = tuple(Quota(quota, asked, 1) for quota in range(len(problem.quotas.gangs)))
    given = tuple(part for part in first if isinstance(part, Pods))
    for loose, more in found:
        yield Family(RefusalCause.CAPACITY, partial(_plenty, (*given, *quotas, *loose, more)), 1, _TIMES)


def _more(problem: Problem, types: Sequence[IntArray]) -> Nodes | None:
    """About how many nodes of which type would do, and where; None when there is no node to be like."""
    found = room(problem)
    best = min(_offers(problem, found, types), default=None)
    if best is None:
        return None
    level = int(problem.gangs.required[0])
    domain = int(found.domains[best.at]) if level != NONE else NONE
    for inner, pinned in zip(
        problem.subgroups.required.tolist(), problem.subgroups.pinned.tolist(), strict=True
    ):
        if level == NONE and inner != NONE:
            level = inner
            domain = pinned if pinned != NONE else int(problem.nodes.levels[inner].max(initial=0))
    return Nodes(best.count, best.like, level, domain, 0 if best.strange else NONE, best.extra)


@dataclass(frozen=True, slots=True, order=True)
class _Offer:
    """New nodes that might do: those that pass and are large enough first, then the fewest, then the smallest."""

    strange: bool
    extra: tuple[int, ...]
    count: int
    size: float
    like: int
    at: int


def _offers(problem: Problem, found: FitCounts, types: Sequence[IntArray]) -> Iterator[_Offer]:
    """One offer for each type of node: how many of it, in the domain where the fewest are needed."""
    passes = passing(problem)
    needed = minimum(problem) > 0
    total = np.maximum(problem.nodes.capacity.sum(axis=0), 1)
    short = np.maximum(found.short, 0)
    if not needed.any() or not len(short):
        return
    largest = problem.classes.demand[needed].max(axis=0)
    all_pass = np.asarray(passes[needed].all(axis=0))
    for nodes in types:
        good = nodes[all_pass[nodes]]
        like = int(good[0] if len(good) else nodes[0])
        size = np.maximum(problem.nodes.capacity[like], largest)
        extra = size - problem.nodes.capacity[like]
        counts = _count(problem, short, size)
        at = int(np.argmin(counts))
        more = tuple(extra.tolist()) if extra.any() else ()
        yield _Offer(not len(good), more, int(counts[at]), float((size / total).sum()), like, at)


def _count(problem: Problem, short: IntArray, size: IntArray) -> IntArray:
    """At least how many nodes of a size [R] take the pods that are short in each domain [D, C], [D]."""
    asked = short @ problem.classes.demand
    counts = np.max(-(-asked // np.maximum(size, 1)), axis=1, initial=1)
    for index in np.flatnonzero(short.any(axis=0)).tolist():
        asks = problem.classes.demand[index]
        used = asks > 0
        each = int((size[used] // asks[used]).min(initial=2**31))
        counts = np.maximum(counts, -(-short[:, index] // max(1, each)))
    return np.asarray(counts, np.int64)
