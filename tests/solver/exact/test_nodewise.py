"""The node-level model: which counts exist, and which placements it admits."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.exact.nodewise import NodeModel, count_fitting
from batchsched.solver.problem import Budget, Cut, Problem
from tests.solver.brute import brute
from tests.solver.instances import problem_of, problems


@pytest.mark.properties
@given(problems())
def test_the_models_rows_admit_the_optimum_of_brute_force(problem: Problem):
    model = NodeModel(problem)
    values = model.assignment((c, n, k) for (c, n), k in brute(problem).counts.items())
    assert values is not None
    assert model.model.admits(values)


@pytest.mark.properties
@given(problems())
def test_what_the_model_admits_is_what_it_answers(problem: Problem):
    model = NodeModel(problem)
    solution = solve_exact(problem, Budget(deterministic=5.0), seed=0)
    triples = zip(solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True)
    values = model.assignment(triples)
    assert values is not None
    assert model.model.admits(values)


def test_counts_exist_only_where_a_pod_fits():
    gangs = [
        {"pods": 3, "demand": [4]},
        {"pods": 3, "demand": [1], "required": 0, "pinned": 1},
        {"pods": 1, "demand": [1], "allowed": False},
    ]
    problem = problem_of([[8], [3]], gangs, levels=[[0, 1]])
    assert count_fitting(problem).tolist() == [[2, 0], [0, 3], [0, 0]]
    assert NodeModel(problem).assignment([(0, 1, 1)]) is None


def test_a_cut_forbids_its_counts_and_nothing_else():
    def one(value: int) -> np.ndarray:
        return np.array([value], np.int32)

    problem = problem_of(
        [[2]], [{"pods": 2, "need": 1, "demand": [1]}], cuts=(Cut(0, one(0), one(0), one(2)),)
    )
    model = NodeModel(problem)
    refused, other = model.assignment([(0, 0, 2)]), model.assignment([(0, 0, 1)])
    assert refused is not None
    assert other is not None
    assert not model.model.admits(refused)
    assert model.model.admits(other)
