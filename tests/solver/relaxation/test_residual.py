"""What a solution leaves, and one gang's own part of a problem."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.problem import ALL_NODES, NONE, UNLIMITED, Budget, Problem, Row
from batchsched.solver.relaxation.changes import (
    CombinedChange,
    LevelChange,
    NodeChange,
    PodChange,
    QuotaChange,
    RowChange,
)
from batchsched.solver.relaxation.residual import GangProblems, subtract_placements
from tests.solver.instances import problem_of, problems

BUDGET = Budget(deterministic=5.0)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def session() -> Problem:
    gangs = [
        {"pods": 2, "demand": [3]},
        {"pods": 1, "demand": [9]},
        {"pods": 1, "demand": [1], "allowed": False},
    ]
    row = Row(
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


def test_what_is_placed_is_gone_from_nodes_quotas_and_rows():
    problem = session()
    solution = solve_exact(problem, BUDGET, seed=0)
    left = subtract_placements(problem, solution)
    assert left.nodes.free.sum() == 6
    assert left.quotas.free.tolist() == [[14], [UNLIMITED]]
    assert left.quotas.gangs.tolist() == [1, UNLIMITED]
    assert left.rows[0].right.tolist() == [4]
    assert left.rows[0].gang_coefficients.tolist() == [[0, 4]]
    assert left.gangs.allowed.tolist() == [False, True, False]


@pytest.mark.properties
@given(problems())
def test_after_the_optimum_nothing_left_can_be_placed(problem: Problem):
    solution = solve_exact(problem, BUDGET, seed=0)
    again = solve_exact(replace(subtract_placements(problem, solution), cuts=problem.cuts), BUDGET, seed=0)
    fresh = ~solution.taken
    assert not again.taken[fresh].any()


def test_one_gangs_problem_has_its_classes_quotas_and_rows_only():
    own = GangProblems(session()).isolate(1)
    assert own.problem.classes.demand.tolist() == [[9]]
    assert own.quotas.tolist() == [0, 1]
    assert own.problem.rows[0].classes.tolist() == [0]
    assert own.problem.rows[0].gang_coefficients.tolist() == [[4]]
    assert GangProblems(session()).isolate(2).rows.tolist() == []


def test_changes_get_their_old_numbers_back():
    problem = replace(
        session(),
        subgroups=replace(
            session().subgroups, gang=ints(0, 1), need=ints(0, 1), required=ints(0, 0), preferred=ints(-1, -1)
        ),
    )
    own = GangProblems(
        replace(
            problem,
            subgroups=replace(problem.subgroups, pinned=ints(-1, -1)),
            quotas=replace(problem.quotas, covers=problem.quotas.covers[::-1]),
        )
    ).isolate(0)
    assert own.quotas.tolist() == [1]
    changes = CombinedChange(
        (
            LevelChange(0, 3, 0),
            LevelChange(0, NONE),
            NodeChange(1, 1, passing=0),
            NodeChange(1, 1),
            QuotaChange(0, (1,)),
            RowChange(0, 1),
            PodChange(0, 1),
        )
    )
    assert own.restore_numbers(changes) == CombinedChange(
        (
            LevelChange(0, 3, 0),
            LevelChange(0, NONE),
            NodeChange(1, 1, passing=0),
            NodeChange(1, 1),
            QuotaChange(1, (1,)),
            RowChange(0, 1),
            PodChange(0, 1),
        )
    )
    other = GangProblems(replace(problem, subgroups=replace(problem.subgroups, pinned=ints(-1, -1)))).isolate(
        1
    )
    assert other.restore_numbers(LevelChange(0, 3, 0)) == LevelChange(1, 3, 1)
    assert other.restore_numbers(PodChange(0, 2)) == PodChange(1, 2)
    assert other.restore_numbers(NodeChange(1, 1, passing=0)) == NodeChange(1, 1, passing=1)
