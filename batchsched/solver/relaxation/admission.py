"""Whether one gang fits by itself, and what its minimum lacks of quotas and capacity.

Shapes: C classes, D domains, N nodes, R resources.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.exact.nodewise import fitting
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, UNLIMITED, BoolArray, Budget, IntArray, Problem
from batchsched.solver.relaxation.changes import (
    Nodes,
    Pods,
    Quota,
    Relaxation,
    Together,
    added,
    apply,
)
from batchsched.solver.relaxation.fit_count import FitCounts, hopeful, least, minimum, room, room_beside

_SMALL: Final = 100
"""Up to so many nodes the exact model is asked; beyond, the packing."""
_PAIRS: Final = 300
"""Up to so many pairs of class and node, too."""
_BUDGET: Final = Budget(deterministic=0.5)


def fits_alone(problem: Problem) -> bool:
    """Whether the only gang of a problem (`leftover.alone`) can be taken.

    Yes is always true: a placement was found. No is exact for gangs of one class without rows and subgroups'
    levels, and for small problems; otherwise it says that filling the largest pods first finds no way.
    """
    if np.any(shortage_of_pods(problem)):
        return False
    if quotas_short(problem):
        return _has_choice(problem) and _exactly(problem)
    return _placeable(problem)


def fits_with(problem: Problem, change: Relaxation) -> bool:
    """Whether the only gang of a problem fits once it is changed.

    Quotas come first; where no packing has to count against them, nodes are not asked again when quotas alone change.
    """
    parts = change.parts if isinstance(change, Together) else (change,)
    quotas = [part for part in parts if isinstance(part, Quota)]
    with_pods = any(isinstance(part, Pods | Together) for part in parts)
    if not plain(problem) or with_pods or _has_choice(problem):
        return fits_alone(apply(problem, change))
    if not all(_made_up(lacking, quotas) for lacking in quotas_short(problem)):
        return False
    if shortage_of_pods(problem).any():
        return False
    others = tuple(part for part in parts if not isinstance(part, Quota))
    if others and isinstance(others[-1], Nodes) and _counted(problem):
        changed = apply(problem, Together(others[:-1]))
        return room_beside(changed, added(changed, others[-1]))
    return _placeable(apply(problem, Together(others)))


def _made_up(lacking: Quota, quotas: Sequence[Quota]) -> bool:
    """Whether changes of quotas make up for what one of them lacks."""
    mine = [one for one in quotas if one.quota == lacking.quota]
    amounts = [sum(one.amounts[at] for one in mine) for at in range(len(lacking.amounts))]
    enough = all(there >= wanted for there, wanted in zip(amounts, lacking.amounts, strict=True))
    return enough and sum(one.gangs for one in mine) >= lacking.gangs


def fitted(problem: Problem, before: Problem) -> bool:
    """Whether the only gang of a problem fitted `before`, while nodes and quotas had more left.

    What the nodes take now they took then, too: they are asked as they were only where they do not.
    """
    if _has_choice(problem):
        return fits_alone(before)
    if quotas_short(before, problem) or np.any(shortage_of_pods(problem)):
        return False
    return (plain(problem) and _placeable(problem)) or _placeable(before)


def plain(problem: Problem) -> bool:
    """Whether counting says all: neither rows nor levels of subgroups are to be kept."""
    return not problem.rows and all(level == NONE for level in problem.subgroups.required.tolist())


@lru_cache(maxsize=8)
def _placeable(problem: Problem) -> bool:
    """Whether the nodes take the only gang, which exists and which its quotas admit."""
    counts = plain(problem)
    fits = room(problem).fits
    if counts and (fits or _counted(problem)):
        return fits
    rigid = least(problem) == int(problem.classes.count.sum())
    if not fits and (len(problem.classes.count) == 1 or (rigid and not hopeful(problem))):
        return False
    if _is_small(problem):
        return _exactly(problem)
    return fits if counts else Packing(problem).try_gang(0) is not None


def _counted(problem: Problem) -> bool:
    """Whether counting settles where nothing but levels and free capacity matter."""
    return len(problem.classes.count) == 1 or len(problem.nodes.free) > _SMALL


def _is_small(problem: Problem) -> bool:
    return len(problem.nodes.free) <= _SMALL and int(np.count_nonzero(fitting(problem))) <= _PAIRS


@lru_cache(maxsize=8)
def _has_choice(problem: Problem) -> bool:
    """Whether other pods than the smallest, for which quotas are counted, may make the minimum, and can be tried."""
    return (
        len(problem.classes.count) > 1
        and least(problem) < int(problem.classes.count.sum())
        and _is_small(problem)
    )


def _exactly(problem: Problem) -> bool:
    return bool(solve_exact(problem, _BUDGET, seed=0).taken[0])


@lru_cache(maxsize=8)
def shortage_of_pods(problem: Problem) -> IntArray:
    """Pods that would have to exist besides, by class [C], before the only gang's minimum could be met at all."""
    short = np.zeros(len(problem.classes.count), np.int64)
    for subgroup, need in enumerate(problem.subgroups.need.tolist()):
        members = np.flatnonzero(problem.classes.subgroup == subgroup)
        lacking = need - int(problem.classes.count[members].sum())
        if len(members) and lacking > 0:
            short[members[0]] += lacking
    lacking = least(problem) - int(problem.classes.count.sum()) - int(short.sum())
    if len(short) and lacking > 0:
        short[0] += lacking
    return short


@lru_cache(maxsize=8)
def quotas_short(problem: Problem, like: Problem | None = None) -> tuple[Quota, ...]:
    """What the only gang's quotas lack for its minimum, one change for each that lacks something.

    Args:
      problem: the gang's own.
      like: the same with other quotas, of which the minimum may be known already.
    """
    if not len(problem.quotas.gangs):
        return ()
    known = problem if like is None else like
    asked = (minimum(known) @ known.classes.demand).tolist()
    counted = bool(known.gangs.fresh[0]) and least(known) > 0
    found = []
    # Few numbers: as Python's own they are compared faster than as arrays.
    for quota, (left, many) in enumerate(
        zip(problem.quotas.free.tolist(), problem.quotas.gangs.tolist(), strict=True)
    ):
        lacking = tuple(
            max(0, amount - max(0, there)) if amount > 0 and there < UNLIMITED else 0
            for amount, there in zip(asked, left, strict=True)
        )
        gangs = int(counted and many < 1)
        if gangs or any(lacking):
            found.append(Quota(quota, lacking, gangs))
    return tuple(found)


def passing(problem: Problem) -> BoolArray:
    """Which nodes pass the filters of which class that the minimum needs, [C, N]; classes not needed pass none."""
    wanted = minimum(problem) > 0
    passes: BoolArray = problem.kinds.mask[problem.classes.kind] & wanted[:, None]
    return passes


def capacity_short(problem: Problem) -> IntArray:
    """What all nodes that pass a filter together lack for the only gang's minimum, [R]."""
    useful = passing(problem).any(axis=0)
    asked = minimum(problem) @ problem.classes.demand
    total = problem.nodes.free[useful].sum(axis=0)
    return np.where(asked > 0, np.maximum(asked - total, 0), 0)


def size_short(problem: Problem) -> IntArray:
    """By how much the largest node that passes is too small, even empty, for a pod that the minimum needs, [R]."""
    short = np.zeros(problem.classes.demand.shape[1], np.int64)
    for index, passes in enumerate(passing(problem)):
        sizes = problem.nodes.capacity[passes]
        lacking = np.maximum(problem.classes.demand[index] - sizes, 0)
        if len(sizes) and np.all(lacking.any(axis=1)):
            best = np.argmin((lacking / np.maximum(problem.classes.demand[index], 1)).max(axis=1))
            short = np.maximum(short, lacking[best])
    return short


def best_domain(found: FitCounts) -> int:
    """The place among a room's domains of the one that lacks the fewest pods."""
    return int(np.argmin(found.short.sum(axis=1)))


def pods_short(problem: Problem, found: FitCounts) -> IntArray:
    """The amounts of the resources that stop pods in the domain that lacks the fewest of them, [R].

    A resource stops a class when more of its pods would fit if they did not ask for it.
    """
    best = best_domain(found)
    amounts = np.zeros(problem.classes.demand.shape[1], np.int64)
    for index in np.flatnonzero(found.short[best] > 0).tolist():
        asks = problem.classes.demand[index]
        stopping = _stopping(problem, index)
        amounts += np.where(stopping if stopping.any() else asks > 0, asks, 0) * found.short[best, index]
    return amounts


def _stopping(problem: Problem, index: int) -> BoolArray:
    asks = problem.classes.demand[index]
    passes = problem.kinds.mask[problem.classes.kind[index]]
    per = np.full((len(asks), len(problem.nodes.free)), UNLIMITED)
    for resource in np.flatnonzero(asks).tolist():
        per[resource] = problem.nodes.free[:, resource] // asks[resource]
    least = per.min(axis=0)
    # without resource r a node takes as many as its next scarcest resource allows
    next_scarcest = (np.delete(per, r, 0).min(axis=0, initial=UNLIMITED) for r in range(len(asks)))
    return np.array([bool(np.any(passes & (most > least))) for most in next_scarcest])
