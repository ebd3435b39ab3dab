"""Whether one gang fits, and what it lacks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.problem import ALL_NODES, UNLIMITED, Budget, Problem, Row
from batchsched.solver.relaxation.admission import Residual
from batchsched.solver.relaxation.changes import CombinedChange, NodeChange, QuotaChange, apply_change
from batchsched.solver.relaxation.residual import GangProblems
from tests.solver.instances import problem_of, problems


@pytest.mark.properties
@given(problems())
def test_the_quick_answer_is_the_exact_one_on_small_problems(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblems(problem).isolate(gang).problem
        assert Residual(single).fits() == bool(
            solve_exact(single, Budget(deterministic=5.0), seed=0).taken[0]
        )


@pytest.mark.properties
@given(problems())
def test_quotas_that_change_are_asked_as_a_changed_problem_is(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblems(problem).isolate(gang).problem
        for quota in Residual(single).quota_gaps:
            half = QuotaChange(quota.quota, tuple(amount // 2 for amount in quota.amounts), quota.gangs)
            for change in (quota, half, CombinedChange((quota, quota)), CombinedChange((half, half, half))):
                assert Residual(single).fits_with(change) == Residual(apply_change(single, change)).fits()


@pytest.mark.properties
@given(problems())
def test_nodes_and_quotas_that_are_added_are_asked_as_a_changed_problem_is(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        single = GangProblems(problem).isolate(gang).problem
        for change in (
            NodeChange(1, 0),
            NodeChange(2, 0, passing=0),
            CombinedChange((*Residual(single).quota_gaps, NodeChange(1, 0))),
        ):
            assert Residual(single).fits_with(change) == Residual(apply_change(single, change)).fits()


@pytest.mark.properties
@given(problems())
def test_who_fits_on_what_is_left_fitted_when_more_was(problem: Problem):
    for gang in np.flatnonzero(problem.gangs.need > 0).tolist():
        before = GangProblems(problem).isolate(gang).problem
        if before.rows:
            continue
        now = replace(before, nodes=replace(before.nodes, free=before.nodes.free // 2))
        assert Residual(now).fitted_before(Residual(before)) == Residual(before).fits()


def test_large_problems_with_rules_are_asked_of_the_packing():
    row = Row(ALL_NODES, np.zeros(1, np.int32), np.ones(1, np.int64), np.array([150]))
    gang = {"pods": 150, "demand": [1]}
    problem = problem_of([[1]] * 200, [gang], rows=(row,))
    assert Residual(problem).fits()
    assert not Residual(problem_of([[1]] * 200, [gang | {"pods": 151}], rows=(row,))).fits()


def test_what_is_short_is_named_in_its_own_measure():
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
    assert Residual(problem).missing_pods.tolist() == [2]
    assert Residual(problem).quota_gaps == (QuotaChange(0, (18, 0)),)
    assert Residual(problem).capacity_short().tolist() == [9, 0]
    assert Residual(problem).size_short().tolist() == [1, 0]
