"""Victims of trees and slices: the cheapest set, against the exhaustive search."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from batchsched.solver.verify import find_victim_faults
from batchsched.solver.victims.choose import VictimSearchLimits, choose_victims
from batchsched.solver.victims.victim_problem import VictimProblem
from tests.solver.tree_instances import placements, random_tree


def random_problem(seed: int, devices: bool) -> VictimProblem | None:
    """A tree that needs pods, and up to four units on the nodes; with devices, only some of the pods request one."""
    rng = np.random.default_rng(seed)
    pending = random_tree(seed, pods=5)
    if not pending.gangs.need[0]:
        return None
    nodes, units = len(pending.nodes.free), int(rng.integers(1, 5))
    pairs = [(u, n) for u in range(units) for n in range(nodes) if rng.random() < 0.5]
    freed = rng.integers(1, 4, (len(pairs), 1))
    free = np.maximum(0, pending.nodes.free - 3) - (rng.random((nodes, 1)) < 0.1)
    cost = rng.integers(1, 10, units)
    if devices:
        free = np.hstack([free, rng.integers(-2, 2, (nodes, 1))])
        freed = np.hstack([freed, rng.integers(0, 3, (len(pairs), 1))])
        demand = np.hstack([pending.classes.demand, rng.integers(0, 2, (len(pending.classes.count), 1))])
        pending = replace(
            pending,
            classes=replace(pending.classes, demand=demand),
            nodes=replace(pending.nodes, free=np.maximum(free, 0), capacity=np.maximum(free, 1)),
        )
    return VictimProblem(
        pending=pending,
        free=free,
        cost=cost,
        unit=np.array([u for u, _ in pairs], np.int32),
        node=np.array([n for _, n in pairs], np.int32),
        freed=freed.astype(np.int64),
        ends=np.ones(units, np.bool_),
        quota_unit=np.zeros((0, units), np.bool_),
    )


def cheapest(problem: VictimProblem) -> int | None:
    """The least cost of units after whose eviction the tree fits; None if it never does."""
    sets = [c for n in range(len(problem.cost) + 1) for c in combinations(range(len(problem.cost)), n)]
    for units in sorted(sets, key=lambda chosen: int(problem.cost[list(chosen)].sum())):
        free = problem.free.copy()
        leaving = np.isin(problem.unit, units)
        np.add.at(free, problem.node[leaving], problem.freed[leaving])
        nodes = replace(problem.pending.nodes, free=np.maximum(free, 0))
        if next(placements(replace(problem.pending, nodes=nodes)), None) is not None:
            return int(problem.cost[list(units)].sum())
    return None


# One of two classes of a subgroup with a level of its own: the packing takes the other one.
@example(8050543, False)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_victims_of_a_tree_are_the_cheapest_that_make_room(seed, devices):
    problem = random_problem(seed, devices)
    if problem is None:
        return
    answer = choose_victims(problem, VictimSearchLimits())
    least = cheapest(problem)
    assert (answer is None) == (least is None)
    if answer is not None:
        assert find_victim_faults(problem, answer) == ()
        assert answer.cost == least
