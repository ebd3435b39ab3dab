"""The conclusion of a report: what each policy gained against the baseline and what it cost, in sentences.

A sweep repeats each policy with several seeds, so only differences that its 95 % intervals confirm count. A simulation
runs each policy once, so differences below a threshold count as none, and the text states that it is one run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchsched.lab.figure import format_duration, format_durations, format_number
from batchsched.lab.measures import Measure, Outcome, SummaryRow
from batchsched.lab.pairs import compare_pairs

MAX_POLICIES: Final = 3
"""Maximum number of policies with sentences of their own; the table compares all."""
MAX_CHANGES: Final = 3
"""Maximum number of gains, and of costs, in a sentence."""
_MIN_RELATIVE_CHANGE: Final = 0.03
"""Minimum change of a single run, as a part of the value of the baseline."""
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
    """A difference of a policy from the baseline by one measure."""

    measure: Measure
    base: float
    other: float

    @property
    def is_gain(self) -> bool:
        return (self.other < self.base) == (self.measure.better == "lower")

    @property
    def text(self) -> str:
        """The change as a part of a sentence, such as: mean wait 12 times shorter (0.74 h instead of 8.6 h)."""
        name = self.measure.title.removesuffix("*")
        name = name if name[:2].isupper() else name[0].lower() + name[1:]
        base, other = format_values(self.measure, (self.base, self.other))
        if is_duration(self.measure):
            return f"{name} {_ratio_text(self.base, self.other)} ({other} instead of {base})"
        if is_percentage(self.measure):
            points = 100 * abs(self.other - self.base)
            direction = "higher" if self.other > self.base else "lower"
            return f"{name} {points:.1f} percentage points {direction} ({other} instead of {base})"
        return f"{name} {other} instead of {base}"


def conclude_simulation(policies: Sequence[str], rows: Sequence[SummaryRow]) -> tuple[str, ...]:
    """Return the conclusion of a simulation in which each policy ran once.

    Args:
      policies: The policies, the baseline first.
      rows: The measures with a value for each policy.
    """
    if len(policies) < 2:
        return ()
    changes_by_policy = {}
    for index, policy in enumerate(policies[1:], start=1):
        changes = [_Change(row.measure, row.means[0], row.means[index]) for row in rows]
        changes_by_policy[policy] = [change for change in changes if _is_notable(change)]
    note = "Each policy ran once on this workload; another workload can give another result."
    return (*_sentences(policies[0], changes_by_policy), note)


def conclude_sweep(policies: Mapping[str, Sequence[Outcome]]) -> tuple[str, ...]:
    """Return the conclusion of a sweep on one workload; the first policy is the baseline."""
    if len(policies) < 2:
        return ()
    base, *other_policies = policies
    changes_by_policy = {}
    pairs = 0
    for policy in other_policies:
        comparisons = compare_pairs(policies[base], policies[policy])
        pairs = max([pairs, *(comparison.difference.sample_count for comparison in comparisons)])
        changes_by_policy[policy] = [
            _Change(comparison.measure, comparison.base.value, comparison.other.value)
            for comparison in comparisons
            if comparison.verdict in ("better", "worse")
        ]
    note = f"A difference counts only if its 95 % interval over {pairs} seeds excludes 0."
    if pairs < 2:
        note = "With one seed no difference can be confirmed; run more seeds."
    return (*_sentences(base, changes_by_policy), note)


def _sentences(base: str, changes_by_policy: Mapping[str, Sequence[_Change]]) -> Iterator[str]:
    equal = [policy for policy, changes in changes_by_policy.items() if not changes]
    different = {policy: changes for policy, changes in changes_by_policy.items() if changes}
    if equal:
        yield f"There is no clear difference between {base} and {_enumerate(equal)}."
    for policy, changes in list(different.items())[:MAX_POLICIES]:
        changes = [change for key in _MEASURES for change in changes if change.measure.key == key]
        gains = [change.text for change in changes if change.is_gain][:MAX_CHANGES]
        costs = [change.text for change in changes if not change.is_gain][:MAX_CHANGES]
        gained = f"gains: {_enumerate(gains)}" if gains else "gains nothing clear"
        cost = f"It costs: {_enumerate(costs)}." if costs else "It costs nothing clear."
        yield f"Compared with {base}, {policy} {gained}. {cost}"
    if len(different) > MAX_POLICIES:
        yield f"The table compares the other {len(different) - MAX_POLICIES} policies."


def _is_notable(change: _Change) -> bool:
    if change.measure.key not in _MEASURES:
        return False
    size = abs(change.other - change.base)
    if is_percentage(change.measure):
        return size >= 0.01
    return size > _MIN_RELATIVE_CHANGE * abs(change.base) if is_duration(change.measure) else size > 0


def _ratio_text(base: float, other: float) -> str:
    longer = other > base
    low, high = sorted((base, other))
    if not low:
        return "longer" if longer else "shorter"
    ratio = high / low
    word = "longer" if longer else "shorter"
    if ratio >= 2:
        return f"{format_number(round(ratio, 1) if ratio < 10 else round(ratio))} times {'as long' if longer else word}"
    return f"{abs(other - base) / base:.0%} {word}"


def _enumerate(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def is_duration(measure: Measure) -> bool:
    """Return whether the values of a measure are seconds."""
    return measure.show is format_duration


def is_percentage(measure: Measure) -> bool:
    """Return whether the values of a measure are shown as percentages."""
    return measure.show(0.5).endswith("%")


def format_values(measure: Measure, values: Sequence[float]) -> tuple[str, ...]:
    """Format the values of a measure for comparison: durations in one unit."""
    return format_durations(values) if is_duration(measure) else tuple(map(measure.show, values))
