"""Paired comparison of policies: runs with the same workload and seed, so that their common variation cancels.

The slowdown of a run depends on a few gangs, and workloads differ more than policies do, so a mean over ten runs says
little. The difference of two policies on the same workload says more, and its confidence interval states how much.
Intervals use Student's t distribution, because the number of seeds is small.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import atan, comb, cos, isnan, nan, pi, sin, sqrt
from statistics import NormalDist, fmean, stdev
from typing import Final

from batchsched.errors import InvalidInput
from batchsched.lab.figure import format_signed
from batchsched.lab.measures import MEASURES, Measure, RunOutcome

CONFIDENCE: Final = 0.95
_NEARLY_NORMAL: Final = 1000
"""Degrees of freedom from which Student's distribution is taken as normal."""
_PRECISE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """The mean of some values, and the half width of its 95 % confidence interval (NaN for one value)."""

    value: float
    half_width: float
    sample_count: int

    @staticmethod
    def from_values(values: Sequence[float]) -> "MeanInterval":
        """Return the mean of independent values with its confidence interval."""
        width = t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values)) if len(values) > 1 else nan
        return MeanInterval(fmean(values), width, len(values))


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The comparison of a policy with a base policy by one measure, over pairs of runs with the same seed.

    The two runs of a pair also have the same workload.

    Args:
      measure: The measure.
      base, other: The means of the two policies.
      difference: The mean of other minus base, over pairs.
      lower: The share of the pairs in which the other policy has the lower value.
      outcome: "better" or "worse" if the interval excludes 0, "same" if all pairs are equal, otherwise "unclear".
    """

    measure: Measure
    base: MeanInterval
    other: MeanInterval
    difference: MeanInterval
    lower: float
    outcome: str


def group_by_policy(outcomes: Sequence[RunOutcome]) -> dict[str, tuple[RunOutcome, ...]]:
    """Return the outcomes of runs grouped by policy; policies and runs keep the order of `outcomes`."""
    outcomes_by_policy: dict[str, list[RunOutcome]] = {}
    for outcome in outcomes:
        outcomes_by_policy.setdefault(outcome.policy, []).append(outcome)
    return {name: tuple(runs) for name, runs in outcomes_by_policy.items()}


def group_by_workload(outcomes: Sequence[RunOutcome]) -> dict[str, dict[str, tuple[RunOutcome, ...]]]:
    """Return the outcomes of runs grouped by workload, then by policy; all keep the order of `outcomes`."""
    workloads = dict.fromkeys(outcome.workload for outcome in outcomes)
    return {
        workload: group_by_policy([outcome for outcome in outcomes if outcome.workload == workload])
        for workload in workloads
    }


def compare_pairs(base: Sequence[RunOutcome], other: Sequence[RunOutcome]) -> tuple[PairedComparison, ...]:
    """Compare two policies in each measure, over the pairs of runs with the same workload and seed.

    The result is () if there is no such pair.

    Measures with equal values in all runs are included, for example zero evictions.
    """
    before = {(outcome.workload, outcome.seed): outcome.measures for outcome in base}
    pairs = [
        (before[outcome.workload, outcome.seed], outcome.measures)
        for outcome in other
        if (outcome.workload, outcome.seed) in before
    ]
    return tuple(_compare_by(measure, pairs) for measure in MEASURES) if pairs else ()


def check_same_gangs(base: Sequence[RunOutcome], other: Sequence[RunOutcome]) -> None:
    """Check that runs of two policies with the same workload name and seed had the same gangs.

    Raises:
      InvalidInput: The gangs differ, so a comparison would be meaningless.
    """
    before = {(outcome.workload, outcome.seed): outcome for outcome in base}
    for outcome in other:
        pair = before.get((outcome.workload, outcome.seed))
        if pair is not None and _gangs(pair) != _gangs(outcome):
            raise InvalidInput(
                "different gangs arrive in the two results",
                object=f"workload {outcome.workload}, seed {outcome.seed}",
            )


def _gangs(outcome: RunOutcome) -> list[tuple[str, int, int]]:
    return [(gang.key, gang.submitted, gang.runtime) for gang in outcome.result.gangs]


def _compare_by(
    measure: Measure, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
) -> PairedComparison:
    base = [before[measure.key] for before, _ in pairs]
    other = [after[measure.key] for _, after in pairs]
    differences = [after - before for before, after in zip(base, other, strict=True)]
    difference = MeanInterval.from_values(differences)
    lower = fmean(change < 0 for change in differences)
    return PairedComparison(
        measure,
        MeanInterval.from_values(base),
        MeanInterval.from_values(other),
        difference,
        lower,
        _outcome_of(measure, difference),
    )


def _outcome_of(measure: Measure, difference: MeanInterval) -> str:
    if difference.value == 0 and not difference.half_width > 0:
        return "same"
    if not abs(difference.value) > difference.half_width:
        return "unclear"
    return "better" if (difference.value < 0) == (measure.better == "lower") else "worse"


def format_difference(comparison: PairedComparison) -> str:
    """Format the mean difference of two policies with its interval, such as `-3.2 min ± 0.7 min`.

    The text is `same` if the policies do not differ. Differences of percentages are in percentage points:
    `+2.8 pp ± 4.3 pp`.
    """
    if comparison.outcome == "same":
        return "same"
    difference, show = comparison.difference, comparison.measure.format_differences
    if isnan(difference.half_width):
        return format_signed(show(abs(difference.value))[0], difference.value)
    value, half_width = show(abs(difference.value), difference.half_width)
    return f"{format_signed(value, difference.value)} ± {half_width}"


def format_comparison_outcome(comparison: PairedComparison) -> str:
    """Format the outcome of a comparison with the mean difference, such as `better: -3.2 min ± 0.7 min`."""
    text = format_difference(comparison)
    return text if comparison.outcome == "same" else f"{comparison.outcome}: {text}"


def nonzero_measures(policies: Iterable[Sequence[PairedComparison]]) -> tuple[Measure, ...]:
    """Return the measures that have a nonzero mean under at least one compared policy.

    The base policy counts only if it is also compared with itself.
    """
    keys = {comparison.measure.key for policy in policies for comparison in policy if comparison.other.value}
    return tuple(measure for measure in MEASURES if measure.key in keys)


@lru_cache(maxsize=256)
def t_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t distribution for the given degrees of freedom.

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
