"""The system clock and the backoff."""

import asyncio
import time

import pytest

from batchsched.kube.clock import RetryBackoff, SystemClock
from batchsched.ports.cluster import wall_clock_offset
from tests.kube.virtual import Hurried


async def test_the_clock_returns_the_time_sleeps_and_draws_random_numbers():
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    begun = clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - begun >= 0.02
    draws = [clock.random_fraction() for _ in range(100)]
    assert 0 <= min(draws) < max(draws) < 1


@pytest.mark.parametrize("jump", [-3600.0, 3600.0], ids=["back", "forward"])
def test_steady_time_continues_when_the_clock_is_set(monkeypatch, jump):
    clock = SystemClock()
    assert abs(wall_clock_offset(clock)) < 5
    set_time = time.time() + jump
    monkeypatch.setattr(time, "time", lambda: set_time)
    assert abs(clock.steady_now() - (set_time - jump)) < 5
    assert abs(wall_clock_offset(clock) - jump) < 5


def test_backoff_doubles_up_to_its_maximum_and_restarts_after_a_success():
    clock = Hurried(times=1e6)
    backoff = RetryBackoff(clock, first=1, longest=5)

    async def story():
        for _ in range(1200):  # 2 ** 1200 is no float
            await backoff.wait()
        backoff.reset()
        await backoff.wait()

    asyncio.run(story())
    for wait, full in zip(clock.slept, (1, 2, 4, 5, 5), strict=False):
        assert full / 2 < wait <= full
    assert max(clock.slept) <= 5
    assert clock.slept[-1] <= 1


def test_backoff_waits_at_least_retry_after_with_jitter():
    clock = Hurried(times=1e6)

    async def story():
        await asyncio.gather(*(RetryBackoff(clock).wait(7) for _ in range(20)))

    asyncio.run(story())
    assert all(7 <= wait <= 7 * 1.25 for wait in clock.slept)
    assert len(set(clock.slept)) > 10
