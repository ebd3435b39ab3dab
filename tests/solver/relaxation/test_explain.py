"""Explanations: the cause, what is missing, and a relaxation that admits beside the gangs that are placed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact import solve_exact
from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    UNLIMITED,
    ConstraintRow,
    Problem,
    Solution,
    SolverBudget,
)
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    LoosenedRow,
    RaisedQuota,
    RelaxedLevel,
    apply_change,
)
from batchsched.solver.relaxation.explain import RefusalEvidence, RefusalExplainer
from batchsched.solver.relaxation.search import RefusalCause
from tests.solver.instances import one_gang, problem_of, problems

BUDGET = SolverBudget(deterministic=20.0)


def solve(problem: Problem) -> Solution:
    return solve_exact(problem, BUDGET, seed=1)


def explain(
    problem: Problem,
    solution: Solution,
    gang: int,
    wider: Sequence[int] | None = None,
) -> RefusalEvidence:
    """By default, every level has the next wider one before it."""
    wider = range(-1, len(problem.nodes.levels) - 1) if wider is None else wider
    return RefusalExplainer(problem, solution, wider).explain_gang_refusal(gang)


def evidence(problem: Problem, gang: int) -> RefusalEvidence:
    solution = solve(problem)
    assert not solution.taken[gang]
    return explain(problem, solution, gang)


@pytest.mark.properties
@given(problems(extras=False))
def test_the_relaxation_makes_room_in_addition_to_the_placed_gangs(problem: Problem):
    solution = solve(problem)
    held = np.zeros(len(problem.gangs.need), np.int64)
    np.add.at(held, problem.classes.gang[solution.classes], solution.counts)
    for gang in np.flatnonzero(~solution.taken & problem.gangs.allowed).tolist():
        found = explain(problem, solution, gang)
        assert found.relaxation is not None
        both = solution.taken.copy()
        both[found.gang] = True
        kept = replace(
            problem,
            gangs=replace(problem.gangs, allowed=problem.gangs.allowed & both),
            classes=replace(problem.classes, weight=np.zeros_like(problem.classes.weight)),
        )
        kept = replace(
            kept,
            gangs=replace(
                kept.gangs, need=np.where(solution.taken, held, problem.gangs.need).astype(np.int32)
            ),
        )
        assert solve(apply_change(kept, found.relaxation)).taken[found.gang]


def test_two_more_nodes_are_named_when_two_pods_find_no_room():
    problem = problem_of([[8], [8]], [{"pods": 4, "demand": [8]}])
    found = evidence(problem, 0)
    assert (found.cause, found.need, found.fits) == (RefusalCause.CAPACITY, 4, 2)
    assert found.missing.tolist() == [16]
    assert found.relaxation == AddedNodes(2, like=0)
    assert not found.outbid


def test_enough_free_capacity_in_too_small_pieces_is_reported_as_fragmented():
    problem = problem_of([[4], [4], [4]], [{"pods": 2, "demand": [6]}])
    found = evidence(problem, 0)
    assert found.cause == RefusalCause.FRAGMENTED
    assert found.missing.tolist() == [12]
    assert found.relaxation == AddedNodes(2, like=0)


def test_only_the_resource_that_stops_the_pods_is_missing():
    found = evidence(problem_of([[4, 90], [4, 90]], [{"pods": 3, "demand": [4, 10]}]), 0)
    assert found.missing.tolist() == [4, 0]


def test_a_gang_that_fits_at_a_coarser_level_gets_that_level_proposed():
    levels = [[0, 0, 0, 0, 1], [0, 0, 1, 1, 2], [0, 1, 2, 3, 4]]
    problem = problem_of([[8]] * 5, [{"pods": 3, "demand": [8], "required": 1}], levels=levels)
    found = evidence(problem, 0)
    assert (found.cause, found.level, found.domain, found.fits) == (RefusalCause.TOPOLOGY, 1, 0, 2)
    assert found.missing.tolist() == [8]
    assert found.relaxation == RelaxedLevel(0, 0)


def test_missing_amount_of_a_required_level_is_that_of_the_best_domain_and_not_of_all_nodes():
    """Three of four pods fit in all racks together, and two in the best rack."""
    levels = [[0, 0, 1]]
    problem = problem_of([[8]] * 3, [{"pods": 4, "demand": [8], "required": 0}], levels=levels)
    found = evidence(problem, 0)
    assert (found.cause, found.domain, found.fits) == (RefusalCause.CAPACITY, 0, 2)
    assert found.missing.tolist() == [16]


def test_missing_amount_is_that_of_the_nearest_domain_if_no_domain_has_room_for_a_pod():
    """No node has 4 free. The racks have 1, 6 and 7 together, and the pods may not use the nodes of the last one."""
    gang = {"pods": 2, "demand": [4], "required": 0}
    problem = problem_of([[1], [3], [3], [3], [3], [1]], [gang], levels=[[0, 1, 1, 2, 2, 2]])
    mask = np.array([[True, True, True, False, False, False]])
    found = evidence(replace(problem, kinds=replace(problem.kinds, mask=mask)), 0)
    assert (found.domain, found.fits) == (1, 0)
    assert found.missing.tolist() == [2]


def test_resources_that_are_scarce_only_outside_the_best_domain_are_not_missing():
    """The rack with two nodes lacks the first resource only; the node of the other rack lacks the second."""
    levels = [[0, 0, 1]]
    nodes = [[4, 90], [4, 90], [40, 5]]
    problem = problem_of(nodes, [{"pods": 4, "demand": [4, 10], "required": 0}], levels=levels)
    found = evidence(problem, 0)
    assert (found.domain, found.fits) == (0, 2)
    assert found.missing.tolist() == [8, 0]


def test_the_chain_of_levels_can_be_given():
    levels = [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 2, 3]]
    problem = problem_of([[8]] * 4, [{"pods": 3, "demand": [8], "required": 2}], levels=levels)
    solution = solve(problem)
    assert explain(problem, solution, 0).relaxation == RelaxedLevel(0, 1)
    assert explain(problem, solution, 0, wider=(-1, -1, 0)).relaxation == RelaxedLevel(0, 0)


def test_more_nodes_come_in_one_domain_of_the_required_level():
    levels = [[0, 0, 1, 1, 1]]
    problem = problem_of([[8]] * 5, [{"pods": 6, "demand": [8], "required": 0}], levels=levels)
    found = evidence(problem, 0)
    assert found.relaxation == AddedNodes(3, like=0, level=0, domain=1)


def test_a_quota_names_the_amount_that_it_lacks():
    gangs = [{"pods": 4, "demand": [2]}]
    quota: dict[str, Any] = {
        "quota_covers": np.ones((2, 1), np.bool_),
        "quota_free": np.array([[UNLIMITED], [5]]),
        "quota_gangs": np.full(2, UNLIMITED),
    }
    found = evidence(problem_of([[8]], gangs, **quota), 0)
    assert (found.cause, found.quota, found.missing.tolist()) == (RefusalCause.QUOTA, 1, [3])
    assert found.relaxation == RaisedQuota(1, (3,))


def test_a_quota_needs_no_new_nodes_beside_it_if_the_exact_model_places_the_pods():
    # Largest first, the pod of 4 takes the node of 6, and the second pod of 3 finds no node.
    problem = problem_of(
        [[6], [4]],
        [{"pods": 1, "demand": [4]}, {"pods": 2, "demand": [3]}],
        quota_covers=np.ones((1, 1), np.bool_),
        quota_free=np.array([[5]]),
        quota_gangs=np.array([UNLIMITED]),
        **one_gang(3, 2),
    )
    found = evidence(problem, 0)
    assert (found.cause, found.relaxation) == (RefusalCause.QUOTA, RaisedQuota(0, (5,)))


def test_a_quota_of_gangs_lacks_one_gang():
    quota: dict[str, Any] = {
        "quota_covers": np.ones((1, 1), np.bool_),
        "quota_free": np.array([[UNLIMITED]]),
        "quota_gangs": np.zeros(1, np.int64),
    }
    found = evidence(problem_of([[8]], [{"pods": 1, "demand": [2]}], **quota), 0)
    assert (found.cause, found.missing_gangs, found.relaxation) == (
        RefusalCause.QUOTA,
        1,
        RaisedQuota(0, (0,), 1),
    )


def test_a_rule_of_a_plugin_is_named_by_its_row():
    row = ConstraintRow(
        EVERY_NODE, np.zeros(1, np.int32), np.ones(1, np.int64), np.ones(2, np.int64), plugin="NodePorts"
    )
    found = evidence(problem_of([[8], [8]], [{"pods": 4, "demand": [1]}], rows=(row,)), 0)
    assert (found.cause, found.row, found.relaxation) == (RefusalCause.ROW, 0, LoosenedRow(0, 1))


def test_a_pod_larger_than_any_node_asks_for_a_larger_node():
    found = evidence(problem_of([[8], [6]], [{"pods": 1, "demand": [11]}]), 0)
    assert (found.cause, found.missing.tolist()) == (RefusalCause.POD_TOO_LARGE, [3])
    assert found.relaxation == AddedNodes(1, like=0, extra=(3,))


def test_filters_that_leave_no_node_ask_for_a_node_that_passes():
    problem = problem_of([[8], [8]], [{"pods": 1, "demand": [1]}], mask=np.zeros((1, 2), np.bool_))
    found = evidence(problem, 0)
    assert (found.cause, found.missing.tolist()) == (RefusalCause.NO_NODE, [0])
    assert found.relaxation == AddedNodes(1, like=0, passing=0)


def test_too_few_pods_ask_for_pods():
    found = evidence(problem_of([[8]], [{"pods": 2, "need": 5, "demand": [1]}]), 0)
    assert (found.cause, found.relaxation) == (RefusalCause.TOO_FEW_PODS, AddedPods(0, 3))


def test_a_gang_refused_at_admission_has_no_relaxation():
    found = evidence(problem_of([[8]], [{"pods": 1, "demand": [1], "allowed": False}]), 0)
    assert (found.cause, found.relaxation) == (RefusalCause.NOT_ALLOWED, None)


def test_a_gang_that_other_gangs_displaced_is_reported_as_outbid():
    gangs = [{"pods": 2, "demand": [4], "weight": 9.0}, {"pods": 2, "demand": [4]}]
    found = evidence(problem_of([[8]], gangs), 1)
    assert found.outbid
    assert found.relaxation == AddedNodes(1, like=0)


def test_a_row_that_excludes_a_gang_is_loosened_together_with_new_nodes():
    ones = np.ones(1, np.int64)
    row = ConstraintRow(ALL_NODES, np.zeros(1, np.int32), ones, np.array([1]))
    found = evidence(problem_of([[2]], [{"pods": 3, "demand": [2]}], rows=(row,)), 0)
    assert found.relaxation is not None
    assert found.cause == RefusalCause.CAPACITY
