"""What a solution leaves, and one gang's own part of a problem."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.problem import ALL_NODES, NONE, UNLIMITED, Budget, Problem, Row
from batchsched.solver.relaxation.changes import Level, Nodes, Pods, Quota, Rule, Together
from batchsched.solver.relaxation.residual import alone, leftover
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
    left = leftover(problem, solution)
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
    again = solve_exact(replace(leftover(problem, solution), cuts=problem.cuts), BUDGET, seed=0)
    fresh = ~solution.taken
    assert not again.taken[fresh].any()


def test_one_gangs_problem_has_its_classes_quotas_and_rows_only():
    own = alone(session(), 1)
    assert own.problem.classes.demand.tolist() == [[9]]
    assert own.quotas.tolist() == [0, 1]
    assert own.problem.rows[0].classes.tolist() == [0]
    assert own.problem.rows[0].gang_coefficients.tolist() == [[4]]
    assert alone(session(), 2).rows.tolist() == []


def test_changes_get_their_old_numbers_back():
    problem = replace(
        session(),
        subgroups=replace(
            session().subgroups, gang=ints(0, 1), need=ints(0, 1), required=ints(0, 0), preferred=ints(-1, -1)
        ),
    )
    own = alone(
        replace(
            problem,
            subgroups=replace(problem.subgroups, pinned=ints(-1, -1)),
            quotas=replace(problem.quotas, covers=problem.quotas.covers[::-1]),
        ),
        0,
    )
    assert own.quotas.tolist() == [1]
    changes = Together(
        (
            Level(0, 3, 0),
            Level(0, NONE),
            Nodes(1, 1, passing=0),
            Nodes(1, 1),
            Quota(0, (1,)),
            Rule(0, 1),
            Pods(0, 1),
        )
    )
    assert own.named(changes) == Together(
        (
            Level(0, 3, 0),
            Level(0, NONE),
            Nodes(1, 1, passing=0),
            Nodes(1, 1),
            Quota(1, (1,)),
            Rule(0, 1),
            Pods(0, 1),
        )
    )
    other = alone(replace(problem, subgroups=replace(problem.subgroups, pinned=ints(-1, -1))), 1)
    assert other.named(Level(0, 3, 0)) == Level(1, 3, 1)
    assert other.named(Pods(0, 2)) == Pods(1, 2)
    assert other.named(Nodes(1, 1, passing=0)) == Nodes(1, 1, passing=1)
