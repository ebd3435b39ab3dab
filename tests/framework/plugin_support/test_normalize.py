import numpy as np
import pytest

from batchsched.framework.plugin_support.normalize import default_normalize


@pytest.mark.parametrize(
    "scores, reverse, expected",
    [
        ([1, 2, 3], False, [33, 66, 100]),
        ([1, 2, 3], True, [67, 34, 0]),
        ([0, 0], False, [0, 0]),
        ([0, 0], True, [100, 100]),
        ([], True, []),
    ],
)
def test_scores_are_scaled_by_their_maximum_in_whole_numbers(scores, reverse, expected):
    assert default_normalize(np.asarray(scores, np.int64), reverse).tolist() == expected
