"""Reports let those go first who bind, and are not put off for ever."""

import asyncio

from batchsched.controllers.status.write_throttle import MAX_DELAY_SECONDS, WriteThrottle
from tests.kube.virtual import Skewed, run


def test_turn_comes_when_nobody_is_bound_any_more():
    async def story() -> None:
        ends = asyncio.get_running_loop().time() + 0.5
        loop = asyncio.get_running_loop()
        await WriteThrottle(Skewed(), lambda: loop.time() < ends).turn()
        assert 0.5 <= loop.time() < 0.6

    run(story())


def test_turn_comes_in_any_case_and_at_once_in_a_hurry():
    async def story() -> None:
        loop = asyncio.get_running_loop()
        courtesy = WriteThrottle(Skewed(), lambda: True)
        await courtesy.turn()
        assert MAX_DELAY_SECONDS <= loop.time() < MAX_DELAY_SECONDS + 0.1
        courtesy.hurry = True
        before = loop.time()
        await courtesy.turn()
        assert loop.time() == before

    run(story())
