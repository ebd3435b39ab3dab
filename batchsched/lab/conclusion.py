"""The conclusion of a comparison in sentences: what each policy gains against the baseline, and what that costs.

A sweep repeats each policy with several seeds, so only differences that its 95 % intervals confirm count. A simulation
runs each policy once, so differences below a threshold count as none, and the text states that it is one run.

`trade_off_sentence` states all differences between two policies of a simulation in one sentence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchsched.lab.figure import format_number
from batchsched.lab.measures import Measure, RunOutcome, SummaryRow
from batchsched.lab.pairs import compare_pairs

MAX_POLICIES: Final = 3
"""Maximum number of policies with sentences of their own; the table compares all."""
MAX_CHANGES: Final = 3
"""Maximum number of gains, and of costs, in a sentence."""
_MIN_RELATIVE_CHANGE: Final = 0.03
"""Minimum change of a single run in the conclusion, as a part of the value of the baseline."""
MIN_TRADE_OFF: Final = 0.01
"""Minimum change in a trade-off, as a part of the larger of the two values."""
# Bounded slowdowns and medians follow the waits; the sentence would state the same twice.
_MEASURES: Final = (
    "meanWait",
    "worstWait",
    "fairnessError",
    "utilisation",
    "makespan",
    "unfinished",
    "done",
    "evictions",
    "lostHours",
)


@dataclass(frozen=True, slots=True)
class _Change:
    """The difference between a policy and the baseline in one measure."""

    measure: Measure
    base: float
    other: float

    @property
    def is_gain(self) -> bool:
        return (self.other < self.base) == (self.measure.better == "lower")

    @property
    def change_text(self) -> str:
        """How a measure differs, in words, such as: mean wait 12 times shorter (0.74 h instead of 8.6 h)."""
        base, other = self.measure.format_values((self.base, self.other))
        name = self.measure.title_in_sentence
        if self.measure.is_duration:
            return f"{name} {_ratio_text(self.base, self.other)} ({other} instead of {base})"
        if self.measure.is_percentage:
            points = 100 * abs(self.other - self.base)
            direction = "higher" if self.other > self.base else "lower"
            return f"{name} {points:.1f} percentage points {direction} ({other} instead of {base})"
        return f"{name} {other} instead of {base}"

    @property
    def before_and_after_text(self) -> str:
        """The name of the measure and its values under both policies, such as: mean wait (8.6 h → 1.4 h)."""
        show = self.measure.show
        return f"{self.measure.title_in_sentence} ({show(self.base)} → {show(self.other)})"

    @property
    def relative_size(self) -> float:
        """The absolute difference between the values of the two policies, as a fraction of the larger value.

        The fraction is 0 if both values are 0.
        """
        larger = max(abs(self.base), abs(self.other))
        return abs(self.other - self.base) / larger if larger else 0.0


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The conclusion of a report: its sentences, and a note on the runs from which they follow.

    The note may be "".
    """

    sentences: tuple[str, ...] = ()
    note: str = ""


def conclude_simulation(policies: Sequence[str], rows: Sequence[SummaryRow]) -> Conclusion:
    """Return the conclusion of a simulation with one run per policy: how each policy differs from the first.

    Args:
      policies: The policies, the baseline first.
      rows: The measures with a value for each policy.
    """
    if len(policies) < 2:
        return Conclusion()
    changes_by_policy = {}
    for index, policy in enumerate(policies[1:], start=1):
        changes = [_Change(row.measure, row.means[0], row.means[index]) for row in rows]
        changes_by_policy[policy] = [change for change in changes if _is_notable(change)]
    note = "Each policy ran once on this workload; another workload can give another result."
    return Conclusion(tuple(_sentences(policies[0], changes_by_policy)), note)


def conclude_sweep(policies: Mapping[str, Sequence[RunOutcome]]) -> Conclusion:
    """Return the conclusion of a sweep on one workload: how each policy differs from the first one."""
    if len(policies) < 2:
        return Conclusion()
    base, *other_policies = policies
    changes_by_policy = {}
    pairs = 0
    for policy in other_policies:
        comparisons = compare_pairs(policies[base], policies[policy])
        pairs = max([pairs, *(comparison.difference.sample_count for comparison in comparisons)])
        changes_by_policy[policy] = [
            _Change(comparison.measure, comparison.base.value, comparison.other.value)
            for comparison in comparisons
            if comparison.outcome in ("better", "worse")
        ]
    note = f"A difference counts only if its 95 % interval over {pairs} seeds excludes 0."
    if pairs < 2:
        note = "With one seed no difference can be confirmed; run more seeds."
    return Conclusion(tuple(_sentences(base, changes_by_policy)), note)


def trade_off_sentence(rows: Sequence[SummaryRow], policies: Sequence[str], base: str, other: str) -> str:
    """Return a sentence on what one policy improves and worsens if it replaces another policy.

    Args:
      rows: The summary of a simulation.
      policies: The names of the simulated policies, in the order of the rows' values.
      base: The policy that is replaced.
      other: The policy that replaces it.
    """
    before, after = policies.index(base), policies.index(other)
    changes = [_Change(row.measure, row.means[before], row.means[after]) for row in rows]
    changes = [change for change in changes if change.relative_size > MIN_TRADE_OFF]
    if not changes:
        return f"{other} instead of {base} changes no measure by more than {MIN_TRADE_OFF:.0%}."
    gains = [change.before_and_after_text for change in changes if change.is_gain]
    costs = [change.before_and_after_text for change in changes if not change.is_gain]
    gained = f"improves {_enumerate(gains)}" if gains else "improves nothing"
    cost = f", at the cost of {_enumerate(costs)}" if costs else ", at no cost in the other measures"
    return f"{other} instead of {base} {gained}{cost}."


def _sentences(base: str, changes_by_policy: Mapping[str, Sequence[_Change]]) -> Iterator[str]:
    equal = [policy for policy, changes in changes_by_policy.items() if not changes]
    different = {policy: changes for policy, changes in changes_by_policy.items() if changes}
    if equal:
        yield f"There is no clear difference between {base} and {_enumerate(equal)}."
    for policy, changes in list(different.items())[:MAX_POLICIES]:
        changes = [change for key in _MEASURES for change in changes if change.measure.key == key]
        gains = [change.change_text for change in changes if change.is_gain][:MAX_CHANGES]
        costs = [change.change_text for change in changes if not change.is_gain][:MAX_CHANGES]
        gained = f"gains: {_enumerate(gains)}" if gains else "gains nothing clear"
        cost = f"It costs: {_enumerate(costs)}." if costs else "It costs nothing clear."
        yield f"Compared with {base}, {policy} {gained}. {cost}"
    if len(different) > MAX_POLICIES:
        yield f"The table compares the other {len(different) - MAX_POLICIES} policies."


def _is_notable(change: _Change) -> bool:
    if change.measure.key not in _MEASURES:
        return False
    size = abs(change.other - change.base)
    if change.measure.is_percentage:
        return size >= 0.01
    return size > _MIN_RELATIVE_CHANGE * abs(change.base) if change.measure.is_duration else size > 0


def _ratio_text(base: float, other: float) -> str:
    """Return how a duration differs from that of the baseline, such as `12 times shorter` or `8% longer`."""
    longer = other > base
    word = "longer" if longer else "shorter"
    low, high = sorted((base, other))
    if not low:
        return word
    ratio = high / low
    if ratio >= 2:
        return f"{format_number(round(ratio, 1) if ratio < 10 else round(ratio))} times {'as long' if longer else word}"
    return f"{abs(other - base) / base:.0%} {word}"


def _enumerate(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
