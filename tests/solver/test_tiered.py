"""Candidate domains: the tightest, some scattered, the incumbent's; rows nest only where domains do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from batchsched.ports.external import NoTelemetry
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.objective import (
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
    preferred_level_cost,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import ALL_NODES, ConstraintRow, Problem, Solution, SolverBudget
from batchsched.solver.stage import solve_problem
from batchsched.solver.tiered import rounding
from batchsched.solver.tiered.model import (
    MAX_BEST_FIT_DOMAINS,
    MAX_FRUGAL_DOMAINS,
    MAX_SCATTERED_DOMAINS,
    CandidateDomainSearch,
    TieredModel,
)
from batchsched.solver.tiered.node_pools import SlotCounter, build_pools
from batchsched.solver.tiered.rounding import round_to_nodes
from batchsched.solver.tiered.rounds import BaselineSolutions, TieredRoundSolver
from batchsched.solver.tiered.tier_solver import TierSolver
from batchsched.solver.tiered.transport import PoolTransport
from batchsched.solver.verify import find_solution_faults
from bench.solver.instances import generate
from bench.solver.problems import to_problem
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems

NODES = 40


def domains_of(free: list[int], *, levels: list[list[int]], required: int = 0, keep: bool = True):
    gang = {"pods": 1, "demand": [2], "required": required}
    problem = problem_of([[room] for room in free], [gang], levels=levels)
    packing = Packing(problem)
    return CandidateDomainSearch(
        packing, SlotCounter(packing), solve_greedy(problem) if keep else None
    ), packing


def test_candidates_hold_the_gang_and_are_no_more_than_twelve_and_the_incumbents():
    free = [1 + index % 9 for index in range(NODES)]
    domains, packing = domains_of(free, levels=[list(range(NODES))])
    cells = domains.candidate_domains_of_gang(0, packing.pod_classes_of_gang(0))
    assert len(cells) <= MAX_BEST_FIT_DOMAINS + MAX_FRUGAL_DOMAINS + MAX_SCATTERED_DOMAINS + 1
    assert all(free[cell.areas[0][1]] >= 2 for cell in cells)
    assert int(solve_greedy(packing.problem).nodes[0]) in {cell.areas[0][1] for cell in cells}


def test_domains_where_a_gang_breaks_no_large_group_of_devices_are_candidates():
    # Two nodes a domain. Only the last domain has four devices beside each group of eight.
    free = [[8], [8]] * (NODES - 1) + [[12], [12]]
    gangs = [{"pods": 2, "demand": [4], "required": 0}, {"pods": 1, "demand": [8]}]
    levels = [[index // 2 for index in range(2 * NODES)]]
    packing = Packing(problem_of(free, gangs, levels=levels))
    cells = CandidateDomainSearch(packing, SlotCounter(packing), None).candidate_domains_of_gang(
        0, packing.pod_classes_of_gang(0)
    )
    assert NODES - 1 in {cell.areas[0][1] for cell in cells}


def test_the_model_for_bounds_has_one_cell_for_all_candidate_domains():
    domains, packing = domains_of([1, 2, 3], levels=[[0, 1, 2]], keep=False)
    (cell,) = domains.candidate_domains_of_gang(0, packing.pod_classes_of_gang(0), every=True)
    assert cell.nodes.tolist() == [1, 2]


def test_row_of_a_rack_is_part_of_the_row_of_a_zone_only_if_the_rack_is_inside_the_zone():
    levels = [[0, 0, 0, 1], [0, 0, 1, 1]]
    domains, _ = domains_of([9] * 4, levels=levels, required=1)
    assert domains.enclosing_domains(1, 0) == ((1, 0), (0, 0))
    assert domains.enclosing_domains(1, 1) == ((1, 1),)


def test_a_pinned_domain_that_does_not_exist_gives_no_cell():
    gang = {"pods": 1, "demand": [1], "required": 0, "pinned": 7}
    packing = Packing(problem_of([[4]], [gang], levels=[[0]]))
    assert (
        CandidateDomainSearch(packing, SlotCounter(packing), None).candidate_domains_of_gang(
            0, packing.pod_classes_of_gang(0)
        )
        == []
    )
    assert packing.place_minimum_of_gang(0) is None
    assert np.array_equal(packing.nodes_of_domain(0, 7), [])


def best(problem: Problem) -> list[int]:
    """Pods of every class at the model's peak."""
    aggregate = model(problem)
    peak = TierSolver(aggregate, CpSatBudget(2.0, 30.0, 0)).maximise_tiers(
        np.zeros(aggregate.variable_count, np.int64), []
    )
    assert peak is not None
    assert violated(aggregate, peak.values) == []
    return [int(pods) for pods in aggregate.pods_by_class(peak.values)]


def test_a_bound_gang_is_chosen_only_where_one_domain_holds_it():
    gang = {"pods": 4, "demand": [1], "required": 0}
    assert best(problem_of([[2], [2], [2]], [gang], levels=[[0, 1, 2]])) == [0]
    assert best(problem_of([[2], [2], [2]], [gang], levels=[[0, 0, 1]])) == [4]


def test_two_gangs_do_not_share_a_domain_that_holds_one():
    gangs = [{"pods": 2, "demand": [1], "required": 0}, {"pods": 2, "demand": [1], "required": 0}]
    assert sorted(best(problem_of([[3], [1]], gangs, levels=[[0, 1]]))) == [0, 2]


def test_an_elastic_gang_takes_its_minimum_or_nothing():
    gang = {"pods": 5, "need": 3, "demand": [1]}
    assert best(problem_of([[4]], [gang])) == [4]
    assert best(problem_of([[2]], [gang])) == [0]


def test_a_quota_limits_the_choice():
    problem = problem_of(
        [[9]],
        [{"pods": 5, "need": 1, "demand": [1]}],
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.full((1, 1), 3),
        quota_gangs=np.full(1, 9),
    )
    assert best(problem) == [3]


def test_a_row_over_all_nodes_limits_the_choice():
    row = ConstraintRow(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([2]))
    assert best(problem_of([[9]], [{"pods": 5, "need": 1, "demand": [1]}], rows=(row,))) == [2]


def test_nodes_of_one_type_and_mask_share_a_pool_whatever_cpu_is_free_on_them():
    capacity = np.array([[8000], [8000], [4000]])
    problem = problem_of([[1000], [3000], [3000]], [{"pods": 1, "demand": [1000]}], capacity=capacity)
    assert build_pools(Packing(problem)).of_node.tolist() == [1, 1, 0]


def gang_of_two_classes(free: list[int], racks: list[int], **more: Any) -> Problem:
    """A gang with one pod of eight devices and two of seven, all in one rack."""
    classes = [{"pods": 1, "demand": [8], "required": 0}, {"pods": 2, "demand": [7]}]
    return problem_of(
        [[room] for room in free],
        classes,
        levels=[racks],
        gang=np.zeros(2, np.int32),
        need=np.array([3, 0], np.int32),
        **more,
    )


def candidates_of(problem: Problem) -> list[int]:
    packing = Packing(problem)
    domains = CandidateDomainSearch(packing, SlotCounter(packing), None)
    return [cell.areas[0][1] for cell in domains.candidate_domains_of_gang(0, packing.pod_classes_of_gang(0))]


def test_a_rack_that_holds_each_class_of_a_gang_but_not_all_together_is_no_candidate():
    assert candidates_of(gang_of_two_classes([8] * 5, [0, 0, 1, 1, 1])) == [1]


def test_nodes_outside_of_the_mask_do_not_make_a_rack_large_enough():
    mask = np.array([[True, True, False, True, True, True]])
    assert candidates_of(gang_of_two_classes([8] * 6, [0, 0, 0, 1, 1, 1], mask=mask)) == [1]


@pytest.mark.properties
@given(problems())
def test_domains_with_room_for_a_gang_include_the_one_that_the_greedy_chose(problem: Problem):
    solution, packing = solve_greedy(problem), Packing(problem)
    supply, levels = SlotCounter(packing), problem.nodes.levels
    for gang in np.flatnonzero(solution.taken & (problem.gangs.required >= 0)).tolist():
        own = problem.classes.gang[solution.classes] == gang
        members, level = packing.pod_classes_of_gang(gang), int(problem.gangs.required[gang])
        if own.any() and problem.gangs.pinned[gang] < 0:
            chosen = int(levels[level, solution.nodes[own][0]])
            assert chosen in supply.domains_with_enough_slots(
                members, max(1, packing.needs[gang]), level, None
            )


def test_nodes_with_fewer_free_devices_are_a_pool_of_their_own():
    problem = problem_of([[8], [3], [8]], [{"pods": 1, "demand": [1]}], capacity=np.array([[8]] * 3))
    assert build_pools(Packing(problem)).of_node.tolist() == [1, 0, 1]


@pytest.mark.properties
@given(problems())
def test_level_rows_admit_what_the_greedy_placed_on_any_set_of_nodes(problem: Problem):
    solution = solve_greedy(problem)
    supply = SlotCounter(Packing(problem))
    classes = np.arange(len(problem.classes.count))
    for nodes in (np.arange(len(problem.nodes.free)), np.arange(0, len(problem.nodes.free), 2)):
        here = np.isin(solution.nodes, nodes)
        placed = np.bincount(solution.classes[here], solution.counts[here], minlength=len(classes))
        for row in supply.nonredundant_rows(classes, problem.classes.count.astype(np.int64), nodes):
            assert int(row.factors @ placed) <= row.right


@pytest.mark.properties
@given(problems(extras=False))
def test_level_rows_over_two_resources_admit_what_the_greedy_placed(problem: Problem):
    free, capacity, demand = (
        one * 1000 for one in (problem.nodes.free, problem.nodes.capacity, problem.classes.demand)
    )
    problem = replace(
        problem,
        nodes=replace(problem.nodes, free=free, capacity=capacity),
        classes=replace(problem.classes, demand=demand),
    )
    solution, classes = solve_greedy(problem), np.arange(len(problem.classes.count))
    placed = np.bincount(solution.classes, solution.counts, minlength=len(classes))
    supply = SlotCounter(Packing(problem))
    for row in supply.nonredundant_rows(
        classes, problem.classes.count.astype(np.int64), np.arange(len(problem.nodes.free))
    ):
        assert int(row.factors @ placed) <= row.right


def test_cpu_on_one_node_and_memory_on_another_hold_no_pod():
    gangs = [{"pods": 4, "demand": [1000, 1000]}, {"pods": 4, "demand": [2000, 2000]}]
    problem = problem_of([[9000, 500], [500, 9000]], gangs)
    rows = SlotCounter(Packing(problem)).nonredundant_rows(
        np.arange(2), problem.classes.count.astype(np.int64), np.arange(2)
    )
    assert any(row.right == 0 and (row.factors > 0).all() for row in rows)


def test_cpu_and_memory_of_different_nodes_hold_no_large_pod_next_to_small_ones_with_devices():
    sizes = [[1000, 1000, 0], [2000, 2000, 0], [100, 300, 1]]
    problem = problem_of(
        [[9000, 500, 1], [500, 9000, 1]], [{"pods": 4, "demand": demand} for demand in sizes]
    )
    rows = SlotCounter(Packing(problem)).nonredundant_rows(
        np.arange(3), problem.classes.count.astype(np.int64), np.arange(2)
    )
    assert any(row.right == 0 and (row.factors[:2] > 0).all() for row in rows)


def test_slots_of_two_resources_stay_in_64_bits():
    gangs = [{"pods": 12, "demand": [16_000, 2**10]}, {"pods": 4, "demand": [1, 2**50]}]
    solution = solve_problem(problem_of([[64_000, 2**53]] * 3, gangs), SolverBudget(exact_variables=0))
    assert solution.taken.any()


def test_gpus_without_enough_cpus_for_any_pod_are_not_counted():
    problem = problem_of([[4, 8], [32, 8]], [{"pods": 9, "demand": [2, 1]}], capacity=np.array([[96, 8]] * 2))
    supply = SlotCounter(Packing(problem))
    assert supply.count_free_slots(((1, 1),), np.array([0, 1])) == 2 + 8


def model(problem: Problem, *, relaxed: bool = False) -> TieredModel:
    packing = Packing(problem)
    return TieredModel(packing, build_pools(packing), None if relaxed else solve_greedy(problem), relaxed)


def violated(aggregate: TieredModel, values: np.ndarray) -> list[int]:
    starts, columns, coefficients = aggregate.constraint_matrix()
    lower, upper, _ = aggregate.row_bounds()
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    left = np.bincount(rows, coefficients * values[columns], minlength=len(starts) - 1)
    return np.flatnonzero((left < lower) | (left > upper)).tolist()


@pytest.mark.properties
@given(problems())
def test_what_the_greedy_placed_satisfies_the_model_and_every_cut(problem: Problem):
    aggregate = model(problem)
    values = aggregate.variable_values_of_solution(solve_greedy(problem))
    assert violated(aggregate, values) == []
    transport = PoolTransport(aggregate)
    everything = aggregate.variable_bounds()[1]
    for gang in range(len(problem.gangs.need)):
        some = everything.copy()
        some[aggregate.y[gang]] = 0
        transport.split_over_pools_or_add_cut(some)
    transport.split_over_pools_or_add_cut(everything)
    assert violated(aggregate, values) == []
    assert transport.split_over_pools_or_add_cut(values)[0].short == 0.0


@pytest.mark.properties
@given(problems(extras=False))
def test_a_choice_that_does_not_fit_is_cut(problem: Problem):
    aggregate = model(problem, relaxed=True)
    everything = aggregate.variable_bounds()[1]
    before = aggregate.row_count
    split, fits = PoolTransport(aggregate).split_over_pools_or_add_cut(everything)
    if split.short > 0 and not fits:
        assert violated(aggregate, everything)[-1] >= before


def test_a_tightened_pool_holds_less_until_it_is_loosened():
    problem = problem_of([[4], [4]], [{"pods": 8, "demand": [1]}])
    aggregate = model(problem)
    transport = PoolTransport(aggregate)
    values = aggregate.variable_bounds()[1]
    assert transport.split_over_pools_or_add_cut(values)[1]
    transport.reduce_pool_capacity(0, np.array([1.0]))
    kept = transport.reset_to_original_limits()
    assert transport.split_over_pools_or_add_cut(values)[0].short == 0.0
    transport.set_limits(kept)


def tier_solver(problem: Problem, *, relaxed: bool = True) -> TierSolver:
    return TierSolver(model(problem, relaxed=relaxed), CpSatBudget(2.0, 30.0, 0))


@pytest.mark.properties
@given(problems(extras=False))
def test_the_loose_peak_is_no_lower_than_the_optimum(problem: Problem):
    loose = tier_solver(problem)
    start = np.zeros(loose.aggregate.variable_count, np.int64)
    peak = loose.maximise_tiers(start, [])
    assert peak is not None
    best = np.array(brute(problem).tiers)
    for tier in range(len(best)):
        if np.allclose(peak.bound[:tier], best[:tier]):
            assert peak.bound[tier] >= best[tier] - 1e-9


@pytest.mark.properties
@given(problems(extras=False))
def test_bounds_of_the_model_with_every_domain_hold(problem: Problem):
    packing = Packing(problem)
    complete = TierSolver(
        TieredModel(packing, build_pools(packing), None, complete=True), CpSatBudget(2.0, 30.0, 0)
    )
    best = brute(problem)
    placed = np.zeros(len(problem.classes.count), np.int64)
    for (class_index, _), pods in best.counts.items():
        placed[class_index] += pods
    assert (complete.compute_bounds(placed) >= np.array(best.tiers) - 1e-9).all()


@pytest.mark.properties
@given(problems(extras=False))
def test_a_climb_is_never_worse_than_its_floor(problem: Problem):
    full = tier_solver(problem, relaxed=False)
    floor = solve_greedy(problem)
    placed = count_placed_pods(problem, floor.classes, floor.counts)
    peak = full.maximise_tiers(full.aggregate.variable_values_of_solution(floor), [placed])
    assert peak is not None
    pods = full.aggregate.pods_by_class(peak.values)
    value = np.bincount(
        problem.gangs.tier[problem.classes.gang],
        problem.classes.weight * pods,
        minlength=len(floor.objective),
    )
    assert compare_objectives_by_tier(value.astype(float), floor.objective) >= 0


def test_bounds_of_lower_tiers_depend_on_what_was_placed_above():
    gangs = [{"pods": 4, "demand": [1], "tier": 0}, {"pods": 4, "demand": [1], "tier": 1}]
    loose = tier_solver(problem_of([[4]], gangs))
    assert loose.compute_bounds(np.array([4, 0])).tolist() == [4.0, 0.0]
    assert loose.compute_bounds(np.array([0, 4])).tolist() == [4.0, 4.0]


def test_pods_that_fit_on_no_node_do_not_let_a_lower_tier_displace_a_higher_one():
    gangs = [{"pods": 1, "demand": [3]}, {"pods": 1, "demand": [4], "tier": 1}]
    gangs += [{"pods": 2000, "demand": [2**46 + 1], "need": need} for need in (0, 2000)]
    loose = tier_solver(problem_of([[5]], gangs))
    peak = loose.maximise_tiers(np.zeros(loose.aggregate.variable_count, np.int64), [])
    assert peak is not None
    assert loose.aggregate.pods_by_class(peak.values).tolist() == [1, 0, 0, 0]
    assert peak.bound.tolist() == [3.0, 0.0]


def test_classes_without_requests_do_not_limit_each_other():
    gangs = [{"pods": 2, "demand": [0], "tier": 0}, {"pods": 3, "demand": [0], "tier": 0}]
    problem = problem_of([[4]], gangs)
    full = tier_solver(problem, relaxed=False)
    floor = solve_greedy(problem)
    peak = full.maximise_tiers(
        full.aggregate.variable_values_of_solution(floor),
        [count_placed_pods(problem, floor.classes, floor.counts)],
    )
    assert peak is not None
    assert full.aggregate.pods_by_class(peak.values).tolist() == [2, 3]


@pytest.mark.properties
@given(problems())
def test_every_choice_of_the_model_is_placed_legally(problem: Problem):
    aggregate = model(problem)
    start = np.zeros(aggregate.variable_count, np.int64)
    peak = TierSolver(aggregate, CpSatBudget(2.0, 30.0, 0)).maximise_tiers(start, [])
    assert peak is not None
    for prefer in (False, True):
        realised = round_to_nodes(aggregate, peak.values, peak.split.pods, prefer)
        assert find_solution_faults(problem, realised.packing.to_solution("aggregated")) == ()


def test_room_that_the_choice_left_is_filled():
    problem = problem_of([[4]], [{"pods": 2, "demand": [1]}, {"pods": 2, "demand": [1]}])
    aggregate = model(problem)
    nothing = np.zeros(aggregate.variable_count, np.int64)
    realised = round_to_nodes(aggregate, nothing, np.zeros((2, 1)), prefer=False)
    assert realised.packing.taken.all()
    assert realised.unplaced == ()


def test_a_shortfall_of_the_placement_is_reported():
    problem = problem_of([[3], [3]], [{"pods": 3, "demand": [2]}])
    aggregate = model(problem)
    everything = np.ones(aggregate.variable_count, np.int64)
    realised = round_to_nodes(aggregate, everything, np.full((1, 1), 3.0), prefer=False)
    assert not realised.packing.taken.any()
    assert [shortage.pods for shortage in realised.unplaced] == [1]


def run(problem: Problem, budget: SolverBudget) -> Solution:
    floor = solve_greedy(problem)
    placed = count_placed_pods(problem, floor.classes, floor.counts)
    return TieredRoundSolver(
        problem, problem, budget, 0, BaselineSolutions(floor, (placed,)), NoTelemetry()
    ).solve()


def test_a_budget_of_zero_is_never_worse_than_the_floor_and_reports_bounds():
    problem = to_problem(generate(200, 30, 0))
    solution = run(problem, SolverBudget(deterministic=0.0, rounds=1))
    assert compare_solutions(solution, solve_greedy(problem)) >= 0
    assert (solution.bound >= solution.objective - 1e-12).all()
    assert find_solution_faults(problem, solution) == ()


def test_more_rounds_are_never_worse():
    problem = to_problem(generate(200, 30, 2))
    one, three = (run(problem, SolverBudget(rounds=rounds)) for rounds in (1, 3))
    assert compare_solutions(three, one) >= 0


def test_preferred_levels_are_kept_when_that_costs_no_pod():
    gangs = [{"pods": 4, "demand": [1], "preferred": 0}, {"pods": 9, "demand": [1]}]
    problem = problem_of([[2], [2], [2], [2]], gangs, levels=[[0, 1, 0, 1]])
    solution = run(
        replace(problem, gangs=replace(problem.gangs, allowed=np.array([True, False]))), SolverBudget()
    )
    assert solution.taken[0]
    assert preferred_level_cost(problem, solution) == 0.0


def test_a_gang_without_the_minimum_of_a_subgroup_is_not_held():
    columns: dict[str, Any] = (
        {
            "gang": np.zeros(2, np.int32),
            "subgroup": np.array([0, 1], np.int32),
            "need": np.array([2], np.int32),
            "sub_gang": np.zeros(2, np.int32),
            "sub_need": np.ones(2, np.int32),
            "sub_required": np.full(2, -1, np.int32),
            "sub_preferred": np.full(2, -1, np.int32),
            "sub_pinned": np.full(2, -1, np.int32),
        }
        | {
            name: np.full(1, value, np.int32)
            for name, value in {"tier": 0, "rank": 0, "required": -1, "preferred": -1, "pinned": -1}.items()
        }
        | {"fresh": np.ones(1, np.bool_), "allowed": np.ones(1, np.bool_)}
    )
    problem = problem_of([[4]], [{"pods": 2, "demand": [1]}, {"pods": 1, "demand": [1]}], **columns)
    for classes, held in (((0, 0), False), ((0, 1), True)):
        packing = Packing(problem)
        for class_index in classes:
            packing.room.place_pods_up_to(class_index, 1, None)
        assert rounding._holds(packing, 0) is held


def test_no_second_round_follows_one_that_placed_all_pods():
    problem = problem_of([[4]], [{"pods": 2, "demand": [1]}])
    assert run(problem, SolverBudget(rounds=3)).rounds == 1


def test_choosing_domains_leaves_the_bounds_of_the_full_model_as_they_were():
    gangs = [{"pods": 2, "demand": [2], "required": 0}, {"pods": 2, "demand": [1]}]
    problem = problem_of([[4], [3]], gangs, levels=[[0, 1]])
    floor = solve_greedy(problem)
    placed = count_placed_pods(problem, floor.classes, floor.counts)
    rounds = TieredRoundSolver(
        problem, problem, SolverBudget(), 0, BaselineSolutions(floor, (placed,)), NoTelemetry()
    )
    full = rounds._full.aggregate
    before = [side.copy() for side in full.variable_bounds()]
    assert rounds._choose() is not None
    assert [side.tolist() for side in full.variable_bounds()] == [side.tolist() for side in before]


def test_elastic_pods_of_a_high_tier_keep_their_domain_although_a_lower_gang_needs_it():
    gangs = [
        {"pods": 3, "need": 1, "demand": [1], "required": 0},
        {"pods": 2, "demand": [1], "required": 0, "tier": 1},
    ]
    # Without the choice of domains both gangs fit as a whole: three pods and two on five free places.
    problem = problem_of([[2], [2], [1]], gangs, levels=[[0, 0, 1]])
    solution = solve_problem(problem, SolverBudget(exact_variables=0))
    assert solution.stage == "aggregated"
    assert solution.objective.tolist() == [3.0, 0.0]
