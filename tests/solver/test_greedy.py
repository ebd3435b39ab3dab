"""The greedy: all or nothing in order, never illegal, and known failures of others are placed."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.greedy import (
    group_numbers_of_equal_single_pod_gangs,
    solve_greedy,
    solve_like_other_batch_schedulers,
)
from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.problem import Problem
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import one_gang, problem_of, problems


@pytest.mark.properties
@given(problems())
def test_placements_of_the_greedy_are_legal(problem: Problem):
    assert find_solution_faults(problem, solve_greedy(problem)) == ()
    assert find_solution_faults(problem, solve_like_other_batch_schedulers(problem)) == ()


def test_gang_of_three_binds_nothing_on_two_free_nodes():
    solution = solve_greedy(problem_of([[1], [1]], [{"pods": 3, "demand": [1]}]))
    assert len(solution.classes) == 0
    assert not solution.taken.any()


def test_gang_of_two_three_three_and_eight_cpus_is_placed_on_two_nodes_of_eight():
    problem = problem_of(
        [[8], [8]],
        [{"pods": 1, "demand": [size]} for size in (2, 3, 3, 8)],
        **one_gang(4, 4),
    )
    assert solve_greedy(problem).taken.all()


def test_twenty_one_gpu_pods_leave_a_whole_node_for_the_pod_of_eight():
    gangs = [{"pods": 1, "demand": [1]} for _ in range(20)] + [{"pods": 1, "demand": [8]}]
    assert solve_greedy(problem_of([[8]] * 4, gangs)).taken.all()


def test_lower_rank_goes_first_when_only_one_gang_fits():
    solution = solve_greedy(problem_of([[2]], [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]))
    assert solution.taken.tolist() == [True, False]


def test_surplus_pods_come_after_every_minimum_of_their_tier():
    gangs = [{"pods": 3, "need": 1, "demand": [1]}, {"pods": 2, "demand": [1]}]
    solution = solve_greedy(problem_of([[3]], gangs))
    assert solution.taken.tolist() == [True, True]
    assert solution.counts.tolist() == [1, 2]


def test_the_job_by_job_reference_fills_the_fullest_node_first():
    problem = problem_of([[8, 8], [4, 8]], [{"pods": 2, "demand": [2, 2]}])
    assert solve_like_other_batch_schedulers(problem).nodes.tolist() == [1]


def test_the_greedy_places_the_largest_pods_of_a_gang_first_and_the_reference_does_not():
    problem = problem_of(
        [[8], [8]],
        [{"pods": 2, "demand": [size]} for size in (3, 5)],
        **one_gang(4, 2),
    )
    assert solve_greedy(problem).taken.all()
    assert not solve_like_other_batch_schedulers(problem).taken.any()


RACKS = [[0, 0, 1, 1]]


def test_only_unconstrained_single_pods_with_equal_demand_are_equal_gangs():
    gangs = [
        {"pods": 1, "demand": [1]},
        {"pods": 1, "demand": [2]},
        {"pods": 2, "demand": [1]},
        {"pods": 1, "need": 0, "demand": [1]},
        {"pods": 1, "demand": [1], "preferred": 0},
        {"pods": 1, "demand": [1], "allowed": False},
        {"pods": 1, "demand": [1]},
    ]
    problem = problem_of([[4]] * 4, gangs, levels=RACKS)
    assert group_numbers_of_equal_single_pod_gangs(FreeCapacity(problem)) == [0, 1, -1, -1, -1, -1, 0]
    limit = {"quota_free": np.array([[99]]), "quota_gangs": np.array([2])}
    member = np.array([[True] * 6 + [False]])
    bound = problem_of([[4]] * 4, gangs, levels=RACKS, quota_covers=member, **limit)
    assert group_numbers_of_equal_single_pod_gangs(FreeCapacity(bound)) == [-1] * 6 + [0]
