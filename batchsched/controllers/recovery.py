"""Recovery from incomplete bindings: overdue assumed pods, partially bound gangs, and claims of pods that cannot start.

An overdue assumed pod is read from the API server before it becomes pending.

A gang is partially bound if some pods are bound, but fewer than minMember or the minimum of a subGroup: a leader was
killed during the bindings, a binding failed, or a node was lost. Sessions complete such gangs before all others. A
gang that is still partially bound after its scheduleTimeoutSeconds is rolled back: its pods are evicted. With
`strandedPolicy: Rollback`, a new leader rolls back at once the partially bound gangs that it finds. A gang that had its
minimum once is never rolled back: a finished pod, a lost node or a raised minMember is no reason to stop the others.

A leader that is killed after it allocated devices, and before it bound the pods, leaves allocated claims of pending
pods. The next session places the gang with these devices if it can. Otherwise it refuses the gang, and the devices are
freed, so that the sessions after it choose freely.

Both facts about partially bound gangs survive a leader. Each replica that follows the cluster knows which gangs were
whole, and the status of the PodGroup has `wholeSince` and `partiallyBoundSince` for a process that starts later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import msgspec

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import POD_GROUP_LABEL, Pod, extended_resource_claim_name
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import Decision
from batchsched.api.external.conversion import scheduling_group_key, with_gang_labels
from batchsched.api.external.kubernetes import COMPOSITE_CONDITION, UPSTREAM_CONDITIONS
from batchsched.api.external.pod_group import external_api_version_and_uid, is_converted_from_external
from batchsched.api.gang import gang_identity, identities_of_gang_key, is_single_pod_identity
from batchsched.controllers.evictor import Evicted, do_nothing_on_eviction
from batchsched.errors import ApiError, BatchschedError
from batchsched.kube.claim_writer import ResourceClaimWriter
from batchsched.kube.connection import POD_RESOURCE, Connection
from batchsched.kube.writer import Writer
from batchsched.ports.claims import ExtendedResourceClaimRelease, ResourceClaimRelease
from batchsched.ports.cluster import Clock
from batchsched.state.cluster_state import POD_GROUPS, PODS, AssumedPod, ClusterState
from batchsched.state.podgroup_state import GangPods, count_pods_missing_for_minimum

_LOG: Final = logging.getLogger(__name__)
_NOT_FOUND: Final = 404


class AssumedPodVerifier:
    """The component that reads assumed pods from the API server if no watch event confirms their binding.

    It is a `loop.PeriodicTask`.

    Args:
      cache: The state of the cluster.
      read: Reads the pod `namespace/name` from the API server.
      handle_pod: Handles the pod that was read.
    """

    def __init__(
        self,
        cache: ClusterState,
        read: Callable[[str], Awaitable[bytes]],
        handle_pod: Callable[[bytes], None],
    ) -> None:
        self._cache = cache
        self._read = read
        self._handle_pod = handle_pod
        self._reads: dict[str, asyncio.Task[None]] = {}

    def run_once(self, now: float) -> None:
        """Start to read from the API server each assumed pod with an overdue confirmation of its binding."""
        for assumed in self._cache.overdue_assumed_pods(now):
            if assumed.pod not in self._reads:
                self._reads[assumed.pod] = asyncio.create_task(self._verify(assumed))

    async def _verify(self, assumed: AssumedPod) -> None:
        try:
            self._handle_pod(await self._read(assumed.pod))
        except BatchschedError as error:
            if not isinstance(error, ApiError) or error.status != _NOT_FOUND:
                return  # the state of the pod is unknown, so it stays assumed
            pod = self._cache.get(PODS, assumed.pod)
            if pod is not None and pod.metadata.uid == assumed.uid:
                self._cache.remove(pod)
        finally:
            del self._reads[assumed.pod]
        # If the pod was read with a node, `handle_pod` has confirmed it, and `forget_assumption` changes nothing.
        if self._cache.forget_assumption(assumed.pod, assumed.assumption.node, assumed.uid):
            _LOG.warning(
                "%s is not bound to %s, though its binding was taken", assumed.pod, assumed.assumption.node
            )


RETRY_SECONDS: Final = 10.0
"""Seconds after which refused evictions are tried again."""
REASON: Final = "RolledBack"


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class StaleGangController:
    """The controller that evicts the bound pods of stale gangs, which are partially bound for too long.

    It is a `loop.PeriodicTask`.

    When it is created, and only then, it reads what the previous leader recorded in the status of PodGroups. A status
    that is changed later has no effect on this leader.

    Args:
      cache: The state of the cluster, complete and up to date.
      connection: Reads the pods of a gang before it is rolled back.
      writer: Evicts pods.
      busy: Returns whether pods of a gang are being bound.
      clock: Returns the wall time, which the status of PodGroups records.
      on_evicted: Receives each evicted pod.
    """

    def __init__(
        self,
        cache: ClusterState,
        connection: Connection,
        writer: Writer,
        busy: Callable[[str], bool],
        clock: Clock,
        on_evicted: Evicted = do_nothing_on_eviction,
    ) -> None:
        self.leaving: set[str] = set()
        """Identities of the gangs that are being rolled back."""
        self._cache = cache
        self._connection = connection
        self._writer = writer
        self._busy = busy
        self._clock = clock
        self._on_evicted = on_evicted
        self._changed_gangs = cache.gangs.create_changed_gangs_reader()
        self._first_turn = True
        self._doubtful: set[str] = set()
        """Gangs with bindings in flight, to be checked again: their pods count as placed until a binding fails."""
        self._rollback_times: dict[str, float] = {}
        """When gangs are rolled back, by `Clock.steady_now`: a timeout must not change when the clock is set."""
        self._partially_bound_times: dict[str, float] = {}
        """Since when gangs that were never whole are partially bound, by `Clock.steady_now`."""
        self._at_once: set[str] = set()
        """Partially bound gangs that the leader before left, and that have `strandedPolicy: Rollback`."""
        self._tried: dict[str, float] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._restore()

    def _restore(self) -> None:
        """Adopt the recorded state of gangs."""
        for gang in list(self._cache.gangs):
            if gang.group is None:
                continue
            recorded = self._cache.status_of_custom_resource(
                POD_GROUPS, gang.identity, gang.group.metadata.uid
            )
            since = parse_timestamp(recorded.get("partiallyBoundSince"), default=-1.0)
            if since >= 0:
                self._cache.gangs.record_partially_bound(gang.identity, since)
            if recorded.get("wholeSince"):
                self._cache.gangs.record_minimum_was_bound(gang.identity)

    def _was_whole(self, gang: GangPods, group: PodGroup) -> bool:
        """Whether a gang had its minimum once. A PodGroup of Kubernetes has a condition that stays True."""
        if gang.was_whole or not is_converted_from_external(group):
            return gang.was_whole
        is_tree = bool(self._cache.group_trees.groups_of_tree(group.key))
        condition = (
            COMPOSITE_CONDITION
            if is_tree
            else UPSTREAM_CONDITIONS.get(external_api_version_and_uid(group)[0])
        )
        recorded = self._cache.status_of_custom_resource(POD_GROUPS, gang.identity, group.metadata.uid)
        return any(
            present["type"] == condition and present["status"] == "True"
            for present in recorded.get("conditions", ())
        )

    def run_once(self, now: float) -> None:
        """Check which changed gangs are partially bound, and start to evict the bound pods of stale gangs."""
        first_turn, self._first_turn = self._first_turn, False
        for identity in self._gangs_to_judge():
            try:
                self._judge(identity, now, first_turn=first_turn)
            except Exception:  # noqa: BLE001 - one gang must not keep the others from being checked
                _LOG.exception("%s is not checked for missing pods: a defect", identity)
        due = [
            identity
            for identity, until in self._rollback_times.items()
            if until <= now and not self._busy(identity)
        ]
        for identity in sorted({*due, *self.leaving}):
            if now - self._tried.get(identity, float("-inf")) >= RETRY_SECONDS:
                self._tried[identity] = now
                self.leaving.add(identity)  # from here on no session completes it
                task = asyncio.create_task(self._roll_back(identity))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    # Which gangs are partially bound

    def _gangs_to_judge(self) -> set[str]:
        """Return the gangs that may have become, or ceased to be, partially bound."""
        no_longer_busy = {identity for identity in self._doubtful if not self._busy(identity)}
        changed = {
            identity
            for identity in self._changed_gangs.read_changed_gangs()
            if not is_single_pod_identity(identity)
        }
        return changed | no_longer_busy

    def _placed(self, gang: GangPods | None) -> list[Pod]:
        """Return the placed pods of a gang that this scheduler placed."""
        names = self._cache.scheduler_names
        return (
            [pod for pod in gang.placed_pods() if pod.spec.scheduler_name in names]
            if gang is not None
            else []
        )

    def _judge(self, identity: str, now: float, *, first_turn: bool) -> None:
        """Record whether a gang is partially bound. On the first turn, another leader left it so."""
        self._doubtful.discard(identity)
        gang = self._cache.gangs.get(identity)
        group = gang.group if gang is not None else None
        placed = self._placed(gang)
        if gang is None or group is None or not placed:
            self._forget(identity)
        elif count_pods_missing_for_minimum(group, placed):
            self._set_rollback_time(gang, group, now, first_turn=first_turn)
        elif self._busy(identity):
            # Its pods are assumed, so they count as placed; a bind may still fail.
            self._doubtful.add(identity)
        else:
            self._forget(identity)

    def _set_rollback_time(self, gang: GangPods, group: PodGroup, now: float, *, first_turn: bool) -> None:
        """Set the time at which a partially bound gang is rolled back."""
        identity = gang.identity
        if identity not in self._rollback_times:
            _LOG.info(
                "%s is partially bound: %d of %d",
                identity,
                len(self._placed(gang)),
                group.effective_min_member,
            )
        if self._was_whole(gang, group):
            self._cache.gangs.record_partially_bound(identity, None)
            self._partially_bound_times.pop(identity, None)
            self._rollback_times[identity] = float("inf")
            return
        if first_turn and group.spec.stranded_policy == "Rollback":
            self._at_once.add(identity)
        since = self._since(gang, now)
        self._rollback_times[identity] = (
            since if identity in self._at_once else since + group.spec.schedule_timeout_seconds
        )

    def _since(self, gang: GangPods, now: float) -> float:
        """Return since when a gang is partially bound, and record the wall time of that for the status."""
        wall_time, recorded = self._clock.now(), gang.partially_bound_since
        if recorded is None:
            # Whole seconds, as in the status: a leader that reads it computes the same time.
            recorded = float(int(wall_time))
            self._partially_bound_times.pop(gang.identity, None)
        recorded = min(wall_time, recorded)
        self._cache.gangs.record_partially_bound(gang.identity, recorded)
        return self._partially_bound_times.setdefault(gang.identity, now - (wall_time - recorded))

    def _forget(self, identity: str) -> None:
        self._cache.gangs.record_partially_bound(identity, None)
        self._rollback_times.pop(identity, None)
        self._partially_bound_times.pop(identity, None)
        self._at_once.discard(identity)
        self._tried.pop(identity, None)
        self.leaving.discard(identity)

    # Rolling back

    async def _roll_back(self, identity: str) -> None:
        gang = self._cache.gangs.get(identity)
        group = gang.group if gang is not None else None
        try:
            pods = await self._pods(identity, group)
            placed = [pod for pod in pods if pod.node_name and not pod.terminating]
            # Finished pods count here: a gang that had its minimum once is not rolled back.
            if group is None or not placed or not count_pods_missing_for_minimum(group, placed):
                self.leaving.discard(identity)
                self._rollback_times.pop(identity, None)
                if placed:
                    self._cache.gangs.record_minimum_was_bound(identity)
                return
            message = (
                f"only {len(placed)} of the {group.effective_min_member} pods of PodGroup {identity} that minMember "
                f"asks for are bound, and the others could not be (strandedPolicy {group.spec.stranded_policy}, "
                f"scheduleTimeoutSeconds {group.spec.schedule_timeout_seconds})"
            )
            _LOG.warning("%s is rolled back: %s", identity, message)
            await asyncio.gather(*(self._evict(pod, message) for pod in placed))
        except (BatchschedError, ValueError) as error:  # ValueError: a pod that cannot be decoded
            # The next turns try again.
            _LOG.warning("%s is not rolled back yet: %s", identity, error)

    async def _pods(self, identity: str, group: PodGroup | None) -> tuple[Pod, ...]:
        """Read the bound pods of a gang from the API server, finished pods included."""
        namespace, _, name = identity.partition("/")
        query = {"fieldSelector": "spec.nodeName!="}
        # Pods may name an external PodGroup without the label, so all bound pods of its namespace are read.
        if group is None or not is_converted_from_external(group):
            query["labelSelector"] = f"{POD_GROUP_LABEL}={name}"
        raw = await self._connection.request("GET", POD_RESOURCE.path(namespace), query=query)
        listed = msgspec.json.decode(raw, type=_Pods).items
        own = (pod for pod in listed if pod.spec.scheduler_name in self._cache.scheduler_names)
        # As in the cluster state: the names in external references become labels.
        labelled = (with_gang_labels(self._cache.group_trees.with_gang_labels(pod)) for pod in own)
        return tuple(pod for pod in labelled if gang_identity(pod) == identity)

    async def _evict(self, pod: Pod, message: str) -> None:
        await self._writer.evict(pod)
        self._on_evicted(pod, REASON, message)


CLAIMS: Final = "resource_claims"


class RefusedGangClaimController:
    """The controller that releases the ResourceClaims of refused gangs, unless their pods are being bound.

    A claim that is reserved for a PodGroup of Kubernetes is released if no pod of the PodGroup is bound.

    Source: PostFilter and PodGroupPostFilter of kube-scheduler's plugins/dynamicresources, which free one claim at a
    time.

    Args:
      cache: the cluster state.
      writer: writes the claims.
      is_binding: returns whether pods of a gang are being bound.
    """

    def __init__(
        self, cache: ClusterState, writer: ResourceClaimWriter, is_binding: Callable[[str], bool]
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._is_binding = is_binding
        self._running: dict[str, asyncio.Task[None]] = {}

    def release_claims_of_refused_gangs(
        self, _scheduler: object, decision: Decision, _seconds: float
    ) -> None:
        """Start to release the ResourceClaims of all gangs that a decision refused."""
        if not self._cache.count_objects(CLAIMS):
            return
        for refusal in decision.refusals:
            for identity in identities_of_gang_key(refusal.pod_group):
                gang = self._cache.gangs.get(identity)
                if gang is not None and gang.pending and not self._is_binding(identity):
                    self._release_claims(identity, tuple(gang.pending.values()))

    def _release_claims(self, identity: str, pods: tuple[Pod, ...]) -> None:
        """Start to release what the pending pods of a gang hold."""
        pending = frozenset(pod.metadata.uid for pod in pods)
        for claim in self._held_claims(pods):
            if _owner_of_extended_resource_claim(claim) in pending:
                deletion = ExtendedResourceClaimRelease(
                    claim.metadata.namespace, claim.name, _owner_of_extended_resource_claim(claim)
                )
                self._start(
                    claim,
                    self._writer.delete_extended_resource_claim(
                        deletion, lambda: not self._is_binding(identity)
                    ),
                )
                continue
            self._release_claim(identity, claim, pods)

    def _release_claim(self, identity: str, claim: ResourceClaim, pods: tuple[Pod, ...]) -> None:
        """Start to release a claim that the pending pods of a gang hold, or their PodGroups of Kubernetes."""
        groups = self._waiting_pod_groups(claim, pods)

        def is_still_unused() -> bool:
            return not self._is_binding(identity) and groups <= self._waiting_pod_groups(claim, pods)

        holders = groups | {pod.metadata.uid for pod in pods}
        consumers = frozenset(consumer.uid for consumer in claim.status.reserved_for or ())
        release = ResourceClaimRelease(
            namespace=claim.metadata.namespace,
            claim=claim.name,
            uid=claim.metadata.uid,
            consumer_uids=consumers & holders,
            allocation=claim.status.allocation if _is_held_by(claim, consumers, holders) else None,
        )
        if release.consumer_uids or release.allocation is not None:
            self._start(claim, self._writer.release_resource_claim(release, is_still_unused))

    def _waiting_pod_groups(self, claim: ResourceClaim, pods: Iterable[Pod]) -> frozenset[str]:
        """Return the UIDs of PodGroups of the pods that hold a claim while none of their pods is bound.

        A PodGroup holds a claim that was created for it, or that is reserved for it. Its pods may belong to several
        gangs, or to another scheduler.

        Source: `deallocatePodGroupClaims` of kube-scheduler's plugins/dynamicresources.
        """
        named = {scheduling_group_key(pod) for pod in pods}
        holding = {
            consumer.uid: f"{claim.metadata.namespace}/{consumer.name}"
            for consumer in claim.status.reserved_for or ()
            if consumer.is_pod_group
        }
        owner = claim.owner_pod_group_name_and_uid
        if owner is not None:
            holding[owner[1]] = f"{claim.metadata.namespace}/{owner[0]}"
        holding = {uid: key for uid, key in holding.items() if key in named}
        if not holding:
            return frozenset()
        started = {scheduling_group_key(pod) for pod in self._cache.list_objects(PODS) if pod.node_name}
        return frozenset(uid for uid, key in holding.items() if key not in started)

    def _held_claims(self, pods: Iterable[Pod]) -> Iterator[ResourceClaim]:
        """Yield the claims of pods that have devices or reservations, each once."""
        claims = {key: self._cache.get(CLAIMS, key) for pod in pods for key in _claim_keys(pod)}
        for claim in claims.values():
            if claim is None or claim.key in self._running:
                continue
            if (
                claim.status.allocation is not None
                or claim.status.reserved_for
                or _owner_of_extended_resource_claim(claim)
            ):
                yield claim

    def _start(self, claim: ResourceClaim, release: Awaitable[None]) -> None:
        async def await_release() -> None:
            try:
                await release
            except BatchschedError as error:  # the next refusal tries again
                _LOG.warning("ResourceClaim %s is not released yet: %s", claim.key, error)
            finally:
                del self._running[claim.key]

        _LOG.info("ResourceClaim %s is released: its pods cannot start", claim.key)
        self._running[claim.key] = asyncio.create_task(await_release())


def _is_held_by(claim: ResourceClaim, consumers: frozenset[str], holders: frozenset[str]) -> bool:
    """Return whether only pods and PodGroups that wait, by UID, can have got the devices of a claim.

    An administrator or another scheduler may have allocated a claim that users created and that nothing reserves.
    """
    controller = claim.metadata.controller_owner
    return consumers <= holders if consumers else controller is not None and controller.uid in holders


def _claim_keys(pod: Pod) -> Iterator[str]:
    """Yield the `namespace/name` of the claims that a pod uses, or that were created for its extended resources."""
    return iter((*pod.resource_claim_keys, f"{pod.namespace}/{extended_resource_claim_name(pod)}"))


def _owner_of_extended_resource_claim(claim: ResourceClaim) -> str:
    """Return the UID of the pod for which a claim for extended resources was created, "" for other claims."""
    pod = claim.extended_resource_pod_name_and_uid
    return pod[1] if pod is not None else ""
