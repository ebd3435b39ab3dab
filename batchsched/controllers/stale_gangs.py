"""Gangs that are half bound: which they are, since when, and when they are given up.

Half bound is a gang of which some pods are bound, fewer than minMember (or a subGroup's): a leader was killed as it
bound them, a binding failed, a node was lost. What is bound counts, and sessions complete such gangs before all others.
One that is not complete after its scheduleTimeoutSeconds is rolled back: its pods are evicted, and what they held is
of use to somebody. With `strandedPolicy: Rollback` a new leader does so at once with what it finds.

A gang that was whole is never rolled back, whatever became of its members later: a member that finished, or whose node
was lost, is no reason to end the others.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang_identity import identity_of, is_single_pod
from batchsched.controllers.evictor import Evicted, silent
from batchsched.errors import BatchschedError
from batchsched.kube import resources
from batchsched.kube.connection import Connection
from batchsched.kube.writer import Writer
from batchsched.session.tables.gang import PodGroupState
from batchsched.state.change_log import Change
from batchsched.state.cluster_state import PODS, ClusterState
from batchsched.state.feed import GROUPS

_LOG: Final = logging.getLogger(__name__)
AGAIN: Final = 10.0
"""Seconds after which evictions are tried again that were refused."""
REASON: Final = "RolledBack"


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class StaleGangs:
    """Follows who is half bound, and rolls back who cannot be completed; a `loop.Chore`.

    Args:
      cache: what is known of the cluster.
      connection: reads; what is given up is looked at afresh before.
      writer: evicts.
      busy: tells whether pods of a gang are being bound.
      told: hears of each pod that was evicted.
    """

    def __init__(
        self,
        cache: ClusterState,
        connection: Connection,
        writer: Writer,
        busy: Callable[[str], bool],
        told: Evicted = silent,
    ) -> None:
        self.leaving: set[str] = set()
        """Identities of the gangs that are being rolled back."""
        self._cache = cache
        self._connection = connection
        self._writer = writer
        self._busy = busy
        self._told = told
        self._seen: int | None = None
        self._gangs: dict[str, PodGroupState] = {}
        self._doubtful: set[str] = set()
        """Gangs to be judged again: their pods count as bound, and are being bound."""
        self._since: dict[str, float] = {}
        self._whole: set[str] = set()
        self._tried: dict[str, float] = {}
        self._running: set[asyncio.Task[None]] = set()

    def turn(self, now: float) -> None:
        """Take in what changed, and begin to roll back who has waited long enough."""
        found = self._seen is None
        for identity in self._follow():
            self._judge(identity, now, found=found)
        due = [one for one, until in self._since.items() if until <= now and not self._busy(one)]
        for identity in sorted({*due, *self.leaving}):
            if now - self._tried.get(identity, float("-inf")) >= AGAIN:
                self._tried[identity] = now
                self.leaving.add(identity)  # from here on no session completes it
                task = asyncio.create_task(self._roll_back(identity))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    @property
    def waiting(self) -> dict[str, float]:
        """The gangs that are half bound, by identity, and when they are given up."""
        return dict(self._since)

    # Who is half bound

    def _follow(self) -> set[str]:
        """Bring the gangs up to date; returns those that may have changed their state."""
        changes = self._cache.changes(self._seen) if self._seen is not None else None
        self._seen = self._cache.generation
        touched = {one for one in self._doubtful if not self._busy(one)}
        if changes is None:
            touched |= set(self._gangs)
            self._gangs = {}
            snapshot = self._cache.snapshot()
            changes = tuple(Change(GROUPS, one.key, None, one) for one in snapshot.pod_groups)
            changes += tuple(Change(PODS, one.key, None, one) for one in snapshot.pods if one.node)
        for change in changes:
            touched |= self._take(change)
        return touched

    def _take(self, change: Change) -> set[str]:
        if change.field == GROUPS:
            members = self._gangs.setdefault(change.key, PodGroupState(change.key, None))
            members.group = change.after
            return {change.key}
        touched = set()
        if change.field == PODS:
            for pod in (change.before, change.after):
                if pod is None or not pod.node or pod.spec.scheduler_name not in self._cache.scheduler_names:
                    continue
                identity = identity_of(pod)
                if is_single_pod(identity):
                    continue
                members = self._gangs.setdefault(identity, PodGroupState(identity, None))
                if pod is change.after:
                    members.bound[pod.key] = (pod, -1)
                else:
                    members.bound.pop(pod.key, None)
                touched.add(identity)
        return touched

    def _judge(self, identity: str, now: float, *, found: bool) -> None:
        """Say of a gang what it is; `found`: as a new leader finds it."""
        self._doubtful.discard(identity)
        members = self._gangs.get(identity)
        group = members.group if members is not None else None
        if members is None or group is None or not members.standing:
            self._forget(identity)
            if members is not None and group is None and not members.bound:
                del self._gangs[identity]
        elif members.stranded:
            if identity not in self._since:
                self._since[identity] = self._given_up(group, now, found=found)
                _LOG.info("%s is half bound: %d of %d", identity, len(members.standing), members.minimum)
        elif self._busy(identity):
            self._doubtful.add(identity)
        else:
            self._forget(identity)
            self._whole.add(identity)

    def _given_up(self, group: PodGroup, now: float, *, found: bool) -> float:
        """Return when a gang is given up that is half bound since now."""
        if group.key in self._whole:
            return float("inf")
        if found and group.spec.stranded_policy == "Rollback":
            return now
        return now + group.spec.schedule_timeout_seconds

    def _forget(self, identity: str) -> None:
        self._since.pop(identity, None)
        self._tried.pop(identity, None)
        self._whole.discard(identity)
        self.leaving.discard(identity)

    # Rolling back

    async def _roll_back(self, identity: str) -> None:
        members = self._gangs.get(identity)
        try:
            pods = await self._pods(identity)
            if members is None or not self._half_bound(members, pods):
                self.leaving.discard(identity)
                self._since[identity] = float("inf")  # it was whole: some of its members have finished
                return
            placed = [pod for pod in pods if pod.node and not pod.terminating]
            message = (
                f"only {len(placed)} of the {members.minimum} pods of PodGroup {identity} that minMember asks for are "
                f"bound, and the others could not be ({self._why(members)})"
            )
            _LOG.warning("%s is rolled back: %s", identity, message)
            await asyncio.gather(*(self._evict(pod, message) for pod in placed))
        except BatchschedError as error:  # it is tried again
            _LOG.warning("%s is not rolled back yet: %s", identity, error)

    def _why(self, members: PodGroupState) -> str:
        group = members.group
        seconds = group.spec.schedule_timeout_seconds if group is not None else 0
        policy = group.spec.stranded_policy if group is not None else ""
        return f"strandedPolicy {policy}, scheduleTimeoutSeconds {seconds}"

    async def _pods(self, identity: str) -> tuple[Pod, ...]:
        """List the pods of a gang afresh, finished ones too."""
        namespace, _, name = identity.partition("/")
        query = {"labelSelector": f"{POD_GROUP_LABEL}={name}"}
        raw = await self._connection.request("GET", resources.PODS.path(namespace), query=query)
        listed = msgspec.json.decode(raw, type=_Pods).items
        return tuple(one for one in listed if one.spec.scheduler_name in self._cache.scheduler_names)

    @staticmethod
    def _half_bound(members: PodGroupState, pods: tuple[Pod, ...]) -> bool:
        """Tell whether a gang is half bound when those that have finished count, too."""
        bound = {pod.key: (pod, -1) for pod in pods if pod.node}
        return PodGroupState(members.identity, members.group, bound=bound).stranded

    async def _evict(self, pod: Pod, message: str) -> None:
        await self._writer.evict(pod)
        self._told(pod, REASON, message)
