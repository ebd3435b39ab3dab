"""Pools of like nodes, and level rows that admit whatever fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem
from batchsched.solver.tiered.node_pools import PoolSupply, build_pools
from tests.solver.instances import problem_of, problems


def test_nodes_of_one_type_and_mask_share_a_pool_whatever_cpu_is_free_on_them():
    capacity = np.array([[8000], [8000], [4000]])
    problem = problem_of([[1000], [3000], [3000]], [{"pods": 1, "demand": [1000]}], capacity=capacity)
    assert build_pools(Packing(problem)).of_node.tolist() == [1, 1, 0]


def test_nodes_with_fewer_free_devices_are_a_pool_of_their_own():
    problem = problem_of([[8], [3], [8]], [{"pods": 1, "demand": [1]}], capacity=np.array([[8]] * 3))
    assert build_pools(Packing(problem)).of_node.tolist() == [1, 0, 1]


@pytest.mark.properties
@given(problems())
def test_level_rows_admit_what_the_greedy_placed_on_any_set_of_nodes(problem: Problem):
    solution = solve_greedy(problem)
    supply = PoolSupply(Packing(problem))
    classes = np.arange(len(problem.classes.count))
    for nodes in (np.arange(len(problem.nodes.free)), np.arange(0, len(problem.nodes.free), 2)):
        here = np.isin(solution.nodes, nodes)
        placed = np.bincount(solution.classes[here], solution.counts[here], minlength=len(classes))
        for row in supply.rows(classes, problem.classes.count.astype(np.int64), nodes):
            assert int(row.factors @ placed) <= row.right


@pytest.mark.properties
@given(problems(extras=False))
def test_level_rows_over_two_resources_admit_what_the_greedy_placed(problem: Problem):
    free, capacity, demand = (
        one * 1000 for one in (problem.nodes.free, problem.nodes.capacity, problem.classes.demand)
    )
    problem = replace(
        problem,
        nodes=replace(problem.nodes, free=free, capacity=capacity),
        classes=replace(problem.classes, demand=demand),
    )
    solution, classes = solve_greedy(problem), np.arange(len(problem.classes.count))
    placed = np.bincount(solution.classes, solution.counts, minlength=len(classes))
    supply = PoolSupply(Packing(problem))
    for row in supply.rows(
        classes, problem.classes.count.astype(np.int64), np.arange(len(problem.nodes.free))
    ):
        assert int(row.factors @ placed) <= row.right


def test_cpu_on_one_node_and_memory_on_another_hold_nothing():
    gangs = [{"pods": 4, "demand": [1000, 1000]}, {"pods": 4, "demand": [2000, 2000]}]
    problem = problem_of([[9000, 500], [500, 9000]], gangs)
    rows = PoolSupply(Packing(problem)).rows(
        np.arange(2), problem.classes.count.astype(np.int64), np.arange(2)
    )
    assert any(row.right == 0 and (row.factors > 0).all() for row in rows)


def test_gpus_without_the_cpus_that_any_pod_takes_along_are_no_supply():
    problem = problem_of([[4, 8], [32, 8]], [{"pods": 9, "demand": [2, 1]}], capacity=np.array([[96, 8]] * 2))
    supply = PoolSupply(Packing(problem))
    assert supply.of(1, np.array([1]), np.array([0, 1])).tolist() == [2 + 8]
