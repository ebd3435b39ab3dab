"""The evictor: writes the nominations of a decision, then evicts its victims.

All evictions for a gang are a plan. Before the first of them, the API server is asked in a dry run whether it would
refuse one: otherwise the other victims would be evicted without effect. If a plan fails, the nominations of its gang
are released, and the next plans leave out the pod that cannot be evicted.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Eviction
from batchsched.api.gang import gang_key_of_pod, identities_of_gang_key
from batchsched.errors import ApiError, BatchschedError
from batchsched.kube.connection import POD_RESOURCE
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.state.cluster_state import PODS, ClusterState

_LOG: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 10.0
"""Seconds after which the preemptor is tried again if the eviction of a victim fails."""
EVICTION_SECONDS: Final = 30.0
"""Seconds within which the watch shows an evicted pod as terminating, unless the API server was restored since."""
REFUSED_SECONDS: Final = 300.0
"""Seconds for which a pod is no victim after the API server refused to evict it."""
_CONFLICT: Final = 409
_TOO_MANY_REQUESTS: Final = 429
Evicted = Callable[[Pod, str, str], None]
"""Receives each evicted pod with the reason as a word and as a sentence."""


def do_nothing_on_eviction(pod: Pod, reason: str, message: str) -> None:
    """Do nothing; this is the default callback for the eviction of a pod."""


class Evictor:
    """The controller that writes the nominations of a decision, and then evicts its victims.

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
        on_evicted: Evicted = do_nothing_on_eviction,
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
        self._leaving: dict[str, float] = {}
        """By uid of each pod for which an eviction was requested: until when it is not requested again."""
        self._in_progress: set[str] = set()
        """Gangs with a plan in progress: another one for the same gang could evict other victims as well."""
        self._ended: dict[str, float] = {}
        """Gang → the monotonic time at which its last plan ended; only those that a running session may not know."""

    def start_nominations_and_evictions(
        self, profile_scheduler: ProfileScheduler, decision: Decision, took: float
    ) -> None:
        """Start to write the nominations of a decision, and to request the evictions of its victims.

        This method is a `loop.DecisionCallback`. A plan for a gang is dropped if another plan for the gang is in
        progress, or ended after the session of the decision began. This session did not know the nominations and
        victims of the other plan, and may have chosen other victims.
        """
        now = self._clock.monotonic()
        begun = now - took
        self._leaving = {uid: until for uid, until in self._leaving.items() if until > now}
        self._ended = {gang: ended for gang, ended in self._ended.items() if ended > begun}
        planned = self._in_progress | self._ended.keys()
        nominations = [
            (pod, node)
            for pod, node in self._changed_nominations(profile_scheduler, decision)
            if not node or gang_key_of_pod(pod) not in planned
        ]
        evictions = [
            eviction
            for eviction in decision.evictions
            if eviction.for_ not in planned and self._victim(eviction) is not None
        ]
        self._in_progress.update(eviction.for_ for eviction in evictions)
        if nominations or evictions:
            task = asyncio.create_task(self._carry_out(profile_scheduler, nominations, evictions))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _changed_nominations(
        self, profile_scheduler: ProfileScheduler, decision: Decision
    ) -> list[tuple[Pod, str]]:
        """Return the pods with a changed nomination, with the node; "" removes the nomination."""
        held = {held_pod.pod for gang in profile_scheduler.held for held_pod in gang.pods}
        nodes = {held_pod.pod_key: held_pod.node for held_pod in decision.nominations}
        changed = []
        for key, node in nodes.items():
            pod = self._waiting(key)
            if pod is not None and key not in held and pod.status.nominated_node_name != node:
                changed.append((pod, node))
        name = profile_scheduler.profile.scheduler_name
        before = self._nominated.get(name, set())
        self._nominated[name] = nodes.keys() - held
        for key in before - nodes.keys():
            pod = self._waiting(key)
            if pod is not None and pod.status.nominated_node_name:
                changed.append((pod, ""))
        return changed

    def _waiting(self, key: str) -> Pod | None:
        pod: Pod | None = self._cache.get(PODS, key)
        return None if pod is None or pod.node_name else pod

    def _victim(self, eviction: Eviction) -> Pod | None:
        """Return the pod that is to be evicted; None if it is already terminating."""
        pod: Pod | None = self._cache.get(PODS, eviction.pod_key)
        leaves = pod is None or pod.terminating or pod.metadata.uid in self._leaving
        return None if leaves else pod

    async def _carry_out(
        self,
        profile_scheduler: ProfileScheduler,
        nominations: list[tuple[Pod, str]],
        evictions: list[Eviction],
    ) -> None:
        try:
            failed = await self._evict_all(profile_scheduler, evictions, dry_run=True)
            # Nominations first: the freed resources must be reserved as soon as the victims are gone.
            await asyncio.gather(
                *(
                    self._nominate(pod, node)
                    for pod, node in nominations
                    if gang_key_of_pod(pod) not in failed
                )
            )
            remaining = [eviction for eviction in evictions if eviction.for_ not in failed]
            failed |= await self._evict_all(profile_scheduler, remaining, dry_run=False)
        finally:
            gangs = {eviction.for_ for eviction in evictions}
            self._in_progress -= gangs
            self._ended |= dict.fromkeys(gangs, self._clock.monotonic())
        if failed:
            preemptors = await self._release_nominations(failed)
            await self._clock.sleep(RETRY_SECONDS)
            profile_scheduler.queue.activate(preemptors, self._clock.steady_now())
            self._changed()

    async def _evict_all(
        self, profile_scheduler: ProfileScheduler, evictions: list[Eviction], *, dry_run: bool
    ) -> set[str]:
        """Request evictions, and return the gangs for which at least one failed."""
        done = await asyncio.gather(
            *(self._evict(profile_scheduler, eviction, dry_run) for eviction in evictions)
        )
        return {eviction.for_ for eviction, succeeded in zip(evictions, done, strict=True) if not succeeded}

    async def _release_nominations(self, gangs: set[str]) -> list[str]:
        """Clear the nominations of gangs, so that others may use the resources; return their pending pods."""
        pods = [
            pod
            for key in sorted(gangs)
            for identity in identities_of_gang_key(key)
            if (gang := self._cache.gangs.get(identity)) is not None
            for pod in gang.nonterminating_pending_pods()
        ]
        await asyncio.gather(*(self._nominate(pod, "") for pod in pods if pod.status.nominated_node_name))
        return [pod.key for pod in pods]

    async def _nominate(self, pod: Pod, node: str) -> None:
        change = {"status": {"nominatedNodeName": node or None}}
        try:
            self._handle_pod(
                await self._writer.patch(POD_RESOURCE, pod.namespace, pod.name, change, "status")
            )
        except BatchschedError as error:  # the next session decides again
            _LOG.warning("%s is not nominated for %s: %s", pod.key, node or "no node", error)

    async def _evict(self, profile_scheduler: ProfileScheduler, eviction: Eviction, dry_run: bool) -> bool:
        """Evict a pod, or ask whether that is allowed; return False if the API server refused or did not answer."""
        pod = self._victim(eviction)
        if pod is None:
            return True
        if dry_run:
            return await self._request(profile_scheduler, eviction, pod, dry_run=True)
        self._leaving[pod.metadata.uid] = self._clock.monotonic() + EVICTION_SECONDS
        evicted = await self._request(profile_scheduler, eviction, pod, dry_run=False)
        if evicted:
            reason = f"{eviction.reason} by {eviction.for_} on node {pod.node_name}"
            self._on_evicted(pod, eviction.reason, reason)
        else:
            self._leaving.pop(pod.metadata.uid, None)
        return evicted

    async def _request(
        self, profile_scheduler: ProfileScheduler, eviction: Eviction, pod: Pod, *, dry_run: bool
    ) -> bool:
        """Send an eviction, and remember a pod that the API server refuses to evict."""
        try:
            await self._writer.evict(pod, dry_run=dry_run)
        except BatchschedError as error:
            if isinstance(error, ApiError):
                # A budget, or a limit on requests, allows more later, and a conflict ends.
                is_transient = error.status in (_CONFLICT, _TOO_MANY_REQUESTS)
                seconds = RETRY_SECONDS if is_transient else REFUSED_SECONDS
                profile_scheduler.remember_refused_eviction(pod, self._clock.steady_now() + seconds)
            _LOG.warning("%s is not evicted for %s: %s", pod.key, eviction.for_, error)
            return False
        return True
