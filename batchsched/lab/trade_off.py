"""The trade-off between two policies in one sentence: the measures that improve, and those that get worse."""

from collections.abc import Sequence
from typing import Final

from batchsched.lab.measures import SummaryRow

MIN_CHANGE: Final = 0.01
"""Smallest relative change of a measure that is stated."""


def trade_off_sentence(rows: Sequence[SummaryRow], policies: Sequence[str], base: str, other: str) -> str:
    """State what one policy improves over a base, and at which cost, such as: SJF instead of FIFO improves mean wait.

    Args:
      rows: the summary of a simulation.
      policies: the names of its policies, in the order of the rows' values.
      base: the policy that is replaced.
      other: the policy that replaces it.
    """
    before, after = policies.index(base), policies.index(other)
    gains = [_change(row, before, after) for row in rows if _improvement(row, before, after) > MIN_CHANGE]
    costs = [_change(row, before, after) for row in rows if _improvement(row, before, after) < -MIN_CHANGE]
    if not gains and not costs:
        return f"{other} instead of {base} changes no measure by more than {MIN_CHANGE:.0%}."
    gained = f"improves {_join(gains)}" if gains else "improves nothing"
    cost = f", at the cost of {_join(costs)}" if costs else ", at no cost in the other measures"
    return f"{other} instead of {base} {gained}{cost}."


def _improvement(row: SummaryRow, before: int, after: int) -> float:
    """Return the relative change of a measure, positive if it is an improvement."""
    base, other = row.means[before], row.means[after]
    change = (other - base) / max(abs(base), abs(other)) if base != other else 0.0
    return -change if row.measure.better == "lower" else change


def _change(row: SummaryRow, before: int, after: int) -> str:
    title = row.measure.title.rstrip("*")
    # An abbreviation such as GPUs keeps its capital letter.
    name = title if title[1:2].isupper() else title[:1].lower() + title[1:]
    texts = row.formatted_means
    return f"{name} ({texts[before]} → {texts[after]})"


def _join(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
