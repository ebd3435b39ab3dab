"""Gangs that compete for the domains of a required level: the rows hold for every placement."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem
from batchsched.solver.tiered.domain_rows import DomainRowBuilder, RivalGangsRow
from batchsched.solver.tiered.model import CandidateDomainSearch, TieredModel
from batchsched.solver.tiered.node_pools import SlotCounter, build_pools
from batchsched.solver.tiered.tier_solver import TierSolver
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems


def rows_of(problem: Problem) -> list[RivalGangsRow]:
    packing = Packing(problem)
    supply = SlotCounter(packing)
    return list(
        DomainRowBuilder(
            packing, supply, CandidateDomainSearch(packing, supply, None).containments
        ).rival_rows()
    )


def most_gangs(
    free: list[list[int]], gangs: list[dict[str, Any]], levels: list[list[int]], **more: Any
) -> int:
    """The number of gangs that the model for bounds takes at most."""
    packing = Packing(problem_of(free, gangs, levels=levels, **more))
    model = TieredModel(packing, build_pools(packing), None, relaxed=True)
    peak = TierSolver(model, CpSatBudget(2.0, 30.0, 0)).maximise_tiers(
        np.zeros(model.variable_count, np.int64), []
    )
    assert peak is not None
    return int(peak.values[model.y].sum())


def bound_gang(pods: int, size: int = 1, level: int = 0) -> dict[str, Any]:
    return {"pods": pods, "demand": [size], "required": level}


RACKS_OF_FOUR = [[4], [4], [4]]


def test_three_racks_hold_three_gangs_that_each_need_more_than_half_of_one():
    assert most_gangs(RACKS_OF_FOUR, [bound_gang(3)] * 4, [[0, 1, 2]]) == 3


def test_two_halves_of_a_rack_hold_two_gangs():
    assert most_gangs(RACKS_OF_FOUR, [bound_gang(2)] * 7, [[0, 1, 2]]) == 6


def test_gangs_that_fit_only_into_the_largest_rack_share_it():
    assert most_gangs([[9], [4], [4]], [bound_gang(1, 5)] * 3, [[0, 1, 2]]) == 1


def test_a_gang_without_a_rack_that_holds_it_is_not_taken():
    assert most_gangs([[4], [4]], [bound_gang(5)], [[0, 1]]) == 0


def test_a_gang_of_two_classes_that_no_rack_holds_together_is_not_taken():
    classes = [bound_gang(1, 8), bound_gang(2, 7)]
    one_gang = {"gang": np.zeros(2, np.int32), "need": np.array([3, 0], np.int32)}
    mask = np.array([[True, True, False]])
    # The empty second gang counts as taken.
    assert most_gangs([[8]] * 3, classes, [[0, 0, 0]], **one_gang) == 2
    assert most_gangs([[8]] * 3, classes, [[0, 0, 0]], mask=mask, **one_gang) == 1


def test_gangs_of_racks_use_the_room_of_the_block_around_them():
    blocks, racks = [0, 0, 1, 1], [0, 1, 2, 3]
    gangs = [bound_gang(3, level=1), bound_gang(3, level=1), bound_gang(5), bound_gang(5)]
    # Each block of eight holds one gang of five, and a gang of three beside it.
    assert most_gangs([[4]] * 4, gangs, [blocks, racks]) == 4
    assert most_gangs([[4]] * 4, [*gangs, bound_gang(3, level=1)], [blocks, racks]) == 4


def test_an_elastic_gang_is_in_no_row():
    elastic = {"pods": 4, "need": 1, "demand": [1], "required": 0}
    assert rows_of(problem_of(RACKS_OF_FOUR, [elastic] * 5, levels=[[0, 1, 2]])) == []


@pytest.mark.properties
@given(problems())
def test_what_the_greedy_placed_satisfies_the_rows_of_domains(problem: Problem):
    taken = solve_greedy(problem).taken
    for row in rows_of(problem):
        assert int(row.factors @ taken[row.gangs]) <= row.right


@pytest.mark.properties
@given(problems(extras=False))
def test_the_optimum_satisfies_the_rows_of_domains(problem: Problem):
    placed = np.zeros(len(problem.gangs.need), np.int64)
    for (class_index, _), pods in brute(problem).counts.items():
        placed[problem.classes.gang[class_index]] += pods
    for row in rows_of(problem):
        assert int(row.factors @ (placed[row.gangs] > 0)) <= row.right


@pytest.mark.properties
@given(problems(extras=False))
def test_a_search_for_domains_leaves_the_bounds_of_the_model_as_they_were(problem: Problem):
    packing = Packing(problem)
    model = TieredModel(packing, build_pools(packing), solve_greedy(problem))
    solver = TierSolver(model, CpSatBudget(2.0, 30.0, 0), chooses_domains=True)
    before = [side.copy() for side in model.variable_bounds()]
    solver.maximise_tiers(model.variable_values_of_solution(solve_greedy(problem)), [])
    # The search closes and opens variables; afterwards the model is as it was.
    assert all((old == new).all() for old, new in zip(before, model.variable_bounds(), strict=True))
