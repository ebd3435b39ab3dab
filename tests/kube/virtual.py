"""Virtual time that passes only when all tasks wait, and clocks that are wrong."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from batchsched.kube.clock import SystemClock


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that jumps to the next timer if no callback is ready. It supports no real I/O."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 0.0

    @override
    def time(self) -> float:
        return self._virtual

    def _run_once(self) -> None:
        # Private, but stable since 3.4, and the whole of what virtual time needs.
        if not self._ready:  # type: ignore[attr-defined]
            assert self._scheduled, "no timer is scheduled: the loop would wait forever"  # type: ignore[attr-defined]
            self._virtual = max(self._virtual, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a story in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story)


@dataclass
class Skewed:
    """A clock that is off by `offset` seconds and goes `rate` times as fast; a Clock of the loop it is asked on."""

    rate: float = 1.0
    offset: float = 0.0
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def now(self) -> float:
        return 1_700_000_000 + self.offset + asyncio.get_running_loop().time() * self.rate

    def monotonic(self) -> float:
        return 10_000 + self.offset + asyncio.get_running_loop().time() * self.rate

    def steady_now(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.rate)

    def random_fraction(self) -> float:
        return self.draw.random()


@dataclass
class Hurried(SystemClock):
    """Sleeps a fraction of what it is asked to, and remembers what it was asked."""

    times: float = 50.0

    def __post_init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    @override
    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(seconds / self.times)
