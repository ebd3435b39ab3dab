"""The loop: news come in, a session is decided when there is somebody to decide on, and what it placed is bound.

The decision is made in a thread of its own, so that the lease is renewed, watches are read and pods are bound
meanwhile. Nothing of the scheduler's tables is touched while it runs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from batchsched.model.decision import Decision
from batchsched.ports.clock import Clock
from batchsched.service.awake import Alarm
from batchsched.service.binder import BindingCycles
from batchsched.service.planner import Planner

_LOG: Final = logging.getLogger(__name__)
TURN: Final = 1.0
"""Seconds between two turns when nothing happens: backoffs end, and held gangs run out of time."""
Heard = Callable[[Planner, Decision, float], None]
"""Hears of each decision, and how many seconds it took."""


class Loop:
    """Decides sessions for as long as it runs.

    Args:
      planners: one for each profile.
      cycles: bind.
      alarm: rings when there is news.
      clock: tells time.
      heard: hears of decisions.
    """

    def __init__(
        self,
        planners: Sequence[Planner],
        cycles: BindingCycles,
        alarm: Alarm,
        clock: Clock,
        heard: Heard | None = None,
    ) -> None:
        self._planners = tuple(planners)
        self._cycles = cycles
        self._alarm = alarm
        self._clock = clock
        self._heard = heard

    async def run(self) -> None:
        """Go on until cancelled; a turn that breaks is told, and the next one tried."""
        while True:
            try:
                for planner in self._planners:
                    await self._turn(planner)
            except Exception:  # the outermost loop survives everything
                _LOG.exception("a turn of the loop broke; going on")
                await self._clock.sleep(TURN)
            await self._alarm.wait(TURN)

    async def _turn(self, planner: Planner) -> None:
        now = self._clock.now()
        planner.sync(now)
        work = planner.begin(now)
        if work is None:
            return
        begun = self._clock.monotonic()
        decision = await asyncio.to_thread(work)
        now = self._clock.now()
        for placement in planner.finish(decision, now):
            self._cycles.start(planner, placement)
        if planner.queue.pending()["active"]:
            self._alarm.ring()
        if self._heard is not None:
            self._heard(planner, decision, self._clock.monotonic() - begun)
