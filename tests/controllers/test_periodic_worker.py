"""Work that is repeated next to the sessions continues after an error, and ends when the replica stops."""

import asyncio
import threading

import pytest

from batchsched.controllers.periodic_worker import PeriodicWorker, run_in_daemon_thread
from tests.service.town import Clock


async def test_an_error_does_not_end_the_work(caplog):
    clock, runs = Clock(), []

    async def run_once():
        runs.append(clock.now())
        if len(runs) == 1:
            raise ValueError("once")

    async def pass_seconds(count):
        for _ in range(count):
            await asyncio.sleep(0)
            clock.turn(1)
            await asyncio.sleep(0)

    worker = PeriodicWorker("explanations", 1.0, clock, run_once)
    worker.start()
    await pass_seconds(3)
    assert len(runs) == 3
    assert "the explanations failed: a defect: once" in caplog.text
    worker.stop()
    assert worker.is_stopped
    await pass_seconds(3)
    assert len(runs) == 3


async def test_a_thread_returns_its_result_or_its_error_and_does_not_block_the_end_of_the_process():
    daemons = run_in_daemon_thread("search", lambda: threading.current_thread().daemon)
    assert await asyncio.wrap_future(daemons)
    with pytest.raises(KeyboardInterrupt):
        run_in_daemon_thread("search", _interrupt).result(5)


def _interrupt():
    raise KeyboardInterrupt
