"""The model of victims: exact where counting decides, and small where nodes are alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.engine.cpsat import SolveLimits
from batchsched.solver.victims.choose import split_by_domain
from batchsched.solver.victims.model import VictimModel
from batchsched.solver.victims.victim_state import VictimState
from tests.solver.victims.instances import cheapest, victim_problems, victims_of

EFFORT = SolveLimits(4.0, 30.0)


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_the_model_by_itself_finds_the_cheapest_set(problem):
    best = cheapest(problem)
    for terms in split_by_domain(problem):
        answer = VictimModel(terms).solve(None, int(problem.cost.sum()) + 1, EFFORT)
        assert (None if answer.values is None else -answer.objective) == best


def test_nothing_cheaper_than_the_cheapest_is_infeasible_and_a_cut_asks_for_somebody_else():
    problem = victims_of([[0]] * 2, {"pods": 1, "demand": [8]}, [(1, {0: [8]}), (2, {1: [8]})])
    terms = next(split_by_domain(problem))
    model = VictimModel(terms)
    assert model.solve(VictimState(terms), 1, EFFORT).infeasible
    model.cut(np.array([True, False]))
    answer = model.solve(None, 4, EFFORT)
    assert answer.values is not None
    assert -answer.objective == 2


def test_the_model_frees_in_a_queue_what_its_limit_lacks_and_no_more():
    problem = victims_of([[8], [8]], {"pods": 1, "demand": [8]}, [(1, {0: [4]}), (2, {0: [4]})])
    quotas = replace(
        problem.wanted.quotas,
        covers=np.ones((1, 1), np.bool_),
        free=np.zeros((1, 1), np.int64),
        gangs=np.ones(1, np.int64),
    )
    problem = replace(
        problem,
        wanted=replace(problem.wanted, quotas=quotas),
        quota_left=np.array([[4]]),
        gangs_left=np.array([1]),
        quota_unit=np.array([[True, True]]),
    )
    answer = VictimModel(next(split_by_domain(problem))).solve(None, 4, EFFORT)
    assert answer.values is not None
    assert -answer.objective == 1
