"""A process that is stopped releases its Lease only if no write can take effect afterwards."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchsched.kube.clock import SystemClock
from batchsched.service.process import EXIT_OK, ReplicaProcess

PATIENCE = 0.1


@pytest.fixture(autouse=True)
def usual_garbage_collection() -> Iterator[None]:
    """Undo what a process does to the garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Lease:
    """As a LeaderElector; it records what happens to it in `log`."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def acquire(self) -> None:
        self.log.append("acquired")

    async def renew_until_lost(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("no longer renewed")

    def stop_writes(self) -> None:
        self.log.append("no further writes")

    async def release(self) -> None:
        self.log.append("released")


class App:
    """As a SchedulerApp, with one binding and one eviction in flight.

    Args:
      log: What happens.
      binding, eviction: Seconds until the API server answers after the signal.
    """

    def __init__(self, log: list[str], binding: float, eviction: float) -> None:
        self.log = log
        self.binding, self.eviction = binding, eviction

    async def follow_cluster(self) -> None:
        await asyncio.Event().wait()

    async def wait_until_synced(self) -> None:
        pass

    async def wait_until_up_to_date(self) -> None:
        pass

    async def run_as_leader(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.binding)
            self.log.append("bound")

    async def wait_until_no_write_in_flight(self) -> None:
        await asyncio.sleep(self.eviction)
        self.log.append("evicted")

    async def flush_events(self) -> None:
        self.log.append("told")


@asynccontextmanager
async def no_background(app: Any) -> AsyncIterator[None]:
    yield


async def stopped(binding: float, eviction: float) -> list[str]:
    """Return what happens when a leader with writes in flight is stopped."""
    log: list[str] = []
    lease: Any = Lease(log)
    connection: Any = None

    def make_app() -> Any:
        return App(log, binding, eviction)

    process = ReplicaProcess(connection, SystemClock(), lease, make_app, no_background, PATIENCE)
    assert await process.run() == EXIT_OK
    return log


async def test_lease_is_released_after_the_last_write():
    assert await stopped(0.01, 0.01) == [
        "acquired",
        "bound",
        "no longer renewed",
        "no further writes",
        "evicted",
        "released",
        "told",
    ]


async def test_lease_expires_if_a_binding_stays_in_flight(caplog):
    assert await stopped(60.0, 0.0) == ["acquired", "no longer renewed", "told"]
    assert "the Lease is not released, since writes are still in flight" in caplog.text


async def test_lease_expires_if_another_write_stays_in_flight():
    assert await stopped(0.0, 60.0) == ["acquired", "bound", "no longer renewed", "no further writes", "told"]
