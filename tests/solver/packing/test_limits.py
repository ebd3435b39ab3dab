"""Rows and quotas while placing: never exceeded, lower rows served first."""

from dataclasses import replace

import numpy as np

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.packing.limits import QuotaLedger
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import EVERY_NODE, Row, Sense
from batchsched.solver.verify import verify_solution
from tests.solver.instances import problem_of


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_one_pod_a_node_uses_as_many_nodes_as_pods():
    row = Row(EVERY_NODE, ints(0), np.ones(1, np.int64), np.ones(3, np.int64))
    solution = solve_greedy(problem_of([[9], [9], [9]], [{"pods": 3, "demand": [1]}], rows=(row,)))
    assert solution.counts.tolist() == [1, 1, 1]


def test_a_spread_is_filled_to_its_lower_limits_before_the_rest():
    zones = ints(0, 0, 1)
    most, least = -np.full((2, 1), 3), -np.full((2, 1), 2)
    rows = (
        Row(0, ints(0), np.ones(1, np.int64), np.zeros(2, np.int64), Sense.AT_MOST, ints(0), most),
        Row(0, ints(0), np.ones(1, np.int64), np.zeros(2, np.int64), Sense.AT_LEAST, ints(0), least),
    )
    gang = {"pods": 5, "demand": [1]}
    problem = problem_of([[9], [9], [9]], [gang], rows=rows, partitions=(zones,))
    solution = solve_greedy(problem)
    assert solution.taken.all()
    assert verify_solution(problem, solution) == ()


def test_a_row_that_is_broken_already_is_not_broken_further():
    row = Row(EVERY_NODE, ints(0), np.ones(1, np.int64), np.array([-1, 1]))
    solution = solve_greedy(problem_of([[9], [9]], [{"pods": 1, "demand": [1]}], rows=(row,)))
    assert solution.nodes.tolist() == [1]


def test_a_quota_stops_a_gang_that_the_nodes_would_hold():
    problem = problem_of(
        [[9]],
        [{"pods": 3, "demand": [1]}],
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.full((1, 1), 2),
        quota_gangs=np.full(1, 9),
    )
    assert not solve_greedy(problem).taken.any()


def test_a_quota_that_all_of_its_gangs_leave_room_in_is_not_counted():
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]
    problem = problem_of(
        [[9]],
        gangs,
        quota_covers=np.array([[True, True], [True, False]]),
        quota_free=np.array([[3], [2]]),
        quota_gangs=np.full(2, 9),
    )
    assert QuotaLedger(problem).binding.tolist() == [True, False]
    assert QuotaLedger(
        replace(problem, gangs=replace(problem.gangs, allowed=np.array([True, False])))
    ).binding.tolist() == [False, False]


def test_a_quota_suffices_until_it_is_used_up():
    problem = problem_of(
        [[9]],
        [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}],
        quota_covers=np.ones((1, 2), np.bool_),
        quota_free=np.full((1, 1), 3),
        quota_gangs=np.full(1, 9),
    )
    packing = Packing(problem)
    assert packing.room.quotas.suffices(1)
    packing.try_gang(0)
    assert not packing.room.quotas.suffices(1)
