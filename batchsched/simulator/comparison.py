"""Compares policies over sequences of one trace, in pairs, so that effects of the sequence cancel out.

The slowdown of a sequence depends on a few gangs, and sequences differ more than policies do, so a mean over ten
sequences says little. The difference of two policies on the same sequence says more, and its confidence interval
states how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, comb, cos, pi, sin, sqrt
from statistics import NormalDist, fmean, stdev
from typing import Final

import numpy as np

from batchsched.errors import InvalidInput

CONFIDENCE: Final = 0.95
_NEARLY_NORMAL: Final = 1000
_PRECISE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference between another policy and a base policy over paired sequences.

    Args:
      base, other: mean of each policy.
      mean: mean of the differences.
      half_width: half width of Student's 95 % confidence interval. Sequences are treated as independent, so it is too
        narrow if they overlap.
      better: share of the sequences on which the other policy has the lower value.
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


def paired(base: Sequence[float], other: Sequence[float]) -> PairedDifference:
    """Compare two policies on the same sequences in the same order.

    Raises:
      InvalidInput: fewer than two pairs, or lists of different lengths.
    """
    if len(base) != len(other) or len(base) < 2:
        raise InvalidInput(
            f"expected at least two pairs, found {len(base)} and {len(other)} values", object="comparison"
        )
    differences = [after - before for before, after in zip(base, other, strict=True)]
    return PairedDifference(
        base=fmean(base),
        other=fmean(other),
        mean=fmean(differences),
        half_width=quantile(len(differences) - 1) * stdev(differences) / sqrt(len(differences)),
        better=fmean(1.0 if one < 0 else 0.0 for one in differences),
    )


@lru_cache(maxsize=256)
def quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t for a number of degrees of freedom.

    Source: the closed form of its distribution for whole degrees, Abramowitz and Stegun, 26.7.3 and 26.7.4.

    Raises:
      InvalidInput: fewer than one degree of freedom.
    """
    if freedom < 1:
        raise InvalidInput("expected at least two values", object="comparison")
    if freedom > _NEARLY_NORMAL:
        return NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    low, high = 0.0, 16.0
    while high - low > _PRECISE:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return (low + high) / 2


def _within(bound: float, freedom: int) -> float:
    """Return the probability that |t| is at most `bound`."""
    angle = atan(bound / sqrt(freedom))
    if freedom % 2 == 0:
        terms = (comb(2 * k, k) / 4**k * cos(angle) ** (2 * k) for k in range(freedom // 2))
        return sin(angle) * float(sum(terms))
    # (2·4·…·2k) / (3·5·…·(2k + 1)) = 4^k / ((2k + 1)·C(2k, k))
    terms = (4**k / ((2 * k + 1) * comb(2 * k, k)) * cos(angle) ** (2 * k + 1) for k in range(freedom // 2))
    return 2 / pi * (angle + sin(angle) * float(sum(terms)))


def window_starts(count: int, seed: int, below: int) -> tuple[int, ...]:
    """Draw the first rows of windows of a trace: rows 0 to `below` - 1, with repetition.

    Raises:
      InvalidInput: the trace is shorter than one window.
    """
    if below < 1:
        raise InvalidInput("the trace is shorter than one window", object="windows")
    return tuple(np.random.default_rng(seed).integers(0, below, count).tolist())
