"""The clock of this machine, and exponential backoff with jitter."""

import asyncio
import random
import time
from dataclasses import dataclass, field

from batchsched.ports.cluster import Clock


class SystemClock:
    """The clock and random numbers of this machine. It implements `ports.cluster.Clock`."""

    def __init__(self) -> None:
        self._monotonic_to_steady = self.now() - self.monotonic()

    def now(self) -> float:
        """Return the current time in seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return time.monotonic()

    def steady_now(self) -> float:
        """Return the wall time at which this clock was created plus the time since then by the monotonic clock."""
        return self.monotonic() + self._monotonic_to_steady

    async def sleep(self, seconds: float) -> None:
        """Wait for the given number of seconds."""
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        """Return a random number in [0, 1), used as jitter."""
        return random.random()


@dataclass(slots=True)
class RetryBackoff:
    """Exponential backoff with jitter: the wait doubles with each failure, up to a limit.

    A random part of up to one half is subtracted from each wait.

    Args:
      clock: the clock for waits; it also returns the jitter.
      first: the first wait in seconds.
      longest: the longest wait in seconds.
    """

    clock: Clock
    first: float = 0.5
    longest: float = 30.0
    _failures: int = field(default=0, init=False)

    def reset(self) -> None:
        """Start the backoff again with the shortest wait, after a success."""
        self._failures = 0

    async def wait(self, least: float = 0.0) -> None:
        """Wait until a failed request may be repeated; `least` is the Retry-After of the server in seconds."""
        full = min(self.longest, self.first * 2 ** min(self._failures, 30))
        self._failures += 1
        draw = self.clock.random_fraction()
        # Many clients receive the same Retry-After at once. The jitter spreads their retries.
        await self.clock.sleep(max(least * (1 + draw / 4), full * (1 - draw / 2)))
