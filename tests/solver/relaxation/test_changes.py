"""Changes: what applying one changes, and what half of it is."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from batchsched.solver.problem import ALL_NODES, EVERY_NODE, UNLIMITED, ConstraintRow, Problem, Sense
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    LoosenedRow,
    RaisedQuota,
    Relaxation,
    RelaxedLevel,
    apply_change,
    halve_change,
)
from batchsched.solver.relaxation.residual import ResidualProblem
from batchsched.solver.relaxation.search import (
    CachedFitCheck,
    ChangeFamily,
    RefusalCause,
    find_smallest_change,
    propose_change_families,
)
from tests.solver.instances import problem_of


@pytest.fixture
def problem() -> Problem:
    one, ones = np.zeros(1, np.int32), np.ones(1, np.int64)
    share = np.array([[1], [2], [3]])
    plain = problem_of(
        [[1], [2], [3]],
        [{"pods": 2, "demand": [1], "required": 1}],
        levels=[[0, 0, 1], [0, 1, 2]],
        partitions=(np.array([4, 5, -1], np.int32),),
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.array([[-3]]),
        quota_gangs=np.array([UNLIMITED]),
    )
    rows = (
        ConstraintRow(EVERY_NODE, one, ones, np.array([7, 8, 9]), gangs=one, gang_coefficients=share),
        ConstraintRow(ALL_NODES, one, ones, np.zeros(1, np.int64), Sense.AT_LEAST),
    )
    return replace(plain, rows=rows)


def test_new_nodes_are_empty_and_have_the_labels_of_their_domain(problem: Problem):
    more = apply_change(problem, AddedNodes(2, like=2, level=1, domain=0, extra=(5,)))
    assert more.nodes.free[3:].tolist() == [[13], [13]]
    assert more.nodes.capacity[3:].tolist() == [[13], [13]]
    assert more.nodes.levels[:, 3:].tolist() == [[0, 0], [0, 0]]
    assert more.nodes.partitions[0].tolist() == [4, 5, -1, 4, 4]
    assert more.rows[0].right.tolist() == [7, 8, 9, 9, 9]
    assert more.rows[0].gang_coefficients.tolist() == [[1], [2], [3], [3], [3]]
    assert more.kinds.mask.shape == more.kinds.score.shape == (1, 5)


def test_new_nodes_have_no_pods_of_either_side_of_a_row(problem: Problem):
    row = replace(
        problem.rows[0], on_second_side=np.ones(1, np.bool_), used_side=np.array([0, 1, -1], np.int32)
    )
    more = apply_change(replace(problem, rows=(row,)), AddedNodes(2, like=1))
    (used,) = (row.used_side for row in more.rows)
    assert used is not None
    assert used.tolist() == [0, 1, -1, -1, -1]


def test_new_nodes_pass_the_filters_of_the_gang_that_they_are_added_for(problem: Problem):
    barred = replace(problem, kinds=replace(problem.kinds, mask=np.zeros((1, 3), np.bool_)))
    assert not apply_change(barred, AddedNodes(1, like=0)).kinds.mask[0, 3]
    assert apply_change(barred, AddedNodes(1, like=0, passing=0)).kinds.mask[0, 3]


def test_a_domain_that_no_node_has_yet_can_get_its_first(problem: Problem):
    assert apply_change(problem, AddedNodes(1, like=2, level=1, domain=9)).nodes.levels[:, 3].tolist() == [
        1,
        9,
    ]


def test_new_nodes_in_another_domain_get_the_labels_of_the_best_labelled_node_there():
    sparse = problem_of([[1], [2], [3]], [{"pods": 2, "demand": [1]}], levels=[[0, 1, 1], [0, -1, 2]])
    more = apply_change(sparse, AddedNodes(1, like=0, level=0, domain=1))
    assert more.nodes.levels[:, 3].tolist() == [1, 2]


def test_a_level_is_replaced_and_a_pin_moves_to_the_domain_around_it(problem: Problem):
    pinned = replace(problem, gangs=replace(problem.gangs, pinned=np.array([2], np.int32)))
    assert apply_change(pinned, RelaxedLevel(0, 0)).gangs.pinned.tolist() == [1]
    assert apply_change(pinned, RelaxedLevel(0, 0)).gangs.required.tolist() == [0]
    assert apply_change(pinned, RelaxedLevel(0, -1)).gangs.pinned.tolist() == [-1]


def test_a_subgroups_level_is_replaced_by_itself(problem: Problem):
    one = np.ones(1, np.int32)
    inner = replace(
        problem,
        subgroups=replace(
            problem.subgroups, gang=one * 0, need=one, required=one, preferred=-one, pinned=-one
        ),
    )
    changed = apply_change(inner, RelaxedLevel(0, -1, subgroup=0))
    assert changed.subgroups.required.tolist() == [-1]
    assert changed.gangs.required.tolist() == [1]


def test_a_quota_that_is_overdrawn_counts_from_nothing(problem: Problem):
    more = apply_change(problem, RaisedQuota(0, (4,), 2))
    assert more.quotas.free.tolist() == [[4]]
    assert more.quotas.gangs[0] == UNLIMITED + 2


def test_rows_are_loosened_in_their_own_direction(problem: Problem):
    assert apply_change(problem, LoosenedRow(0, 2)).rows[0].right.tolist() == [9, 10, 11]
    assert apply_change(problem, LoosenedRow(1, 2)).rows[1].right.tolist() == [-2]


def test_a_combined_change_applies_all_its_parts(problem: Problem):
    both = apply_change(problem, CombinedChange((AddedPods(0, 3), AddedNodes(1, like=0))))
    assert both.classes.count.tolist() == [5]
    assert len(both.nodes.free) == 4


@pytest.mark.parametrize(
    "whole, less",
    [
        (RelaxedLevel(0, 1), None),
        (AddedNodes(5, like=3), AddedNodes(2, like=3)),
        (AddedNodes(1, like=3), None),
        (RaisedQuota(0, (5, 1), 1), RaisedQuota(0, (2, 0), 0)),
        (RaisedQuota(0, (1, 0), 1), None),
        (LoosenedRow(0, 3), LoosenedRow(0, 1)),
        (LoosenedRow(0, 2), LoosenedRow(0, 1)),
        (LoosenedRow(0, 1), None),
        (AddedPods(0, 2), AddedPods(0, 1)),
        (AddedPods(0, 1), None),
        (CombinedChange((AddedPods(0, 4), AddedNodes(1, like=0))), CombinedChange((AddedPods(0, 2),))),
        (CombinedChange((RelaxedLevel(0, 1), AddedNodes(1, like=0))), None),
    ],
)
def test_a_change_can_be_halved(whole: Relaxation, less: Relaxation | None):
    assert halve_change(whole) == less


def nodes(size: int) -> AddedNodes:
    return AddedNodes(size, like=0)


def find(
    admits: Callable[[Relaxation], bool], start: int, limit: int = 64, *parts: Relaxation
) -> Relaxation | None:
    family = ChangeFamily(RefusalCause.CAPACITY, (*parts, nodes(1)), start, limit)
    return find_smallest_change(family, CachedFitCheck(admits, 100))


@pytest.mark.parametrize("start", [1, 3, 7, 8, 60])
@pytest.mark.parametrize("needed", [1, 6, 7, 8, 33, 64])
def test_the_smallest_size_is_found_from_any_start(start: int, needed: int):
    asked: list[Relaxation] = []

    def admits(change: Relaxation) -> bool:
        asked.append(change)
        return isinstance(change, AddedNodes) and change.count >= needed

    assert find(admits, start) == nodes(needed)
    assert len(asked) == len(set(asked)) <= 14


def test_a_change_that_never_admits_the_gang_is_abandoned_at_its_limit():
    assert find(lambda change: False, 1) is None


def test_the_search_ends_after_the_maximum_number_of_trials():
    probe = CachedFitCheck(lambda change: True, 1)
    assert probe(nodes(1))
    assert probe(nodes(1))
    assert not probe(nodes(2))


def test_half_of_the_found_size_is_never_sufficient():
    good = {nodes(1), nodes(3), nodes(12)}
    found = find(lambda change: change in good, 12)
    assert found in good
    assert isinstance(found, AddedNodes)
    assert nodes(found.count // 2) not in good


def test_parts_that_are_not_needed_are_left_out():
    def admits(change: Relaxation) -> bool:
        parts = change.parts if isinstance(change, CombinedChange) else (change,)
        return AddedNodes(2, like=0) in parts and RelaxedLevel(0, 1) in parts

    found = find(admits, 2, 2, RelaxedLevel(0, 1), AddedPods(0, 1))
    assert found == CombinedChange((RelaxedLevel(0, 1), AddedNodes(2, like=0)))


def test_the_smallest_kinds_of_change_are_tried_first():
    levels = [[0, 0], [0, 1]]
    problem = problem_of([[1], [1]], [{"pods": 2, "need": 3, "demand": [1], "required": 1}], levels=levels)
    kinds = [
        family.cause for family in propose_change_families(ResidualProblem(problem), (np.arange(2),), (-1, 0))
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
    kinds = propose_change_families(ResidualProblem(problem), (np.arange(2),), (-1, 0))
    tried = [family.build_change(1) for family in kinds if family.cause is RefusalCause.TOPOLOGY]
    assert tried == [RelaxedLevel(0, 0, subgroup=0), RelaxedLevel(0, -1, subgroup=0)]


def test_more_nodes_are_also_tried_with_no_level_binding():
    problem = problem_of([[1]], [{"pods": 2, "demand": [1], "required": 0}], levels=[[0]])
    kinds = propose_change_families(ResidualProblem(problem), (np.arange(1),), (-1,))
    tried = [family.build_change(1) for family in kinds if family.cause is RefusalCause.CAPACITY]
    loose = [
        change
        for change in tried
        if isinstance(change, CombinedChange) and RelaxedLevel(0, -1) in change.parts
    ]
    assert any(isinstance(part, AddedNodes) for change in loose for part in change.parts)
    assert any(isinstance(change, AddedNodes) for change in tried)
