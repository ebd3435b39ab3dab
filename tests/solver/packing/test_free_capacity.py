"""What is free while pods are placed."""

import numpy as np

from batchsched.solver.packing.free_capacity import FreeCapacity
from tests.solver.instances import problem_of


def test_placing_whole_places_nothing_when_not_all_go():
    room = FreeCapacity(problem_of([[2], [2]], [{"pods": 5, "demand": [1]}]))
    assert room.place(0, 5, whole=True) == 0
    assert room.place(0, 5) == 4
    assert room.waiting == [1]


def test_no_more_nodes_are_looked_at_than_pods_and_the_last_takes_what_is_left():
    room = FreeCapacity(problem_of([[2], [5], [4], [0]], [{"pods": 6, "demand": [1]}]), plain=True)
    assert room.place(0, 3) == 3
    assert room.free[0].tolist() == [0, 5, 3, 0]
    assert room.place(0, 3) == 3
    assert room.free[0].tolist() == [0, 5, 0, 0]


def test_triples_add_up_and_leave_out_what_has_moved_away():
    room = FreeCapacity(problem_of([[4], [4]], [{"pods": 3, "demand": [1]}]))
    room.put(0, np.array([0]), np.array([2]))
    room.put(0, np.array([0]), np.array([-2]))
    room.put(0, np.array([1]), np.array([3]))
    classes, nodes, counts = room.triples()
    assert (classes.tolist(), nodes.tolist(), counts.tolist()) == ([0], [1], [3])


def test_withdrawing_a_gang_frees_its_room_and_repeating_takes_it_again():
    room = FreeCapacity(problem_of([[4]], [{"pods": 2, "demand": [1]}, {"pods": 1, "demand": [1]}]))
    room.place(0, 2)
    room.place(1, 1)
    gone = room.withdraw({0})
    assert room.free[0].tolist() == [3]
    for entry in gone:
        room.repeat(entry)
    assert room.free[0].tolist() == [1]


def test_only_the_given_nodes_are_used():
    room = FreeCapacity(problem_of([[4], [4], [4]], [{"pods": 9, "demand": [1]}]))
    assert room.place(0, 9, np.array([1, 2])) == 8
    assert room.free[0].tolist() == [4, 0, 0]
