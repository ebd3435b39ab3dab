"""A gang that fell short takes the place of lower tiers only, and otherwise all stay."""

from batchsched.solver.local_search.ejection import GangEjection
from batchsched.solver.local_search.search import LocalSearch
from batchsched.solver.packing.packing import Packing
from tests.solver.instances import problem_of


def eject_for(packing: Packing, gang: int) -> list[int] | None:
    return GangEjection(packing, LocalSearch(packing)).place_gang(gang, None)


def full(tier: int) -> Packing:
    gangs = [{"pods": 4, "demand": [1], "tier": 1}, {"pods": 4, "demand": [1], "tier": 1},
             {"pods": 3, "demand": [2], "tier": tier}]  # fmt: skip
    packing = Packing(problem_of([[4], [4]], gangs))
    packing.try_gang(0)
    packing.try_gang(1)
    return packing


def test_gangs_of_a_lower_tier_give_way():
    packing = full(tier=0)
    assert eject_for(packing, 2) in ([0], [1], [0, 1], [1, 0])
    assert packing.taken.tolist() == [False, False, True]


def test_gangs_of_the_same_tier_stay_where_they_are():
    packing = full(tier=1)
    before = [row.tolist() for row in packing.room.free]
    assert eject_for(packing, 2) is None
    assert packing.taken.tolist() == [True, True, False]
    assert [row.tolist() for row in packing.room.free] == before


def test_when_even_all_of_them_are_not_enough_everybody_is_back():
    gangs = [{"pods": 4, "demand": [1], "tier": 1}, {"pods": 9, "demand": [1], "tier": 0}]
    packing = Packing(problem_of([[4], [4]], gangs))
    packing.try_gang(0)
    assert eject_for(packing, 1) is None
    assert packing.taken.tolist() == [True, False]


def test_those_give_way_that_cost_least_and_hold_enough_together():
    costs = [5.0, 1.0, 1.0]
    gangs = [{"pods": 4, "demand": [1], "tier": 1, "weight": cost} for cost in costs]
    packing = Packing(problem_of([[4], [4], [4]], [*gangs, {"pods": 2, "demand": [4], "tier": 0}]))
    for gang in range(3):
        packing.try_gang(gang)
    assert eject_for(packing, 3) in ([1, 2], [2, 1])


def test_nobody_gives_way_who_is_not_needed_beside_the_others():
    gangs = [
        {"pods": 1, "demand": [1], "tier": 1, "weight": 0.1},
        {"pods": 4, "demand": [1], "tier": 1, "weight": 1.0},
    ]
    packing = Packing(problem_of([[1], [4]], [*gangs, {"pods": 1, "demand": [4], "tier": 0}]))
    for gang in range(2):
        packing.try_gang(gang)
    assert eject_for(packing, 2) == [1]
