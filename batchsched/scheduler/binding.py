"""Binding cycles: whoever a session placed is taken through PreBind, Bind and PostBind, many at once.

A member that is not bound waits again; the next session finds its gang half bound, and completes it before it looks at
fresh ones. What failed is taken back between two sessions only, since plugins and tables must not change during one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

from batchsched.api.core.pod import Pod
from batchsched.errors import BatchschedError
from batchsched.framework.runtime.binding_cycle import BindingCycle, bind
from batchsched.ports.binder import Binder
from batchsched.ports.clock import Clock
from batchsched.runner.profile_scheduler import Places, ProfileScheduler, SessionPlacement
from batchsched.state.cluster_state import ClusterState

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
BREATH: Final = 128
"""Bindings that begin at once. Others wait until their requests are sent: to begin ten thousand takes a while."""
Told = Callable[[Pod, str, str], None]
"""Hears of each pod: its node, and what went wrong, "" for nothing."""


class BindingCycles:
    """Binds placements in the background.

    Args:
      binder: writes.
      cache: is told when a binding has finished.
      clock: tells time.
      told: hears of each pod.
      changed: is called when somebody waits again.
    """

    def __init__(
        self, binder: Binder, cache: ClusterState, clock: Clock, told: Told, changed: Callable[[], None]
    ) -> None:
        self._binder = binder
        self._cache = cache
        self._clock = clock
        self._told = told
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()
        self._gangs: Counter[str] = Counter()
        self._failed: list[tuple[ProfileScheduler, SessionPlacement]] = []

    async def start(self, planner: ProfileScheduler, placements: Iterable[SessionPlacement]) -> None:
        """Begin to bind gangs."""
        async for placement in _breathing(placements):
            self._start(planner, placement)

    def _start(self, planner: ProfileScheduler, placement: SessionPlacement) -> None:
        self._gangs[placement.entity.identity] += 1
        # The table of now: the next session may begin before the task does, over one that knows of no reservation.
        cycle = BindingCycle(planner.table, self._binder)
        task = asyncio.create_task(self._gang(planner, placement, cycle))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    @property
    def idle(self) -> bool:
        """True while nothing is being bound."""
        return not self._running

    def busy(self, identity: str) -> bool:
        """Tell whether pods of a gang are being bound, or have failed to be and count as bound still."""
        return identity in self._gangs

    def take_back(self) -> None:
        """Let the pods wait again whose binding failed; between two sessions only."""
        failed, self._failed = self._failed, []
        for planner, placement in failed:
            planner.failed(placement.entity, placement.places, self._clock.now())
            self._end(placement)

    async def drain(self) -> None:
        """Wait until everything that began has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def _gang(
        self, planner: ProfileScheduler, placement: SessionPlacement, cycle: BindingCycle
    ) -> None:
        # One alone needs no task of its own: of ten thousand lone pods each would have two.
        if len(placement.places) == 1:
            ends = [await self._one(planner, *placement.places[0], cycle)]
        else:
            binding = [
                asyncio.create_task(self._one(planner, pod, node, cycle))
                async for pod, node in _breathing(placement.places)
            ]
            ends = await asyncio.gather(*binding)
        failed: Places = tuple(
            place for place, bound in zip(placement.places, ends, strict=True) if not bound
        )
        if failed:
            self._failed.append((planner, SessionPlacement(placement.entity, failed)))
            self._changed()
        else:
            self._end(placement)

    def _end(self, placement: SessionPlacement) -> None:
        identity = placement.entity.identity
        self._gangs[identity] -= 1
        if not self._gangs[identity]:
            del self._gangs[identity]

    async def _one(self, planner: ProfileScheduler, pod: Pod, node: str, cycle: BindingCycle) -> bool:
        try:
            status = await bind(planner.pipeline, pod, node, cycle)
            problem = "" if status.ok else "; ".join(status.reasons) or f"{status.code.name}"
        except BatchschedError as error:
            problem = str(error)
        if problem:
            _LOG.warning("%s is not bound to %s: %s", pod.key, node, problem)
        else:
            self._cache.finish_binding(pod.key, self._clock.now())
        self._told(pod, node, problem)
        return not problem


async def _breathing(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield things, and let whatever else waits have its turn after every `BREATH` of them."""
    for number, one in enumerate(things, 1):
        yield one
        if number % BREATH == 0:
            await asyncio.sleep(0)
