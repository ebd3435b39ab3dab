"""Placing single gangs: all or nothing, with a way back, in the right domains, in microseconds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem
from tests.solver.instances import problem_of, problems

RACKS = [[0, 0, 1, 1]]


def state(packing: Packing) -> tuple:
    room = packing.room
    return (
        [row.tolist() for row in room.free],
        list(room.waiting),
        room.quotas.left,
        room.quotas.gangs_left,
        [left.tolist() for left in room.rows.left_side],
        packing.taken.tolist(),
        dict(packing.domain_of),
        dict(packing.domain_of_part),
    )


@pytest.mark.properties
@given(problems(), st.data())
def test_rollback_and_withdrawal_leave_everything_as_it_was(problem: Problem, data):
    packing = Packing(problem)
    gangs = len(problem.gangs.need)
    packing.try_gang(0)
    before, mark = repr(state(packing)), packing.mark()
    for gang in range(1, gangs):
        packing.try_gang(gang)
    packing.rollback(mark)
    assert repr(state(packing)) == before
    chosen = data.draw(st.integers(0, gangs - 1))
    packing.try_gang(chosen)
    held = repr(state(packing))
    packing.reinstate(packing.withdraw({chosen}))
    assert repr(state(packing)) == held


def test_a_gang_that_does_not_fit_changes_nothing():
    packing = Packing(problem_of([[2], [2]], [{"pods": 5, "demand": [1]}]))
    before = repr(state(packing))
    assert packing.try_gang(0) is None
    assert repr(state(packing)) == before


def test_a_required_level_takes_the_domain_that_holds_the_gang_with_the_least_to_spare():
    problem = problem_of([[4], [4], [3], [2]], [{"pods": 5, "demand": [1], "required": 0}], levels=RACKS)
    entries = Packing(problem).try_gang(0)
    assert entries is not None
    assert {int(node) for entry in entries for node in entry.nodes} == {2, 3}


def test_a_pinned_gang_stays_in_its_domain():
    gang = {"pods": 5, "demand": [1], "required": 0, "pinned": 0}
    problem = problem_of([[4], [4], [3], [2]], [gang], levels=RACKS)
    entries = Packing(problem).try_gang(0)
    assert entries is not None
    assert {int(node) for entry in entries for node in entry.nodes} == {0, 1}


def test_a_preferred_level_is_kept_when_one_domain_will_do_and_left_when_not():
    for pods, domains in ((5, 1), (8, 2)):
        gang = {"pods": pods, "demand": [1], "preferred": 0}
        problem = problem_of([[1], [2], [3], [2]], [gang], levels=RACKS)
        entries = Packing(problem).try_gang(0)
        assert entries is not None
        used = {int(problem.nodes.levels[0, node]) for entry in entries for node in entry.nodes}
        assert len(used) == domains


def test_surplus_stays_in_the_domain_of_its_gang():
    gang = {"pods": 9, "need": 2, "demand": [1], "required": 0}
    problem = problem_of([[2], [2], [2], [2]], [gang], levels=RACKS)
    packing = Packing(problem)
    packing.try_gang(0)
    assert packing.add_surplus(0) == 2
    nodes = np.concatenate([entry.nodes for entry in packing.room.trail if entry.class_index >= 0])
    assert len(set(problem.nodes.levels[0, nodes].tolist())) == 1


def test_a_gang_limit_of_one_admits_one_gang():
    problem = problem_of(
        [[8]],
        [{"pods": 1, "demand": [1]}, {"pods": 1, "demand": [1]}],
        quota_covers=np.ones((1, 2), np.bool_),
        quota_free=np.full((1, 1), 8),
        quota_gangs=np.ones(1, np.int64),
    )
    packing = Packing(problem)
    assert packing.try_gang(0) is not None
    assert packing.try_gang(1) is None


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.booleans())
def test_equal_lone_pods_are_as_many_placed_as_one_as_one_by_one(seed: int, pods: int, spread: bool):
    rng = np.random.default_rng(seed)
    free, demand = rng.integers(0, 9, (4, 3)).tolist(), [*rng.integers(0, 4, 2).tolist(), 1]
    problem = problem_of(free, [{"pods": 1, "demand": demand}] * pods, spread=spread)
    one_by_one, together = Packing(problem), Packing(problem)
    for gang in range(pods):
        one_by_one.try_gang(gang)
    together.try_equal_gangs(list(range(pods)))
    assert together.taken.tolist() == one_by_one.taken.tolist()
    assert together.room.waiting == one_by_one.room.waiting
    assert all((row >= 0).all() for row in together.room.free)
    together.rollback(0)
    assert not together.taken.any()
