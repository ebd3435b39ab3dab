"""Mapping of raw scores to 0..100, as most standard Score plugins do it."""

from typing import Final

import numpy as np

from batchsched.framework.status import IntArray

MAX_SCORE: Final = 100
"""The highest score of a node."""


def default_normalize(scores: IntArray, reverse: bool) -> IntArray:
    """Scale [n] scores to 0..100 by their maximum, in whole numbers. With `reverse`, the lowest score is the best.

    If the maximum is 0, all nodes are equal: 100 with `reverse`, else unchanged.

    Source: `DefaultNormalizeScore` of k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper.
    """
    highest = int(scores.max()) if len(scores) else 0
    if highest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    scaled = MAX_SCORE * scores // highest
    return MAX_SCORE - scaled if reverse else scaled
