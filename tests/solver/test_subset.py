"""Some gangs by themselves mean what they mean in the whole session."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import ALL_NODES, Budget, Problem, Row
from batchsched.solver.subset import take_subset
from batchsched.solver.verify import verify_solution
from tests.solver.instances import problem_of, problems

THREE = [{"pods": 1, "demand": [1]}, {"pods": 2, "demand": [2], "tier": 1}, {"pods": 3, "demand": [1]}]


def test_gangs_keep_what_they_ask_for_under_new_numbers():
    subset = take_subset(problem_of([[9]], THREE), np.array([False, True, True]))
    assert subset.problem.classes.gang.tolist() == [0, 1]
    assert subset.problem.classes.count.tolist() == [2, 3]
    assert subset.problem.gangs.tier.tolist() == [1, 0]


def test_a_solution_comes_back_under_the_old_numbers():
    subset = take_subset(problem_of([[9]], THREE), np.array([True, False, True]))
    solution = subset.restored(solve_greedy(subset.problem))
    assert solution.classes.tolist() == [0, 2]
    assert solution.taken.tolist() == [True, False, True]
    assert solution.objective.tolist() == [4.0, 0.0]


def test_rows_tie_gangs_to_each_other():
    row = Row(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([1]))
    with pytest.raises(ValueError, match="rows and cuts"):
        take_subset(problem_of([[9]], THREE, rows=(row,)), np.ones(3, np.bool_))


@pytest.mark.properties
@given(problems())
def test_leaving_a_gang_out_is_not_allowing_it(problem: Problem):
    loose = replace(problem, rows=(), cuts=())
    kept = np.arange(len(loose.gangs.need)) > 0
    budget = Budget(deterministic=20.0)
    subset = take_subset(loose, kept)
    alone = subset.restored(solve_exact(subset.problem, budget, 0))
    refused = replace(loose, gangs=replace(loose.gangs, allowed=loose.gangs.allowed & kept))
    assert verify_solution(refused, alone) == ()
    assert np.allclose(alone.objective, solve_exact(refused, budget, 0).objective)
