"""Comparing solutions: tier after tier, then gangs."""

import numpy as np

from batchsched.solver.outcome import ceiling, compare, objective
from batchsched.solver.problem import Solution
from tests.solver.instances import problem_of

EMPTY = np.zeros(0, np.int32)


def worth(*tiers: float, taken: int = 0) -> Solution:
    gangs = np.arange(4) < taken
    return Solution(EMPTY, EMPTY, EMPTY, gangs, np.array(tiers), np.array(tiers))


def test_the_first_tier_that_differs_decides():
    assert compare(worth(1.0, 9.0), worth(2.0, 0.0)) == -1
    assert compare(worth(2.0, 1.0), worth(2.0, 0.0)) == 1


def test_more_gangs_decide_among_equal_tiers():
    assert compare(worth(1.0, taken=2), worth(1.0, taken=1)) == 1
    assert compare(worth(1.0, taken=1), worth(1.0, taken=1)) == 0


def test_the_ceiling_counts_every_pod_of_allowed_gangs():
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 3, "demand": [1], "tier": 1, "allowed": False}]
    problem = problem_of([[1]], gangs)
    assert ceiling(problem).tolist() == [2.0, 0.0]
    assert objective(problem, np.array([1, 1])).tolist() == [1.0, 1.0]
