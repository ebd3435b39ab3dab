"""The improvement: never worse, no worse with more units, the same in every process, and bounded in size."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchsched.ports.external import NoTelemetry
from batchsched.solver import stage
from batchsched.solver.cpsat import estimate_solve_work
from batchsched.solver.greedy import solve_greedy, solve_like_other_batch_schedulers
from batchsched.solver.improvement import neighbourhood, search
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood, NeighbourhoodChooser
from batchsched.solver.improvement.search import (
    MAX_ROUNDS_EFFORT,
    SEARCH_SHARE,
    SHORT_BUDGET,
    STEP_EFFORT,
    improve_solution,
    split_budget_for_rounds_and_improvement,
)
from batchsched.solver.improvement.step import SearchStep, StepResult
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.objective import compare_solutions
from batchsched.solver.problem import Problem, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from bench.solver.instances import generate, partitioned
from bench.solver.problems import to_problem
from tests.hash_seeds import outputs_by_hash_seed


def contended(seed: int) -> Problem:
    return to_problem(generate(64, 16, seed, noisy=True))


@pytest.mark.parametrize("tiers", [1, 4])
def test_an_improved_solution_is_legal_and_never_worse_by_tier(tiers: int):
    gains = []
    for seed in range(1, 4):
        problem = to_problem(generate(128, 40, seed, tiers=tiers, noisy=True))
        greedy = solve_greedy(problem)
        improved = improve_solution(problem, greedy, 0.5, SolverBudget(), 0)
        assert find_solution_faults(problem, improved) == ()
        gains.append(compare_solutions(improved, greedy))
    assert min(gains) >= 0
    assert max(gains) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_more_units_never_give_a_worse_solution(seed: int):
    problem = to_problem(partitioned(64, 16, seed))
    first = solve_like_other_batch_schedulers(problem)
    answers = [improve_solution(problem, first, units, SolverBudget(), 0) for units in (0.01, 0.2, 0.4, 0.8)]
    for fewer, more in zip([first, *answers], answers, strict=False):
        assert compare_solutions(more, fewer) >= 0


def test_the_improvement_does_not_depend_on_the_hash_seed():
    script = (
        "from tests.solver.test_improvement import contended;"
        "from batchsched.solver.greedy import solve_greedy;"
        "from batchsched.solver.improvement.search import improve_solution;"
        "from batchsched.solver.problem import SolverBudget;"
        "problem = contended(1);"
        "answer = improve_solution(problem, solve_greedy(problem), 0.5, SolverBudget(), 3);"
        "print(answer.classes.tolist(), answer.nodes.tolist(), answer.counts.tolist(), answer.effort)"
    )
    assert len(set(outputs_by_hash_seed(script))) == 1


def test_gangs_outside_of_a_neighbourhood_keep_their_nodes():
    problem = contended(2)
    solution = solve_greedy(problem)
    step = NeighbourhoodChooser(problem, 0).choose_neighbourhood(0, 5, solution, takes_all_gangs=False)
    part = NeighbourhoodProblem(problem, solution, step)
    improved = part.to_solution_of_whole_problem(
        solution, part.solve(SolverBudget(deterministic=STEP_EFFORT), 0, NoTelemetry())
    )
    kept = ~np.isin(problem.classes.gang, step.gangs)
    assert kept[solution.classes].any()
    for column in ("classes", "nodes", "counts"):
        before, after = (getattr(one, column)[kept[one.classes]] for one in (solution, improved))
        assert before.tolist() == after.tolist()


def test_the_incumbent_of_a_neighbourhood_is_legal_there():
    problem = contended(0)
    solution = solve_greedy(problem)
    selection = NeighbourhoodChooser(problem, 0)
    for number in range(8):
        part = NeighbourhoodProblem(
            problem,
            solution,
            selection.choose_neighbourhood(number % 4, number, solution, takes_all_gangs=number < 4),
        )
        assert find_solution_faults(part.problem, part.incumbent) == ()
        assert compare_solutions(part.to_solution_of_whole_problem(solution, part.incumbent), solution) == 0


def test_a_step_for_a_tier_takes_all_gangs_from_this_tier_down_or_a_part_with_the_refused_gangs():
    problem = contended(0)
    solution, selection = solve_greedy(problem), NeighbourhoodChooser(problem, 0)
    for tier in (1, 2, 3):
        below = np.flatnonzero(problem.gangs.allowed & (problem.gangs.tier >= tier)).tolist()
        step = selection.choose_neighbourhood(tier, 0, solution, takes_all_gangs=True)
        assert step.complete
        assert step.gangs.tolist() == below
        part = selection.choose_neighbourhood(tier, 9, solution, takes_all_gangs=False).gangs.tolist()
        assert set(part) <= set(below)
        assert {gang for gang in below if not solution.taken[gang]} <= set(part)


def test_every_tier_has_a_turn_before_a_tier_has_its_second_one(monkeypatch: pytest.MonkeyPatch):
    turns = []
    choose = NeighbourhoodChooser.choose_neighbourhood

    def record(self: NeighbourhoodChooser, tier: int, *rest: Any, **names: Any) -> GangNeighbourhood:
        turns.append(tier)
        return choose(self, tier, *rest, **names)

    monkeypatch.setattr(NeighbourhoodChooser, "choose_neighbourhood", record)
    monkeypatch.setattr(NeighbourhoodProblem, "solve", lambda part, *_: part.incumbent)
    problem = contended(0)
    improve_solution(problem, solve_greedy(problem), 1.0, SolverBudget(), 0)
    assert turns == [3, 2, 1, 0, 3, 2, 1, 0]


def test_a_neighbourhood_of_a_large_cluster_has_few_pod_classes(monkeypatch: pytest.MonkeyPatch):
    problem = contended(0)
    monkeypatch.setattr(neighbourhood, "MAX_PAIRS", 64 * 10)
    solution, selection = solve_greedy(problem), NeighbourhoodChooser(problem, 0)
    for number in range(8):
        part = NeighbourhoodProblem(
            problem,
            solution,
            selection.choose_neighbourhood(number % 4, number, solution, takes_all_gangs=number < 4),
        )
        assert 0 < part.class_node_pair_count <= 64 * 10


def test_a_solution_within_the_accepted_gap_is_not_searched():
    problem = contended(0)
    greedy = solve_greedy(problem)
    assert (
        improve_solution(problem, replace(greedy, bound=greedy.objective), 9.0, SolverBudget(), 0).effort
        == 0.0
    )


def test_the_rounds_have_the_budget_up_to_a_limit_and_the_search_a_small_share_beside_it():
    for units, of_rounds, of_search in (
        (1.0, 1.0, SEARCH_SHARE),
        (16.0, MAX_ROUNDS_EFFORT, SEARCH_SHARE * SHORT_BUDGET + 16.0 - SHORT_BUDGET),
    ):
        rounds, search = split_budget_for_rounds_and_improvement(SolverBudget(deterministic=units))
        assert rounds == SolverBudget(deterministic=of_rounds)
        assert search == pytest.approx(of_search)


def test_a_larger_model_costs_more_units():
    assert estimate_solve_work(0.1, 2_000, 10_000) > estimate_solve_work(0.1, 1_000, 10_000) > 0.1


def test_a_session_that_the_rounds_leave_open_ends_no_worse(monkeypatch: pytest.MonkeyPatch):
    problem = to_problem(partitioned(128, 24, 1))
    improved = solve_problem(problem, SolverBudget(exact_variables=0))
    monkeypatch.setattr(stage, "improve_solution", lambda problem, solution, *_: solution)
    rounds = solve_problem(problem, SolverBudget(exact_variables=0))
    assert compare_solutions(improved, rounds) >= 0
    assert (improved.bound >= improved.objective).all()
    assert find_solution_faults(problem, improved) == ()


class StepsEndedByGuard:
    """Solves each step without a gain; the wall-clock guard ends the first step only."""

    def __init__(self) -> None:
        self.steps = 0

    def solve(self, step: SearchStep, coming: Iterator[SearchStep]) -> StepResult:
        self.steps += 1
        return StepResult(None, 1.0, self.steps == 1, 0.0, 0, 0)

    def discard_results_of_steps_ahead(self) -> None:
        pass


def test_a_step_that_the_guard_ended_is_the_last_one_and_is_stated_in_the_solution(
    monkeypatch: pytest.MonkeyPatch,
):
    problem, steps = contended(0), StepsEndedByGuard()
    monkeypatch.setattr(search, "SequentialStepSolver", lambda _: steps)
    solution = improve_solution(problem, solve_greedy(problem), 2.0, SolverBudget(), 0)
    assert (steps.steps, solution.guard) == (1, True)
