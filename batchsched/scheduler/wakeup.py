"""When the next session begins: at once for a lone pod, a little later for a flood, so that it is decided together."""

import asyncio
from typing import Final

from batchsched.ports.clock import Clock

QUIET: Final = 0.01
"""Seconds without news after which a flood counts as over."""
LONGEST: Final = 0.25
"""Seconds for which news may delay a session."""
LONE: Final = 8
"""Changes that are no flood."""


class Wakeup:
    """Woken by news; asked when to begin.

    Args:
      clock: waits.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self._count = 0

    def ring(self) -> None:
        """Tell of news."""
        self._count += 1
        self._news.set()

    async def wait(self, longest: float) -> None:
        """Wait for news, `longest` seconds at most; where there is much of it, wait until it ceases."""
        try:
            # Not wait_for, which swallows a cancellation that comes together with news (until Python 3.12).
            async with asyncio.timeout(max(0.0, longest)):
                await self._news.wait()
        except TimeoutError:
            return
        begun = self._clock.monotonic()
        seen = 0
        while self._count > LONE and self._count != seen and self._clock.monotonic() - begun < LONGEST:
            seen = self._count
            await self._clock.sleep(QUIET)
        self._count = 0
        self._news.clear()
