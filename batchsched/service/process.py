"""One process from start to end: it follows the cluster, waits to lead, leads, and leaves in good order.

On SIGTERM or SIGINT the loop stops, what began to be bound is finished, the Lease is given back, and the last Events
are written. When the Lease is lost nothing but Events is written any more, and the process ends: whoever runs it starts
it anew.
"""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from batchsched.kube.connection import Connection
from batchsched.kube.lease import Lease
from batchsched.ports.clock import Clock
from batchsched.scheduler.app import SchedulerApp

_LOG: Final = logging.getLogger(__name__)
LEFT: Final = 0
LOST: Final = 1
"""The exit code when somebody else may lead."""
YOUNG: Final = 20_000
"""New objects after which the garbage collector looks among them."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that schedules.

    Args:
      connection: to the API server, open.
      clock: tells time.
      lease: to hold while we lead; None: we are alone.
      make: makes the service; its writes obey the fence.
      beside: what runs for as long as the service does, such as its server.
      patience: seconds that bindings, and Events after them, may take to finish when we leave.
    """

    connection: Connection
    clock: Clock
    lease: Lease | None
    make: Callable[[], SchedulerApp]
    beside: Callable[[SchedulerApp], AbstractAsyncContextManager[None]]
    patience: float = 20.0

    async def run(self) -> int:
        """Run until told to leave; returns the exit code."""
        leave = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leave.set)
        service = self.make()
        async with self.beside(service):
            return await self._work(service, leave)

    async def _work(self, service: SchedulerApp, leave: asyncio.Event) -> int:
        """Follow, wait to lead, lead."""
        # Little of what a session makes is in circles: the collector found nothing, and took 7 % of the time.
        gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
        follow = asyncio.create_task(service.follow(), name="follow")
        leaving = asyncio.create_task(leave.wait(), name="leave")
        try:
            await _first(leaving, follow, asyncio.create_task(service.synced(), name="sync"))
            # What was listed stays: looking through it again and again for garbage would cost seconds.
            gc.collect()
            gc.freeze()
            _LOG.info("following the cluster")
            if self.lease is not None and not leaving.done():
                await _first(leaving, follow, asyncio.create_task(self.lease.acquire(), name="acquire"))
            if leaving.done():
                return LEFT
            return await self._lead(service, leaving, follow)
        finally:
            await _end(follow, leaving)

    async def _lead(
        self, service: SchedulerApp, leaving: asyncio.Task[bool], follow: asyncio.Task[None]
    ) -> int:
        lead = asyncio.create_task(self._begin(service), name="lead")
        keep = asyncio.create_task(self._keep(), name="keep")
        ended = await _first(leaving, follow, lead, keep)
        if ended is keep:
            _LOG.error("somebody else may lead now; leaving")
            lead.cancel()
            # Nothing can be written any more: whatever still waits is not worth more time than this.
            await asyncio.wait([lead], timeout=self.patience)
            await self._tell(service)
            return LOST
        _LOG.info("leaving: bindings are finished first")
        lead.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(lead, self.patience)
        await _end(keep)
        if self.lease is not None:
            await self.lease.release()
        await self._tell(service)
        return LEFT

    async def _begin(self, service: SchedulerApp) -> None:
        if self.lease is not None:
            await service.catch_up()
        await service.lead()

    async def _tell(self, service: SchedulerApp) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(service.leave(), self.patience)

    async def _keep(self) -> None:
        if self.lease is None:
            await asyncio.Event().wait()
        else:
            await self.lease.keep()


async def _first(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> asyncio.Task[bool] | asyncio.Task[None]:
    """Wait until one of some tasks has ended; whatever broke it is raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for one in tasks:
        if one in done:
            one.result()
    return next(one for one in tasks if one in done)


async def _end(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> None:
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
