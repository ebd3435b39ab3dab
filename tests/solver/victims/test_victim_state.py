"""The ground: whoever leaves and comes back leaves no trace, and counting agrees with placing."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.victims.choose import split_by_domain
from batchsched.solver.victims.victim_state import VictimState, VictimTerms
from tests.solver.victims.instances import allowed_sets, fits_without, victim_problems, victims_of


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_counting_says_that_there_is_room_exactly_when_a_placement_is_found(problem):
    terms = VictimTerms.of(problem)
    for chosen in allowed_sets(problem):
        ground = VictimState(terms)
        assert ground.leave(chosen)
        assert ground.enough() == fits_without(problem, chosen)


@pytest.mark.properties
@given(victim_problems())
def test_units_that_come_back_leave_everything_as_it_was(problem):
    for terms in split_by_domain(problem):
        ground = VictimState(terms)
        before = ground.fit.copy()
        left = ground.leave(range(problem.units))
        while left and ground.gone.any():
            ground.restore(next(u for u in np.flatnonzero(ground.gone).tolist() if not ground.needed(u)))
        assert not ground.gone.any()
        assert np.array_equal(ground.fit, before)


def test_a_limit_that_forbids_one_of_them_keeps_all_of_them():
    problem = victims_of(
        [[0]] * 2,
        {"pods": 1, "demand": [8]},
        [(1, {0: [8]}), (1, {1: [8]})],
        limit=np.array([1]),
        limit_row=np.zeros(2, np.int32),
        limit_unit=np.array([0, 1], np.int32),
        limit_amount=np.ones(2, np.int64),
    )
    ground = VictimState(VictimTerms.of(problem))
    assert not ground.leave([0, 1])
    assert not ground.gone.any()
    assert ground.leave([1])
    assert ground.cost == 1
