"""The clock: current time, durations, waiting, and jitter."""

from typing import Protocol


class Clock(Protocol):
    """A clock. Tests and the simulator use one with virtual time."""

    def now(self) -> float:
        """Return the time in seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Return a time in seconds that never jumps, for deadlines and Leases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...

    def jitter(self) -> float:
        """Return a random number in [0, 1) that spreads the retries of many clients."""
        ...
