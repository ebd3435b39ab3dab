"""The start of the next session: at once after few events, a little later during a burst of events.

The delay lets one session decide all pods of a burst together.
"""

import asyncio
from typing import Final

from batchsched.ports.clock import Clock

QUIET_SECONDS: Final = 0.01
"""Seconds without an event after which a burst is over."""
MAX_DELAY_SECONDS: Final = 0.25
"""Maximum seconds by which a burst delays a session."""
MAX_EVENTS_WITHOUT_DELAY: Final = 8
"""Number of events up to which there is no delay."""


class Wakeup:
    """Signals the scheduling loop that the cluster changed.

    Args:
      clock: The clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = asyncio.Event()
        self._count = 0

    def ring(self) -> None:
        """Signal an event."""
        self._count += 1
        self._news.set()

    async def wait(self, longest: float) -> None:
        """Wait for an event, for at most `longest` seconds; in a burst of events, also wait until it is over."""
        try:
            # Not `wait_for`: until Python 3.12 it loses a cancellation that coincides with the event.
            async with asyncio.timeout(max(0.0, longest)):
                await self._news.wait()
        except TimeoutError:
            return
        burst_start = self._clock.monotonic()
        seen = 0
        while (
            self._count > MAX_EVENTS_WITHOUT_DELAY
            and self._count != seen
            and self._clock.monotonic() - burst_start < MAX_DELAY_SECONDS
        ):
            seen = self._count
            await self._clock.sleep(QUIET_SECONDS)
        self._count = 0
        self._news.clear()
