"""The model of victims: exact where counting decides, and small where nodes are alike."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.engine.cpsat import SolveEffort
from batchsched.solver.victims.choose import split_by_domain
from batchsched.solver.victims.model import VictimModel
from batchsched.solver.victims.victim_state import VictimState
from tests.solver.victims.instances import cheapest, victim_problems, victims_of

EFFORT = SolveEffort(4.0, 30.0)


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
