"""The greedies: each makes room when it says so, and none is below what every set costs at least."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.victims.choose import split_by_domain
from batchsched.solver.victims.greedy import GREEDIES, bound_cost, restore_unneeded, shared_price
from tests.solver.victims.instances import allowed_sets, cheapest, victim_problems, victims_of


@pytest.mark.properties
@given(victim_problems())
def test_what_a_greedy_lets_leave_makes_room_and_keeps_bonds_and_limits(problem):
    for terms in split_by_domain(problem):
        for one in GREEDIES:
            ground = one(terms)
            if ground is not None:
                assert ground.enough()
                restore_unneeded(ground)
                assert ground.enough()
                assert tuple(np.flatnonzero(ground.gone).tolist()) in allowed_sets(problem)


@pytest.mark.properties
@given(victim_problems(plain=True))
def test_no_set_costs_less_than_the_least_cost(problem):
    best = cheapest(problem)
    for terms in split_by_domain(problem):
        assert best is None or bound_cost(terms) <= best + 1e-9


def test_a_gang_gives_an_equal_part_of_its_cost_to_every_node_that_it_holds_back():
    problem = victims_of(
        [[0]] * 3, {"pods": 2, "demand": [8]}, [(9, {0: [4], 1: [8], 2: [8]}), (1, {0: [4]})]
    )
    terms = next(split_by_domain(problem))
    assert shared_price(terms, 0).tolist() == [4, 3, 3]
    assert bound_cost(terms) == 6
