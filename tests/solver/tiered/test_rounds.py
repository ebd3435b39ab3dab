"""Rounds: no answer behind the floors, bounds kept, and few domains of preferred levels."""

from dataclasses import replace

import numpy as np

from batchsched.ports.telemetry import Silence
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.objective import compare_solutions, count_placed, preferred_cost
from batchsched.solver.problem import Budget, Problem, Solution
from batchsched.solver.tiered.rounds import PlacementFloors, TieredRounds
from batchsched.solver.tiered.tier_solve import TierBudget
from batchsched.solver.verify import verify_solution
from bench.solver.instances import generate
from bench.solver.problems import to_problem
from tests.solver.instances import problem_of


def run(problem: Problem, budget: Budget) -> Solution:
    floor = solve_greedy(problem)
    placed = count_placed(problem, floor.classes, floor.counts)
    return TieredRounds(
        problem, problem, TierBudget(budget, 0), PlacementFloors(floor, (placed,)), Silence()
    ).run()


def test_even_a_budget_of_nothing_falls_behind_no_floor_and_reports_bounds():
    problem = to_problem(generate(200, 30, 0))
    solution = run(problem, Budget(deterministic=0.0, rounds=1))
    assert compare_solutions(solution, solve_greedy(problem)) >= 0
    assert (solution.bound >= solution.objective - 1e-12).all()
    assert verify_solution(problem, solution) == ()


def test_more_rounds_are_never_worse():
    problem = to_problem(generate(200, 30, 2))
    one, three = (run(problem, Budget(rounds=rounds)) for rounds in (1, 3))
    assert compare_solutions(three, one) >= 0


def test_preferred_levels_are_kept_when_that_costs_no_pod():
    gangs = [{"pods": 4, "demand": [1], "preferred": 0}, {"pods": 9, "demand": [1]}]
    problem = problem_of([[2], [2], [2], [2]], gangs, levels=[[0, 1, 0, 1]])
    solution = run(replace(problem, gangs=replace(problem.gangs, allowed=np.array([True, False]))), Budget())
    assert solution.taken[0]
    assert preferred_cost(problem, solution) == 0.0
