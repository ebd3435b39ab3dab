"""A clock for tests: what the code waits for comes sooner."""

import asyncio
from dataclasses import dataclass

from typing_extensions import override

from batchsched.kube.clock import SystemClock


@dataclass
class Hurried(SystemClock):
    """Sleeps a fraction of what it is asked to, and remembers what it was asked."""

    times: float = 50.0

    def __post_init__(self) -> None:
        self.slept: list[float] = []

    @override
    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(seconds / self.times)
