"""Refused gangs of several pod classes are placed exactly where the aggregated model and the greedy fail."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchsched.solver import completion
from batchsched.solver.completion import place_gangs_that_greedy_missed
from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import Problem, SolverBudget
from batchsched.solver.stage import solve
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import problems, random_problem

AGGREGATED = SolverBudget(exact_variables=0)


@pytest.mark.properties
@example(seed=2318, nodes=4)
@example(seed=3131, nodes=4)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(1, 5))
def test_a_gang_that_is_alone_is_placed_exactly_if_it_fits(seed: int, nodes: int):
    """In the explicit examples, the order in which pods are placed decides."""
    problem = random_problem(seed, nodes, 1, extras=False)
    best = solve_exact(problem, SolverBudget(deterministic=20.0), 0)
    assert solve(problem, AGGREGATED).taken.tolist() == best.taken.tolist()


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


def test_a_guard_that_ends_the_exact_search_of_a_gang_is_stated_in_the_solution(
    monkeypatch: pytest.MonkeyPatch,
):
    problem = random_problem(2318, 4, 1, extras=False)
    ended = replace(solve_exact(problem, SolverBudget(deterministic=20.0), 0), guard=True)
    monkeypatch.setattr(completion, "solve_exact", lambda *_: ended)
    floor = solve_greedy(problem)
    assert not floor.guard
    assert place_gangs_that_greedy_missed(problem, floor, seed=0).guard
