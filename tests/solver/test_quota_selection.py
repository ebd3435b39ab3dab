"""Sessions in which quotas decide: the best choice, and only where nodes hold it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import pack_greedily, solve_greedy
from batchsched.solver.objective import compare_objectives_by_tier
from batchsched.solver.problem import ALL_NODES, UNLIMITED, ConstraintRow, Problem, SolverBudget
from batchsched.solver.quota_selection import (
    build_gang_subset_problem,
    is_limited_by_quotas_only,
    merge_into_one_node,
    solve_by_quotas,
)
from batchsched.solver.stage import solve_problem
from batchsched.solver.verify import find_solution_faults
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems

PLENTY = SolverBudget(deterministic=50.0)


def limited(free: list[list[int]], gangs: list[dict], most: int) -> Problem:
    """Gangs of one queue with a limit on the first resource."""
    return problem_of(
        free,
        gangs,
        quota_covers=np.ones((1, len(gangs)), np.bool_),
        quota_free=np.array([[most]]),
        quota_gangs=np.full(1, UNLIMITED),
    )


THREE = [{"pods": 3, "demand": [1]}, {"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}]


def test_gangs_that_share_a_limit_are_selected_by_weight_and_not_by_rank():
    problem = limited([[4], [4]], THREE, 4)
    assert solve_greedy(problem).taken.tolist() == [True, False, False]
    solution = solve_problem(problem, SolverBudget(exact_variables=0))
    assert solution.taken.tolist() == [False, True, True]
    assert solution.stage == "quotas"
    assert solution.gap == 0.0
    assert find_solution_faults(problem, solution) == ()


def test_surplus_counts_against_the_limit_too():
    elastic = {"pods": 4, "need": 1, "demand": [1], "weight": 1.0}
    whole = {"pods": 3, "demand": [1], "weight": 1.5}
    problem = limited([[4], [4]], [elastic, whole], 5)
    answer = solve_by_quotas(pack_greedily(problem), PLENTY, 0, solve_greedy(problem))
    assert answer is not None
    assert answer.objective.tolist() == [6.5]
    assert answer.counts.sum() == 5


def test_placements_of_the_greedy_that_match_the_choice_are_kept():
    gangs = [{"pods": 2, "demand": [1]}, {"pods": 3, "demand": [1]}, {"pods": 4, "demand": [1]}]
    problem = limited([[4], [4], [4]], gangs, 6)
    packing, floor = pack_greedily(problem), solve_greedy(problem)
    assert floor.taken.tolist() == [True, True, False]
    answer = solve_by_quotas(packing, PLENTY, 0, floor)
    assert answer is not None
    assert answer.taken.tolist() == [True, False, True]
    assert answer.nodes[answer.classes == 0].tolist() == floor.nodes[floor.classes == 0].tolist()
    assert find_solution_faults(problem, answer) == ()


def test_a_choice_that_does_not_fit_on_the_nodes_is_discarded():
    problem = limited([[3], [3], [3]], [gang | {"demand": [2]} for gang in THREE], 8)
    assert solve_by_quotas(pack_greedily(problem), PLENTY, 0, solve_greedy(problem)) is None
    assert find_solution_faults(problem, solve_problem(problem, SolverBudget(exact_variables=0))) == ()


def test_a_problem_limited_by_nodes_is_not_solved_by_quota_selection():
    assert is_limited_by_quotas_only(pack_greedily(limited([[4], [4]], THREE, 4)))
    assert not is_limited_by_quotas_only(pack_greedily(limited([[3]], THREE, 9)))


@pytest.mark.properties
@given(problems())
def test_the_choice_bounds_every_placement(problem: Problem):
    best, choice = brute(problem), solve_exact(merge_into_one_node(problem), PLENTY, 0)
    assert compare_objectives_by_tier(choice.bound, np.array(best.tiers)) >= 0


@pytest.mark.properties
@given(problems())
def test_the_selected_placement_is_legal_and_optimal(problem: Problem):
    uncut = replace(problem, cuts=())
    answer = solve_by_quotas(pack_greedily(uncut), PLENTY, 0, solve_greedy(uncut))
    if answer is not None:
        assert find_solution_faults(uncut, answer) == ()
        assert compare_objectives_by_tier(answer.objective, np.array(brute(uncut).tiers)) == 0


MIXED = [{"pods": 1, "demand": [1]}, {"pods": 2, "demand": [2], "tier": 1}, {"pods": 3, "demand": [1]}]


def test_renumbered_gangs_keep_their_demands():
    subset = build_gang_subset_problem(problem_of([[9]], MIXED), np.array([False, True, True]))
    assert subset.problem.classes.gang.tolist() == [0, 1]
    assert subset.problem.classes.count.tolist() == [2, 3]
    assert subset.problem.gangs.tier.tolist() == [1, 0]


def test_a_solution_comes_back_under_the_old_numbers():
    subset = build_gang_subset_problem(problem_of([[9]], MIXED), np.array([True, False, True]))
    solution = subset.to_solution_of_whole_problem(solve_greedy(subset.problem))
    assert solution.classes.tolist() == [0, 2]
    assert solution.taken.tolist() == [True, False, True]
    assert solution.objective.tolist() == [4.0, 0.0]


def test_subset_of_a_problem_with_rows_is_refused():
    row = ConstraintRow(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([1]))
    with pytest.raises(ValueError, match="rows and cuts"):
        build_gang_subset_problem(problem_of([[9]], MIXED, rows=(row,)), np.ones(3, np.bool_))


@pytest.mark.properties
@given(problems())
def test_an_omitted_gang_is_not_allowed(problem: Problem):
    loose = replace(problem, rows=(), cuts=())
    kept = np.arange(len(loose.gangs.need)) > 0
    budget = SolverBudget(deterministic=20.0)
    subset = build_gang_subset_problem(loose, kept)
    alone = subset.to_solution_of_whole_problem(solve_exact(subset.problem, budget, 0))
    refused = replace(loose, gangs=replace(loose.gangs, allowed=loose.gangs.allowed & kept))
    assert find_solution_faults(refused, alone) == ()
    assert np.allclose(alone.objective, solve_exact(refused, budget, 0).objective)
