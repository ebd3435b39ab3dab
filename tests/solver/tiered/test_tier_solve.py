"""Climbing tier after tier: peaks are bounds, floors hold, and given values stay given."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.objective import compare_tiers, count_placed
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Budget, Problem
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.tier_solve import TierBudget, TierSolver
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems
from tests.solver.tiered.test_transport import model


def climber(problem: Problem, *, relaxed: bool = True) -> TierSolver:
    return TierSolver(model(problem, relaxed=relaxed), TierBudget(Budget(), 0))


@pytest.mark.properties
@given(problems(extras=False))
def test_the_loose_peak_is_no_lower_than_the_optimum(problem: Problem):
    loose = climber(problem)
    start = np.zeros(loose.aggregate.model.variables, np.int64)
    peak = loose.climb(start, [])
    assert peak is not None
    best = np.array(brute(problem).tiers)
    for tier in range(len(best)):
        if np.allclose(peak.bound[:tier], best[:tier]):
            assert peak.bound[tier] >= best[tier] - 1e-9


@pytest.mark.properties
@given(problems(extras=False))
def test_bounds_of_the_model_with_every_domain_hold(problem: Problem):
    packing = Packing(problem)
    complete = TierSolver(
        TieredModel(packing, build_pools(packing), None, complete=True), TierBudget(Budget(), 0)
    )
    best = brute(problem)
    placed = np.zeros(len(problem.classes.count), np.int64)
    for (class_index, _), pods in best.counts.items():
        placed[class_index] += pods
    assert (complete.bounds(placed) >= np.array(best.tiers) - 1e-9).all()


@pytest.mark.properties
@given(problems(extras=False))
def test_a_climb_does_not_fall_behind_its_floor(problem: Problem):
    full = climber(problem, relaxed=False)
    floor = solve_greedy(problem)
    placed = count_placed(problem, floor.classes, floor.counts)
    peak = full.climb(full.aggregate.values_of(floor), [placed])
    assert peak is not None
    pods = full.aggregate.pods(peak.values)
    value = np.bincount(
        problem.gangs.tier[problem.classes.gang],
        problem.classes.weight * pods,
        minlength=len(floor.objective),
    )
    assert compare_tiers(value.astype(float), floor.objective) >= 0


def test_bounds_of_lower_tiers_depend_on_what_was_placed_above():
    gangs = [{"pods": 4, "demand": [1], "tier": 0}, {"pods": 4, "demand": [1], "tier": 1}]
    loose = climber(problem_of([[4]], gangs))
    assert loose.bounds(np.array([4, 0])).tolist() == [4.0, 0.0]
    assert loose.bounds(np.array([0, 4])).tolist() == [4.0, 4.0]


def test_classes_that_take_nothing_do_not_limit_each_other():
    gangs = [{"pods": 2, "demand": [0], "tier": 0}, {"pods": 3, "demand": [0], "tier": 0}]
    problem = problem_of([[4]], gangs)
    full = climber(problem, relaxed=False)
    floor = solve_greedy(problem)
    peak = full.climb(full.aggregate.values_of(floor), [count_placed(problem, floor.classes, floor.counts)])
    assert peak is not None
    assert full.aggregate.pods(peak.values).tolist() == [2, 3]
