"""Two pods change places for the sake of a third: nothing is lost, and what is not theirs stays closed to them."""

import numpy as np

from batchsched.solver.local_search.search import LocalSearch
from batchsched.solver.packing.packing import Packing
from batchsched.solver.verify import verify_solution
from tests.solver.instances import problem_of

CAPACITY = np.array([[1000, 1000]] * 2)


def crossed(gain: int, **more) -> Packing:
    """CPU is left on the first node and memory on the second; pods of equal CPU stand on the wrong ones.

    The heavy pods ask for `gain` more memory than the light ones.
    """
    gangs = [
        {"pods": 2, "demand": [200, 100 + gain]},
        {"pods": 2, "demand": [200, 100]},
        {"pods": 1, "demand": [200, 250]},
    ]
    packing = Packing(problem_of([[600, 250 + 2 * gain], [400, 800]], gangs, capacity=CAPACITY, **more))
    for gang in range(3):
        packing.room.take(gang)
        packing.taken[gang] = True
    packing.room.put(0, np.array([0]), np.array([2]))
    packing.room.put(1, np.array([1]), np.array([2]))
    assert packing.room.place(2, 1) == 0
    return packing


def test_a_pod_with_more_memory_leaves_for_one_with_less():
    packing = crossed(gain=200)
    assert LocalSearch(packing).make_room(2, 1, None) == 1
    assert verify_solution(packing.problem, packing.to_solution("aggregated")) == ()


def test_several_exchanges_bring_what_one_does_not():
    packing = crossed(gain=100)
    assert LocalSearch(packing).make_room(2, 1, None) == 1
    assert verify_solution(packing.problem, packing.to_solution("aggregated")) == ()


def test_nobody_is_exchanged_to_a_node_that_its_mask_forbids():
    mask = np.array([[True, True], [True, False]])
    packing = crossed(gain=200, mask=mask, kind=np.array([1, 0, 0], np.int32))
    assert LocalSearch(packing).make_room(2, 1, None) == 0
    assert packing.room.waiting[2] == 1


def test_nobody_bound_to_a_domain_is_exchanged():
    packing = crossed(gain=200)
    bound = problem_of(
        [[600, 650], [400, 800]],
        [
            {"pods": 2, "demand": [200, 300], "required": 0},
            {"pods": 2, "demand": [200, 100]},
            {"pods": 1, "demand": [200, 250]},
        ],
        capacity=CAPACITY,
        levels=[[0, 1]],
    )
    other = Packing(bound)
    other.domain_of[0] = 0
    for gang in range(3):
        other.room.take(gang)
        other.taken[gang] = True
    for entry in packing.room.trail:
        if entry.class_index >= 0:
            other.room.put(entry.class_index, entry.nodes, entry.counts)
    assert LocalSearch(other).make_room(2, 1, None) == 0
