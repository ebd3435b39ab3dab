"""Decayed usage: past usage of queues, in which recent usage counts more.

A sample represents the time since the previous sample: U <- (1 - a) · U + a · current, with a = 1 - 0.5^(dt /
half-life). So U has the unit of usage: constant usage u gives U = u, and after one half-life without usage it is u /
2. Two samples with equal usage give the same result as one, so the sampling interval does not matter.

    decay_usage(usage, current, elapsed, half_life) -> usage   {queue: {resource: amount}}
    UsageHistory(usage, half_life)                             the same, from session to session

Source: Kueue, KEP-4136 (admission fair sharing).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from batchsched.api.snapshot import PastQueueUsage

Usage = Mapping[str, Mapping[str, float]]
"""Amounts in base units by queue, then by resource."""
Current = Mapping[str, Mapping[str, int]]
"""Present usage by queue, then by resource."""
MAX_UNOBSERVED_SECONDS: Final = 300.0
"""Maximum time in seconds for which usage counts after it was last observed."""
_FORGOTTEN: Final = 1e-6
"""Amounts below this value are dropped: a millionth of a device or of a milli-CPU."""


def decay_factor(elapsed: float, half_life: float) -> float:
    """Return the part of past usage that still counts after `elapsed` seconds: 0.5^(elapsed / half-life).

    The part is 0 if the half-life is 0.
    """
    return 0.5 ** (max(0.0, elapsed) / half_life) if half_life > 0 else 0.0


def decay_usage(
    usage: Usage, current: Current, elapsed: float, half_life: float
) -> dict[str, dict[str, float]]:
    """Return the decayed usage of all queues after `elapsed` more seconds with the usage `current`.

    Args:
      usage: decayed usage at the previous sample.
      current: usage since the previous sample; an absent queue used nothing.
      elapsed: seconds since the previous sample; 0 or less changes nothing.
      half_life: half-life in seconds.
    """
    part = decay_factor(elapsed, half_life)
    result: dict[str, dict[str, float]] = {}
    for queue in sorted({*usage, *current}):
        past, now = usage.get(queue, {}), current.get(queue, {})
        amounts = {
            resource: past.get(resource, 0.0) * part + now.get(resource, 0) * (1.0 - part)
            for resource in sorted({*past, *now})
        }
        amounts = {resource: amount for resource, amount in amounts.items() if amount > _FORGOTTEN}
        if amounts:
            result[queue] = amounts
    return result


def past_usage_by_queue(usage_entries: Iterable[PastQueueUsage]) -> dict[str, dict[str, float]]:
    """Convert the past usage in a Snapshot to a mapping by queue, then by resource."""
    usage_by_queue: dict[str, dict[str, float]] = {}
    for entry in usage_entries:
        usage_by_queue.setdefault(entry.queue, {})[entry.resource] = entry.amount
    return usage_by_queue


def past_usage_entries(usage: Usage) -> tuple[PastQueueUsage, ...]:
    """Convert the past usage of queues to the tuple of `PastQueueUsage` that a Snapshot contains."""
    return tuple(
        PastQueueUsage(queue, resource, amount)
        for queue, amounts in sorted(usage.items())
        for resource, amount in sorted(amounts.items())
    )


class UsageHistory:
    """The decayed usage of all queues, updated from session to session.

    Usage is observed only at sessions. Usage that is present at two consecutive sessions counts for the time between
    them; usage that has ended by the second session counts for `MAX_UNOBSERVED_SECONDS` seconds at most.

    Args:
      usage: decayed usage at the first session.
      half_life: half-life in seconds.
    """

    def __init__(self, usage: Usage, half_life: float) -> None:
        self.usage: Usage = usage
        self._half_life = half_life
        self._held: Current = {}
        self._last_time: float | None = None

    def advance(self, now: float, present: Current) -> Usage:
        """Advance the history to the time `now` and return the decayed usage of all queues at that time.

        `present` is the usage at that time.
        """
        if self._last_time is not None and now > self._last_time:
            elapsed = now - self._last_time
            blind = min(elapsed, MAX_UNOBSERVED_SECONDS)
            stayed = {
                queue: {
                    resource: min(amount, present.get(queue, {}).get(resource, 0))
                    for resource, amount in held.items()
                }
                for queue, held in self._held.items()
            }
            seen = decay_usage(self.usage, self._held, blind, self._half_life)
            self.usage = decay_usage(seen, stayed, elapsed - blind, self._half_life)
            self._held = present
        self._last_time = now if self._last_time is None else max(self._last_time, now)
        return self.usage

    def set_current_usage(self, current: Current) -> None:
        """Set the present usage of all queues, which counts until the next call of `advance`."""
        self._held = current

    def with_half_life(self, half_life: float) -> "UsageHistory":
        """Return a copy of the usage history that decays with another half-life from now on."""
        other = UsageHistory(self.usage, half_life)
        other._held, other._last_time = self._held, self._last_time
        return other
