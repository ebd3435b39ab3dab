"""Changes that admit more, as values: apply one to a problem, or take half of it.

Shapes: C classes, G gangs, K kinds, L levels, N nodes, Q quotas, R resources.
"""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from batchsched.solver.problem import (
    EVERY_NODE,
    NONE,
    UNLIMITED,
    Problem,
    Row,
    Sense,
)


@dataclass(frozen=True, slots=True)
class Level:
    """Bind a gang, or one subgroup of it, at another level instead of its required one; NONE: at none."""

    gang: int
    level: int
    subgroup: int = NONE


@dataclass(frozen=True, slots=True)
class Nodes:
    """More empty nodes.

    Args:
      count: so many of them.
      like: each is as large as this node, bears its labels and passes the same filters.
      level, domain: they lie in this domain of this level instead; NONE: where `like` lies.
      passing: they pass the filters of this gang besides, and since a filter seldom tells gangs apart, those of
        all the others, too; NONE: only what `like` passes.
      extra: [R] so much larger is each than `like`; () when none needs to be.
    """

    count: int
    like: int
    level: int = NONE
    domain: int = NONE
    passing: int = NONE
    extra: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota leaves more: amounts [R] of resources, and so many gangs."""

    quota: int
    amounts: tuple[int, ...]
    gangs: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of a plugin's rule is looser by so much in each of its domains."""

    row: int
    by: int


@dataclass(frozen=True, slots=True)
class Pods:
    """So many more pods of a class."""

    pod_class: int
    count: int


@dataclass(frozen=True, slots=True)
class Together:
    """Several changes at once; each by itself is not enough."""

    parts: "tuple[Relaxation, ...]"


Relaxation = Level | Nodes | Quota | Rule | Pods | Together


def apply(problem: Problem, relaxation: Relaxation) -> Problem:
    """The problem with the change made. Added nodes come last, so that all numbers keep their meaning."""
    match relaxation:
        case Level():
            return _level(problem, relaxation)
        case Nodes():
            return _nodes(problem, relaxation)
        case Quota():
            return _quota(problem, relaxation)
        case Rule():
            return _rule(problem, relaxation)
        case Pods(pod_class, count):
            counts = problem.count.copy()
            counts[pod_class] += count
            return replace(problem, count=counts)
        case Together(parts):
            return reduce(apply, parts, problem)


def half(relaxation: Relaxation) -> Relaxation | None:
    """Half of the change, rounded down; None when nothing is left of it."""
    match relaxation:
        case Level():
            return None
        case Nodes():
            return _some(relaxation.count // 2, relaxation)
        case Quota(quota, amounts, gangs):
            smaller = Quota(quota, tuple(amount // 2 for amount in amounts), gangs // 2)
            return smaller if any(smaller.amounts) or smaller.gangs else None
        case Rule(row, by):
            return Rule(row, by // 2) if by > 1 else None
        case Pods(pod_class, count):
            return Pods(pod_class, count // 2) if count > 1 else None
        case Together(parts):
            left = tuple(less for part in parts if (less := half(part)) is not None)
            return Together(left) if left else None


def _some(count: int, nodes: Nodes) -> Nodes | None:
    return replace(nodes, count=count) if count else None


def wider_levels(problem: Problem, level: int) -> tuple[int, ...]:
    """The levels whose domains are unions of this level's, the finest first."""
    labelled = problem.levels[level] >= 0
    own = problem.levels[level][labelled].astype(np.int64)
    count = len(np.unique(own))
    found = []
    for other in range(len(problem.levels)):
        around = problem.levels[other][labelled]
        if other == level or np.any(around < 0):
            continue
        domains = len(np.unique(around))
        pairs = len(np.unique(own * (int(around.max(initial=0)) + 1) + around))
        if pairs == count and domains < count:
            found.append((-domains, -other, other))
    return tuple(other for _, _, other in sorted(found))


def _level(problem: Problem, change: Level) -> Problem:
    inside = change.subgroup != NONE
    levels = (problem.sub_required if inside else problem.required).copy()
    pins = (problem.sub_pinned if inside else problem.pinned).copy()
    at = change.subgroup if inside else change.gang
    if change.level == NONE:
        pins[at] = NONE
    elif pins[at] != NONE:
        around = problem.levels[change.level][problem.levels[levels[at]] == pins[at]]
        pins[at] = around[0] if len(around) else NONE
    levels[at] = change.level
    if inside:
        return replace(problem, sub_required=levels, sub_pinned=pins)
    return replace(problem, required=levels, pinned=pins)


def added(problem: Problem, change: Nodes) -> Problem:
    """The new nodes by themselves, with everything of the problem that asks something of them but its rows."""
    like, count = change.like, change.count
    size = problem.capacity[like] + (np.array(change.extra, np.int64) if change.extra else 0)
    mask = problem.mask[:, like : like + 1].repeat(count, axis=1)
    if change.passing != NONE:
        mask[:] = True
    model, levels = like, change.level
    if levels != NONE and problem.levels[levels, like] != change.domain:
        inside = np.flatnonzero(problem.levels[levels] == change.domain)
        if len(inside):
            # the best labelled of them, so that finer levels are labelled too
            model = int(inside[np.argmax((problem.levels[:, inside] >= 0).sum(axis=0))])
    labels = problem.levels[:, model : model + 1].repeat(count, axis=1)
    if levels != NONE:
        labels[levels] = change.domain
    amounts = size[None].repeat(count, axis=0)
    return replace(
        problem,
        free=amounts,
        capacity=amounts,
        mask=mask,
        score=problem.score[:, like : like + 1].repeat(count, axis=1),
        levels=labels,
        partitions=tuple(ids[model : model + 1].repeat(count) for ids in problem.partitions),
        rows=(),
    )


def _nodes(problem: Problem, change: Nodes) -> Problem:
    new = added(problem, change)
    return replace(
        problem,
        free=np.concatenate([problem.free, new.free]),
        capacity=np.concatenate([problem.capacity, new.capacity]),
        mask=np.concatenate([problem.mask, new.mask], axis=1),
        score=np.concatenate([problem.score, new.score], axis=1),
        levels=np.concatenate([problem.levels, new.levels], axis=1),
        partitions=tuple(map(np.concatenate, zip(problem.partitions, new.partitions, strict=True))),
        rows=tuple(_grown(row, change.like, change.count) for row in problem.rows),
    )


def _grown(row: Row, like: int, count: int) -> Row:
    if row.partition != EVERY_NODE:
        return row
    gangs = row.gang_coefficients
    if len(row.gangs):
        gangs = np.concatenate([gangs, gangs[like : like + 1].repeat(count, axis=0)])
    right = np.concatenate([row.right, row.right[like : like + 1].repeat(count)])
    return replace(row, right=right, gang_coefficients=gangs)


def _quota(problem: Problem, change: Quota) -> Problem:
    free, gangs = problem.quota_free.copy(), problem.quota_gangs.copy()
    more = np.array(change.amounts, np.int64)
    free[change.quota] = np.minimum(np.maximum(free[change.quota], 0) + more, UNLIMITED)
    if change.gangs:
        gangs[change.quota] = max(0, int(gangs[change.quota])) + change.gangs
    return replace(problem, quota_free=free, quota_gangs=gangs)


def _rule(problem: Problem, change: Rule) -> Problem:
    row = problem.rows[change.row]
    by = change.by if row.sense == Sense.AT_MOST else -change.by
    rows = list(problem.rows)
    rows[change.row] = replace(row, right=np.minimum(row.right + by, UNLIMITED))
    return replace(problem, rows=tuple(rows))
