"""Score by utilization: a piecewise linear function that the configuration defines by points."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from batchsched.api.crd.base import SpecPart

MAX_UTILIZATION: Final = 100
SHAPE_FACTOR: Final = 10
"""Factor from the scores of a shape, 0 to 10, to node scores, 0 to 100."""


class UtilizationShapePoint(SpecPart):
    """A point of the function from utilization in percent to score."""

    utilization: int = Field(default=0, ge=0, le=100)
    score: int = Field(default=0, ge=0, le=10)


def check_rises(shape: Sequence[UtilizationShapePoint]) -> None:
    """Check that the points are sorted by increasing utilization.

    Raises:
      ValueError: a point does not have a higher utilization than the previous one.
    """
    points = [point.utilization for point in shape]
    if any(later <= earlier for earlier, later in pairwise(points)):
        raise ValueError("shape: utilization values must rise from point to point")


def broken_line(shape: Sequence[UtilizationShapePoint]) -> NDArray[np.int64]:
    """[101] Return the score at each whole percent of utilization, rounded toward zero.

    Source: `BuildBrokenLinearFunction` of kube-scheduler's plugins/helper.
    """
    scores = []
    for percent in range(MAX_UTILIZATION + 1):
        index = next((i for i, point in enumerate(shape) if percent <= point.utilization), len(shape))
        if index == 0 or index == len(shape):
            scores.append(shape[min(index, len(shape) - 1)].score * SHAPE_FACTOR)
            continue
        before, after = shape[index - 1], shape[index]
        rise = (after.score - before.score) * SHAPE_FACTOR * (percent - before.utilization)
        scores.append(before.score * SHAPE_FACTOR + int(rise / (after.utilization - before.utilization)))
    return np.asarray(scores, np.int64)
