"""A larger budget runs the steps of a smaller one and then more, so that it never gives a worse solution."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.ports.external import NoTelemetry
from batchsched.solver import small_session
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.improvement import search
from batchsched.solver.objective import compare_objectives_by_tier, compare_solutions
from batchsched.solver.planned_gangs import place_planned_gangs
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.small_session import solve_small_session
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from bench.solver.instances import generate, partitioned
from bench.solver.problems import to_problem
from bench.solver.small import small
from tests.solver.instances import problems


@given(problem=problems(), budgets=st.sampled_from([(0.25, 2.0), (0.5, 1.0), (1.0, 3.0)]))
def test_random_sessions_end_no_worse_with_a_larger_budget(problem: Problem, budgets: tuple[float, float]):
    for exact_variables in (0, 2500):
        fewer, more = (
            solve_problem(problem, SolverBudget(units, exact_variables=exact_variables)) for units in budgets
        )
        assert compare_solutions(more, fewer) >= 0


@pytest.mark.parametrize("seed", range(3))
def test_contended_sessions_end_no_worse_with_a_larger_budget(seed: int, monkeypatch: pytest.MonkeyPatch):
    # Budgets are a hundredth of the real ones, so that they run out in a small session.
    monkeypatch.setattr(search, "MAX_ROUNDS_EFFORT", 0.01)
    monkeypatch.setattr(search, "SHORT_BUDGET", 0.02)
    problem = to_problem(partitioned(64, 16, seed) if seed else generate(64, 20, 5, tiers=1, noisy=True))
    answers = [
        solve_problem(problem, SolverBudget(units, exact_variables=0, gap=0.0))
        for units in (0.01, 0.02, 0.04, 0.2, 0.5)
    ]
    for fewer, more in pairwise(answers):
        assert compare_solutions(more, fewer) >= 0
        assert (more.bound >= more.objective).all()


@pytest.mark.parametrize("seed", [7, 11])
def test_small_sessions_end_no_worse_with_a_larger_budget(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(small_session, "FIRST_STEP_EFFORT", 0.002)
    problem = to_problem(small(seed))
    answers = [solve_problem(problem, SolverBudget(units)) for units in (0.002, 0.004, 0.01, 0.04)]
    assert {answer.stage for answer in answers} == {"exact"}
    for fewer, more in pairwise(answers):
        assert compare_solutions(more, fewer) >= 0
        assert find_solution_faults(problem, more) == ()
        # Bounds hold for what a solution places in the tiers above: those of the first tier can be compared.
        assert more.bound[0] <= fewer.bound[0] + 1e-9


def as_ceiling(solution: Solution, objective: list[float], bound: list[float]) -> Solution:
    return replace(solution, objective=np.array(objective), bound=np.array(bound))


def test_bounds_of_another_solution_limit_only_tiers_below_equal_tiers():
    problem = to_problem(small(9))
    optimum = solve_exact(problem, SolverBudget(), 0)
    most = optimum.objective.tolist()
    proved = as_ceiling(optimum, most, most)
    # From the optimum with its bounds, nothing is left to search but the packing.
    again = solve_exact(problem, SolverBudget(), 0, optimum, proved)
    assert again.bound.tolist() == pytest.approx(most)
    # Another value of the first tier says nothing about the tiers below, which have no room under these bounds.
    other = as_ceiling(optimum, [most[0] / 2, *most[1:]], [most[0], *([0.0] * (len(most) - 1))])
    assert (
        compare_objectives_by_tier(
            solve_exact(problem, SolverBudget(), 0, None, other).objective, optimum.objective
        )
        == 0
    )


def test_small_session_is_no_worse_than_its_floor_and_takes_the_tiered_model_if_the_proof_is_hard(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(small_session, "FIRST_STEP_EFFORT", 1e-4)
    problem = to_problem(small(7))
    floor = solve_greedy(problem)
    answer = solve_small_session(problem, SolverBudget(2e-4), 0, floor, NoTelemetry())
    assert compare_solutions(answer, floor) > 0
    assert answer.stage == "exact"


def test_gangs_of_a_plan_are_placed_without_a_choice_among_gangs():
    problem = to_problem(small(15))
    optimum = solve_problem(problem, SolverBudget(exact_variables=0))
    spending = CpSatBudget(1.0, 30.0, 0)
    placed = place_planned_gangs(problem, optimum.taken, spending)
    assert placed is not None
    assert find_solution_faults(problem, placed) == ()
    assert (placed.taken | ~optimum.taken).all()
    # A plan of all gangs does not fit, and says nothing.
    assert place_planned_gangs(problem, problem.gangs.allowed, spending) is None


def test_rounding_of_a_plan_does_not_cost_a_tier_what_nodes_hold():
    problem = to_problem(small(15))
    tiered, exact = (
        solve_problem(problem, SolverBudget(exact_variables=variables)) for variables in (0, 2500)
    )
    assert compare_objectives_by_tier(tiered.objective, exact.objective) == 0
