"""The loop: news come in, a session is decided when there is somebody to decide on, and what it placed is bound.

The decision is made in a thread of its own, so that the lease is renewed, watches are read and pods are bound
meanwhile. Nothing of the scheduler's tables is touched while it runs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from batchsched.api.decision import Decision
from batchsched.ports.clock import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.binding import BindingCycles
from batchsched.scheduler.wakeup import Wakeup

_LOG: Final = logging.getLogger(__name__)
TURN: Final = 1.0
"""Seconds between two turns when nothing happens: backoffs end, and held gangs run out of time."""
Heard = Callable[[ProfileScheduler, Decision, float], None]
"""Hears of each decision, and how many seconds it took."""


class Chore(Protocol):
    """Something to look after between two sessions."""

    def turn(self, now: float) -> None:
        """Do what is due; what takes time is begun."""
        ...


class SchedulerLoop:
    """Decides sessions for as long as it runs.

    Args:
      planners: one for each profile.
      cycles: bind.
      alarm: rings when there is news.
      clock: tells time.
      heard: hears of decisions, first of all who carries out what they say of pods that run.
      chores: are done between two sessions, about once a second.
    """

    def __init__(
        self,
        planners: Sequence[ProfileScheduler],
        cycles: BindingCycles,
        alarm: Wakeup,
        clock: Clock,
        heard: Sequence[Heard] = (),
        chores: Sequence[Chore] = (),
    ) -> None:
        self.planners = tuple(planners)
        self._next: tuple[ProfileScheduler, ...] | None = None
        self._cycles = cycles
        self._alarm = alarm
        self._clock = clock
        self._heard = tuple(heard)
        self._chores = tuple(chores)
        self._chores_done = float("-inf")

    def reconfigure(self, planners: Sequence[ProfileScheduler]) -> None:
        """Go on with other planners once the session that runs is over."""
        self._next = tuple(planners)
        self._alarm.ring()

    async def run(self) -> None:
        """Go on until cancelled; a turn that breaks is told, and the next one tried."""
        while True:
            try:
                await self.turn()
            except Exception:  # the outermost loop survives everything
                _LOG.exception("a turn of the loop broke; going on")
                await self._clock.sleep(TURN)
            await self._alarm.wait(TURN)

    async def turn(self) -> None:
        """Take in the news, and decide one session of each profile that has somebody to decide on."""
        self._between()
        for planner in self.planners:
            await self._session(planner)

    def _between(self) -> None:
        """Do what must not be done while a session is decided."""
        if self._next is not None:
            before = {one.profile.scheduler_name: one for one in self.planners}
            self.planners, self._next = self._next, None
            for planner in self.planners:
                if planner.profile.scheduler_name in before:
                    planner.remember(before[planner.profile.scheduler_name])
        self._cycles.take_back()
        now = self._clock.now()
        if not 0 <= now - self._chores_done < TURN:  # also when the clock was set back
            self._chores_done = now
            for chore in self._chores:
                chore.turn(now)

    async def _session(self, planner: ProfileScheduler) -> None:
        now, begun = self._clock.now(), self._clock.monotonic()
        try:
            planner.sync(now)
            work = planner.begin(now)
            if work is None:
                return
            decision = await asyncio.to_thread(work)
        except Exception:
            planner.broke(self._clock.now())
            raise
        now = self._clock.now()
        await self._cycles.start(planner, planner.finish(decision, now))
        if planner.queue.pending()["active"]:
            self._alarm.ring()
        if planner.world.hung:
            _LOG.error("plugins hung, and are asked no more: %s", planner.world.names)
            among = self.planners if self._next is None else self._next
            self.reconfigure([one.renewed() if one is planner else one for one in among])
        for heard in self._heard:
            heard(planner, decision, self._clock.monotonic() - begun)
