"""Pods of the session step aside, and never into a place that is not theirs."""

import numpy as np

from batchsched.solver.local_search.search import LocalSearch
from batchsched.solver.packing.packing import Packing
from batchsched.solver.verify import verify_solution
from tests.solver.instances import problem_of

BIG_AFTER_SMALL = [{"pods": 2, "demand": [2]}, {"pods": 1, "demand": [4]}]


def split_small(**more) -> Packing:
    """Two small pods on two nodes of four, so that the big one fits nowhere."""
    packing = Packing(problem_of([[4], [4]], BIG_AFTER_SMALL, **more))
    packing.room.take(0)
    packing.taken[0] = True
    packing.room.put(0, np.array([0, 1]), np.array([1, 1]))
    packing.room.take(1)
    packing.taken[1] = True
    return packing


def test_a_small_pod_steps_aside_for_a_big_one():
    packing = split_small()
    assert packing.room.place(1, 1) == 0
    assert LocalSearch(packing).make_room(1, 1, None) == 1
    assert verify_solution(packing.problem, packing.to_solution("aggregated")) == ()


def test_nobody_moves_to_a_node_that_its_mask_forbids():
    packing = split_small(mask=np.array([[True, True], [True, False]]), kind=np.array([0, 1], np.int32))
    assert LocalSearch(packing).make_room(1, 1, None) == 1
    assert packing.room.trail[-1].nodes.tolist() == [0]
    fixed = split_small()
    fixed.room.banned[0] = np.zeros(2, np.bool_)
    assert LocalSearch(fixed).make_room(1, 1, None) == 0


def test_nobody_leaves_the_domain_of_his_gang():
    gangs = [{"pods": 2, "demand": [2], "required": 0}, {"pods": 1, "demand": [4]}]
    packing = Packing(problem_of([[4], [4], [2]], gangs, levels=[[0, 0, 1]]))
    packing.room.take(0)
    packing.taken[0] = True
    packing.domain_of[0] = 0
    packing.room.put(0, np.array([0, 1]), np.array([1, 1]))
    assert LocalSearch(packing).make_room(1, 1, None) == 1
    nodes = packing.to_solution("aggregated")
    assert nodes.nodes[nodes.classes == 0].tolist() in ([0], [1])


def test_a_node_is_emptied_when_all_its_pods_find_another_place():
    gangs = [{"pods": 4, "demand": [1]}, {"pods": 1, "demand": [3]}, {"pods": 1, "demand": [8]}]
    packing = Packing(problem_of([[8], [7]], gangs, capacity=np.array([[8]] * 2)))
    for gang in range(3):
        packing.room.take(gang)
        packing.taken[gang] = True
    packing.room.put(0, np.array([0]), np.array([4]))
    packing.room.put(1, np.array([0]), np.array([1]))
    assert LocalSearch(packing).make_room(2, 1, None) == 1
    assert verify_solution(packing.problem, packing.to_solution("aggregated")) == ()
