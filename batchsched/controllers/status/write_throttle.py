"""Who reports lets those go first who bind."""

from collections.abc import Callable
from typing import Final

from batchsched.ports.clock import Clock

LOOKS: Final = 0.05
"""Seconds between two looks whether pods are being bound still."""
LONGEST: Final = 1.0
"""Seconds after which a report goes out in any case: under a load that never ends it is late, not absent."""


class WriteThrottle:
    """Lets reports wait while pods are being bound.

    Args:
      clock: waits.
      busy: tells whether pods are being bound.
    """

    def __init__(self, clock: Clock, busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._busy = busy
        self.hurry = False
        """Nobody waits any more: we are leaving."""

    async def turn(self) -> None:
        """Wait for a turn."""
        begun = self._clock.monotonic()
        while self._busy() and not self.hurry and self._clock.monotonic() - begun < LONGEST:
            await self._clock.sleep(LOOKS)
