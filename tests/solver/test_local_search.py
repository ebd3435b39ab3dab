"""Pods of the session are moved to make room, and never to a node that their rules forbid."""

import numpy as np
import pytest

from batchsched.solver import local_search
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.local_search import LocalSearch
from batchsched.solver.packing.packing import Packing
from batchsched.solver.tiered.rounding import EjectingPlacer
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import problem_of

BIG_AFTER_SMALL = [{"pods": 2, "demand": [2]}, {"pods": 1, "demand": [4]}]


def split_small(**more) -> Packing:
    """Two small pods on two nodes of four, so that the big one fits nowhere."""
    packing = Packing(problem_of([[4], [4]], BIG_AFTER_SMALL, **more))
    packing.room.count_gang_as_placed(0)
    packing.taken[0] = True
    packing.room.change_placed_pods_unchecked(0, np.array([0, 1]), np.array([1, 1]))
    packing.room.count_gang_as_placed(1)
    packing.taken[1] = True
    return packing


def test_a_small_pod_is_moved_to_make_room_for_a_large_one():
    packing = split_small()
    assert packing.room.place_pods_up_to(1, 1) == 0
    assert LocalSearch(packing).place_pods_by_moving_others(1, 1, None) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


def test_search_without_moves_left_places_nothing_and_changes_nothing(monkeypatch):
    monkeypatch.setattr(local_search, "MAX_MOVES", 0)
    packing = split_small()
    before = packing.room.free.copy()
    assert LocalSearch(packing).place_pods_by_moving_others(1, 1, None) == 0
    assert np.array_equal(packing.room.free, before)


class EndlessMoves:
    """A neighbourhood that proposes without end and never makes room."""

    def __init__(self) -> None:
        self.tried = 0

    def propose_moves(self, request):
        while True:
            yield None

    def try_move(self, request, move):
        self.tried += 1


def test_search_tries_a_bounded_number_of_moves_over_all_pods(monkeypatch):
    monkeypatch.setattr(local_search, "MAX_MOVES", 50)
    search, moves = LocalSearch(split_small()), EndlessMoves()
    monkeypatch.setattr(search, "_neighbourhoods", (moves, moves))
    assert [search.place_pods_by_moving_others(1, 1, None) for _ in range(3)] == [0, 0, 0]
    assert moves.tried == 50


def test_no_pod_moves_to_a_node_that_its_mask_forbids():
    packing = split_small(mask=np.array([[True, True], [True, False]]), kind=np.array([0, 1], np.int32))
    assert LocalSearch(packing).place_pods_by_moving_others(1, 1, None) == 1
    assert packing.room.trail[-1].nodes.tolist() == [0]
    fixed = split_small()
    fixed.room.banned[0] = np.zeros(2, np.bool_)
    assert LocalSearch(fixed).place_pods_by_moving_others(1, 1, None) == 0


def test_no_pod_is_moved_out_of_the_domain_of_its_gang():
    gangs = [{"pods": 2, "demand": [2], "required": 0}, {"pods": 1, "demand": [4]}]
    packing = Packing(problem_of([[4], [4], [2]], gangs, levels=[[0, 0, 1]]))
    packing.room.count_gang_as_placed(0)
    packing.taken[0] = True
    packing.domain_of[0] = 0
    packing.room.change_placed_pods_unchecked(0, np.array([0, 1]), np.array([1, 1]))
    assert LocalSearch(packing).place_pods_by_moving_others(1, 1, None) == 1
    nodes = packing.to_solution("aggregated")
    assert nodes.nodes[nodes.classes == 0].tolist() in ([0], [1])


def test_a_node_is_emptied_if_all_its_pods_fit_on_other_nodes():
    gangs = [{"pods": 4, "demand": [1]}, {"pods": 1, "demand": [3]}, {"pods": 1, "demand": [8]}]
    packing = Packing(problem_of([[8], [7]], gangs, capacity=np.array([[8]] * 2)))
    for gang in range(3):
        packing.room.count_gang_as_placed(gang)
        packing.taken[gang] = True
    packing.room.change_placed_pods_unchecked(0, np.array([0]), np.array([4]))
    packing.room.change_placed_pods_unchecked(1, np.array([0]), np.array([1]))
    assert LocalSearch(packing).place_pods_by_moving_others(2, 1, None) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


CAPACITY = np.array([[1000, 1000]] * 2)


def crossed(gain: int, **more) -> Packing:
    """CPU is free on the first node and memory on the second; pods of equal CPU are on the unsuitable nodes.

    The heavy pods ask for `gain` more memory than the light ones.
    """
    gangs = [
        {"pods": 2, "demand": [200, 100 + gain]},
        {"pods": 2, "demand": [200, 100]},
        {"pods": 1, "demand": [200, 250]},
    ]
    packing = Packing(problem_of([[600, 250 + 2 * gain], [400, 800]], gangs, capacity=CAPACITY, **more))
    for gang in range(3):
        packing.room.count_gang_as_placed(gang)
        packing.taken[gang] = True
    packing.room.change_placed_pods_unchecked(0, np.array([0]), np.array([2]))
    packing.room.change_placed_pods_unchecked(1, np.array([1]), np.array([2]))
    assert packing.room.place_pods_up_to(2, 1) == 0
    return packing


def test_pods_of_equal_cpu_and_different_memory_are_exchanged():
    packing = crossed(gain=200)
    assert LocalSearch(packing).place_pods_by_moving_others(2, 1, None) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


def test_several_exchanges_make_room_if_one_does_not():
    packing = crossed(gain=100)
    assert LocalSearch(packing).place_pods_by_moving_others(2, 1, None) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


def test_no_pod_is_exchanged_to_a_node_that_its_mask_forbids():
    mask = np.array([[True, True], [True, False]])
    packing = crossed(gain=200, mask=mask, kind=np.array([1, 0, 0], np.int32))
    assert LocalSearch(packing).place_pods_by_moving_others(2, 1, None) == 0
    assert packing.room.waiting[2] == 1


def test_no_pod_of_a_required_domain_is_exchanged():
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
        other.room.count_gang_as_placed(gang)
        other.taken[gang] = True
    for entry in packing.room.trail:
        if entry.class_index >= 0:
            other.room.change_placed_pods_unchecked(entry.class_index, entry.nodes, entry.counts)
    assert LocalSearch(other).place_pods_by_moving_others(2, 1, None) == 0


def eject_for(packing: Packing, gang: int) -> list[int] | None:
    return EjectingPlacer(packing, LocalSearch(packing)).place_gang_with_ejection(gang, None)


def full(tier: int) -> Packing:
    gangs = [{"pods": 4, "demand": [1], "tier": 1}, {"pods": 4, "demand": [1], "tier": 1},
             {"pods": 3, "demand": [2], "tier": tier}]  # fmt: skip
    packing = Packing(problem_of([[4], [4]], gangs))
    packing.place_minimum_of_gang(0)
    packing.place_minimum_of_gang(1)
    return packing


def test_gangs_of_a_lower_tier_are_ejected():
    packing = full(tier=0)
    assert eject_for(packing, 2) in ([0], [1], [0, 1], [1, 0])
    assert packing.taken.tolist() == [False, False, True]


def test_gangs_of_the_same_tier_are_not_ejected():
    packing = full(tier=1)
    before = [row.tolist() for row in packing.room.free]
    assert eject_for(packing, 2) is None
    assert packing.taken.tolist() == [True, True, False]
    assert [row.tolist() for row in packing.room.free] == before


def test_all_ejected_gangs_are_restored_if_the_room_is_not_enough():
    gangs = [{"pods": 4, "demand": [1], "tier": 1}, {"pods": 9, "demand": [1], "tier": 0}]
    packing = Packing(problem_of([[4], [4]], gangs))
    packing.place_minimum_of_gang(0)
    assert eject_for(packing, 1) is None
    assert packing.taken.tolist() == [True, False]


def test_the_cheapest_gangs_that_free_enough_room_together_are_ejected():
    costs = [5.0, 1.0, 1.0]
    gangs = [{"pods": 4, "demand": [1], "tier": 1, "weight": cost} for cost in costs]
    packing = Packing(problem_of([[4], [4], [4]], [*gangs, {"pods": 2, "demand": [4], "tier": 0}]))
    for gang in range(3):
        packing.place_minimum_of_gang(gang)
    assert eject_for(packing, 3) in ([1, 2], [2, 1])


def eject_for_surplus(packing: Packing, gang: int) -> list[int]:
    return EjectingPlacer(packing, LocalSearch(packing)).place_elastic_pods_with_ejection(gang)


@pytest.mark.parametrize("tier, waiting, ejected", [(0, 0, [1]), (1, 2, [])])
def test_elastic_pods_take_the_room_of_a_gang_of_a_lower_tier(tier: int, waiting: int, ejected: list[int]):
    gangs = [{"pods": 4, "need": 2, "demand": [1], "tier": tier}, {"pods": 2, "demand": [1], "tier": 1}]
    packing = Packing(problem_of([[4]], gangs))
    packing.place_minimum_of_gang(0)
    packing.place_minimum_of_gang(1)
    assert eject_for_surplus(packing, 0) == ejected
    assert packing.room.waiting[0] == waiting
    assert packing.taken.tolist() == [True, not ejected]


def test_an_elastic_pod_takes_the_room_of_several_gangs_if_one_is_not_enough():
    gangs = [
        {"pods": 2, "need": 1, "demand": [4], "tier": 0},
        *({"pods": 1, "demand": [2], "tier": 1} for _ in range(2)),
    ]
    packing = Packing(problem_of([[4], [4]], gangs))
    for gang in range(3):
        packing.place_minimum_of_gang(gang)
    assert sorted(eject_for_surplus(packing, 0)) == [1, 2]
    assert packing.room.waiting[0] == 0


def test_gangs_are_restored_if_their_room_is_not_enough_for_an_elastic_pod():
    gangs = [
        {"pods": 2, "need": 1, "demand": [4], "tier": 0},
        {"pods": 1, "demand": [2], "tier": 1},
        {"pods": 1, "demand": [2], "tier": 0},
    ]
    packing = Packing(problem_of([[4], [4]], gangs))
    for gang in range(3):
        packing.place_minimum_of_gang(gang)
    before = [row.tolist() for row in packing.room.free]
    assert eject_for_surplus(packing, 0) == []
    assert packing.taken.tolist() == [True, True, True]
    assert [row.tolist() for row in packing.room.free] == before


def test_no_gang_is_ejected_if_the_other_ejected_gangs_free_enough_room():
    gangs = [
        {"pods": 1, "demand": [1], "tier": 1, "weight": 0.1},
        {"pods": 4, "demand": [1], "tier": 1, "weight": 1.0},
    ]
    packing = Packing(problem_of([[1], [4]], [*gangs, {"pods": 1, "demand": [4], "tier": 0}]))
    for gang in range(2):
        packing.place_minimum_of_gang(gang)
    assert eject_for(packing, 2) == [1]


def test_a_node_is_emptied_for_devices_that_are_not_the_first_resource():
    gangs = [
        {"pods": 4, "demand": [900, 1]},
        {"pods": 1, "demand": [900, 3]},
        {"pods": 1, "demand": [900, 8]},
    ]
    packing = Packing(problem_of([[9000, 8], [9000, 7]], gangs, capacity=np.array([[9000, 8]] * 2)))
    for gang in range(3):
        packing.room.count_gang_as_placed(gang)
        packing.taken[gang] = True
    packing.room.change_placed_pods_unchecked(0, np.array([0]), np.array([4]))
    packing.room.change_placed_pods_unchecked(1, np.array([0]), np.array([1]))
    assert LocalSearch(packing).place_pods_by_moving_others(2, 1, None) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


def tight_packing(**more) -> Packing:
    """Six pods on three nodes: the seventh fits only if pods of several gangs change their nodes at once."""
    demands = [[3, 1], [5, 1], [2, 2], [4, 3]]
    pods = [{"pods": 2 if g < 3 else 1, "demand": demand, **more} for g, demand in enumerate(demands)]
    packing = Packing(problem_of([[8, 8]] * 3, pods, levels=[[0, 0, 0]]))
    for gang, nodes in enumerate([[0, 0], [1, 2], [0, 1]]):
        packing.room.count_gang_as_placed(gang)
        for node in nodes:
            packing.room.change_placed_pods_unchecked(gang, np.array([node]), np.array([1]))
    for gang in range(4):
        packing.taken[gang] = True
        packing.domain_of[gang] = 0
    packing.room.count_gang_as_placed(3)
    return packing


@pytest.mark.parametrize("level", [{}, {"required": 0}])
@pytest.mark.parametrize("nodes", [None, np.arange(3)])
def test_pods_on_a_few_nodes_are_packed_again_if_no_single_move_makes_room(level, nodes):
    assert LocalSearch(tight_packing(**level)).place_pods_by_moving_others(3, 1, nodes) == 0
    packing = tight_packing(**level)
    assert LocalSearch(packing, CpSatBudget(1.0, 30.0, 0)).place_pods_by_moving_others(3, 1, nodes) == 1
    assert find_solution_faults(packing.problem, packing.to_solution("aggregated")) == ()


def test_packing_again_needs_units_of_the_budget():
    packing = tight_packing()
    assert LocalSearch(packing, CpSatBudget(0.0, 30.0, 0)).place_pods_by_moving_others(3, 1, None) == 0


def test_packing_again_moves_no_pod_with_a_refused_node():
    packing = tight_packing()
    packing.room.banned[2] = np.array([True, True, False])
    assert LocalSearch(packing, CpSatBudget(1.0, 30.0, 0)).place_pods_by_moving_others(3, 1, None) == 0
