"""Decayed usage: what a queue used lately, the more recent the more it counts.

A sample stands for the time since the one before: U <- (1 - a) · U + a · current, with a = 1 - 0.5^(dt / half-life).
So U has the unit of usage, a queue that always uses u has U = u, and after one half-life of rest it has u / 2. Two
samples with the same usage come to the same as one: how often is sampled does not matter.

    decayed(usage, current, elapsed, half_life) -> usage       {queue: {resource: amount}}
    Past(usage, half_life)                                     the same, from session to session

Source: Kueue, KEP-4136 (admission fair sharing).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from batchsched.api.snapshot import QueueUsage

Usage = Mapping[str, Mapping[str, float]]
"""By queue, by resource, in base units."""
Current = Mapping[str, Mapping[str, int]]
"""What is used at one moment."""
BLIND: Final = 300.0
"""Seconds for which usage counts at most after it was last seen."""
_FORGOTTEN: Final = 1e-6
"""Amounts below it are dropped: a millionth of a device or of a milli-CPU."""


def kept(elapsed: float, half_life: float) -> float:
    """Return the part of past usage that is left after a time: 0.5^(elapsed / half-life); 0 for a half-life of 0."""
    return 0.5 ** (max(0.0, elapsed) / half_life) if half_life > 0 else 0.0


def decayed(usage: Usage, current: Current, elapsed: float, half_life: float) -> dict[str, dict[str, float]]:
    """Return decayed usage with one more sample.

    Args:
      usage: what it was at the last sample.
      current: what queues used since; a queue that is not named used nothing.
      elapsed: seconds since the last sample; 0 or less changes nothing.
      half_life: seconds after which usage counts half.
    """
    part = kept(elapsed, half_life)
    found: dict[str, dict[str, float]] = {}
    for queue in sorted({*usage, *current}):
        past, now = usage.get(queue, {}), current.get(queue, {})
        amounts = {
            resource: past.get(resource, 0.0) * part + now.get(resource, 0) * (1.0 - part)
            for resource in sorted({*past, *now})
        }
        amounts = {resource: amount for resource, amount in amounts.items() if amount > _FORGOTTEN}
        if amounts:
            found[queue] = amounts
    return found


def by_queue(listed: Iterable[QueueUsage]) -> dict[str, dict[str, float]]:
    """Return usage as a snapshot lists it by queue and resource."""
    found: dict[str, dict[str, float]] = {}
    for one in listed:
        found.setdefault(one.queue, {})[one.resource] = one.amount
    return found


def listed(usage: Usage) -> tuple[QueueUsage, ...]:
    """Return usage as a snapshot lists it."""
    return tuple(
        QueueUsage(queue, resource, amount)
        for queue, amounts in sorted(usage.items())
        for resource, amount in sorted(amounts.items())
    )


class UsageHistory:
    """Decayed usage as sessions go by.

    Between two sessions nobody looks. What was held after the one and is there at the other was used all the time;
    what is gone by then counts for `BLIND` seconds at most.

    Args:
      usage: as of the first session.
      half_life: seconds after which usage counts half.
    """

    def __init__(self, usage: Usage, half_life: float) -> None:
        self.usage: Usage = usage
        self._half_life = half_life
        self._held: Current = {}
        self._at: float | None = None

    def advance(self, now: float, present: Current) -> Usage:
        """Go on to another moment, at which this is used; returns decayed usage as of then."""
        if self._at is not None and now > self._at:
            elapsed = now - self._at
            blind = min(elapsed, BLIND)
            stayed = {
                queue: {
                    resource: min(amount, present.get(queue, {}).get(resource, 0))
                    for resource, amount in held.items()
                }
                for queue, held in self._held.items()
            }
            seen = decayed(self.usage, self._held, blind, self._half_life)
            self.usage = decayed(seen, stayed, elapsed - blind, self._half_life)
            self._held = present
        self._at = now if self._at is None else max(self._at, now)
        return self.usage

    def hold(self, current: Current) -> None:
        """Take in what is used from the last moment on."""
        self._held = current

    def with_half_life(self, half_life: float) -> "UsageHistory":
        """Return the same past, forgotten faster or slower from now on."""
        other = UsageHistory(self.usage, half_life)
        other._held, other._at = self._held, self._at
        return other
