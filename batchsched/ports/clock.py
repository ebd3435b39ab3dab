"""What the shell asks of time: when it is, how long something took, to wait, and not all at once."""

from typing import Protocol


class Clock(Protocol):
    """A clock that tests can turn."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump: for deadlines and leases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1), so that many who wait do not come back together."""
        ...
