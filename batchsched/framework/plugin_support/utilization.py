"""From utilization to a score: the broken line that a person states point by point."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from batchsched.api.crd.base import SpecPart

MAX_UTILIZATION: Final = 100
SHAPE_FACTOR: Final = 10
"""Shape scores run from 0 to 10, node scores from 0 to 100."""


class UtilizationShapePoint(SpecPart):
    """A point of the broken line from utilization, in percent, to score."""

    utilization: int = Field(default=0, ge=0, le=100)
    score: int = Field(default=0, ge=0, le=10)


def check_rises(shape: Sequence[UtilizationShapePoint]) -> None:
    """Refuse a line that does not go from left to right.

    Raises:
      ValueError: two points in turn do not rise in utilization.
    """
    points = [point.utilization for point in shape]
    if any(later <= earlier for earlier, later in pairwise(points)):
        raise ValueError("shape: utilization values must rise from point to point")


def broken_line(shape: Sequence[UtilizationShapePoint]) -> NDArray[np.int64]:
    """[101] the score at each whole percent of utilization, in whole numbers that round toward zero.

    Source: `BuildBrokenLinearFunction` of kube-scheduler's plugins/helper.
    """
    scores = []
    for percent in range(MAX_UTILIZATION + 1):
        at = next((i for i, point in enumerate(shape) if percent <= point.utilization), len(shape))
        if at == 0 or at == len(shape):
            scores.append(shape[min(at, len(shape) - 1)].score * SHAPE_FACTOR)
            continue
        left, right = shape[at - 1], shape[at]
        rise = (right.score - left.score) * SHAPE_FACTOR * (percent - left.utilization)
        scores.append(left.score * SHAPE_FACTOR + int(rise / (right.utilization - left.utilization)))
    return np.asarray(scores, np.int64)
