"""Changes of a problem that may admit a refused gang, as values that can be applied, resized and halved.

Shapes: C classes, G gangs, K kinds, L levels, N nodes, Q quotas, R resources.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from batchsched.solver.problem import (
    EVERY_NODE,
    NONE,
    UNLIMITED,
    ConstraintRow,
    IntArray,
    Problem,
    Sense,
)


@dataclass(frozen=True, slots=True)
class RelaxedLevel:
    """A change that may admit a refused gang: the gang or a subgroup requires another topology level, or none."""

    gang: int
    level: int
    subgroup: int = NONE


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """A change that may admit a refused gang: the cluster gets more empty nodes.

    Args:
      count: how many nodes.
      like: a node with the capacity, labels and filter results of the new nodes.
      level: the level at which the new nodes are in `domain`; NONE: they are in the domains of `like`.
      domain: the domain at that level.
      passing: a gang; the new nodes pass its filters too. NONE: only what `like` passes. Filters seldom tell gangs
        apart, so the nodes then pass the filters of all gangs.
      extra: [R] how much larger each node is than `like`; () if it need not be larger.
    """

    count: int
    like: int
    level: int = NONE
    domain: int = NONE
    passing: int = NONE
    extra: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RaisedQuota:
    """A change that may admit a refused gang: a queue limit is raised, by resources [R] and a number of gangs."""

    quota: int
    amounts: tuple[int, ...]
    gangs: int = 0


@dataclass(frozen=True, slots=True)
class LoosenedRow:
    """A change that may admit a refused gang: a plugin's constraint is loosened by the same amount in every domain."""

    row: int
    by: int


@dataclass(frozen=True, slots=True)
class AddedPods:
    """A change that may admit a refused gang: the gang gets more pods of a pod class."""

    pod_class: int
    count: int


@dataclass(frozen=True, slots=True)
class CombinedChange:
    """Several changes that together may admit a refused gang."""

    parts: "tuple[Relaxation, ...]"


Relaxation = RelaxedLevel | AddedNodes | RaisedQuota | LoosenedRow | AddedPods | CombinedChange


def apply_change(problem: Problem, relaxation: Relaxation) -> Problem:
    """Return the problem after a change that may admit a refused gang, such as more nodes or a higher queue limit.

    Added nodes come last, so that all numbers keep their meaning.
    """
    match relaxation:
        case RelaxedLevel():
            return _level(problem, relaxation)
        case AddedNodes():
            return _nodes(problem, relaxation)
        case RaisedQuota():
            return _quota(problem, relaxation)
        case LoosenedRow():
            return _rule(problem, relaxation)
        case AddedPods(pod_class, count):
            counts = problem.classes.count.copy()
            counts[pod_class] += count
            return replace(problem, classes=replace(problem.classes, count=counts))
        case CombinedChange(parts):
            return reduce(apply_change, parts, problem)


def resize_change(change: Relaxation, resized: Callable[[int], int]) -> Relaxation | None:
    """Return a change with each amount (nodes, pods, resources) resized; None if all amounts become 0.

    The function `resized` returns the new value of an amount. A change of level has no amount, so the result is None.
    """
    match change:
        case RelaxedLevel():
            return None
        case AddedNodes(count):
            return replace(change, count=resized(count)) if resized(count) else None
        case RaisedQuota(quota, amounts, gangs):
            other = RaisedQuota(quota, tuple(map(resized, amounts)), resized(gangs))
            return other if any(other.amounts) or other.gangs else None
        case LoosenedRow(row, by):
            return LoosenedRow(row, resized(by)) if resized(by) else None
        case AddedPods(pod_class, count):
            return AddedPods(pod_class, resized(count)) if resized(count) else None
        case CombinedChange(parts):
            remaining = tuple(
                part for part in (resize_change(part, resized) for part in parts) if part is not None
            )
            return CombinedChange(remaining) if remaining else None


def halve_change(change: Relaxation) -> Relaxation | None:
    """Halve each amount (nodes, pods, resources) in a change, rounded down; return None if all become 0."""
    return resize_change(change, lambda amount: amount // 2)


def _level(problem: Problem, change: RelaxedLevel) -> Problem:
    inside = change.subgroup != NONE
    levels = (problem.subgroups.required if inside else problem.gangs.required).copy()
    pins = (problem.subgroups.pinned if inside else problem.gangs.pinned).copy()
    index = change.subgroup if inside else change.gang
    # Running members keep the gang in the domain around them; without a level nothing is pinned.
    if change.level == NONE:
        pins[index] = NONE
    elif pins[index] != NONE:
        around = problem.nodes.levels[change.level][problem.nodes.levels[levels[index]] == pins[index]]
        pins[index] = around[0] if len(around) else NONE
    levels[index] = change.level
    if inside:
        return replace(problem, subgroups=replace(problem.subgroups, required=levels, pinned=pins))
    return replace(problem, gangs=replace(problem.gangs, required=levels, pinned=pins))


def problem_of_added_nodes_only(problem: Problem, change: AddedNodes) -> Problem:
    """Return the problem with only the nodes that a change adds to the cluster, and without plugin constraints."""
    like, count = change.like, change.count
    size = problem.nodes.capacity[like] + (cap_at_unlimited(change.extra) if change.extra else 0)
    mask = problem.kinds.mask[:, like : like + 1].repeat(count, axis=1)
    if change.passing != NONE:
        # Which gangs a new node would admit is unknown; filters seldom tell gangs apart.
        mask[:] = True
    model, levels = like, change.level
    if levels != NONE and problem.nodes.levels[levels, like] != change.domain:
        inside = np.flatnonzero(problem.nodes.levels[levels] == change.domain)
        if len(inside):
            # Of these nodes the one with the most labels, so that finer levels are labeled too.
            model = int(inside[np.argmax((problem.nodes.levels[:, inside] >= 0).sum(axis=0))])
    nodes = problem.nodes.select_nodes([model] * count)
    if levels != NONE:
        nodes.levels[levels] = change.domain  # `select_nodes` has copied them
    amounts = size[None].repeat(count, axis=0)
    return replace(
        problem,
        nodes=replace(nodes, free=amounts, capacity=amounts),
        kinds=replace(problem.kinds.select_nodes([like] * count), mask=mask),
        rows=(),
    )


def _nodes(problem: Problem, change: AddedNodes) -> Problem:
    new = problem_of_added_nodes_only(problem, change)
    return replace(
        problem,
        nodes=problem.nodes.append_nodes(new.nodes),
        kinds=problem.kinds.append_nodes(new.kinds),
        rows=tuple(_grown(row, change.like, change.count) for row in problem.rows),
    )


def _grown(row: ConstraintRow, like: int, count: int) -> ConstraintRow:
    if row.partition != EVERY_NODE:
        return row
    gangs = row.gang_coefficients
    if len(row.gangs):
        gangs = np.concatenate([gangs, gangs[like : like + 1].repeat(count, axis=0)])
    right = np.concatenate([row.right, row.right[like : like + 1].repeat(count)])
    used = row.used_side
    if used is not None:
        used = np.concatenate([used, np.full(count, NONE, np.int32)])
    return replace(row, right=right, gang_coefficients=gangs, used_side=used)


def cap_at_unlimited(amounts: Sequence[int]) -> IntArray:
    """Return resource amounts, each reduced to at most `UNLIMITED`, so that their sums do not overflow.

    The result is an array [R] of 64-bit integers.
    """
    return np.array([min(amount, UNLIMITED) for amount in amounts], np.int64)


def _quota(problem: Problem, change: RaisedQuota) -> Problem:
    free, gangs = problem.quotas.free.copy(), problem.quotas.gangs.copy()
    more = cap_at_unlimited(change.amounts)
    # A quota below zero counts from 0: the change states what is missing beyond the usage.
    free[change.quota] = np.minimum(np.maximum(free[change.quota], 0) + more, UNLIMITED)
    if change.gangs:
        gangs[change.quota] = max(0, int(gangs[change.quota])) + change.gangs
    return replace(problem, quotas=replace(problem.quotas, free=free, gangs=gangs))


def _rule(problem: Problem, change: LoosenedRow) -> Problem:
    row = problem.rows[change.row]
    by = change.by if row.sense == Sense.AT_MOST else -change.by
    rows = list(problem.rows)
    rows[change.row] = replace(row, right=np.minimum(row.right + by, UNLIMITED), on_second_side=None)
    return replace(problem, rows=tuple(rows))
