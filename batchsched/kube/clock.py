"""The clock of this machine."""

import asyncio
import random
import time


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now(self) -> float:
        """Return the time in seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return a time in seconds that never jumps."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()
