"""The clock of this machine tells its time."""

import time

from batchsched.kube.clock import SystemClock


async def test_the_clock_tells_the_time_waits_and_draws():
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    begun = clock.monotonic()
    await clock.sleep(0.02)
    assert clock.monotonic() - begun >= 0.02
    draws = [clock.jitter() for _ in range(100)]
    assert 0 <= min(draws) < max(draws) < 1
