"""Decayed usage: what a queue used lately, the more recent the more it counts.

A sample stands for the time since the one before: U <- (1 - a) · U + a · current, with a = 1 - 0.5^(dt / half-life).
So U has the unit of usage, a queue that always uses u has U = u, and after one half-life of rest it has u / 2. Two
samples with the same usage come to the same as one: how often is sampled does not matter.

    decayed(usage, current, elapsed, half_life) -> usage       {queue: {resource: amount}}

Source: Kueue, KEP-4136 (admission fair sharing).
"""

from collections.abc import Mapping
from typing import Final

Usage = Mapping[str, Mapping[str, float]]
"""By queue, by resource, in base units."""
_FORGOTTEN: Final = 1e-6
"""Amounts below it are dropped: a millionth of a device or of a milli-CPU."""


def kept(elapsed: float, half_life: float) -> float:
    """Return the part of past usage that is left after a time: 0.5^(elapsed / half-life); 0 for a half-life of 0."""
    return 0.5 ** (max(0.0, elapsed) / half_life) if half_life > 0 else 0.0


def decayed(
    usage: Usage, current: Mapping[str, Mapping[str, int]], elapsed: float, half_life: float
) -> dict[str, dict[str, float]]:
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
