"""Counting: exact for one class, never too optimistic for several."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.problem import Budget, Problem
from batchsched.solver.relaxation.changes import NodeChange, added_nodes, apply_change
from batchsched.solver.relaxation.fit_count import FitCounter
from batchsched.solver.relaxation.residual import GangProblems
from tests.solver.instances import problem_of, problems


def test_every_domain_is_filled_by_itself():
    levels = [[0, 0, 1, -1]]
    problem = problem_of([[8], [3], [20], [99]], [{"pods": 9, "demand": [2], "required": 0}], levels=levels)
    found = FitCounter(problem).fit_counts
    assert found.domains.tolist() == [0, 1]
    assert found.placed.tolist() == [[5], [9]]
    assert found.short.tolist() == [[4], [0]]
    assert found.fits


def test_a_pin_leaves_one_domain_even_when_no_node_is_in_it():
    gang = {"pods": 2, "demand": [2], "required": 0}
    assert FitCounter(
        problem_of([[8], [8]], [gang | {"pinned": 1}], levels=[[0, 1]])
    ).fit_counts.domains.tolist() == [1]
    nowhere = FitCounter(problem_of([[8], [8]], [gang | {"pinned": 7}], levels=[[0, 1]])).fit_counts
    assert nowhere.domains.tolist() == [7]
    assert not nowhere.fits


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
    assert FitCounter(elastic).minimum.tolist() == [1, 3, 2]


def test_a_new_node_takes_what_its_own_domain_leaves():
    levels = [[0, 0, 1, -1]]
    problem = problem_of([[8], [3], [2], [99]], [{"pods": 9, "demand": [2], "required": 0}], levels=levels)
    for like, level, domain, fits in (
        (0, -1, -1, True),
        (0, 0, 1, False),
        (0, 0, 2, False),
        (3, -1, -1, False),
    ):
        change = NodeChange(1, like, level, domain)
        assert FitCounter(problem).fits_with_nodes(added_nodes(problem, change)) is fits
        assert FitCounter(apply_change(problem, change)).fit_counts.fits is fits


@pytest.mark.properties
@given(problems(extras=False))
def test_new_nodes_are_asked_by_themselves_as_they_are_beside_the_others(problem: Problem):
    for gang in range(len(problem.gangs.need)):
        single = GangProblems(problem).isolate(gang).problem
        if len(single.classes.count) == 1:
            for change in (
                NodeChange(count, like) for count in (1, 3) for like in range(len(single.nodes.free))
            ):
                beside = FitCounter(single).fits_with_nodes(added_nodes(single, change))
                assert beside == FitCounter(apply_change(single, change)).fit_counts.fits


@pytest.mark.properties
@given(problems(extras=False))
def test_what_is_counted_to_fit_fits_and_what_is_not_hopeful_does_not(problem: Problem):
    for gang in range(len(problem.gangs.need)):
        single = GangProblems(problem).isolate(gang).problem
        if np.any(single.subgroups.required >= 0) or single.gangs.need[0] == 0:
            continue
        taken = bool(solve_exact(single, Budget(deterministic=5.0), seed=0).taken[0])
        fits = FitCounter(single).fit_counts.fits
        assert taken or not fits
        if len(single.classes.count) == 1:
            assert taken == fits
        if single.gangs.need[0] == single.classes.count.sum():
            assert FitCounter(single).may_fit() or not taken
