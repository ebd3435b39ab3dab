"""The life of one process: follow the cluster, wait for the Lease, schedule, and shut down in order.

On SIGTERM or SIGINT the loop stops, bindings in flight are finished, the Lease is released, and the remaining Events
are written. If the Lease is lost, only Events are still written; the process exits and Kubernetes restarts it.
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
EXIT_OK: Final = 0
EXIT_LEASE_LOST: Final = 1
"""Exit code after the Lease was lost."""
GC_THRESHOLD_OBJECTS: Final = 20_000
"""Number of new objects after which the garbage collector checks the youngest generation."""


@dataclass(frozen=True, slots=True)
class Process:
    """A replica of the scheduler.

    Args:
      connection: The open connection to the API server.
      clock: The clock.
      lease: The Lease to hold while scheduling; None if there is only one replica.
      make: Creates the scheduler; its writes must be fenced by the Lease.
      beside: Opens the context of the background tasks, such as the HTTP server.
      patience: Maximum seconds for bindings in flight, and again for the remaining Events, at shutdown.
    """

    connection: Connection
    clock: Clock
    lease: Lease | None
    make: Callable[[], SchedulerApp]
    beside: Callable[[SchedulerApp], AbstractAsyncContextManager[None]]
    patience: float = 20.0

    async def run(self) -> int:
        """Run until a signal arrives or the Lease is lost, and return the exit code."""
        leave = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leave.set)
        service = self.make()
        async with self.beside(service):
            return await self._work(service, leave)

    async def _work(self, service: SchedulerApp, leave: asyncio.Event) -> int:
        """Follow the cluster, wait for the Lease, and schedule."""
        # Sessions create few reference cycles: with the default threshold, the collector took 7 % of the time and found
        # nothing.
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])
        follow = asyncio.create_task(service.follow(), name="follow")
        leaving = asyncio.create_task(leave.wait(), name="leave")
        try:
            await _first_ended(leaving, follow, asyncio.create_task(service.synced(), name="sync"))
            # The listed objects live as long as the process. Frozen objects are not scanned, which saves seconds.
            gc.collect()
            gc.freeze()
            _LOG.info("following the cluster")
            if self.lease is not None and not leaving.done():
                await _first_ended(leaving, follow, asyncio.create_task(self.lease.acquire(), name="acquire"))
            if leaving.done():
                return EXIT_OK
            return await self._lead(service, leaving, follow)
        finally:
            await _cancel(follow, leaving)

    async def _lead(
        self, service: SchedulerApp, leaving: asyncio.Task[bool], follow: asyncio.Task[None]
    ) -> int:
        lead = asyncio.create_task(self._begin(service), name="lead")
        keep = asyncio.create_task(self._keep(), name="keep")
        ended = await _first_ended(leaving, follow, lead, keep)
        if ended is keep:
            _LOG.error("the Lease is lost; exiting")
            lead.cancel()
            # Writes are fenced from now on, so it is useless to wait longer for bindings in flight.
            await asyncio.wait([lead], timeout=self.patience)
            await self._tell(service)
            return EXIT_LEASE_LOST
        _LOG.info("shutting down: finishing bindings in flight")
        lead.cancel()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(lead, self.patience)
        await _cancel(keep)
        if self.lease is not None:
            await self.lease.release()
        await self._tell(service)
        return EXIT_OK

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


async def _first_ended(
    *tasks: asyncio.Task[bool] | asyncio.Task[None],
) -> asyncio.Task[bool] | asyncio.Task[None]:
    """Wait until a task has ended and return it; raise its exception if it failed."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task in done:
            task.result()
    return next(task for task in tasks if task in done)


async def _cancel(*tasks: asyncio.Task[bool] | asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
