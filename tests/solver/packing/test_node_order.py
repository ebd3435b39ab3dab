"""Which nodes are taken first: slots, then packing or spreading, score, index."""

import numpy as np

from batchsched.solver.greedy import solve_greedy
from tests.solver.instances import problem_of


def nodes_of(*, free: list[list[int]], gangs: list[dict], class_index: int = 0, **more) -> list[int]:
    solution = solve_greedy(problem_of(free, gangs, **more))
    return [int(node) for node in solution.nodes[solution.classes == class_index]]


def test_one_gpu_takes_the_odd_gpu_and_not_a_pair():
    gangs = [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [2]}]
    assert nodes_of(free=[[2], [4], [3]], gangs=gangs) == [2]


def test_a_pair_takes_the_half_quad_and_not_a_whole_one():
    gangs = [{"pods": 1, "demand": [2]}, {"pods": 2, "demand": [4]}]
    assert nodes_of(free=[[8], [6]], gangs=gangs) == [1]


def test_a_pod_without_gpus_leaves_the_cpus_that_gpus_need():
    gangs = [{"pods": 1, "demand": [400, 0]}, {"pods": 1, "demand": [400, 4]}]
    cpus = nodes_of(free=[[400, 4], [500, 0]], gangs=gangs, capacity=np.tile([800, 8], (2, 1)))
    assert cpus == [1]


def test_packing_prefers_the_fuller_node_and_spreading_the_emptier():
    gangs = [{"pods": 1, "demand": [100, 100]}]
    room = np.tile([1000, 1000], (2, 1))
    assert nodes_of(free=[[900, 900], [300, 300]], gangs=gangs, capacity=room) == [1]
    assert nodes_of(free=[[900, 900], [300, 300]], gangs=gangs, capacity=room, spread=True) == [0]


def test_spreading_levels_pods_over_equal_nodes():
    problem = problem_of([[1000, 1000]] * 3, [{"pods": 6, "demand": [100, 100]}], spread=True)
    assert solve_greedy(problem).counts.tolist() == [2, 2, 2]


def test_a_higher_score_decides_between_equal_nodes_and_then_the_lower_index():
    gangs = [{"pods": 1, "demand": [100]}]
    assert nodes_of(free=[[500]] * 3, gangs=gangs, score=np.array([[1, 5, 5]])) == [1]
