"""Comparing policies over many sequences of one trace: sequences in pairs, so that what they share cancels.

The slowdown of a sequence is decided by a few gangs, and sequences differ more than policies do; a mean over ten of
them says little. The difference of two policies on the same sequence says more, and its interval says how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import Final

import numpy as np

from batchsched.errors import InvalidInput

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """Another policy less a base policy, over sequences in pairs.

    Args:
      base, other: means of the two.
      mean: of the differences.
      half_width: of the normal 95 % interval around it; the sequences are taken as independent, so where they
        overlap it is too narrow.
      better: share of the sequences where the other is lower.
    """

    base: float
    other: float
    mean: float
    half_width: float
    better: float

    @property
    def relative(self) -> float:
        """The mean difference as a share of the base's mean."""
        return self.mean / self.base if self.base else 0.0


def paired(base: Sequence[float], other: Sequence[float]) -> Difference:
    """Compare two policies on the same sequences, in the same order.

    Raises:
      InvalidInput: fewer than two pairs, or lists of different lengths.
    """
    if len(base) != len(other) or len(base) < 2:
        raise InvalidInput(
            f"expected at least two pairs, found {len(base)} and {len(other)} values", object="comparison"
        )
    differences = [after - before for before, after in zip(base, other, strict=True)]
    quantile = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    return Difference(
        base=fmean(base),
        other=fmean(other),
        mean=fmean(differences),
        half_width=quantile * stdev(differences) / sqrt(len(differences)),
        better=fmean(1.0 if one < 0 else 0.0 for one in differences),
    )


def window_starts(count: int, seed: int, below: int) -> tuple[int, ...]:
    """Draw where windows of a trace begin: rows 0 to `below` - 1, with repeats.

    Raises:
      InvalidInput: the trace is shorter than one window.
    """
    if below < 1:
        raise InvalidInput("the trace is shorter than one window", object="windows")
    return tuple(np.random.default_rng(seed).integers(0, below, count).tolist())
