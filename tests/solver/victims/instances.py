"""Random small problems of victims, and worked ones from bare facts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    UNLIMITED,
)
from batchsched.solver.victims.victim_problem import VictimProblem
from batchsched.solver.victims.victim_state import quotas_after_eviction
from tests.solver.instances import problem_of, random_problem

Held = dict[int, list[int]]
"""By node, what a unit holds there."""


def victims_of(
    free: list[list[int]], gang: dict, units: list[tuple[int, Held]], *, levels=None, **more
) -> VictimProblem:
    """A problem from the bare facts: each unit is what it costs, and what it holds on which node."""
    shares = [
        (number, node, amounts) for number, (_, held) in enumerate(units) for node, amounts in held.items()
    ]
    wanted = problem_of(free, [gang], levels=levels)
    default: dict = dict(  # noqa: C408 - reads as the call it becomes
        pending=wanted,
        free=np.array(free, np.int64),
        cost=np.array([cost for cost, _ in units], np.int64),
        unit=np.array([unit for unit, _, _ in shares], np.int32),
        node=np.array([node for _, node, _ in shares], np.int32),
        freed=np.array([amounts for _, _, amounts in shares], np.int64).reshape(len(shares), len(free[0])),
        ends=np.ones(len(units), np.bool_),
        quota_unit=np.zeros((0, len(units)), np.bool_),
    )
    return VictimProblem(**(default | more))


@st.composite
def victim_problems(draw, *, plain: bool = False) -> VictimProblem:
    """At most 5 nodes and 7 units; plain ones want one class, whole, on any node, and have nothing else."""
    return random_victims(draw(st.integers(0, 2**32 - 1)), plain=plain)


def random_victims(seed: int, *, plain: bool = False) -> VictimProblem:
    """Units on random nodes; some nodes are overcommitted, some units have bonds, limits and quotas."""
    rng = np.random.default_rng(seed)
    nodes, units = int(rng.integers(1, 6)), int(rng.integers(0, 8))
    free = rng.integers(-2, 5, (nodes, 2))
    if plain:
        gang = {"pods": int(rng.integers(1, 6)), "demand": rng.integers(1, 5, 2).tolist()}
        wanted = problem_of(np.maximum(free, 0).tolist(), [gang])
    else:
        wanted = replace(random_problem(seed, nodes, 1, extras=bool(rng.random() < 0.3)), cuts=())
    pairs = sorted(
        (unit, int(node))
        for unit in range(units)
        for node in rng.choice(nodes, int(rng.integers(1, nodes + 1)), replace=False)
    )
    quotas = len(wanted.quotas.gangs)
    problem = VictimProblem(
        pending=wanted,
        free=free,
        cost=rng.integers(1, 30, units),
        unit=np.array([unit for unit, _ in pairs], np.int32),
        node=np.array([node for _, node in pairs], np.int32),
        freed=rng.integers(0, 6, (len(pairs), 2)),
        quota_left=np.where(wanted.quotas.free < UNLIMITED, wanted.quotas.free - 3, UNLIMITED),
        gangs_left=wanted.quotas.gangs,
        quota_unit=rng.random((quotas, units)) < 0.5,
        ends=rng.random(units) < 0.7,
    )
    if plain or units < 2:
        return problem
    bonds = [(a, b) for a, b in combinations(range(units), 2) if rng.random() < 0.1]
    limits = int(rng.integers(0, 3))
    entries = [(m, u) for m in range(limits) for u in range(units) if rng.random() < 0.5]
    if rng.random() < 0.5:  # only some pods request a resource of which a node may be overcommitted
        demand = wanted.classes.demand.copy()
        demand[::2, 1] = 0
        wanted = replace(wanted, classes=replace(wanted.classes, demand=demand))
    return replace(
        problem,
        pending=wanted,
        bond_unit=np.array([a for a, _ in bonds], np.int32),
        bond_with=np.array([b for _, b in bonds], np.int32),
        limit=rng.integers(0, 5, limits),
        limit_row=np.array([m for m, _ in entries], np.int32),
        limit_unit=np.array([u for _, u in entries], np.int32),
        limit_amount=rng.integers(1, 3, len(entries)),
    )


def allowed_sets(problem: VictimProblem) -> list[tuple[int, ...]]:
    """All sets of units that keep bonds and limits."""
    found = []
    for size in range(problem.unit_count + 1):
        for chosen in combinations(range(problem.unit_count), size):
            inside = np.isin(np.arange(problem.unit_count), chosen)
            bonds = all(
                inside[b] or not inside[a] for a, b in zip(problem.bond_unit, problem.bond_with, strict=True)
            )
            taken = np.bincount(
                problem.limit_row,
                problem.limit_amount * inside[problem.limit_unit],
                minlength=len(problem.limit),
            )
            if bonds and (taken[taken > 0] <= problem.limit[taken > 0]).all():
                found.append(chosen)
    return found


def fits_without(problem: VictimProblem, chosen: tuple[int, ...]) -> bool:
    """Whether the greedy's hand places the gang once these have left: exact for plain problems."""
    free = problem.free.copy()
    for unit, node, freed in zip(problem.unit, problem.node, problem.freed, strict=True):
        if unit in chosen:
            free[node] += freed
    wanted = replace(problem.pending, nodes=replace(problem.pending.nodes, free=np.maximum(free, 0)))
    if len(wanted.quotas.gangs):
        left, gangs = quotas_after_eviction(problem, np.isin(np.arange(problem.unit_count), chosen))
        wanted = replace(wanted, quotas=replace(wanted.quotas, free=left, gangs=gangs))
    return Packing(wanted).place_minimum_of_gang(0) is not None


def cheapest(problem: VictimProblem) -> int | None:
    """What the least costly set costs, by looking at all of them."""
    costs = [
        int(problem.cost[list(chosen)].sum())
        for chosen in allowed_sets(problem)
        if fits_without(problem, chosen)
    ]
    return min(costs, default=None)
