"""The checker of victims: silent on sound answers, and it catches each kind of planted fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchsched.solver.verify import find_victim_faults
from batchsched.solver.victims.choose import VictimSearchLimits, choose_victims
from batchsched.solver.victims.victim_problem import VictimProblem, VictimSolution
from tests.solver.victims.instances import victims_of

LEVELS = [[0, 0, 1, 1]]


def sound() -> tuple[VictimProblem, VictimSolution]:
    """A gang of two in one rack, for which two of four units leave; the third is the first one's surplus."""
    units = [(2, {0: [8]}), (1, {1: [8]}), (9, {2: [8]}), (9, {3: [8]})]
    problem = victims_of(
        [[0]] * 4,
        {"pods": 2, "demand": [8], "required": 0},
        units,
        levels=LEVELS,
        bond_unit=np.array([0], np.int32),
        bond_with=np.array([1], np.int32),
        limit=np.array([2]),
        limit_row=np.zeros(4, np.int32),
        limit_unit=np.arange(4, dtype=np.int32),
        limit_amount=np.ones(4, np.int64),
    )
    answer = choose_victims(problem, VictimSearchLimits())
    assert answer is not None
    return problem, answer


def test_a_valid_answer_has_no_fault():
    assert find_victim_faults(*sound()) == ()


def changed(answer: VictimSolution, **fields) -> VictimSolution:
    arrays = {"units", "classes", "nodes", "counts"}
    made: dict[str, Any] = {
        name: np.array(value, np.int32) if name in arrays else value for name, value in fields.items()
    }
    return replace(answer, **made)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"units": [1, 0]}, "not in order"),
        ({"units": [0, 9]}, "does not exist"),
        ({"cost": 2}, "the answer says 2"),
        ({"bound": 4}, "above the cost"),
        ({"greedy": 2}, "a greedy's 2"),
        ({"units": [0], "cost": 2}, "unit 0 leaves and unit 1 does not"),
        ({"units": [0, 1, 2], "cost": 12}, "limit 0 allows 2"),
        ({"units": [0, 1, 2], "cost": 12}, "does without its room"),
        ({"counts": [1, 0]}, "not positive"),
        ({"counts": [1, 2]}, "2 pods and 3 are placed"),
        ({"classes": [0], "nodes": [0], "counts": [1]}, "with 1 of the 2 pods it needs"),
        ({"nodes": [0, 2]}, "is in domains [0, 1]"),
        ({"nodes": [2, 3]}, "node 2 has 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_planted_fault_is_named(fields, said):
    problem, answer = sound()
    assert any(said in fault for fault in find_victim_faults(problem, changed(answer, **fields)))


def test_a_node_outside_the_mask_is_a_named_fault():
    problem, answer = sound()
    mask = problem.pending.kinds.mask.copy()
    mask[0, 0] = False
    other = replace(
        problem, pending=replace(problem.pending, kinds=replace(problem.pending.kinds, mask=mask))
    )
    assert any("its mask refuses" in fault for fault in find_victim_faults(other, answer))


def test_a_violated_cut_is_a_named_fault():
    problem, answer = sound()
    other = replace(problem, cuts=(answer.units,))
    assert any("cut 0" in fault for fault in find_victim_faults(other, answer))


def test_a_violated_quota_is_a_named_fault():
    problem, answer = sound()
    wanted = replace(
        problem.pending, quotas=replace(problem.pending.quotas, covers=np.ones((1, 1), np.bool_))
    )
    wanted = replace(
        wanted, quotas=replace(wanted.quotas, free=np.zeros((1, 1), np.int64), gangs=np.zeros(1, np.int64))
    )
    other = replace(
        problem,
        pending=wanted,
        quota_left=np.array([[8]]),
        gangs_left=np.array([0]),
        quota_unit=np.zeros((1, 4), np.bool_),
    )
    assert {fault[:7] for fault in find_victim_faults(other, answer)} == {"quota 0"}
