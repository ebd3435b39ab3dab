"""The search for the smallest change."""

import numpy as np
import pytest

from batchsched.solver.relaxation.admission import Residual
from batchsched.solver.relaxation.changes import (
    CombinedChange,
    LevelChange,
    NodeChange,
    PodChange,
    Relaxation,
    wider_levels,
)
from batchsched.solver.relaxation.search import (
    AdmissionProbe,
    ChangeFamily,
    RefusalCause,
    find_smallest_change,
    propose_families,
)
from tests.solver.instances import problem_of


def nodes(size: int) -> Relaxation:
    return NodeChange(size, like=0)


@pytest.mark.parametrize("start", [1, 3, 7, 8, 60])
@pytest.mark.parametrize("needed", [1, 6, 7, 8, 33, 64])
def test_the_smallest_size_is_found_from_any_start(start: int, needed: int):
    asked: list[Relaxation] = []

    def admits(change: Relaxation) -> bool:
        asked.append(change)
        return isinstance(change, NodeChange) and change.count >= needed

    assert find_smallest_change(
        ChangeFamily(RefusalCause.CAPACITY, nodes, start, 64), AdmissionProbe(admits, 100)
    ) == nodes(needed)
    assert len(asked) == len(set(asked)) <= 14


def test_what_never_admits_is_given_up_at_its_limit():
    assert (
        find_smallest_change(
            ChangeFamily(RefusalCause.CAPACITY, nodes, 1, 64), AdmissionProbe(lambda change: False, 100)
        )
        is None
    )


def test_questions_run_out():
    probe = AdmissionProbe(lambda change: True, 1)
    assert probe(nodes(1))
    assert probe(nodes(1))
    assert not probe(nodes(2))


def test_where_larger_does_not_admit_more_half_of_the_answer_still_does_not():
    good = {nodes(1), nodes(3), nodes(12)}
    found = find_smallest_change(
        ChangeFamily(RefusalCause.CAPACITY, nodes, 12, 64), AdmissionProbe(lambda change: change in good, 100)
    )
    assert found in good
    assert isinstance(found, NodeChange)
    assert nodes(found.count // 2) not in good


def test_parts_that_are_not_needed_are_left_out():
    def both(size: int) -> Relaxation:
        return CombinedChange((LevelChange(0, 1), PodChange(0, 1), NodeChange(size, like=0)))

    def admits(change: Relaxation) -> bool:
        parts = change.parts if isinstance(change, CombinedChange) else (change,)
        return NodeChange(2, like=0) in parts and LevelChange(0, 1) in parts

    found = find_smallest_change(ChangeFamily(RefusalCause.CAPACITY, both, 2, 2), AdmissionProbe(admits, 100))
    assert found == CombinedChange((LevelChange(0, 1), NodeChange(2, like=0)))


def test_the_gentlest_kinds_of_change_come_first():
    levels = [[0, 0], [0, 1]]
    problem = problem_of([[1], [1]], [{"pods": 2, "need": 3, "demand": [1], "required": 1}], levels=levels)
    kinds = [
        f.cause
        for f in propose_families(
            Residual(problem), (np.arange(2),), lambda level: wider_levels(problem, level)
        )
    ]
    assert kinds[:3] == [RefusalCause.TOO_FEW_PODS, RefusalCause.TOPOLOGY, RefusalCause.TOPOLOGY]
    assert kinds[-1] == RefusalCause.CAPACITY


def test_the_levels_of_subgroups_are_tried_although_the_gang_itself_states_none():
    problem = problem_of(
        [[1], [1]],
        [{"pods": 1, "demand": [1]}],
        levels=[[0, 0], [0, 1]],
        subgroup=np.array([0], np.int32),
        sub_gang=np.array([0], np.int32),
        sub_need=np.array([1], np.int32),
        sub_required=np.array([1], np.int32),
        sub_preferred=np.array([-1], np.int32),
        sub_pinned=np.array([-1], np.int32),
    )
    kinds = propose_families(Residual(problem), (np.arange(2),), lambda level: wider_levels(problem, level))
    tried = [family.make(1) for family in kinds if family.cause is RefusalCause.TOPOLOGY]
    assert tried == [LevelChange(0, 0, subgroup=0), LevelChange(0, -1, subgroup=0)]


def test_more_nodes_are_also_tried_with_no_level_binding():
    problem = problem_of([[1]], [{"pods": 2, "demand": [1], "required": 0}], levels=[[0]])
    kinds = propose_families(Residual(problem), (np.arange(1),), lambda level: wider_levels(problem, level))
    tried = [family.make(1) for family in kinds if family.cause is RefusalCause.CAPACITY]
    loose = [
        change
        for change in tried
        if isinstance(change, CombinedChange) and LevelChange(0, -1) in change.parts
    ]
    assert any(isinstance(part, NodeChange) for change in loose for part in change.parts)
    assert any(isinstance(change, NodeChange) for change in tried)
