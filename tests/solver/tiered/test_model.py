"""The aggregated model: switches, quotas, minimums."""

import numpy as np

from batchsched.solver.problem import ALL_NODES, Budget, Problem, Row
from batchsched.solver.tiered.tier_solve import TierBudget, TierSolver
from tests.solver.instances import problem_of
from tests.solver.tiered.test_transport import model, violated


def best(problem: Problem) -> list[int]:
    """Pods of every class at the model's peak."""
    aggregate = model(problem)
    peak = TierSolver(aggregate, TierBudget(Budget(), 0)).climb(
        np.zeros(aggregate.model.variables, np.int64), []
    )
    assert peak is not None
    assert violated(aggregate, peak.values) == []
    return [int(pods) for pods in aggregate.pods(peak.values)]


def test_a_bound_gang_is_chosen_only_where_one_domain_holds_it():
    gang = {"pods": 4, "demand": [1], "required": 0}
    assert best(problem_of([[2], [2], [2]], [gang], levels=[[0, 1, 2]])) == [0]
    assert best(problem_of([[2], [2], [2]], [gang], levels=[[0, 0, 1]])) == [4]


def test_two_gangs_do_not_share_a_domain_that_holds_one():
    gangs = [{"pods": 2, "demand": [1], "required": 0}, {"pods": 2, "demand": [1], "required": 0}]
    assert sorted(best(problem_of([[3], [1]], gangs, levels=[[0, 1]]))) == [0, 2]


def test_an_elastic_gang_takes_its_minimum_or_nothing():
    gang = {"pods": 5, "need": 3, "demand": [1]}
    assert best(problem_of([[4]], [gang])) == [4]
    assert best(problem_of([[2]], [gang])) == [0]


def test_a_quota_binds():
    problem = problem_of(
        [[9]],
        [{"pods": 5, "need": 1, "demand": [1]}],
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.full((1, 1), 3),
        quota_gangs=np.full(1, 9),
    )
    assert best(problem) == [3]


def test_a_row_over_all_nodes_binds():
    row = Row(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([2]))
    assert best(problem_of([[9]], [{"pods": 5, "need": 1, "demand": [1]}], rows=(row,))) == [2]
