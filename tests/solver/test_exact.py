"""The exact stage: optimal on small problems, in the order that the issue states."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.cpsat import SolveLimits, maximise
from batchsched.solver.exact import (
    add_packing_objective,
    add_preference_objective,
    pack_onto_one_node_if_optimal,
    solve_exact,
)
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.node_model import NodeLevelModel, count_fitting_pods
from batchsched.solver.objective import list_topology_preferences, preferred_level_cost
from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    ConstraintRow,
    Cut,
    Problem,
    Solution,
    SolverBudget,
)
from batchsched.solver.verify import find_solution_faults
from tests.hash_seeds import outputs_by_hash_seed
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems

BUDGET = SolverBudget(deterministic=20.0)


def placed(solution: Solution) -> dict[tuple[int, int], int]:
    return {
        (int(c), int(n)): int(k)
        for c, n, k in zip(solution.classes, solution.nodes, solution.counts, strict=True)
    }


@pytest.mark.properties
@given(problems())
def test_tier_values_gangs_and_preferred_cost_equal_the_optimum(problem: Problem):
    best = brute(problem)
    solution = solve_exact(problem, BUDGET, seed=1)
    assert find_solution_faults(problem, solution) == ()
    assert solution.objective == pytest.approx(best.tiers, rel=1e-9, abs=1e-12)
    assert solution.bound == pytest.approx(best.tiers, rel=1e-9, abs=1e-12)
    assert int(solution.taken.sum()) == best.gangs
    assert preferred_level_cost(problem, solution) == pytest.approx(best.cost, rel=1e-9, abs=1e-9)


@pytest.mark.properties
@given(problems())
def test_a_refused_gang_cannot_be_added_even_when_this_sessions_pods_may_move(problem: Problem):
    solution = solve_exact(problem, BUDGET, seed=1)
    placed = np.zeros(len(problem.classes.count), np.int64)
    np.add.at(placed, solution.classes, solution.counts)
    held = np.bincount(problem.classes.gang, placed, minlength=len(problem.gangs.need))
    for gang in np.flatnonzero(~solution.taken & problem.gangs.allowed):
        kept = solution.taken.copy()
        kept[gang] = True
        need = np.where(solution.taken, held, np.maximum(problem.gangs.need, 1)).astype(np.int32)
        more = replace(
            problem,
            gangs=replace(
                problem.gangs,
                need=need,
                allowed=problem.gangs.allowed & kept,
                fresh=problem.gangs.fresh & ~(solution.taken & (problem.gangs.need == 0)),
            ),
            classes=replace(
                problem.classes,
                count=np.where(solution.taken[problem.classes.gang], placed, problem.classes.count).astype(
                    np.int32
                ),
                weight=np.zeros_like(problem.classes.weight),
            ),
            subgroups=replace(
                problem.subgroups,
                need=np.where(kept[problem.subgroups.gang], problem.subgroups.need, 0).astype(np.int32),
            ),
        )
        wanted = int((kept & (need > 0)).sum()) + int((need == 0).sum())
        assert brute(more).gangs < wanted


@pytest.mark.properties
@given(problems(), problems())
def test_without_a_budget_the_hint_is_kept_and_the_bound_still_holds(problem: Problem, other: Problem):
    best = brute(problem)
    nothing = solve_exact(problem, SolverBudget(deterministic=0.0), seed=1)
    assert find_solution_faults(problem, nothing) == ()
    assert _no_more(best.tiers[:1], nothing.bound[:1])
    optimum = solve_exact(problem, BUDGET, seed=1)
    kept = solve_exact(problem, SolverBudget(deterministic=0.0), seed=1, hint=optimum)
    assert placed(kept) == placed(optimum)
    assert _no_more(best.tiers, kept.bound)


def _no_more(values: tuple[float, ...], bounds: np.ndarray) -> bool:
    return all(value <= bound * (1 + 1e-9) + 1e-12 for value, bound in zip(values, bounds, strict=True))


def test_a_hint_that_violates_a_rule_is_ignored():
    problem = problem_of([[2], [2]], [{"pods": 2, "demand": [2]}])
    index = np.zeros(1, np.int32)
    crowded = Solution(index, index, index + 2, np.array([True]), np.array([4.0]), np.array([4.0]))
    solution = solve_exact(problem, SolverBudget(deterministic=0.0), seed=1, hint=crowded)
    assert placed(solution) == {}
    assert solution.bound[0] >= 4.0


def test_a_higher_tier_never_pays_for_a_lower_one():
    gangs = [{"pods": 1, "demand": [2], "tier": 0}, {"pods": 3, "demand": [1], "tier": 1, "weight": 50.0}]
    solution = solve_exact(problem_of([[3]], gangs), BUDGET, seed=1)
    assert placed(solution) == {(0, 0): 1}
    assert solution.bound.tolist() == [2.0, 0.0]


def test_a_higher_tier_does_not_pay_for_a_lower_one_next_to_pods_that_fit_on_no_node():
    gangs = [{"pods": 1, "demand": [3]}, {"pods": 1, "demand": [4], "tier": 1}]
    gangs += [{"pods": 2000, "demand": [2**46 + 1], "need": 0}]
    solution = solve_exact(problem_of([[5]], gangs), BUDGET, seed=1)
    assert placed(solution) == {(0, 0): 1}
    assert solution.bound.tolist() == [3.0, 0.0]


def test_volcanos_gang_of_2_3_3_and_8_cpus_fits_two_nodes_of_8():
    gangs = [{"pods": 1, "demand": [2]}, {"pods": 2, "demand": [3]}, {"pods": 1, "demand": [8]}]
    problem = problem_of([[8], [8]], gangs)
    together = replace(
        problem,
        classes=replace(problem.classes, gang=np.zeros(3, np.int32)),
        gangs=replace(problem.gangs, need=np.array([4, 0, 0], np.int32)),
    )
    assert solve_exact(together, BUDGET, seed=1).taken[0]


def test_placements_of_equal_value_are_compared_by_gangs_then_scores():
    gangs = [{"pods": 1, "demand": [4]}, {"pods": 1, "demand": [2]}, {"pods": 1, "demand": [2]}]
    problem = problem_of([[4], [2]], gangs[:1] + gangs[1:])
    small = solve_exact(
        replace(problem, nodes=replace(problem.nodes, free=np.array([[4], [0]]))), BUDGET, seed=1
    )
    assert small.taken.tolist() == [False, True, True]
    scored = problem_of([[4], [4], [4]], gangs[:1], score=np.array([[1, 9, 3]]))
    assert placed(solve_exact(scored, BUDGET, seed=1)) == {(0, 1): 1}


def test_packing_touches_few_nodes_and_spreading_many():
    problem = problem_of([[4], [4], [4]], [{"pods": 3, "demand": [1]}])
    assert len(solve_exact(problem, BUDGET, seed=1).nodes) == 1
    assert len(solve_exact(replace(problem, spread=True), BUDGET, seed=1).nodes) == 3


def test_a_preferred_domain_that_running_members_use_is_preferred():
    gangs = [{"pods": 2, "demand": [1], "preferred": 0}]
    used = {name: np.zeros(1, np.int32) for name in ("used_gang", "used_level")}
    used |= {"used_subgroup": np.full(1, -1, np.int32), "used_domain": np.ones(1, np.int32)}
    problem = problem_of([[9], [1], [1]], gangs, levels=[[0, 1, 1]], **used)
    assert placed(solve_exact(problem, BUDGET, seed=1)) == {(0, 1): 1, (0, 2): 1}


def test_a_row_violated_without_placements_does_not_prevent_other_placements():
    row = ConstraintRow(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([-3]))
    problem = problem_of([[4]], [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [1]}], rows=(row,))
    solution = solve_exact(problem, BUDGET, seed=1)
    assert solution.taken.tolist() == [False, True]
    assert find_solution_faults(problem, solution) == ()


@pytest.mark.parametrize("solve", [lambda problem: solve_exact(problem, BUDGET, seed=1), solve_greedy])
def test_two_sides_of_a_row_are_not_on_one_node(solve):
    sides = np.array([False, True])
    row = ConstraintRow(
        EVERY_NODE, np.arange(2, dtype=np.int32), np.ones(2, np.int64), np.full(2, 9), on_second_side=sides
    )
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]
    assert solve(problem_of([[3], [1]], gangs, rows=(row,))).taken.sum() == 1
    assert solve(problem_of([[2], [2]], gangs, rows=(row,))).taken.tolist() == [True, True]
    assert solve(problem_of([[3], [1]], gangs)).taken.tolist() == [True, True]


def test_memory_in_bytes_does_not_overflow():
    pebibyte = 2**50
    gangs = [{"pods": 400, "demand": [3 * 2**30 + 1], "need": 1, "weight": 1.0} for _ in range(3)]
    problem = problem_of([[pebibyte]] * 4, gangs)
    assert int(solve_exact(problem, BUDGET, seed=1).counts.sum()) == 1200


_DIGEST = """\
import hashlib
from batchsched.solver.exact import solve_exact
from batchsched.solver.problem import SolverBudget
from tests.solver.instances import random_problem
digest = hashlib.sha256()
for seed in range(40):
    solution = solve_exact(random_problem(seed, 5, 4), SolverBudget(), seed)
    for name in ("classes", "nodes", "counts", "taken", "objective", "bound"):
        digest.update(getattr(solution, name).tobytes())
print(digest.hexdigest())
"""


def test_the_same_input_gives_the_same_bytes_in_every_process():
    assert len(set(outputs_by_hash_seed(_DIGEST, seeds=("0", "1", "4711")))) == 1


@pytest.mark.properties
@given(problems())
def test_current_values_stay_legal_and_count_gangs_before_preferred_cost(problem: Problem):
    solution = solve_exact(problem, SolverBudget(deterministic=0.0), seed=0)
    best = solve_exact(problem, SolverBudget(deterministic=5.0), seed=0)
    seen = []
    for placed in (solution, best):
        model = NodeLevelModel(problem)
        triples = zip(placed.classes.tolist(), placed.nodes.tolist(), placed.counts.tolist(), strict=True)
        values = model.variable_values_of_placements(triples)
        assert values is not None
        values, objective, _ = add_preference_objective(model, values)
        assert model.is_satisfied_by(values)
        seen.append(
            (int(placed.taken.sum()), -preferred_level_cost(problem, placed), int(objective @ values))
        )
        values, objective = add_packing_objective(model, values)
        assert model.is_satisfied_by(values)
        assert len(objective) == model.variable_count
    if list_topology_preferences(problem) and seen[0][:2] != seen[1][:2]:
        assert (seen[0][:2] < seen[1][:2]) == (seen[0][2] < seen[1][2])


def with_free_capacity_and_without_preferences(problem: Problem) -> Problem:
    free, none = problem.nodes.free * 4, np.int32(-1)
    return replace(
        problem,
        nodes=replace(problem.nodes, free=free, capacity=np.maximum(free, 48)),
        gangs=replace(problem.gangs, preferred=np.full_like(problem.gangs.preferred, none)),
        subgroups=replace(problem.subgroups, preferred=np.full_like(problem.subgroups.preferred, none)),
        spread=False,
    )


@pytest.mark.properties
@given(problems().map(with_free_capacity_and_without_preferences))
def test_no_packing_of_the_same_pods_is_better_than_the_one_node_they_are_moved_to(problem: Problem):
    solution = solve_exact(problem, SolverBudget(deterministic=0.0), seed=0, hint=solve_greedy(problem))
    model = NodeLevelModel(problem)
    triples = zip(solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True)
    values = model.variable_values_of_placements(triples)
    assert values is not None
    packed = pack_onto_one_node_if_optimal(model, values)
    if packed is None:
        return
    assert model.is_satisfied_by(packed)
    placed_pods = np.bincount(model.classes, packed[: len(model.classes)])
    assert (placed_pods == np.bincount(model.classes, values[: len(model.classes)])).all()
    for index, count in enumerate(placed_pods.tolist()):
        model.add_sum_constraint(np.flatnonzero(model.classes == index), lower=count)
    packed, objective = add_packing_objective(model, packed)
    best = maximise(model, objective, SolveLimits(deterministic=20.0, guard_seconds=60.0))
    assert best.proved
    assert best.objective == int(objective @ packed)


def test_few_pods_on_many_nodes_are_packed_onto_the_best_node_without_a_search():
    problem = problem_of(
        [[8 + node % 5] for node in range(300)],
        [{"pods": 1, "demand": [2]}] * 3,
        capacity=np.full((300, 1), 16),
        score=np.array([[node % 7 for node in range(300)]]),
    )
    solution = solve_exact(problem, SolverBudget(deterministic=5.0), seed=0, hint=solve_greedy(problem))
    fullest_with_highest_score = next(node for node in range(300) if node % 5 == 0 and node % 7 == 6)
    assert set(solution.nodes.tolist()) == {fullest_with_highest_score}
    assert solution.effort == 0.0


@pytest.mark.properties
@given(problems())
def test_the_models_rows_admit_the_optimum_of_brute_force(problem: Problem):
    model = NodeLevelModel(problem)
    values = model.variable_values_of_placements((c, n, k) for (c, n), k in brute(problem).counts.items())
    assert values is not None
    assert model.is_satisfied_by(values)


@pytest.mark.properties
@given(problems())
def test_the_model_admits_its_own_answer(problem: Problem):
    model = NodeLevelModel(problem)
    solution = solve_exact(problem, SolverBudget(deterministic=5.0), seed=0)
    triples = zip(solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True)
    values = model.variable_values_of_placements(triples)
    assert values is not None
    assert model.is_satisfied_by(values)


def test_counts_exist_only_where_a_pod_fits():
    gangs = [
        {"pods": 3, "demand": [4]},
        {"pods": 3, "demand": [1], "required": 0, "pinned": 1},
        {"pods": 1, "demand": [1], "allowed": False},
    ]
    problem = problem_of([[8], [3]], gangs, levels=[[0, 1]])
    assert count_fitting_pods(problem).tolist() == [[2, 0], [0, 3], [0, 0]]
    assert NodeLevelModel(problem).variable_values_of_placements([(0, 1, 1)]) is None


def test_a_cut_forbids_its_counts_and_nothing_else():
    def one(value: int) -> np.ndarray:
        return np.array([value], np.int32)

    problem = problem_of(
        [[2]], [{"pods": 2, "need": 1, "demand": [1]}], cuts=(Cut(0, one(0), one(0), one(2)),)
    )
    model = NodeLevelModel(problem)
    refused, other = (
        model.variable_values_of_placements([(0, 0, 2)]),
        model.variable_values_of_placements([(0, 0, 1)]),
    )
    assert refused is not None
    assert other is not None
    assert not model.is_satisfied_by(refused)
    assert model.is_satisfied_by(other)
