"""Refused gangs of several pod classes are placed exactly where the aggregated model and the greedy fail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchsched.solver import completion
from batchsched.solver.completion import place_gangs_that_greedy_missed
from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import EVERY_NODE, ConstraintRow, Problem, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import problem_of, problems, random_problem

AGGREGATED = SolverBudget(exact_variables=0)


@pytest.mark.properties
@example(seed=2318, nodes=4)
@example(seed=3131, nodes=4)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(1, 5))
def test_a_gang_that_is_alone_is_placed_exactly_if_it_fits(seed: int, nodes: int):
    """In the explicit examples, the order in which pods are placed decides."""
    problem = random_problem(seed, nodes, 1, extras=False)
    best = solve_exact(problem, SolverBudget(deterministic=20.0), 0)
    assert solve_problem(problem, AGGREGATED).taken.tolist() == best.taken.tolist()


@pytest.mark.properties
@given(problems())
def test_gangs_that_are_added_leave_the_solution_legal_and_its_bounds_valid(problem: Problem):
    floor = solve_greedy(problem)
    if find_solution_faults(problem, floor):
        return  # the greedy repeats a placement that was cut
    added = place_gangs_that_greedy_missed(problem, floor, seed=0)
    assert find_solution_faults(problem, added) == ()
    assert (added.taken >= floor.taken).all()
    assert (added.objective >= floor.objective).all()
    assert (added.bound >= added.objective).all()


def test_no_gang_is_added_next_to_pods_from_which_a_row_keeps_it_apart():
    gangs = [{"pods": 2, "demand": [1]}] * 3
    sides = np.array([False, True, True])
    row = ConstraintRow(
        EVERY_NODE, np.arange(3, dtype=np.int32), np.ones(3, np.int64), np.full(1, 9), on_second_side=sides
    )
    of_two: dict[str, Any] = {
        "gang": np.array([0, 1, 1], np.int32),
        "need": np.array([2, 4], np.int32),
        "tier": np.zeros(2, np.int32),
        "rank": np.arange(2, dtype=np.int32),
        **dict.fromkeys(("required", "preferred", "pinned"), np.full(2, -1, np.int32)),
        **dict.fromkeys(("fresh", "allowed"), np.ones(2, np.bool_)),
    }
    problem = problem_of([[8]], gangs, rows=(row,), **of_two)
    floor = solve_greedy(problem)
    assert floor.taken.tolist() == [True, False]
    assert place_gangs_that_greedy_missed(problem, floor, seed=0).taken.tolist() == [True, False]


def test_a_guard_that_ends_the_exact_search_of_a_gang_is_stated_in_the_solution(
    monkeypatch: pytest.MonkeyPatch,
):
    problem = random_problem(2318, 4, 1, extras=False)
    ended = replace(solve_exact(problem, SolverBudget(deterministic=20.0), 0), guard=True)
    monkeypatch.setattr(completion, "solve_exact", lambda *_: ended)
    floor = solve_greedy(problem)
    assert not floor.guard
    assert place_gangs_that_greedy_missed(problem, floor, seed=0).guard
