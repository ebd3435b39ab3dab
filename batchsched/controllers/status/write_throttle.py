"""Delays status and Event writes while bindings are in flight."""

from collections.abc import Callable
from typing import Final

from batchsched.ports.clock import Clock

CHECK_SECONDS: Final = 0.05
"""Seconds between two checks whether bindings are in flight."""
MAX_DELAY_SECONDS: Final = 1.0
"""Maximum delay of a write in seconds: under constant load, writes are late but do not stop."""


class WriteThrottle:
    """Delays writes while pods are being bound.

    Args:
      clock: The clock.
      busy: Returns whether pods are being bound.
    """

    def __init__(self, clock: Clock, busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._busy = busy
        self.hurry = False
        """Whether writes are no longer delayed, since this replica is about to stop."""

    async def turn(self) -> None:
        """Wait until a write may be sent."""
        begun = self._clock.monotonic()
        while self._busy() and not self.hurry and self._clock.monotonic() - begun < MAX_DELAY_SECONDS:
            await self._clock.sleep(CHECK_SECONDS)
