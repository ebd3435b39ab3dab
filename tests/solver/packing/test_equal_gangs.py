"""Which gangs are placed as one."""

import numpy as np

from batchsched.solver.packing.equal_gangs import alike
from batchsched.solver.packing.free_capacity import FreeCapacity
from tests.solver.instances import problem_of

RACKS = [[0, 0, 1, 1]]


def test_only_pods_alone_that_nothing_else_binds_are_alike():
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
    assert alike(FreeCapacity(problem)) == [0, 1, -1, -1, -1, -1, 0]
    limit = {"quota_free": np.array([[99]]), "quota_gangs": np.array([2])}
    member = np.array([[True] * 6 + [False]])
    bound = problem_of([[4]] * 4, gangs, levels=RACKS, quota_covers=member, **limit)
    assert alike(FreeCapacity(bound)) == [-1] * 6 + [0]
