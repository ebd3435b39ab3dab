"""News wake the loop, a flood is waited out, and whoever ends the loop is heard whatever happens at the same time."""

import asyncio

import pytest

from batchsched.kube.clock import SystemClock
from batchsched.scheduler.wakeup import MAX_EVENTS_WITHOUT_DELAY, Wakeup


async def test_news_wake_at_once():
    alarm = Wakeup(SystemClock())
    alarm.ring()
    async with asyncio.timeout(60):
        await alarm.wait(3600)


async def test_without_news_the_wait_is_over_in_time():
    await Wakeup(SystemClock()).wait(0.01)


async def test_a_flood_is_waited_out_and_forgotten():
    alarm = Wakeup(SystemClock())
    for _ in range(2 * MAX_EVENTS_WITHOUT_DELAY):
        alarm.ring()
    async with asyncio.timeout(60):
        await alarm.wait(3600)
    waiting = asyncio.create_task(alarm.wait(3600))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("later", range(5))
async def test_an_end_that_comes_together_with_news_is_heard(later):
    """A leader that lost its Lease has to leave: its bindings fail, which is news all the time."""
    alarm = Wakeup(SystemClock())

    async def loop():
        while True:
            await alarm.wait(3600)

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    alarm.ring()
    for _ in range(later):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    task.cancel()
    assert done
