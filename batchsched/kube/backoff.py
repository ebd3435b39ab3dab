"""How long to wait after a failure: twice as long as the last time, and not together with everybody else."""

from dataclasses import dataclass, field

from batchsched.ports.clock import Clock


@dataclass(slots=True)
class Backoff:
    """Waits that double, each shortened by up to half at random.

    Args:
      clock: waits, and draws.
      first: seconds of the first wait.
      longest: seconds of the longest.
    """

    clock: Clock
    first: float = 0.5
    longest: float = 30.0
    _failures: int = field(default=0, init=False)

    def reset(self) -> None:
        """Begin anew: it went well."""
        self._failures = 0

    async def wait(self, least: float = 0.0) -> None:
        """Wait after a failure, `least` seconds in any case (Retry-After)."""
        full = min(self.longest, self.first * 2 ** min(self._failures, 30))
        self._failures += 1
        draw = self.clock.jitter()
        # Many are told the same Retry-After at once: they do not come back at once.
        await self.clock.sleep(max(least * (1 + draw / 4), full * (1 - draw / 2)))
