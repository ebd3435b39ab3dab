"""Paired comparison of policies: runs with the same workload and seed, so that their common variation cancels.

Intervals use Student's t distribution, because the number of seeds is small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from statistics import fmean, stdev

from batchsched.errors import InvalidInput
from batchsched.lab.measures import MEASURES, Measure
from batchsched.lab.results import Outcome
from batchsched.simulator.comparison import quantile


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and the half width of its 95 % confidence interval; nan if there is only one value."""

    value: float
    half_width: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> "Mean":
        """Return the mean of independent values."""
        width = quantile(len(values) - 1) * stdev(values) / sqrt(len(values)) if len(values) > 1 else nan
        return Mean(fmean(values), width, len(values))


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The comparison of two policies by one measure.

    Args:
      measure: The measure.
      base, other: The means of the two policies.
      difference: The mean of other minus base, over pairs.
      verdict: "better" or "worse" if the interval excludes 0, "same" if all pairs are equal, otherwise "unclear".
    """

    measure: Measure
    base: Mean
    other: Mean
    difference: Mean
    verdict: str


def by_policy(outcomes: Sequence[Outcome]) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcomes by policy, in order."""
    outcomes_by_policy: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        outcomes_by_policy.setdefault(outcome.policy, []).append(outcome)
    return {name: tuple(runs) for name, runs in outcomes_by_policy.items()}


def compare_pairs(base: Sequence[Outcome], other: Sequence[Outcome]) -> tuple[PairedComparison, ...]:
    """Compare two policies on the workloads and seeds that both ran; empty if there are none.

    Measures with equal values in all runs are included, for example zero evictions.
    """
    before = {(outcome.workload, outcome.seed): outcome.measures for outcome in base}
    pairs = [
        (before[outcome.workload, outcome.seed], outcome.measures)
        for outcome in other
        if (outcome.workload, outcome.seed) in before
    ]
    return tuple(_compared(measure, pairs) for measure in MEASURES) if pairs else ()


def check_same(base: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Check that workloads of the same name and seed are identical.

    Raises:
      InvalidInput: They differ, so a comparison would be meaningless.
    """
    before = {(outcome.workload, outcome.seed): outcome for outcome in base}
    for outcome in other:
        pair = before.get((outcome.workload, outcome.seed))
        if pair is not None and _gangs(pair) != _gangs(outcome):
            raise InvalidInput(
                "different gangs arrive in the two results",
                object=f"workload {outcome.workload}, seed {outcome.seed}",
            )


def _gangs(outcome: Outcome) -> list[tuple[str, int, int]]:
    return [(gang.key, gang.submitted, gang.runtime) for gang in outcome.result.gangs]


def _compared(
    measure: Measure, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
) -> PairedComparison:
    base = [one[measure.key] for one, _ in pairs]
    other = [one[measure.key] for _, one in pairs]
    difference = Mean.of([after - before for before, after in zip(base, other, strict=True)])
    return PairedComparison(measure, Mean.of(base), Mean.of(other), difference, _verdict(measure, difference))


def _verdict(measure: Measure, difference: Mean) -> str:
    if difference.value == 0 and not difference.half_width > 0:
        return "same"
    if not abs(difference.value) > difference.half_width:
        return "unclear"
    return "better" if (difference.value < 0) == (measure.better == "lower") else "worse"


def difference_text(one: PairedComparison) -> str:
    """Format a difference: `-3.2 min ± 40 s`, or `same`."""
    if one.verdict == "same":
        return "same"
    sign = "-" if one.difference.value < 0 else "+"
    text = sign + one.measure.show(abs(one.difference.value))
    width = one.difference.half_width
    return text if isnan(width) else f"{text} ± {one.measure.show(width)}"


def of_interest(policies: Sequence[Sequence[PairedComparison]]) -> tuple[Measure, ...]:
    """Return the measures that are not zero under all policies."""
    told = {one.measure.key for found in policies for one in found if one.other.value}
    return tuple(measure for measure in MEASURES if measure.key in told)
