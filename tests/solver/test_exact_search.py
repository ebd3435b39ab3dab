"""The search of small sessions: legal, never worse, with valid bounds, and better than the exact model alone."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given

from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.improvement.exact_search import ExactSearch
from batchsched.solver.objective import compare_solutions, objective_upper_bounds_by_tier
from batchsched.solver.problem import Problem, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from bench.solver.problems import to_problem
from bench.solver.small import small
from tests.solver.brute import brute
from tests.solver.instances import problems


@pytest.mark.properties
@given(problems())
def test_search_is_legal_and_never_worse_and_keeps_only_bounds_that_hold(problem: Problem):
    problem = replace(problem, rows=(), cuts=())
    first, best = solve_greedy(problem), brute(problem)
    first = replace(first, bound=objective_upper_bounds_by_tier(problem))
    searched = ExactSearch(problem, SolverBudget(), 0).improve_solution(first, 0.05)
    assert find_solution_faults(problem, searched) == ()
    assert compare_solutions(searched, first) >= 0
    for tier, optimum in enumerate(best.tiers):
        assert searched.bound[tier] >= searched.objective[tier] - 1e-9
        assert searched.bound[tier] >= optimum - 1e-9
        if abs(searched.objective[tier] - optimum) > 1e-9:
            break


def test_more_units_of_the_search_never_give_a_worse_solution():
    problem = to_problem(small(40))
    first = solve_greedy(problem)
    answers = [
        ExactSearch(problem, SolverBudget(), 0).improve_solution(first, units) for units in (0.01, 0.1, 0.3)
    ]
    for fewer, more in pairwise([first, *answers]):
        assert compare_solutions(more, fewer) >= 0
    assert compare_solutions(answers[-1], first) > 0


def test_small_session_ends_within_half_a_percent_where_the_exact_model_alone_does_not():
    problem = to_problem(small(29))
    # The wall clock decides nothing on a busy machine.
    budget = SolverBudget(guard_seconds=1e6)
    alone = solve_exact(problem, budget, 0, solve_greedy(problem))
    session = solve_problem(problem, budget)
    assert alone.gap > 0.005 >= session.gap
    assert session.effort <= budget.deterministic
