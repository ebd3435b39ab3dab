"""Placing single gangs: all or nothing, with a way back, in the right domains, in microseconds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.objective import mask_gangs_beyond_quotas
from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.packing.limits import RemainingQuotas
from batchsched.solver.packing.node_order import NodeOrder
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    EVERY_NODE,
    ConstraintRow,
    Problem,
    Sense,
    position_lists_by_group,
    positions_by_group,
)
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import one_gang, problem_of, problems

RACKS = [[0, 0, 1, 1]]


def state(packing: Packing) -> tuple:
    room = packing.room
    return (
        [row.tolist() for row in room.free],
        list(room.waiting),
        room.quotas.remaining,
        room.quotas.gangs_left,
        [left.tolist() for left in room.rows.left_side],
        packing.taken.tolist(),
        dict(packing.domain_of),
        dict(packing.domain_of_subgroup),
    )


@pytest.mark.properties
@given(problems(), st.data())
def test_rollback_and_withdrawal_restore_the_earlier_state(problem: Problem, data):
    packing = Packing(problem)
    gangs = len(problem.gangs.need)
    packing.place_minimum_of_gang(0)
    before, mark = repr(state(packing)), packing.checkpoint()
    for gang in range(1, gangs):
        packing.place_minimum_of_gang(gang)
    packing.roll_back_to(mark)
    assert repr(state(packing)) == before
    chosen = data.draw(st.integers(0, gangs - 1))
    packing.place_minimum_of_gang(chosen)
    held = repr(state(packing))
    packing.reinstate_gangs(packing.withdraw_gangs({chosen}))
    assert repr(state(packing)) == held


def test_a_gang_that_does_not_fit_changes_nothing():
    packing = Packing(problem_of([[2], [2]], [{"pods": 5, "demand": [1]}]))
    before = repr(state(packing))
    assert packing.place_minimum_of_gang(0) is None
    assert repr(state(packing)) == before


def test_a_required_level_takes_the_domain_that_holds_the_gang_with_the_least_to_spare():
    problem = problem_of([[4], [4], [3], [2]], [{"pods": 5, "demand": [1], "required": 0}], levels=RACKS)
    entries = Packing(problem).place_minimum_of_gang(0)
    assert entries is not None
    assert {int(node) for entry in entries for node in entry.nodes} == {2, 3}


def test_a_pinned_gang_stays_in_its_domain():
    gang = {"pods": 5, "demand": [1], "required": 0, "pinned": 0}
    problem = problem_of([[4], [4], [3], [2]], [gang], levels=RACKS)
    entries = Packing(problem).place_minimum_of_gang(0)
    assert entries is not None
    assert {int(node) for entry in entries for node in entry.nodes} == {0, 1}


def test_a_preferred_level_is_kept_when_one_domain_will_do_and_left_when_not():
    for pods, domains in ((5, 1), (8, 2)):
        gang = {"pods": pods, "demand": [1], "preferred": 0}
        problem = problem_of([[1], [2], [3], [2]], [gang], levels=RACKS)
        entries = Packing(problem).place_minimum_of_gang(0)
        assert entries is not None
        used = {int(problem.nodes.levels[0, node]) for entry in entries for node in entry.nodes}
        assert len(used) == domains


def test_surplus_stays_in_the_domain_of_its_gang():
    gang = {"pods": 9, "need": 2, "demand": [1], "required": 0}
    problem = problem_of([[2], [2], [2], [2]], [gang], levels=RACKS)
    packing = Packing(problem)
    packing.place_minimum_of_gang(0)
    assert packing.place_elastic_pods(0) == 2
    nodes = np.concatenate([entry.nodes for entry in packing.room.trail if entry.class_index >= 0])
    assert len(set(problem.nodes.levels[0, nodes].tolist())) == 1


def test_a_gang_limit_of_one_admits_one_gang():
    problem = problem_of(
        [[8]],
        [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [1]}],
        quota_covers=np.ones((1, 2), np.bool_),
        quota_free=np.full((1, 1), 8),
        quota_gangs=np.ones(1, np.int64),
    )
    packing = Packing(problem)
    assert packing.place_minimum_of_gang(0) is not None
    assert packing.place_minimum_of_gang(1) is None


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.booleans())
def test_equal_single_pods_placed_together_are_as_many_as_one_by_one(seed: int, pods: int, spread: bool):
    rng = np.random.default_rng(seed)
    free, demand = rng.integers(0, 9, (4, 3)).tolist(), [*rng.integers(0, 4, 2).tolist(), 1]
    problem = problem_of(free, [{"pods": 1, "demand": demand}] * pods, spread=spread)
    one_by_one, together = Packing(problem), Packing(problem)
    for gang in range(pods):
        one_by_one.place_minimum_of_gang(gang)
    together.place_equal_single_pod_gangs(list(range(pods)))
    assert together.taken.tolist() == one_by_one.taken.tolist()
    assert together.room.waiting == one_by_one.room.waiting
    assert all((row >= 0).all() for row in together.room.free)
    together.roll_back_to(0)
    assert not together.taken.any()


def test_equal_single_pods_that_are_placed_already_are_not_placed_again():
    packing = Packing(problem_of([[4], [4]], [{"pods": 1, "demand": [1]}] * 3))
    packing.place_minimum_of_gang(1)
    packing.place_equal_single_pod_gangs([0, 1, 2])
    assert packing.taken.all()
    assert packing.room.waiting == [0, 0, 0]
    assert sum(int(row.sum()) for row in packing.room.free) == 8 - 3
    packing.place_equal_single_pod_gangs([0, 1, 2])
    assert packing.to_solution("greedy").counts.tolist() == [1, 1, 1]


def test_placing_a_whole_gang_places_no_pod_if_not_all_fit():
    room = FreeCapacity(problem_of([[2], [2]], [{"pods": 5, "demand": [1]}]))
    assert room.place_pods_up_to(0, 5, whole=True) == 0
    assert room.place_pods_up_to(0, 5) == 4
    assert room.waiting == [1]


def test_at_most_one_node_for_each_pod_is_chosen_and_the_last_takes_the_rest():
    room = FreeCapacity(problem_of([[2], [5], [4], [0]], [{"pods": 6, "demand": [1]}]), plain=True)
    assert room.place_pods_up_to(0, 3) == 3
    assert room.free[0].tolist() == [0, 5, 3, 0]
    assert room.place_pods_up_to(0, 3) == 3
    assert room.free[0].tolist() == [0, 5, 0, 0]


def test_triples_are_summed_without_pods_that_were_moved():
    room = FreeCapacity(problem_of([[4], [4]], [{"pods": 3, "demand": [1]}]))
    room.change_placed_pods_unchecked(0, np.array([0]), np.array([2]))
    room.change_placed_pods_unchecked(0, np.array([0]), np.array([-2]))
    room.change_placed_pods_unchecked(0, np.array([1]), np.array([3]))
    classes, nodes, counts = room.placements()
    assert (classes.tolist(), nodes.tolist(), counts.tolist()) == ([0], [1], [3])


def test_withdrawing_a_gang_frees_its_room_and_repeating_takes_it_again():
    room = FreeCapacity(problem_of([[4]], [{"pods": 2, "demand": [1]}, {"pods": 1, "demand": [1]}]))
    room.place_pods_up_to(0, 2)
    room.place_pods_up_to(1, 1)
    gone = room.withdraw_gangs({0})
    assert room.free[0].tolist() == [3]
    for entry in gone:
        room.apply_trail_entry(entry)
    assert room.free[0].tolist() == [1]


def test_only_the_given_nodes_are_used():
    room = FreeCapacity(problem_of([[4], [4], [4]], [{"pods": 9, "demand": [1]}]))
    assert room.place_pods_up_to(0, 9, np.array([1, 2])) == 8
    assert room.free[0].tolist() == [4, 0, 0]


def test_classes_are_sorted_by_size_and_parts_with_a_required_level_come_first():
    problem = problem_of(
        [[8]],
        [{"pods": 1, "demand": [size]} for size in (2, 8, 3)],
        **one_gang(3, 3),
        subgroup=np.array([0, 1, -1], np.int32),
        sub_gang=np.zeros(2, np.int32),
        sub_need=np.ones(2, np.int32),
        sub_required=np.array([0, -1], np.int32),
        sub_preferred=np.full(2, -1, np.int32),
        sub_pinned=np.full(2, -1, np.int32),
        levels=[[0]],
    )
    members = Packing(problem).pod_classes_of_gang(0)
    assert members.classes == (1, 2, 0)
    assert [part.index for part in members.parts] == [0, 1, -1]
    assert members.levelled


def test_grouping_keeps_the_order_and_leaves_no_owner_out():
    assert [group.tolist() for group in positions_by_group(np.array([1, -1, 0, 1], np.int32), 3)] == [
        [2],
        [0, 3],
        [],
    ]


@given(st.lists(st.integers(-1, 5)))
def test_lists_of_positions_are_those_of_the_arrays(labels):
    of_items = np.array(labels, np.int32)
    arrays = [group.tolist() for group in positions_by_group(of_items, 6)]
    assert [list(group) for group in position_lists_by_group(of_items, 6)] == arrays


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_one_pod_a_node_uses_as_many_nodes_as_pods():
    row = ConstraintRow(EVERY_NODE, ints(0), np.ones(1, np.int64), np.ones(3, np.int64))
    solution = solve_greedy(problem_of([[9], [9], [9]], [{"pods": 3, "demand": [1]}], rows=(row,)))
    assert solution.counts.tolist() == [1, 1, 1]


def test_a_spread_is_filled_to_its_lower_limits_before_the_rest():
    zones = ints(0, 0, 1)
    most, least = -np.full((2, 1), 3), -np.full((2, 1), 2)
    rows = (
        ConstraintRow(0, ints(0), np.ones(1, np.int64), np.zeros(2, np.int64), Sense.AT_MOST, ints(0), most),
        ConstraintRow(
            0, ints(0), np.ones(1, np.int64), np.zeros(2, np.int64), Sense.AT_LEAST, ints(0), least
        ),
    )
    gang = {"pods": 5, "demand": [1]}
    problem = problem_of([[9], [9], [9]], [gang], rows=rows, partitions=(zones,))
    solution = solve_greedy(problem)
    assert solution.taken.all()
    assert find_solution_faults(problem, solution) == ()


def test_an_already_violated_row_is_not_violated_further():
    row = ConstraintRow(EVERY_NODE, ints(0), np.ones(1, np.int64), np.array([-1, 1]))
    solution = solve_greedy(problem_of([[9], [9]], [{"pods": 1, "demand": [1]}], rows=(row,)))
    assert solution.nodes.tolist() == [1]


def test_a_quota_stops_a_gang_that_the_nodes_would_hold():
    problem = problem_of(
        [[9]],
        [{"pods": 3, "demand": [1]}],
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.full((1, 1), 2),
        quota_gangs=np.full(1, 9),
    )
    assert not solve_greedy(problem).taken.any()


def test_a_quota_that_its_gangs_cannot_exceed_is_not_counted():
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]
    problem = problem_of(
        [[9]],
        gangs,
        quota_covers=np.array([[True, True], [True, False]]),
        quota_free=np.array([[3], [2]]),
        quota_gangs=np.full(2, 9),
    )
    assert RemainingQuotas(problem).binding.tolist() == [True, False]
    assert RemainingQuotas(
        replace(problem, gangs=replace(problem.gangs, allowed=np.array([True, False])))
    ).binding.tolist() == [False, False]


def test_a_quota_is_counted_although_the_requests_of_a_gang_exceed_64_bits_together():
    quota: dict[str, Any] = {"quota_covers": np.ones((1, 1), np.bool_), "quota_gangs": np.full(1, 9)}
    for pods in (2**13, 2**14):
        gangs = [{"pods": pods, "demand": [2**50]}]
        problem = problem_of([[2**52]], gangs, quota_free=np.full((1, 1), 2**51), **quota)
        assert RemainingQuotas(problem).binding.tolist() == [True]
        assert mask_gangs_beyond_quotas(problem).tolist() == [True]


def test_a_quota_suffices_until_it_is_used_up():
    problem = problem_of(
        [[9]],
        [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}],
        quota_covers=np.ones((1, 2), np.bool_),
        quota_free=np.full((1, 1), 3),
        quota_gangs=np.full(1, 9),
    )
    packing = Packing(problem)
    assert packing.room.quotas.may_admit_minimum(1)
    packing.place_minimum_of_gang(0)
    assert not packing.room.quotas.may_admit_minimum(1)


def nodes_of(*, free: list[list[int]], gangs: list[dict], class_index: int = 0, **more) -> list[int]:
    solution = solve_greedy(problem_of(free, gangs, **more))
    return [int(node) for node in solution.nodes[solution.classes == class_index]]


def test_a_pod_with_one_gpu_uses_a_node_with_an_odd_gpu():
    gangs = [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [2]}]
    assert nodes_of(free=[[2], [4], [3]], gangs=gangs) == [2]


def test_a_pod_with_two_gpus_uses_a_half_free_group_of_four():
    gangs = [{"pods": 1, "demand": [2]}, {"pods": 2, "demand": [4]}]
    assert nodes_of(free=[[8], [6]], gangs=gangs) == [1]


def test_a_pod_without_gpus_avoids_cpus_that_free_gpus_need():
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


@pytest.mark.parametrize("domain", [0, 1])
def test_elastic_pods_without_a_minimum_take_the_domain_in_which_most_of_them_fit(domain):
    free = [[1], [0], [1], [0]]
    free[2 * domain] = [3]
    problem = problem_of(free, [{"pods": 4, "need": 0, "demand": [1], "required": 0}], levels=RACKS)
    solution = solve_greedy(problem)
    assert dict(zip(solution.nodes.tolist(), solution.counts.tolist(), strict=True)) == {2 * domain: 3}


def test_a_preferred_level_uses_no_more_domains_than_it_needs():
    gang = {"pods": 4, "demand": [1], "preferred": 0}
    problem = problem_of([[1]] * 8, [gang], levels=[[0, 1, 2, 3, 0, 1, 2, 3]])
    entries = Packing(problem).place_minimum_of_gang(0)
    assert entries is not None
    used = {int(problem.nodes.levels[0, node]) for entry in entries for node in entry.nodes}
    assert len(used) == 2


def test_a_dominant_share_is_a_part_of_an_average_node():
    problem = problem_of(
        [[4, 10], [12, 10]], [{"pods": 1, "demand": [2, 1]}], capacity=np.array([[4, 10], [12, 10]])
    )
    assert NodeOrder(problem).largest_share_of_average_node(0) == 0.25


def test_spreading_prefers_free_devices_to_free_cpus():
    gangs = [{"pods": 1, "demand": [1, 100]}]
    room = np.tile([8, 1000], (2, 1))
    assert nodes_of(free=[[4, 1000], [8, 200]], gangs=gangs, capacity=room, spread=True) == [1]
    assert nodes_of(free=[[8, 200], [4, 1000]], gangs=gangs, capacity=room, spread=True) == [0]


def test_surplus_that_violates_a_lower_limit_is_taken_back():
    row = ConstraintRow(EVERY_NODE, ints(0), -np.ones(1, np.int64), np.array([-1]), Sense.AT_LEAST)
    problem = problem_of([[9]], [{"pods": 4, "need": 1, "demand": [1]}], rows=(row,))
    solution = solve_greedy(problem)
    assert find_solution_faults(problem, solution) == ()
    assert solution.counts.tolist() == [1]


def test_elastic_pods_take_the_domain_in_which_most_of_them_fit_after_others_completed_the_minimum():
    """A pod of the second subgroup completes the gang; no pod of the third is needed for that."""
    problem = problem_of(
        [[1], [2], [2], [1]],
        [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [2]}, {"pods": 2, "demand": [1]}],
        levels=[[0, 1, 2, 3]],
        mask=np.eye(4, dtype=np.bool_)[[3, 2, 0]] | np.eye(4, dtype=np.bool_)[[3, 2, 1]],
        score=np.zeros((3, 4), np.int64),
        kind=ints(0, 1, 2),
        **one_gang(2, 3),
        subgroup=ints(0, 1, 2),
        sub_gang=ints(0, 0, 0),
        sub_need=ints(1, 0, 0),
        sub_required=ints(-1, 0, 0),
        sub_preferred=ints(-1, -1, -1),
        sub_pinned=ints(-1, -1, -1),
    )
    solution = solve_greedy(problem)
    assert sorted(np.repeat(solution.nodes, solution.counts).tolist()) == [1, 1, 2, 3]


def test_elastic_pods_fill_each_domain_only_up_to_its_upper_limit():
    row = ConstraintRow(0, ints(0), np.ones(1, np.int64), np.ones(2, np.int64))
    gang = {"pods": 3, "need": 0, "demand": [1]}
    problem = problem_of([[1]] * 3, [gang], rows=(row,), partitions=(ints(0, 0, 1),))
    assert solve_greedy(problem).counts.tolist() == [1, 1]
