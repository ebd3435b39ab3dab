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
class Compared:
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
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        found.setdefault(one.policy, []).append(one)
    return {name: tuple(mine) for name, mine in found.items()}


def compared(base: Sequence[Outcome], other: Sequence[Outcome]) -> tuple[Compared, ...]:
    """Compare two policies on the workloads and seeds that both ran; empty if there are none.

    Measures with equal values in all runs are included, for example zero evictions.
    """
    before = {(one.workload, one.seed): one.measures for one in base}
    pairs = [
        (before[one.workload, one.seed], one.measures) for one in other if (one.workload, one.seed) in before
    ]
    return tuple(_compared(measure, pairs) for measure in MEASURES) if pairs else ()


def check_same(base: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Check that workloads of the same name and seed are identical.

    Raises:
      InvalidInput: They differ, so a comparison would be meaningless.
    """
    before = {(one.workload, one.seed): one for one in base}
    for one in other:
        pair = before.get((one.workload, one.seed))
        if pair is not None and _gangs(pair) != _gangs(one):
            raise InvalidInput(
                "different gangs arrive in the two results",
                object=f"workload {one.workload}, seed {one.seed}",
            )


def _gangs(outcome: Outcome) -> list[tuple[str, int, int]]:
    return [(gang.key, gang.submitted, gang.runtime) for gang in outcome.result.gangs]


def _compared(measure: Measure, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> Compared:
    base = [one[measure.key] for one, _ in pairs]
    other = [one[measure.key] for _, one in pairs]
    difference = Mean.of([after - before for before, after in zip(base, other, strict=True)])
    return Compared(measure, Mean.of(base), Mean.of(other), difference, _verdict(measure, difference))


def _verdict(measure: Measure, difference: Mean) -> str:
    if difference.value == 0 and not difference.half_width > 0:
        return "same"
    if not abs(difference.value) > difference.half_width:
        return "unclear"
    return "better" if (difference.value < 0) == (measure.better == "lower") else "worse"


def difference_text(one: Compared) -> str:
    """Format a difference: `-3.2 min ± 40 s`, or `same`."""
    if one.verdict == "same":
        return "same"
    sign = "-" if one.difference.value < 0 else "+"
    text = sign + one.measure.show(abs(one.difference.value))
    width = one.difference.half_width
    return text if isnan(width) else f"{text} ± {one.measure.show(width)}"


def of_interest(policies: Sequence[Sequence[Compared]]) -> tuple[Measure, ...]:
    """Return the measures that are not zero under all policies."""
    told = {one.measure.key for found in policies for one in found if one.other.value}
    return tuple(measure for measure in MEASURES if measure.key in told)
