"""The broken line, and the points that make none."""

import pytest

from batchsched.framework.plugin_support.utilization import UtilizationShapePoint, broken_line, check_rises


def points(*pairs):
    return [UtilizationShapePoint(utilization=at, score=score) for at, score in pairs]


def test_scores_lie_on_the_line_and_stay_level_beyond_its_ends():
    line = broken_line(points((20, 0), (40, 10)))
    assert line[[0, 20, 21, 30, 40, 41, 100]].tolist() == [0, 0, 5, 50, 100, 100, 100]


def test_falling_lines_round_toward_zero_too():
    assert broken_line(points((0, 10), (3, 9)))[:5].tolist() == [100, 97, 94, 90, 90]


@pytest.mark.parametrize("pairs", [[(5, 1), (5, 2)], [(5, 1), (4, 2)]], ids=["twice", "back"])
def test_a_line_that_does_not_go_on_is_refused(pairs):
    check_rises(points((1, 1), (2, 0)))
    with pytest.raises(ValueError, match="must rise from point to point"):
        check_rises(points(*pairs))
