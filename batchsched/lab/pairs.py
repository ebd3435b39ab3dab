"""Policies against each other: the same workload and seed in pairs, so that what they share cancels.

Intervals are Student's: seeds are few, and the normal one would promise too much.
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
    """A mean and the half width of its 95 % interval; nan where one value says nothing of it."""

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
    """One measure of two policies.

    Args:
      measure: which.
      base, other: means.
      difference: other less base, in pairs.
      verdict: "better" or "worse" where the interval excludes 0, "same" where all pairs are equal, "unclear" else.
    """

    measure: Measure
    base: Mean
    other: Mean
    difference: Mean
    verdict: str


def by_policy(outcomes: Sequence[Outcome]) -> dict[str, tuple[Outcome, ...]]:
    """Return outcomes by policy, in their order."""
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        found.setdefault(one.policy, []).append(one)
    return {name: tuple(mine) for name, mine in found.items()}


def compared(base: Sequence[Outcome], other: Sequence[Outcome]) -> tuple[Compared, ...]:
    """Compare two policies on the workloads and seeds that both have; nothing when there are none.

    Measures that are the same number in all runs of both are left in: that nothing was evicted is worth saying.
    """
    before = {(one.workload, one.seed): one.measures for one in base}
    pairs = [
        (before[one.workload, one.seed], one.measures) for one in other if (one.workload, one.seed) in before
    ]
    return tuple(_compared(measure, pairs) for measure in MEASURES) if pairs else ()


def check_same(base: Sequence[Outcome], other: Sequence[Outcome]) -> None:
    """Check that workloads of one name and seed are the same.

    Raises:
      InvalidInput: they are not: to compare them would compare nothing.
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
    """Write a difference for people: `-3.2 min ± 40 s`, or `same`."""
    if one.verdict == "same":
        return "same"
    sign = "-" if one.difference.value < 0 else "+"
    text = sign + one.measure.show(abs(one.difference.value))
    width = one.difference.half_width
    return text if isnan(width) else f"{text} ± {one.measure.show(width)}"


def of_interest(policies: Sequence[Sequence[Compared]]) -> tuple[Measure, ...]:
    """Return the measures that are not nothing under every policy."""
    told = {one.measure.key for found in policies for one in found if one.other.value}
    return tuple(measure for measure in MEASURES if measure.key in told)
