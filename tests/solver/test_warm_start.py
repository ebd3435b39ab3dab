"""A solve from a start: legal, never behind the baselines, and its bounds hold for the changed problem."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from batchsched.ports.external import NoTelemetry
from batchsched.solver import stage
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedy, solve_like_other_batch_schedulers
from batchsched.solver.objective import compare_solutions, count_placed_pods
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.start import NO_PLACEMENTS, CapacityPrices, SlotPrice, WarmStart
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.prices import add_price_rows, pool_keys_across_problems
from batchsched.solver.tiered.tier_solver import TierSolver
from batchsched.solver.verify import find_solution_faults
from batchsched.solver.warm_start.packing import WarmStartPlacements
from batchsched.solver.warm_start.solve import WarmStartResult, solve_from_warm_start
from bench.solver.instances import fill_lean, fill_noisy, generate
from bench.solver.problems import to_problem
from bench.solver.warm import change_instance, start_of
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems
from tests.solver.test_stage import lexicographic
from tests.solver.tree_instances import random_tree

AGGREGATED = SolverBudget(exact_variables=0)
SEEDS = st.integers(0, 2**32 - 1)


def loose_model(problem: Problem) -> TieredModel:
    packing = Packing(problem)
    return TieredModel(packing, build_pools(packing), None, relaxed=True)


def random_start(problem: Problem, seed: int) -> WarmStart:
    """Placements that need not fit, and prices that no solve has found."""
    rng = np.random.default_rng(seed)
    size = len(problem.classes.count), len(problem.nodes.free)
    classes, nodes = np.nonzero(rng.random(size) < 0.4)
    counts = rng.integers(1, 4, len(classes))
    gap = float(rng.choice([0.0, 1.0]))
    return replace(planned(classes, nodes, counts), gap=gap, prices=random_prices(problem, rng))


def planned(classes: ArrayLike, nodes: ArrayLike, counts: ArrayLike) -> WarmStart:
    return WarmStart(np.asarray(classes, np.int32), np.asarray(nodes, np.int32), np.asarray(counts, np.int32))


def random_prices(problem: Problem, rng: np.random.Generator) -> tuple[CapacityPrices, ...]:
    """Prices of random slots, mostly on all pools: a row without prices on some pool limits few classes."""
    keys = pool_keys_across_problems(loose_model(problem))

    def prices() -> CapacityPrices:
        slots = []
        for _ in range(rng.integers(1, 3)):
            several = rng.integers(1, 3)
            requests = tuple((int(rng.integers(0, 3)), int(rng.integers(1, 5))) for _ in range(several))
            priced = [key for key in keys if rng.random() < 0.9]
            slots += [SlotPrice(*key, requests, float(rng.choice([1.0, 1.0, 0.5]))) for key in priced]
        return CapacityPrices(tuple(slots))

    return tuple(prices() for _ in range(rng.integers(0, 5)))


def assert_bounds_hold(solution: Solution, optimum: tuple[float, ...]) -> None:
    for tier, best in enumerate(optimum):
        if lexicographic(solution.objective[:tier], optimum[:tier]) == 0:
            assert solution.bound[tier] >= best - 1e-9
    assert (solution.bound >= solution.objective - 1e-9).all()


@pytest.mark.properties
@given(problems(), SEEDS)
def test_a_solve_from_any_start_is_legal_and_its_bounds_hold(problem: Problem, seed: int):
    problem = replace(problem, cuts=())
    solution = solve_from_warm_start(
        problem, random_start(problem, seed), AGGREGATED, 0, NoTelemetry()
    ).solution
    assert find_solution_faults(problem, solution) == ()
    assert_bounds_hold(solution, brute(problem).tiers)


@pytest.mark.properties
@given(problems(), SEEDS)
def test_a_session_with_any_start_is_no_worse_than_its_baselines(problem: Problem, seed: int):
    problem = replace(problem, cuts=())
    start = random_start(problem, seed)
    solution = solve_problem(problem, AGGREGATED, start=start)
    placements = WarmStartPlacements(problem, start)
    kept = placements.place_plan_on_start_nodes(placements.pods, moving=False).to_solution("greedy")
    assert find_solution_faults(problem, solution) == ()
    assert_bounds_hold(solution, brute(problem).tiers)
    for baseline in (kept, solve_greedy(problem), solve_like_other_batch_schedulers(problem)):
        assert compare_solutions(solution, baseline) >= 0


@pytest.mark.properties
@given(problems(extras=False), SEEDS)
def test_bounds_with_prices_of_another_problem_hold(problem: Problem, seed: int):
    model = loose_model(problem)
    add_price_rows(model, random_prices(problem, np.random.default_rng(seed)))
    best = brute(problem)
    placed = np.zeros(len(problem.classes.count), np.int64)
    for (class_index, _), pods in best.counts.items():
        placed[class_index] += pods
    tiers = TierSolver(model, CpSatBudget(2.0, 30.0, 0), divides_pods=False)
    assert (tiers.compute_bounds(placed) >= np.array(best.tiers) - 1e-9).all()


@pytest.mark.properties
@given(SEEDS, st.integers(1, 3), st.booleans())
def test_a_solve_from_any_start_with_trees_is_legal(seed: int, gangs: int, running: bool):
    problem = random_tree(seed, gangs=gangs, nodes=6, running=running)
    solution = solve_problem(problem, AGGREGATED, start=random_start(problem, seed))
    assert find_solution_faults(problem, solution) == ()


def changed_session(noisy: bool, seed: int) -> tuple[Problem, Solution, WarmStart]:
    """A session after 1 % of its pods and gangs changed, the answer before the change, and the start from it."""
    before, other = (generate(300, 40, s, noisy=noisy) for s in (seed, seed + 1000))
    after = change_instance(before, other, fill_noisy if noisy else fill_lean, 0.01, seed)
    last = solve_problem(to_problem(before), SolverBudget(), start=NO_PLACEMENTS)
    return to_problem(after), last, start_of(last, before, after)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_session_with_a_start_ends_near_the_answer_without_one(noisy: bool):
    problem, last, start = changed_session(noisy, 1)
    fresh, warm = solve_problem(problem, SolverBudget()), solve_problem(problem, SolverBudget(), start=start)
    assert find_solution_faults(problem, warm) == ()
    assert warm.gap <= 2 * last.gap + SolverBudget().gap or compare_solutions(warm, fresh) >= 0


def test_a_start_without_placements_gives_the_answer_without_a_start_and_its_prices():
    problem, last, _ = changed_session(noisy=True, seed=2)
    fresh, first = (
        solve_problem(problem, SolverBudget()),
        solve_problem(problem, SolverBudget(), start=NO_PLACEMENTS),
    )
    assert compare_solutions(first, fresh) == 0
    assert first.nodes.tolist() == fresh.nodes.tolist()
    assert last.prices
    assert first.prices
    assert fresh.prices == ()


def test_equal_starts_give_equal_answers():
    problem, _, start = changed_session(noisy=True, seed=1)
    first, second = (solve_problem(problem, SolverBudget(), start=start) for _ in range(2))
    assert first.nodes.tolist() == second.nodes.tolist()
    assert first.counts.tolist() == second.counts.tolist()
    assert first.bound.tolist() == second.bound.tolist()


def test_prices_give_the_bounds_of_the_linear_program_again():
    problem, last, start = changed_session(noisy=True, seed=2)
    assert last.prices
    placed = count_placed_pods(problem, start.classes, start.counts)
    divided = TierSolver(loose_model(problem), CpSatBudget(2.0, 30.0, 0)).compute_bounds(placed)
    model = loose_model(problem)
    add_price_rows(model, start.prices)
    priced = TierSolver(model, CpSatBudget(2.0, 30.0, 0), divides_pods=False).compute_bounds(placed)
    assert priced == pytest.approx(divided, rel=0.02)


def test_the_rounds_follow_if_the_answer_of_the_start_is_not_near(monkeypatch: pytest.MonkeyPatch):
    problem, _, start = changed_session(noisy=False, seed=1)
    useless = replace(start, classes=start.classes[:0], nodes=start.nodes[:0], counts=start.counts[:0])
    fresh = solve_problem(problem, SolverBudget())
    monkeypatch.setattr(stage, "solve_from_warm_start", _far(solve_greedy(problem)))
    assert compare_solutions(solve_problem(problem, SolverBudget(), start=useless), fresh) >= 0


def _far(solution: Solution):
    return lambda *_: WarmStartResult(solution, is_near=False)


def test_a_planned_gang_keeps_its_nodes_and_the_pods_that_no_longer_fit_move():
    problem = problem_of(
        [[8, 8], [0, 0], [8, 8]], [{"pods": 4, "demand": [2, 2]}, {"pods": 2, "demand": [2, 2]}]
    )
    start = planned([0, 0], [1, 2], [2, 2])
    placements = WarmStartPlacements(problem, start)
    kept = placements.place_plan_on_start_nodes(placements.pods, moving=False).to_solution("greedy")
    of_first = dict(
        zip(kept.nodes[kept.classes == 0].tolist(), kept.counts[kept.classes == 0].tolist(), strict=True)
    )
    assert of_first[2] >= 2
    assert kept.taken.all()


def test_a_planned_gang_with_a_required_level_stays_in_its_domain():
    problem = problem_of(
        [[4, 4], [4, 4], [4, 4], [4, 4]],
        [{"pods": 2, "demand": [2, 2], "required": 0}],
        levels=[[0, 0, 1, 1]],
    )
    start = planned([0], [2], [1])
    placements = WarmStartPlacements(problem, start)
    kept = placements.place_plan_on_start_nodes(np.array([2]), moving=False).to_solution("greedy")
    assert set(kept.nodes.tolist()) <= {2, 3}
    assert kept.taken.all()
