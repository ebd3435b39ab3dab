"""Binding cycles: PreBind, Bind and PostBind of the placed pods, many at the same time.

After a failed binding, the pod becomes pending again. The next session then finds a partly bound gang and completes it
before it considers other gangs. If a plugin writes something for a pod of a gang that would have to be undone, such as
the allocation of devices, all pods of the gang pass PreBind before the first one is bound.

Failed placements are returned between two sessions only, because plugin state and tables must not change during a
session.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, ParamSpec, TypeVar

from batchsched.api.core.pod import Pod
from batchsched.errors import BatchschedError
from batchsched.framework.runtime.binding_cycle import (
    BindingCycleInput,
    may_need_prebind_undo,
    run_bind_and_postbind,
    run_binding_cycle,
    run_prebind,
    undo_prebind,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Status
from batchsched.ports.cluster import Binder, Clock
from batchsched.runner.bind_capacity_check import Places
from batchsched.runner.profile_scheduler import PlacedGang, ProfileScheduler
from batchsched.state.cluster_state import ClusterState

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
BINDINGS_PER_YIELD: Final = 128
"""Number of bindings that start before the event loop may run other tasks, such as sending their requests."""
Stage = Callable[[Pipeline, Pod, str, BindingCycleInput], Awaitable[Status]]
"""A part of the binding cycle of a pod."""
BindingCallback = Callable[[Pod, str, str, float], None]
"""Called after each binding with the pod, the node, the problem ("" if there is none) and the seconds that it took."""


def do_nothing_on_binding(pod: Pod, node: str, problem: str, seconds: float) -> None:
    """Do nothing; this is the default callback for the end of a pod's binding."""


def combine_callbacks(*callbacks: Callable[P, None]) -> Callable[P, None]:
    """Return a callback that calls all given callbacks with its own arguments, one after the other."""

    def call_all_callbacks(*arguments: P.args, **named: P.kwargs) -> None:
        for callback in callbacks:
            callback(*arguments, **named)

    return call_all_callbacks


class BindingCycles:
    """The binding cycles of placed pods, which run in the background.

    Args:
      binder: Writes the bindings.
      cache: The cluster state, which is notified of each finished binding.
      clock: The clock.
      on_binding: Called after each binding.
      changed: Called when a binding failed, so that the next session starts soon.
    """

    def __init__(
        self,
        binder: Binder,
        cache: ClusterState,
        clock: Clock,
        on_binding: BindingCallback,
        changed: Callable[[], None],
    ) -> None:
        self._binder = binder
        self._cache = cache
        self._clock = clock
        self._on_binding = on_binding
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()
        self._gangs: Counter[str] = Counter()
        self._failed: list[tuple[ProfileScheduler, PlacedGang]] = []

    async def start_cycles(
        self, profile_scheduler: ProfileScheduler, placements: Iterable[PlacedGang]
    ) -> None:
        """Start the binding cycles of placed gangs and single pods."""
        async for placement in _yielding_to_other_tasks(placements):
            self._start(profile_scheduler, placement)

    def _start(self, profile_scheduler: ProfileScheduler, placement: PlacedGang) -> None:
        self._gangs[placement.entity.identity] += 1
        # The cycle must use the present reservations: the next session, which may start before this task, changes them.
        pods = [pod for pod, _ in placement.places]
        cycle = BindingCycleInput.from_placed_pods(pods, profile_scheduler.node_table, self._binder)
        is_prepared = self._is_prepared(profile_scheduler, placement, pods, cycle)
        task = asyncio.create_task(
            self._bind_placement(profile_scheduler, placement, cycle, is_prepared=is_prepared)
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    @property
    def is_idle(self) -> bool:
        """True while no binding is in flight."""
        return not self._running

    def has_unfinished_bindings(self, identity: str) -> bool:
        """Return whether pods of a gang are being bound, or could not be bound and are not yet queued again."""
        return identity in self._gangs

    def requeue_pods_with_failed_bindings(self) -> None:
        """Return pods with failed bindings to the scheduling queue. Call this method between two sessions only."""
        failed, self._failed = self._failed, []
        for profile_scheduler, placement in failed:
            profile_scheduler.requeue_after_failed_binding(
                placement.entity, placement.places, self._clock.steady_now()
            )
            self._end(placement)

    async def wait_until_idle(self) -> None:
        """Wait until all binding cycles have ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def _bind_placement(
        self,
        profile_scheduler: ProfileScheduler,
        placement: PlacedGang,
        cycle: BindingCycleInput,
        *,
        is_prepared: bool,
    ) -> None:
        begun = self._clock.monotonic()
        if is_prepared:
            outcomes = await self._bind_after_prebind(profile_scheduler, placement.places, cycle, begun)
        # A single pod needs no task of its own: this halves the number of tasks for many single pods.
        elif len(placement.places) == 1:
            outcomes = [await self._bind_pod(profile_scheduler, *placement.places[0], cycle, begun)]
        else:
            binding = [
                asyncio.create_task(self._bind_pod(profile_scheduler, pod, node, cycle, begun))
                async for pod, node in _yielding_to_other_tasks(placement.places)
            ]
            outcomes = await asyncio.gather(*binding)
        failed: Places = tuple(
            place for place, bound in zip(placement.places, outcomes, strict=True) if not bound
        )
        if failed:
            # The gang stays in `_gangs`: until `requeue_pods_with_failed_bindings`, its pods count as assumed and the
            # gang as busy.
            self._failed.append((profile_scheduler, PlacedGang(placement.entity, failed)))
            self._changed()
        else:
            self._end(placement)

    def _end(self, placement: PlacedGang) -> None:
        identity = placement.entity.identity
        self._gangs[identity] -= 1
        if not self._gangs[identity]:
            del self._gangs[identity]

    def _is_prepared(
        self,
        profile_scheduler: ProfileScheduler,
        placement: PlacedGang,
        pods: Sequence[Pod],
        cycle: BindingCycleInput,
    ) -> bool:
        """Return whether the pods of a gang must pass PreBind before the first one is bound."""
        try:
            return may_need_prebind_undo(profile_scheduler.pipeline, pods, cycle)
        except BatchschedError as error:
            _LOG.warning("%s: %s", placement.entity.identity, error)
            return True

    async def _bind_after_prebind(
        self, profile_scheduler: ProfileScheduler, places: Places, cycle: BindingCycleInput, begun: float
    ) -> list[bool]:
        """Bind pods after all of them have passed PreBind. If one of them fails, undo PreBind, and bind none.

        Returns:
          Whether each pod is bound.
        """
        pipeline = profile_scheduler.pipeline

        async def run_stage_for_pods(stage: Stage, pods: Places) -> dict[str, str]:
            running = (_problem_of(stage(pipeline, pod, node, cycle)) for pod, node in pods)
            problems = zip(pods, await asyncio.gather(*running), strict=True)
            return {pod.key: problem for (pod, _), problem in problems if problem}

        unprepared = await run_stage_for_pods(run_prebind, places)
        if unprepared:
            first = next(iter(unprepared))
            shared_problem = f"PreBind of pod {first} of the gang failed: {unprepared[first]}"
            problems = {pod.key: unprepared.get(pod.key, shared_problem) for pod, _ in places}
        else:
            problems = await run_stage_for_pods(run_bind_and_postbind, places)
        failed = tuple((pod, node) for pod, node in places if pod.key in problems)
        # Durations and Events of bound pods do not wait for the undo of others.
        for pod, node in places:
            if pod.key not in problems:
                self._end_binding(pod, node, "", begun)
        errors = await asyncio.gather(*(undo_prebind(pipeline, pod, node, cycle) for pod, node in failed))
        for error in (error for errors_of_pod in errors for error in errors_of_pod):
            _LOG.warning("%s: %s", failed[0][0].key, error)
        for pod, node in failed:
            self._end_binding(pod, node, problems[pod.key], begun)
        return [pod.key not in problems for pod, _ in places]

    async def _bind_pod(
        self,
        profile_scheduler: ProfileScheduler,
        pod: Pod,
        node: str,
        cycle: BindingCycleInput,
        begun: float,
    ) -> bool:
        problem = await _problem_of(run_binding_cycle(profile_scheduler.pipeline, pod, node, cycle))
        return self._end_binding(pod, node, problem, begun)

    def _end_binding(self, pod: Pod, node: str, problem: str, begun: float) -> bool:
        """Report the end of a pod's binding that began at a monotonic time, and return whether the pod is bound."""
        if problem:
            _LOG.warning("%s is not bound to %s: %s", pod.key, node, problem)
        else:
            self._cache.finish_binding(pod.key, self._clock.steady_now(), pod.metadata.uid)
        self._on_binding(pod, node, problem, self._clock.monotonic() - begun)
        return not problem


async def _problem_of(cycle: Awaitable[Status]) -> str:
    """Await a part of a binding cycle, and return why it failed; "" if it did not."""
    try:
        status = await cycle
    except BatchschedError as error:
        return str(error)  # a refused or failed write affects this pod only
    return "" if status.ok else "; ".join(status.reasons) or f"{status.code.name}"


async def _yielding_to_other_tasks(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, and let other tasks run after every `BINDINGS_PER_YIELD` items."""
    for number, item in enumerate(items, 1):
        yield item
        if number % BINDINGS_PER_YIELD == 0:
            await asyncio.sleep(0)
