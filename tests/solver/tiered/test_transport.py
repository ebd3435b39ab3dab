"""The linear program behind a choice: it says when pools cannot hold it, and its cuts cut nothing that fits."""

import numpy as np
import pytest
from hypothesis import given

from batchsched.solver.greedy import solve_greedy
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.transport import PoolTransport
from tests.solver.instances import problem_of, problems


def model(problem: Problem, *, relaxed: bool = False) -> TieredModel:
    packing = Packing(problem)
    return TieredModel(packing, build_pools(packing), None if relaxed else solve_greedy(problem), relaxed)


def violated(aggregate: TieredModel, values: np.ndarray) -> list[int]:
    starts, columns, coefficients = aggregate.model.matrix()
    lower, upper, _ = aggregate.model.sides()
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    left = np.bincount(rows, coefficients * values[columns], minlength=len(starts) - 1)
    return np.flatnonzero((left < lower) | (left > upper)).tolist()


@pytest.mark.properties
@given(problems())
def test_what_the_greedy_placed_satisfies_the_model_and_every_cut(problem: Problem):
    aggregate = model(problem)
    values = aggregate.values_of(solve_greedy(problem))
    assert violated(aggregate, values) == []
    transport = PoolTransport(aggregate)
    everything = aggregate.model.bounds()[1]
    for gang in range(len(problem.gangs.need)):
        some = everything.copy()
        some[aggregate.y[gang]] = 0
        transport.split(some)
    transport.split(everything)
    assert violated(aggregate, values) == []
    assert transport.split(values)[0].short == 0.0


@pytest.mark.properties
@given(problems(extras=False))
def test_a_choice_that_does_not_fit_is_cut_off(problem: Problem):
    aggregate = model(problem, relaxed=True)
    everything = aggregate.model.bounds()[1]
    before = aggregate.model.rows
    split, fits = PoolTransport(aggregate).split(everything)
    if split.short > 0 and not fits:
        assert violated(aggregate, everything)[-1] >= before


def test_a_tightened_pool_holds_less_until_it_is_loosened():
    problem = problem_of([[4], [4]], [{"pods": 8, "demand": [1]}])
    aggregate = model(problem)
    transport = PoolTransport(aggregate)
    values = aggregate.model.bounds()[1]
    assert transport.split(values)[1]
    transport.tighten(0, np.array([1.0]))
    kept = transport.loosen()
    assert transport.split(values)[0].short == 0.0
    transport.restore(kept)
