"""From a choice to nodes: all of it when it fits, whole gangs when not, and what is left is filled."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.problem import Budget, Problem
from batchsched.solver.tiered.rounding import round_to_nodes
from batchsched.solver.tiered.tier_solve import TierBudget, TierSolver
from batchsched.solver.verify import verify_solution
from tests.solver.instances import problem_of, problems
from tests.solver.tiered.test_transport import model


@pytest.mark.properties
@given(problems())
def test_whatever_the_model_chooses_is_realised_legally(problem: Problem):
    aggregate = model(problem)
    start = np.zeros(aggregate.model.variables, np.int64)
    peak = TierSolver(aggregate, TierBudget(Budget(), 0)).climb(start, [])
    assert peak is not None
    for prefer in (False, True):
        realised = round_to_nodes(aggregate, peak.values, peak.split.pods, prefer)
        assert verify_solution(problem, realised.packing.to_solution("aggregated")) == ()


def test_room_that_the_choice_left_is_filled():
    problem = problem_of([[4]], [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}])
    aggregate = model(problem)
    nothing = np.zeros(aggregate.model.variables, np.int64)
    realised = round_to_nodes(aggregate, nothing, np.zeros((2, 1)), prefer=False)
    assert realised.packing.taken.all()
    assert realised.shortages == ()


def test_what_falls_short_is_reported():
    problem = problem_of([[3], [3]], [{"pods": 3, "demand": [2]}])
    aggregate = model(problem)
    everything = np.ones(aggregate.model.variables, np.int64)
    realised = round_to_nodes(aggregate, everything, np.full((1, 1), 3.0), prefer=False)
    assert not realised.packing.taken.any()
    assert [shortage.pods for shortage in realised.shortages] == [1]
