"""Sparse models grow by arrays, and float weights become integers without loss that matters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.solver.engine.linear import HIGHEST, SCALED_TOTAL, LinearModel, scale_weights


def test_rows_come_back_as_they_were_added():
    model = LinearModel()
    assert model.matrix()[0].tolist() == [0]
    model.add_variables(np.zeros(3, np.int64), np.ones(3, np.int64))
    model.add_row(np.array([2]), np.array([7]), upper=3)
    starts = np.array([0, 2, 3])
    model.add_rows(
        starts, np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([0, -(2**63)]), np.array([5, 2**63 - 1])
    )
    starts, columns, coefficients = model.matrix()
    assert starts.tolist() == [0, 1, 3, 4]
    assert columns.tolist() == [2, 0, 1, 2]
    assert coefficients.tolist() == [7, 1, 2, 3]
    lower, upper, always = model.sides()
    assert lower.tolist() == [-HIGHEST, 0, -HIGHEST]
    assert upper.tolist() == [3, 5, HIGHEST]
    assert always.all()
    assert (model.variables, model.rows, model.terms) == (3, 3, 4)


def test_weights_of_a_common_measure_are_scaled_exactly():
    integers, scale, slack = scale_weights(np.array([0.1, 0.3, 0.25, 0.0]), np.array([1, 2, 3, 4]))
    assert integers.tolist() == [2, 6, 5, 0]
    assert scale == pytest.approx(20.0)
    assert slack == 0


def test_nothing_that_weighs_is_scaled_to_nothing():
    assert scale_weights(np.zeros(2), np.ones(2, np.int64))[0].tolist() == [0, 0]


@pytest.mark.properties
@given(st.lists(st.tuples(st.floats(1e-7, 1e3), st.integers(1, 500)), min_size=1, max_size=30))
def test_scaling_loses_less_than_a_billionth_and_keeps_equals_equal(pairs: list[tuple[float, int]]):
    weights, counts = np.array([w for w, _ in pairs]), np.array([k for _, k in pairs])
    integers, scale, slack = scale_weights(np.append(weights, weights[0]), np.append(counts, 1))
    counts = np.append(counts, 1)
    weights = np.append(weights, weights[0])
    total = float(weights @ counts)
    assert integers[0] == integers[-1]
    assert abs(float(integers @ counts) / scale - total) <= 1e-9 * total
    assert slack / scale <= 1e-9 * total
    assert int(integers @ counts) <= SCALED_TOTAL + int(counts.sum())
