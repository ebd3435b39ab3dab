"""What a gang consists of, the largest pods first."""

import numpy as np

from batchsched.solver.packing.gang_parts import group_by
from batchsched.solver.packing.packing import Packing
from tests.solver.instances import problem_of


def test_large_pods_come_first_and_parts_with_a_required_level_before_others():
    problem = problem_of(
        [[8]],
        [{"pods": 1, "demand": [size]} for size in (2, 8, 3)],
        gang=np.zeros(3, np.int32),
        subgroup=np.array([0, 1, -1], np.int32),
        need=np.array([3], np.int32),
        tier=np.zeros(1, np.int32),
        rank=np.zeros(1, np.int32),
        required=np.full(1, -1, np.int32),
        preferred=np.full(1, -1, np.int32),
        pinned=np.full(1, -1, np.int32),
        fresh=np.ones(1, np.bool_),
        allowed=np.ones(1, np.bool_),
        sub_gang=np.zeros(2, np.int32),
        sub_need=np.ones(2, np.int32),
        sub_required=np.array([0, -1], np.int32),
        sub_preferred=np.full(2, -1, np.int32),
        sub_pinned=np.full(2, -1, np.int32),
        levels=[[0]],
    )
    members = Packing(problem).members(0)
    assert members.classes == (1, 2, 0)
    assert [part.index for part in members.parts] == [0, 1, -1]
    assert members.levelled


def test_grouping_keeps_the_order_and_leaves_no_owner_out():
    assert group_by(np.array([1, 0, 1], np.int32), 3) == [[1], [0, 2], []]
