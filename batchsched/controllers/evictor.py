"""The evictor: writes the nominations of a decision, then evicts its victims."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Eviction
from batchsched.errors import BatchschedError
from batchsched.kube.connection import POD_RESOURCE
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.state.cluster_state import PODS, ClusterState

_LOG: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 10.0
"""Seconds after which the preemptor is tried again if the eviction of a victim fails."""
Evicted = Callable[[Pod, str, str], None]
"""Receives each evicted pod with the reason as a word and as a sentence."""


def ignore_evicted_pod(pod: Pod, reason: str, message: str) -> None:
    """Do nothing. This is the default receiver of evicted pods."""


class Evictor:
    """Writes nominations and evicts victims.

    Args:
      cache: The state of the cluster.
      writer: Sends requests to the API server.
      clock: The clock.
      handle_pod: Handles pods as the API server returns them, so that the next session knows the nominations.
      changed: Called when a gang should be tried again.
      on_evicted: Receives each evicted pod.
    """

    def __init__(
        self,
        cache: ClusterState,
        writer: Writer,
        clock: Clock,
        handle_pod: Callable[[bytes], None],
        changed: Callable[[], None],
        on_evicted: Evicted = ignore_evicted_pod,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._clock = clock
        self._handle_pod = handle_pod
        self._changed = changed
        self._on_evicted = on_evicted
        self._running: set[asyncio.Task[None]] = set()
        self._nominated: dict[str, set[str]] = {}
        """By scheduler name, the pods that its last decision nominated."""
        self._leaving: set[str] = set()
        """Uids of the pods for which an eviction was requested."""

    def apply_decision(self, planner: ProfileScheduler, decision: Decision, took: float) -> None:
        """Start to write the nominations and evictions of a decision; a `loop.DecisionCallback`."""
        nominations = self._changed_nominations(planner, decision)
        evictions = [eviction for eviction in decision.evictions if self._victim(eviction) is not None]
        if nominations or evictions:
            task = asyncio.create_task(self._carry_out(planner, nominations, evictions))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Wait until all running requests have ended."""
        while self._running:
            await asyncio.wait(self._running)

    def _changed_nominations(self, planner: ProfileScheduler, decision: Decision) -> list[tuple[Pod, str]]:
        """Return the pods with a changed nomination, with the node; "" removes the nomination."""
        held = {held_pod.pod for gang in planner.held for held_pod in gang.pods}
        nodes = {f"{held_pod.namespace}/{held_pod.pod}": held_pod.node for held_pod in decision.nominations}
        changed = []
        for key, node in nodes.items():
            pod = self._waiting(key)
            if pod is not None and key not in held and pod.status.nominated_node_name != node:
                changed.append((pod, node))
        name = planner.profile.scheduler_name
        before = self._nominated.get(name, set())
        self._nominated[name] = nodes.keys() - held
        for key in before - nodes.keys():
            pod = self._waiting(key)
            if pod is not None and pod.status.nominated_node_name:
                changed.append((pod, ""))
        return changed

    def _waiting(self, key: str) -> Pod | None:
        pod: Pod | None = self._cache.get(PODS, key)
        return None if pod is None or pod.node else pod

    def _victim(self, eviction: Eviction) -> Pod | None:
        """Return the pod that is to be evicted; None if it is already terminating."""
        pod: Pod | None = self._cache.get(PODS, f"{eviction.namespace}/{eviction.pod}")
        leaves = pod is None or pod.terminating or pod.metadata.uid in self._leaving
        return None if leaves else pod

    async def _carry_out(
        self, planner: ProfileScheduler, nominations: list[tuple[Pod, str]], evictions: list[Eviction]
    ) -> None:
        # Nominations first: the freed resources must be reserved as soon as the victims are gone.
        await asyncio.gather(*(self._nominate(pod, node) for pod, node in nominations))
        done = await asyncio.gather(*(self._evict(eviction) for eviction in evictions))
        if not all(done):
            await self._clock.sleep(RETRY_SECONDS)
            planner.queue.activate([pod.key for pod, _ in nominations], self._clock.now())
            self._changed()

    async def _nominate(self, pod: Pod, node: str) -> None:
        change = {"status": {"nominatedNodeName": node or None}}
        try:
            self._handle_pod(
                await self._writer.patch(POD_RESOURCE, pod.namespace, pod.name, change, "status")
            )
        except BatchschedError as error:  # the next session decides again
            _LOG.warning("%s is not nominated for %s: %s", pod.key, node or "no node", error)

    async def _evict(self, eviction: Eviction) -> bool:
        pod = self._victim(eviction)
        if pod is None:
            return True
        self._leaving.add(pod.metadata.uid)
        try:
            await self._writer.evict(pod)
        except BatchschedError as error:
            self._leaving.discard(pod.metadata.uid)
            _LOG.warning("%s is not evicted for %s: %s", pod.key, eviction.for_, error)
            return False
        self._on_evicted(pod, eviction.reason, f"{eviction.reason} by {eviction.for_} on node {pod.node}")
        return True
