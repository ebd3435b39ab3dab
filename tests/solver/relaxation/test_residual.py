"""What a solution leaves, and one gang's own part of a problem."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    NONE,
    UNLIMITED,
    ConstraintRow,
    Problem,
    SolverBudget,
)
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    LoosenedRow,
    RaisedQuota,
    Relaxation,
    RelaxedLevel,
    apply_change,
    halve_change,
    problem_of_added_nodes_only,
)
from batchsched.solver.relaxation.explain import GangProblemIsolator, problem_of_refused_gangs
from batchsched.solver.relaxation.residual import ResidualProblem
from batchsched.solver.verify import find_solution_faults
from tests.solver.instances import one_gang, problem_of, problems

BUDGET = SolverBudget(deterministic=5.0)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def session() -> Problem:
    gangs = [
        {"pods": 2, "demand": [3]},
        {"pods": 1, "demand": [9]},
        {"pods": 1, "demand": [1], "allowed": False},
    ]
    row = ConstraintRow(
        ALL_NODES,
        ints(0, 1),
        np.array([1, 2]),
        np.array([7]),
        gangs=ints(0, 1),
        gang_coefficients=np.array([[1, 4]]),
    )
    return problem_of(
        [[8], [4]],
        gangs,
        rows=(row,),
        quota_covers=np.array([[True, True, True], [False, True, False]]),
        quota_free=np.array([[20], [UNLIMITED]]),
        quota_gangs=np.array([2, UNLIMITED]),
    )


def test_placed_pods_are_subtracted_from_nodes_quotas_and_rows():
    problem = session()
    solution = solve_exact(problem, BUDGET, seed=0)
    left = problem_of_refused_gangs(problem, solution)
    assert left.nodes.free.sum() == 6
    assert left.quotas.free.tolist() == [[14], [UNLIMITED]]
    assert left.quotas.gangs.tolist() == [1, UNLIMITED]
    assert left.rows[0].right.tolist() == [4]
    assert left.rows[0].gang_coefficients.tolist() == [[0, 4]]
    assert left.gangs.allowed.tolist() == [False, True, False]


@pytest.mark.parametrize("solve", [lambda problem: solve_exact(problem, BUDGET, seed=0), solve_greedy])
def test_pods_of_one_side_of_a_row_keep_the_other_side_out_of_their_domain(solve):
    sides = np.array([False, True, True])
    row = ConstraintRow(EVERY_NODE, ints(0, 1, 2), np.ones(3, np.int64), np.full(3, 9), on_second_side=sides)
    gangs = [{"pods": 4, "demand": [2]}, {"pods": 1, "demand": [4]}, {"pods": 1, "demand": [5]}]
    problem = problem_of([[4], [4], [1]], gangs, rows=(row,))
    first = solve(replace(problem, gangs=replace(problem.gangs, allowed=np.array([True, False, False]))))
    assert first.nodes.tolist() == [0, 1]
    left = problem_of_refused_gangs(problem, first)
    roomy = replace(left, nodes=replace(left.nodes, free=np.array([[9], [9], [4]])))
    solution = solve(roomy)
    assert solution.nodes.tolist() == [2]
    assert find_solution_faults(roomy, solution) == ()


@pytest.mark.properties
@given(problems())
def test_after_the_optimum_nothing_left_can_be_placed(problem: Problem):
    solution = solve_exact(problem, BUDGET, seed=0)
    again = solve_exact(
        replace(problem_of_refused_gangs(problem, solution), cuts=problem.cuts), BUDGET, seed=0
    )
    fresh = ~solution.taken
    assert not again.taken[fresh].any()


def test_one_gangs_problem_has_its_classes_quotas_and_rows_only():
    own = GangProblemIsolator(session()).isolate_gang(1)
    assert own.problem.classes.demand.tolist() == [[9]]
    assert own.quotas.tolist() == [0, 1]
    assert own.problem.rows[0].classes.tolist() == [0]
    assert own.problem.rows[0].gang_coefficients.tolist() == [[4]]
    assert GangProblemIsolator(session()).isolate_gang(2).rows.tolist() == []


def test_changes_are_returned_with_their_original_numbers():
    problem = replace(
        session(),
        subgroups=replace(
            session().subgroups, gang=ints(0, 1), need=ints(0, 1), required=ints(0, 0), preferred=ints(-1, -1)
        ),
    )
    own = GangProblemIsolator(
        replace(
            problem,
            subgroups=replace(problem.subgroups, pinned=ints(-1, -1)),
            quotas=replace(problem.quotas, covers=problem.quotas.covers[::-1]),
        )
    ).isolate_gang(0)
    assert own.quotas.tolist() == [1]
    changes = CombinedChange(
        (
            RelaxedLevel(0, 3, 0),
            RelaxedLevel(0, NONE),
            AddedNodes(1, 1, passing=0),
            AddedNodes(1, 1),
            RaisedQuota(0, (1,)),
            LoosenedRow(0, 1),
            AddedPods(0, 1),
        )
    )
    assert own.to_change_of_whole_problem(changes) == CombinedChange(
        (
            RelaxedLevel(0, 3, 0),
            RelaxedLevel(0, NONE),
            AddedNodes(1, 1, passing=0),
            AddedNodes(1, 1),
            RaisedQuota(1, (1,)),
            LoosenedRow(0, 1),
            AddedPods(0, 1),
        )
    )
    other = GangProblemIsolator(
        replace(problem, subgroups=replace(problem.subgroups, pinned=ints(-1, -1)))
    ).isolate_gang(1)
    assert other.to_change_of_whole_problem(RelaxedLevel(0, 3, 0)) == RelaxedLevel(1, 3, 1)
    assert other.to_change_of_whole_problem(AddedPods(0, 2)) == AddedPods(1, 2)
    assert other.to_change_of_whole_problem(AddedNodes(1, 1, passing=0)) == AddedNodes(1, 1, passing=1)


def test_every_domain_is_filled_separately():
    levels = [[0, 0, 1, -1]]
    problem = problem_of([[8], [3], [20], [99]], [{"pods": 9, "demand": [2], "required": 0}], levels=levels)
    found = ResidualProblem(problem).fit_counts
    assert found.domains.tolist() == [0, 1]
    assert found.placed.tolist() == [[5], [9]]
    assert found.unplaced_pod_counts.tolist() == [[4], [0]]
    assert found.fits_in_some_domain


def test_a_pin_leaves_one_domain_even_when_no_node_is_in_it():
    gang = {"pods": 2, "demand": [2], "required": 0}
    assert ResidualProblem(
        problem_of([[8], [8]], [gang | {"pinned": 1}], levels=[[0, 1]])
    ).fit_counts.domains.tolist() == [1]
    nowhere = ResidualProblem(problem_of([[8], [8]], [gang | {"pinned": 7}], levels=[[0, 1]])).fit_counts
    assert nowhere.domains.tolist() == [7]
    assert not nowhere.fits_in_some_domain


def test_an_elastic_gangs_minimum_is_made_of_its_subgroups_and_its_smallest_pods():
    problem = problem_of(
        [[9]], [{"pods": 3, "demand": [4]}, {"pods": 3, "demand": [1]}, {"pods": 3, "demand": [2]}]
    )
    elastic = replace(
        problem,
        classes=replace(
            problem.classes, gang=np.zeros(3, np.int32), subgroup=np.array([0, -1, -1], np.int32)
        ),
        gangs=replace(problem.gangs, need=np.array([6, 0, 0], np.int32)[:1]),
        subgroups=replace(problem.subgroups, gang=np.zeros(1, np.int32), need=np.ones(1, np.int32)),
    )
    assert ResidualProblem(elastic).minimum_by_class.tolist() == [1, 3, 2]


def test_a_new_node_takes_what_its_own_domain_leaves():
    levels = [[0, 0, 1, -1]]
    problem = problem_of([[8], [3], [2], [99]], [{"pods": 9, "demand": [2], "required": 0}], levels=levels)
    for like, level, domain, fits in (
        (0, -1, -1, True),
        (0, 0, 1, False),
        (0, 0, 2, False),
        (3, -1, -1, False),
    ):
        change = AddedNodes(1, like, level, domain)
        assert (
            ResidualProblem(problem).fits_with_added_nodes(problem_of_added_nodes_only(problem, change))
            is fits
        )
        assert ResidualProblem(apply_change(problem, change)).fit_counts.fits_in_some_domain is fits


@pytest.mark.properties
@given(problems(extras=False))
def test_new_nodes_alone_give_the_same_answer_as_together_with_the_others(problem: Problem):
    for gang in range(len(problem.gangs.need)):
        single = GangProblemIsolator(problem).isolate_gang(gang).problem
        if len(single.classes.count) == 1:
            for change in (
                AddedNodes(count, like) for count in (1, 3) for like in range(len(single.nodes.free))
            ):
                beside = ResidualProblem(single).fits_with_added_nodes(
                    problem_of_added_nodes_only(single, change)
                )
                assert beside == ResidualProblem(apply_change(single, change)).fit_counts.fits_in_some_domain


@pytest.mark.properties
@given(problems(extras=False))
def test_counted_fits_are_feasible_and_hopeless_gangs_are_not(problem: Problem):
    for gang in range(len(problem.gangs.need)):
        single = GangProblemIsolator(problem).isolate_gang(gang).problem
        if np.any(single.subgroups.required >= 0) or single.gangs.need[0] == 0:
            continue
        taken = bool(solve_exact(single, SolverBudget(deterministic=5.0), seed=0).taken[0])
        fits = ResidualProblem(single).fit_counts.fits_in_some_domain
        assert taken or not fits
        if len(single.classes.count) == 1:
            assert taken == fits
        if single.gangs.need[0] == single.classes.count.sum():
            assert ResidualProblem(single).may_fit() or not taken


@pytest.mark.properties
@given(problems())
def test_the_quick_answer_equals_the_exact_one_on_small_problems(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblemIsolator(problem).isolate_gang(gang).problem
        assert ResidualProblem(single).gang_fits() == bool(
            solve_exact(single, SolverBudget(deterministic=5.0), seed=0).taken[0]
        )


@pytest.mark.properties
@given(problems())
def test_changed_quotas_give_the_answer_of_the_changed_problem(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblemIsolator(problem).isolate_gang(gang).problem
        for quota in ResidualProblem(single).quota_shortages:
            half = RaisedQuota(quota.quota, tuple(amount // 2 for amount in quota.amounts), quota.gangs)
            for change in (quota, half, CombinedChange((quota, quota)), CombinedChange((half, half, half))):
                assert (
                    ResidualProblem(single).fits_after_change(change)
                    == ResidualProblem(apply_change(single, change)).gang_fits()
                )


@pytest.mark.parametrize(
    "free, change",
    [
        ([[6], [4]], RaisedQuota(0, (5,))),
        ([[6], [0]], CombinedChange((RaisedQuota(0, (5,)), AddedNodes(1, 1)))),
    ],
)
def test_a_raised_quota_admits_pods_that_only_the_exact_model_places(
    free: list[list[int]], change: Relaxation
):
    # Largest first, the pod of 4 takes the node of 6, and the second pod of 3 finds no node.
    problem = problem_of(
        free,
        [{"pods": 1, "demand": [4]}, {"pods": 2, "demand": [3]}],
        capacity=np.array([[6], [4]]),
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.array([[5]]),
        quota_gangs=np.array([UNLIMITED]),
        **one_gang(3, 2),
    )
    assert ResidualProblem(apply_change(problem, change)).gang_fits()
    assert ResidualProblem(problem).fits_after_change(change)
    half = halve_change(change)
    assert half is not None
    assert not ResidualProblem(problem).fits_after_change(half)


@pytest.mark.properties
@given(problems())
def test_added_nodes_and_quotas_give_the_answer_of_the_changed_problem(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblemIsolator(problem).isolate_gang(gang).problem
        for change in (
            AddedNodes(1, 0),
            AddedNodes(2, 0, passing=0),
            CombinedChange((*ResidualProblem(single).quota_shortages, AddedNodes(1, 0))),
        ):
            assert (
                ResidualProblem(single).fits_after_change(change)
                == ResidualProblem(apply_change(single, change)).gang_fits()
            )


@pytest.mark.properties
@given(problems())
def test_a_gang_that_fits_on_what_is_left_fitted_when_more_was_free(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        before = GangProblemIsolator(problem).isolate_gang(gang).problem
        if before.rows:
            continue
        now = replace(before, nodes=replace(before.nodes, free=before.nodes.free // 2))
        assert (
            ResidualProblem(now).fitted_before_placements(ResidualProblem(before))
            == ResidualProblem(before).gang_fits()
        )


def test_large_problems_with_rows_are_answered_by_the_packing():
    row = ConstraintRow(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([150]))
    gang = {"pods": 150, "demand": [1]}
    problem = problem_of([[1]] * 200, [gang], rows=(row,))
    assert ResidualProblem(problem).gang_fits()
    assert not ResidualProblem(problem_of([[1]] * 200, [gang | {"pods": 151}], rows=(row,))).gang_fits()


def test_missing_amounts_are_in_the_unit_of_their_resource():
    member, limits = np.ones((1, 1), np.bool_), np.array([UNLIMITED])
    quota: dict[str, Any] = {
        "quota_covers": member,
        "quota_free": np.array([[-2, UNLIMITED]]),
        "quota_gangs": limits,
    }
    problem = problem_of(
        [[4, 9], [5, 9]],
        [{"pods": 3, "need": 5, "demand": [6, 1]}],
        capacity=np.array([[4, 9], [5, 9]]),
        **quota,
    )
    assert ResidualProblem(problem).uncreated_pods_by_class.tolist() == [2]
    assert ResidualProblem(problem).quota_shortages == (RaisedQuota(0, (18, 0)),)
    assert ResidualProblem(problem).capacity_shortage().tolist() == [9, 0]
    assert ResidualProblem(problem).node_size_shortage().tolist() == [1, 0]
