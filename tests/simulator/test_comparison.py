import numpy as np
import pytest

from batchsched.errors import InvalidInput
from batchsched.simulator.comparison import paired, quantile, window_starts


def test_what_pairs_share_cancels():
    difference = paired([10.0, 20.0, 30.0], [9.0, 19.0, 29.0])
    assert (difference.mean, difference.half_width, difference.better) == (-1.0, 0.0, 1.0)
    assert difference.relative == pytest.approx(-0.05)


@pytest.mark.parametrize(
    "freedom, expected", [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (2000, 1.960)]
)
def test_quantiles_are_those_of_students_table(freedom, expected):
    assert quantile(freedom) == pytest.approx(expected, abs=5e-4)


def test_no_degree_of_freedom_is_refused():
    with pytest.raises(InvalidInput, match="two values"):
        quantile(0)


def test_the_interval_is_students_at_95_percent():
    difference = paired([0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0])
    assert difference.half_width == pytest.approx(3.1824 * np.std([1, -1, 1, -1], ddof=1) / 2, rel=1e-4)
    assert difference.better == 0.5
    assert difference.relative == 0.0


@pytest.mark.parametrize("values", [([1.0], [1.0]), ([1.0, 2.0], [1.0])])
def test_fewer_than_two_pairs_say_nothing(values):
    with pytest.raises(InvalidInput, match="two pairs"):
        paired(*values)


def test_windows_begin_where_a_seeded_draw_says():
    assert window_starts(3, 7, 8900) == tuple(np.random.default_rng(7).integers(0, 8900, 3).tolist())


def test_a_trace_shorter_than_a_window_is_refused():
    with pytest.raises(InvalidInput, match="shorter"):
        window_starts(3, 7, 0)
