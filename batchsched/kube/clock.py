"""The clock of this machine."""

import asyncio
import random
import time


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()
