"""The whole stage: legal, never behind the greedy or the peers, bounds that hold, and the same bytes twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.ports.external import NoTelemetry
from batchsched.solver import small_session, stage
from batchsched.solver.greedy import pack_greedily, solve_greedy, solve_like_other_batch_schedulers
from batchsched.solver.objective import compare_solutions, mask_unplaceable_pod_classes
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, UNLIMITED, Cut, Problem, Solution, SolverBudget
from batchsched.solver.small_session import solve_small_session
from batchsched.solver.stage import is_greedy_known_optimal, solve_problem
from batchsched.solver.verify import find_solution_faults
from bench.solver.instances import generate, uncontended
from bench.solver.problems import to_problem
from tests.hash_seeds import outputs_by_hash_seed
from tests.solver.brute import brute
from tests.solver.instances import one_gang, problem_of, problems

AGGREGATED = SolverBudget(exact_variables=0)


def lexicographic(values: np.ndarray, optimum: tuple[float, ...]) -> int:
    """1 above, 0 equal, -1 below: the first tier that differs decides."""
    for value, best in zip(values.tolist(), optimum, strict=True):
        if abs(value - best) > 1e-9 * max(1.0, abs(best)):
            return 1 if value > best else -1
    return 0


@pytest.mark.properties
@given(problems())
def test_the_aggregated_stage_is_legal_and_its_bounds_hold(problem: Problem):
    solution = solve_problem(problem, AGGREGATED)
    assert find_solution_faults(problem, solution) == ()
    best = brute(problem)
    assert lexicographic(solution.objective, best.tiers) <= 0
    for tier, optimum in enumerate(best.tiers):
        if lexicographic(solution.objective[:tier], best.tiers[:tier]) == 0:
            assert solution.bound[tier] >= optimum - 1e-9
    assert (solution.bound >= solution.objective - 1e-9).all()


@pytest.mark.properties
@given(problems(extras=False))
def test_a_small_session_is_solved_to_the_optimum(problem: Problem):
    assert (
        lexicographic(
            solve_problem(problem, SolverBudget(deterministic=20.0)).objective, brute(problem).tiers
        )
        == 0
    )


@pytest.mark.parametrize("tiers", [1, 4])
def test_a_contended_session_is_solved_within_the_gap_and_never_behind_greedy_or_peers(tiers: int):
    gaps = []
    for seed in range(3):
        problem = to_problem(generate(300, 40, seed, tiers=tiers))
        solution = solve_problem(problem, SolverBudget())
        assert find_solution_faults(problem, solution) == ()
        assert solution.stage in ("aggregated", "quotas")
        assert compare_solutions(solution, solve_greedy(problem)) >= 0
        assert compare_solutions(solution, solve_like_other_batch_schedulers(problem)) >= 0
        gaps.append(solution.gap)
    assert np.median(gaps) <= 0.02


def test_a_session_with_room_for_all_gangs_ends_after_the_greedy():
    solution = solve_problem(to_problem(uncontended(300, 40, 0, 400)), SolverBudget())
    assert solution.stage == "greedy"
    assert solution.gap == 0.0
    assert solution.taken.all()


def test_an_ordered_session_is_only_placed():
    problem = replace(to_problem(generate(100, 20, 1)), ordered=True)
    assert solve_problem(problem, SolverBudget()).stage == "greedy"


def test_a_lower_tier_never_costs_a_higher_one():
    gangs = [{"pods": 8, "demand": [1], "tier": 1, "weight": 9.0}, {"pods": 1, "demand": [2], "tier": 0}]
    for budget in (SolverBudget(), AGGREGATED):
        assert solve_problem(problem_of([[8]], gangs), budget).taken.tolist() == [False, True]


@pytest.mark.parametrize("budget", [SolverBudget(), AGGREGATED])
def test_pods_that_fit_on_no_node_do_not_let_a_lower_tier_displace_a_higher_one(budget: SolverBudget):
    gangs = [{"pods": 1, "demand": [13007 + 11 * number]} for number in range(4)]
    gangs += [{"pods": 1, "demand": [24000], "tier": 1}] * 4
    # The requests of a typing error: 64Gi CPUs.
    gangs += [{"pods": 2000, "demand": [64 * 2**30 * 1000], "need": need} for need in (2000, 0)]
    problem = problem_of([[25000]] * 4, gangs)
    assert solve_problem(problem, budget).taken[:8].tolist() == [True] * 4 + [False] * 4


def test_a_small_session_keeps_the_greedy_solution_if_the_exact_model_answers_with_a_worse_one(
    monkeypatch: pytest.MonkeyPatch,
):
    problem = problem_of([[2], [2]], [{"pods": 1, "demand": [2], "weight": 0.1 * n} for n in (1, 2, 3)])
    floor, nothing = solve_greedy(problem), np.zeros(0, np.int32)

    def place_nothing(problem: Problem, *_: object) -> Solution:
        refused = np.zeros(len(problem.gangs.need), np.bool_)
        return Solution(nothing, nothing, nothing, refused, np.zeros(1), floor.bound)

    monkeypatch.setattr(small_session, "solve_exact", place_nothing)
    solution = solve_small_session(problem, SolverBudget(deterministic=0.25), 0, floor, NoTelemetry())
    assert solution.taken.tolist() == floor.taken.tolist()
    assert find_solution_faults(problem, solution) == ()


def without_lower_tiers(problem: Problem, solution: Solution, tier: int) -> Packing:
    """The placements of the gangs of a tier and of those above."""
    packing, gangs, subgroups = Packing(problem), problem.gangs, problem.subgroups
    for gang in np.flatnonzero(
        solution.taken & (gangs.tier <= tier) & (np.array(packing.needs) > 0)
    ).tolist():
        packing.room.count_gang_as_placed(gang)
        packing.taken[gang] = True
    for index, number, count in zip(solution.classes, solution.nodes, solution.counts, strict=True):
        gang, part = int(problem.classes.gang[index]), int(problem.classes.subgroup[index])
        if gangs.tier[gang] > tier:
            continue
        packing.room.change_placed_pods_unchecked(int(index), np.array([number]), np.array([count], np.int64))
        if gangs.required[gang] != NONE:
            packing.domain_of[gang] = int(problem.nodes.levels[gangs.required[gang], number])
        if part != NONE and subgroups.required[part] != NONE:
            level = subgroups.required[part]
            packing.domain_of_subgroup[part] = int(problem.nodes.levels[level, number])
    return packing


@pytest.mark.properties
@given(problems())
def test_no_elastic_pod_waits_for_room_that_a_lower_tier_uses(problem: Problem):
    solution = solve_problem(problem, AGGREGATED)
    for gang in np.flatnonzero(solution.taken).tolist():
        packing = without_lower_tiers(problem, solution, int(problem.gangs.tier[gang]))
        assert packing.place_elastic_pods(gang) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 5, 7, 11])
def test_elastic_pods_of_a_contended_session_do_not_wait_for_room_that_a_lower_tier_uses(seed: int):
    problem = to_problem(generate(300, 40, seed))
    gangs = problem.gangs
    need = np.where(gangs.rank % 5 < 3, np.maximum(1, gangs.need * 6 // 10), gangs.need).astype(np.int32)
    problem = replace(
        problem,
        gangs=replace(gangs, need=need, required=np.where(gangs.rank % 2, 1, 2).astype(np.int32)),
        quotas=replace(problem.quotas, free=np.full_like(problem.quotas.free, UNLIMITED)),
    )
    solution = solve_problem(problem, SolverBudget())
    for gang in np.flatnonzero(solution.taken).tolist():
        packing = without_lower_tiers(problem, solution, int(gangs.tier[gang]))
        assert packing.place_elastic_pods(gang) == 0


def test_among_equal_objectives_more_gangs_win():
    gangs = [{"pods": 4, "demand": [1]}, {"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]
    for budget in (SolverBudget(), AGGREGATED):
        assert solve_problem(problem_of([[4]], gangs), budget).taken.tolist() == [False, True, True]


def test_a_placement_that_was_cut_does_not_come_again():
    problem = problem_of([[4], [4]], [{"pods": 2, "demand": [1]}, {"pods": 9, "demand": [1]}])
    for budget in (SolverBudget(), AGGREGATED):
        first = solve_problem(problem, budget)
        mine = first.classes == 0
        cut = Cut(0, first.classes[mine], first.nodes[mine], first.counts[mine])
        again = replace(problem, cuts=(cut,))
        second = solve_problem(again, budget)
        assert second.taken[0]
        assert find_solution_faults(again, second) == ()


def test_a_gang_that_is_cut_twice_is_given_up_by_the_aggregated_model():
    one = np.zeros(1, np.int32)
    cuts = (Cut(0, one, one, one + 2), Cut(0, one, one + 1, one + 2))
    problem = problem_of([[4], [4], [4]], [{"pods": 2, "demand": [1]}], cuts=cuts)
    assert not solve_problem(problem, AGGREGATED).taken.any()


@pytest.mark.discards_solutions
def test_an_answer_with_faults_is_logged_and_replaced_by_the_greedy(monkeypatch, caplog):
    problem = problem_of([[4]], [{"pods": 3, "demand": [1]}, {"pods": 4, "demand": [1]}])
    answers = iter([("a planted fault",), ()])
    monkeypatch.setattr(stage, "find_solution_faults", lambda *_: next(answers))
    solution = solve_problem(problem, SolverBudget())
    assert compare_solutions(solution, solve_greedy(problem)) == 0
    assert "a planted fault" in caplog.text


@pytest.mark.discards_solutions
def test_nothing_is_placed_if_the_greedy_solution_has_faults_too(monkeypatch, caplog):
    problem = problem_of([[4]], [{"pods": 3, "demand": [1]}, {"pods": 2, "demand": [1], "need": 0}])
    answers = iter([("a planted fault",), ("a fault of the greedy",)])
    monkeypatch.setattr(stage, "find_solution_faults", lambda *_: next(answers))
    solution = solve_problem(problem, SolverBudget())
    assert solution.classes.tolist() == []
    assert solution.taken.tolist() == [False, True]
    assert find_solution_faults(problem, solution) == ()
    assert "a fault of the greedy" in caplog.text


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("budget", [SolverBudget(), AGGREGATED])
def test_a_quota_holds_although_the_requests_of_a_gang_exceed_64_bits_together(
    budget: SolverBudget, ordered: bool
):
    pods = [{"pods": 20, "demand": [1]}, {"pods": 2**13, "demand": [2**50]}]
    quota: dict[str, Any] = {"quota_covers": np.ones((1, 1), np.bool_), "quota_gangs": np.full(1, UNLIMITED)}
    problem = problem_of([[64]], pods, quota_free=np.full((1, 1), 4), **quota, **one_gang(1, 2))
    solution = solve_problem(replace(problem, ordered=ordered), budget)
    assert find_solution_faults(problem, solution) == ()
    assert solution.counts.tolist() == [4]


def test_requests_larger_than_any_node_do_not_change_how_other_pods_are_packed():
    free = [[64_000, 2**38, 8], [64_000, 2**38, 8], [9_000, 2**38, 3]]
    gangs = [{"pods": pods, "demand": [1000 * gpus, 2**30, gpus]} for pods, gpus in ((2, 1), (3, 4), (1, 8))]
    gangs += [{"pods": 3, "demand": [20_000, 2**30, 0]}]
    # Typing errors: as many GPUs as another pod has bytes, and pods that request 2^63 bytes together.
    mistaken = [{"pods": 1, "demand": [1, 0, 2**26]}, {"pods": 2**13, "demand": [1, 2**50, 1]}]
    for budget in (SolverBudget(), AGGREGATED):
        alone = solve_problem(problem_of(free, gangs), budget)
        together = solve_problem(problem_of(free, gangs + mistaken), budget)
        assert together.taken.tolist() == [*alone.taken.tolist(), False, False]
        assert together.nodes.tolist() == alone.nodes.tolist()
        assert together.bound.tolist() == alone.bound.tolist()


@pytest.mark.parametrize("budget", [SolverBudget(), AGGREGATED])
def test_elastic_pod_that_is_larger_than_any_node_does_not_discard_the_solution(budget: SolverBudget):
    columns = one_gang(1, 3) | {"gang": np.array([0, 1, 1], np.int32), "rank": np.arange(2, dtype=np.int32)}
    columns |= {name: columns[name].repeat(2) for name in ("need", "tier", "required", "preferred", "pinned")}
    columns |= {name: columns[name].repeat(2) for name in ("fresh", "allowed")}
    pods = [{"pods": 1, "demand": [2]}, {"pods": 1, "demand": [2**40]}, {"pods": 1, "demand": [2]}]
    problem = problem_of([[3], [3]], pods, **columns)
    solution = solve_problem(problem, budget)
    assert find_solution_faults(problem, solution) == ()
    assert solution.taken.tolist() == [True, True]
    assert solution.classes.tolist() == [0, 2]


def signature(solution: Solution) -> str:
    arrays = (
        solution.classes,
        solution.nodes,
        solution.counts,
        solution.taken,
        solution.objective,
        solution.bound,
    )
    return "|".join(array.tobytes().hex() for array in arrays)


def test_the_same_session_gives_the_same_bytes_in_another_process_with_another_hash_seed():
    code = (
        "from bench.solver.instances import generate; from bench.solver.problems import to_problem;"
        "from batchsched.solver.stage import solve_problem; from batchsched.solver.problem import SolverBudget;"
        "from tests.solver.test_stage import signature;"
        "print(signature(solve_problem(to_problem(generate(200, 30, 3)), SolverBudget())))"
    )
    here = signature(solve_problem(to_problem(generate(200, 30, 3)), SolverBudget()))
    assert set(outputs_by_hash_seed(code)) == {here}


@pytest.mark.parametrize("budget", [SolverBudget(), AGGREGATED])
def test_a_gang_that_fits_on_no_node_does_not_raise_the_bound(budget: SolverBudget):
    gangs = [{"pods": 1, "demand": [1]} for _ in range(6)] + [{"pods": 1, "demand": [100], "weight": 50.0}]
    solution = solve_problem(problem_of([[4], [4]], gangs), budget)
    assert solution.taken.tolist() == [True] * 6 + [False]
    assert solution.bound.tolist() == solution.objective.tolist() == [6.0]


def test_a_pod_that_fits_nowhere_causes_no_discarded_solution():
    gangs = [{"pods": 1, "demand": [1]} for _ in range(20)] + [{"pods": 1, "demand": [100]}]
    solution = solve_problem(problem_of([[8]] * 200, gangs), SolverBudget())
    assert solution.taken.tolist() == [True] * 20 + [False]


@pytest.mark.properties
@given(st.integers(0, 2**32 - 1))
def test_a_solution_with_gangs_and_equal_single_pods_is_not_discarded(seed: int):
    rng = np.random.default_rng(seed)
    gangs = [{"pods": pods, "demand": [3]} for pods in rng.integers(2, 8, 8).tolist()]
    gangs += [{"pods": 1, "demand": [1]} for _ in range(8)]
    problem = problem_of([[4]] * 12, [gangs[number] for number in rng.permutation(len(gangs))])
    solution = solve_problem(problem, AGGREGATED)
    assert find_solution_faults(problem, solution) == ()
    assert compare_solutions(solution, solve_greedy(problem)) >= 0


def test_resources_that_no_node_offers_are_left_out_of_the_models(monkeypatch: pytest.MonkeyPatch):
    seen: list[Problem] = []

    def pack(problem: Problem) -> Packing:
        seen.append(problem)
        return pack_greedily(problem)

    monkeypatch.setattr(stage, "pack_greedily", pack)
    free = [[4] + [0] * 50 for _ in range(3)]
    gangs = [{"pods": 2, "demand": [1] + [0] * 50}] + [
        {"pods": 2, "need": need, "demand": [1] + [int(at == number) for at in range(50)]}
        for number, need in enumerate((2, 1, 2))
    ]
    problem = problem_of(free, gangs, capacity=np.array(free))
    assert solve_problem(problem, SolverBudget()).taken.tolist() == [True, False, False, False]
    assert [part.nodes.free.shape for part in seen] == [(3, 1)]
    assert mask_unplaceable_pod_classes(problem).tolist() == [False, True, True, True]


def test_a_greedy_solution_of_a_small_session_is_not_final_if_another_node_has_a_higher_score():
    problem = problem_of([[1], [1]], [{"pods": 1, "demand": [1]}], score=np.array([[0, 5]]))
    floor = solve_greedy(replace(problem, kinds=replace(problem.kinds, score=np.array([[5, 0]]))))
    assert floor.nodes.tolist() == [0]
    assert not is_greedy_known_optimal(problem, floor, small=True)
    assert is_greedy_known_optimal(problem, floor, small=False)
