"""Bringing raw scores into 0..100, as most of the standard Score plugins do."""

from typing import Final

import numpy as np

from batchsched.framework.status import IntArray

MAX_SCORE: Final = 100
"""The highest score of a node."""


def default_normalize(scores: IntArray, reverse: bool) -> IntArray:
    """Scale [n] scores by their maximum to 0..100, in whole numbers; reversed, the lowest is the best.

    Where the maximum is 0 all nodes are equal: 100 when reversed, unchanged otherwise.

    Source: `DefaultNormalizeScore` of k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper.
    """
    highest = int(scores.max()) if len(scores) else 0
    if highest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    scaled = MAX_SCORE * scores // highest
    return MAX_SCORE - scaled if reverse else scaled
