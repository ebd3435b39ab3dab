"""Exponential backoff with jitter, so that many clients do not retry at the same moment."""

from dataclasses import dataclass, field

from batchsched.ports.clock import Clock


@dataclass(slots=True)
class Backoff:
    """Waits that double after each failure. A random part of up to one half is subtracted.

    Args:
      clock: waits and returns the jitter.
      first: the first wait in seconds.
      longest: the longest wait in seconds.
    """

    clock: Clock
    first: float = 0.5
    longest: float = 30.0
    _failures: int = field(default=0, init=False)

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._failures = 0

    async def wait(self, least: float = 0.0) -> None:
        """Wait after a failure, at least `least` seconds (Retry-After)."""
        full = min(self.longest, self.first * 2 ** min(self._failures, 30))
        self._failures += 1
        draw = self.clock.jitter()
        # Many clients receive the same Retry-After at once. The jitter spreads their retries.
        await self.clock.sleep(max(least * (1 + draw / 4), full * (1 - draw / 2)))
