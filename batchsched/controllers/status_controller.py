"""The status controller: writes the status of PodGroups and Queues, and the PodScheduled condition of pods.

Changed objects are queued. Twice a second, while no pod is being bound, a part of them is written, gangs and queues
before pods. A status equal to the written one is not sent. A write that the API server could not carry out is repeated:
after the time that the API server asks for, after a delay that doubles with each failure, or once the object changes.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import API_VERSION
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.kubernetes import UPSTREAM_CONDITIONS
from batchsched.api.external.pod_group import external_api_version_and_uid, is_converted_from_external
from batchsched.api.gang import gang_key_from_identity, gang_key_of_pod, identities_of_gang_key
from batchsched.api.priority import PriorityTable
from batchsched.config.schema import Profile
from batchsched.controllers import desired_status as status
from batchsched.controllers.event_recorder import EventRecorder, PendingEvent, WriteDelay, object_reference
from batchsched.controllers.protection_limits import protection_limited_reasons_by_gang
from batchsched.controllers.queue_status_inputs import queue_positions, queue_status_inputs
from batchsched.controllers.refusal_history import GangStatusRecords
from batchsched.controllers.workload_status import changed_conditions
from batchsched.errors import ApiError, BatchschedError, IllegalStateChange, Unreachable
from batchsched.kube.connection import (
    MERGE_PATCH,
    POD_GROUP_RESOURCE,
    POD_RESOURCE,
    STRATEGIC_MERGE_PATCH,
    ApiResource,
)
from batchsched.kube.writer import Writer
from batchsched.ports.cluster import Clock
from batchsched.state.cluster_state import POD_GROUPS, PODS, QUEUES, ClusterState
from batchsched.state.podgroup_state import RUNNING, GangPods

_LOG: Final = logging.getLogger(__name__)
PERIOD_SECONDS: Final = 0.5
MAX_CONCURRENT_WRITES: Final = 8
MAX_WRITES_PER_PERIOD: Final = 100
"""Maximum number of objects that are written in one period."""
MAX_CHECKS_PER_PERIOD: Final = 5_000
"""Maximum number of objects that are checked in one period."""
MAX_RETRY_SECONDS: Final = 60.0
"""Maximum seconds until a failed write is repeated."""
FINAL_RETRY_SECONDS: Final = 5.0
"""Seconds for which a leader that shuts down repeats failed writes."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_INVALID: Final = 422
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
POSITIONS_SECONDS: Final = 5.0
"""Seconds between two computations of all queue positions: a gang that starts moves all behind it."""
OUR_QUEUES: Final = ApiResource(API_VERSION, "queues", "Queue", namespaced=False)
OWN_CONDITIONS: Final = {POD_GROUPS: status.POD_GROUP_CONDITIONS, QUEUES: status.QUEUE_CONDITIONS}
"""Types of the conditions that this controller writes, by field of Snapshot. Others belong to other controllers."""
ObjectKey = tuple[str, str]
"""An object to check: its field of Snapshot and its key there."""
ObjectWithUid = tuple[ObjectKey, str]
"""The same with a uid, which tells it from another object of the same name."""


class StatusController:
    """The controller that writes the status of PodGroups and Queues, and the pod condition `PodScheduled`.

    Args:
      cache: The state of the cluster.
      refusals: The last refusal of each gang.
      writer: Sends requests to the API server.
      recorder: Records the Event of a scheduled gang.
      write_delay: Delays writes while pods are being bound.
      clock: The clock.
      profile: The first profile.
    """

    def __init__(  # noqa: PLR0913 - the one place where all that a status is made of comes together
        self,
        cache: ClusterState,
        refusals: GangStatusRecords,
        writer: Writer,
        recorder: EventRecorder,
        write_delay: WriteDelay,
        clock: Clock,
        profile: Profile | None = None,
    ) -> None:
        self.profile = profile or Profile()
        """The first profile, as of the last reload."""
        self._cache = cache
        self._refusals = refusals
        self._writer = writer
        self._recorder = recorder
        self._write_delay = write_delay
        self._clock = clock
        self._changed_gangs = cache.gangs.create_changed_gangs_reader()
        self._turn = asyncio.Lock()
        self._queued: dict[ObjectKey, None] = {}
        self._queued_pods: dict[ObjectKey, None] = {}
        self._written: dict[ObjectWithUid, Any] = {}
        self._written_versions: dict[ObjectWithUid, int] = {}
        """The resource versions that the written statuses of PodGroups and Queues have."""
        self._overwritten: set[ObjectWithUid] = set()
        """Objects of which another client changed what this controller wrote to the status."""
        self._allocations: Mapping[str, status.QueueStatusInput] = {}
        self._positions: dict[str, int] = {}
        self._protections: Mapping[str, tuple[str, str]] = {}
        self._positions_at = float("-inf")
        self._retries: dict[ObjectKey, dict[str, RetryDelay]] = {}
        """Failed writes that are to be repeated, by object and uid; the groups of a tree have one object."""
        self._failed: set[ObjectKey] = set()
        """Objects for which a failure was logged, as long as they exist."""
        self._positions_generation = -1

    def request_status_updates(self, keys: Iterable[str]) -> None:
        """Queue the PodGroups of gangs, and the pending pods of refused gangs, for status updates."""
        for key in keys:
            if self._cache.get(POD_GROUPS, key) is not None:
                self._queued[POD_GROUPS, key] = None
            if self._refusals.status_record_of(key).message:
                self._queued_pods.update(dict.fromkeys((PODS, pod) for pod in self.pending_pod_keys(key)))

    def pending_pod_keys(self, key: str) -> list[str]:
        """Return the keys of the pending pods of a gang.

        `key` is the `namespace/name` of the PodGroup, or of the pod if the gang is a pod without a PodGroup.
        """
        gangs = (self._cache.gangs.get(identity) for identity in identities_of_gang_key(key))
        return [pod.key for gang in gangs if gang is not None for pod in gang.nonterminating_pending_pods()]

    async def run(self) -> None:
        """Write the status of changed objects periodically until the task is cancelled."""
        while True:
            await self._clock.sleep(PERIOD_SECONDS)
            await self._write_delay.wait_for_bindings()
            await self.run_once()

    async def write_all_queued_status(self) -> None:
        """Write every status of gangs and queues that is still to be written, but not the conditions of pods.

        The next leader writes the conditions of pods. Failed writes are repeated for some seconds only, since the next
        leader waits for the Lease.
        """
        for key_to_check in self._retries:
            self._queue(key_to_check)
        self._retries.clear()
        end = self._clock.monotonic() + FINAL_RETRY_SECONDS
        while True:
            self._queued_pods.clear()
            await self.run_once()
            if not self._queued:  # what remains to be written waits for a retry
                if all(field == PODS for field, _ in self._retries) or self._clock.monotonic() >= end:
                    return
                await self._clock.sleep(PERIOD_SECONDS)

    def needs_no_further_pods(self, identity: str) -> bool:
        """Return True if a gang's bound and assumed pods reach its minimum, so that it needs no further pods.

        If no pod of the gang is pending, one bound or assumed pod is enough.
        """
        gang = self._cache.gangs.get(identity)
        return gang is not None and bool(gang.placed_pods()) and not gang.has_pending_pods_and_lacks_minimum

    async def run_once(self) -> None:
        """Queue changed objects for status updates, and update the status of up to 100 queued objects."""
        async with self._turn:
            self._queue_changes()
            slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

            async def send_change(change: "StatusChange", seen_version: int) -> None:
                async with slots:
                    try:
                        await self._send(change, seen_version)
                    except Exception as error:  # noqa: BLE001 - one object must not keep the others from their status
                        self._report_failure(change.place[0], error)

            # The cluster state may change while a write waits for its slot.
            await asyncio.gather(
                *(
                    send_change(change, self._cache.resource_version(*change.place[0]))
                    for change in self._next_changes()
                )
            )

    def _queue_changes(self) -> None:
        self.request_status_updates(
            {gang_key_from_identity(identity) for identity in self._changed_gangs.read_changed_gangs()}
        )
        self._queue_foreign_statuses()
        for key_to_check, retries in self._retries.items():
            if not all(self._is_delayed(key_to_check, retry) for retry in retries.values()):
                self._queue(key_to_check)
        monotonic = self._clock.monotonic()
        if (
            monotonic - self._positions_at >= POSITIONS_SECONDS
            and self._positions_generation != self._cache.generation
        ):
            self._positions_at, self._positions_generation = monotonic, self._cache.generation
            self._update_positions()
            self._update_protections()
            self._allocations = queue_status_inputs(self._cache, self.profile.queue_policy)
            self._queued.update(dict.fromkeys((QUEUES, name) for name in self._allocations))
            self._prune()

    def _queue_foreign_statuses(self) -> None:
        """Queue the objects with a status that another client changed after this controller wrote it."""
        for field, key in self._cache.take_keys_of_changed_statuses():
            place = ((field, key), _uid(self._cache.get(field, key)))
            # An older version is that of an earlier write: the watch has not shown the last one yet.
            is_newer = self._cache.resource_version(field, key) > self._written_versions.get(place, 0) > 0
            if is_newer and self._is_overwritten(place):
                self._overwritten.add(place)
                self._queued[field, key] = None

    def _is_overwritten(self, place: ObjectWithUid) -> bool:
        """Return whether another client changed what this controller wrote; other controllers may add conditions."""
        (field, key), uid = place
        own, written = OWN_CONDITIONS[field], self._written[place]
        seen = self._cache.status_of_custom_resource(field, key, uid)
        present = {name: seen.get(name) for name in written}
        shown, expected = (
            _plain(status.with_conditions_of_others(version, {}, own)) for version in (present, written)
        )
        return bool(shown != expected)

    def _present_status(self, place: ObjectWithUid, checked_object: Any) -> Any:
        """Return the status of an object: as it was written last, with the present conditions of other controllers."""
        (field, key), _ = place
        written = self._written.get(place)
        if written is not None and field == POD_GROUPS and is_converted_from_external(checked_object):
            return written
        seen = self._cache.status_of_custom_resource(field, key, checked_object.metadata.uid)
        if written is None:
            return seen
        return status.with_conditions_of_others(written, seen, OWN_CONDITIONS[field])

    def _update_positions(self) -> None:
        before = self._positions
        self._positions = queue_positions(self._cache, self.profile, self._clock.now())
        self.request_status_updates(
            key for key, position in self._positions.items() if before.get(key) != position
        )

    def _update_protections(self) -> None:
        before, self._protections = (
            self._protections,
            protection_limited_reasons_by_gang(self._cache, self._clock.now()),
        )
        self.request_status_updates(
            key for key in {*before, *self._protections} if before.get(key) != self._protections.get(key)
        )

    def _prune(self) -> None:
        """Drop the records of deleted objects."""
        outdated = [place for place in self._written if _uid(self._cache.get(*place[0])) != place[1]]
        for place in outdated:
            del self._written[place]
            self._written_versions.pop(place, None)
            self._overwritten.discard(place)
        self._failed = {key for key in self._failed if self._cache.get(*key) is not None}
        for key in self._refusals.gang_keys():
            gangs = (self._cache.gangs.get(identity) for identity in identities_of_gang_key(key))
            if not any(gang is not None and gang.has_unfinished_pods for gang in gangs):
                self._refusals.forget_gang(key)

    def _next_changes(self) -> list["StatusChange"]:
        """Return the next part of the changes, gangs and queues before pods."""
        now = self._clock.now()
        changes: list[StatusChange] = []
        for queued in (self._queued, self._queued_pods):
            for key_to_check in list(islice(queued, MAX_CHECKS_PER_PERIOD)):
                if len(changes) >= MAX_WRITES_PER_PERIOD:
                    break
                del queued[key_to_check]
                retries = self._retries.pop(key_to_check, {})
                try:
                    next_changes = tuple(self._changes_of(key_to_check, now))
                except Exception as error:  # noqa: BLE001 - one object must not keep the others from their status
                    self._report_failure(key_to_check, error)
                    continue
                # Retries of deleted objects, and of statuses that are the desired ones by now, are dropped.
                retries = {uid: retries[uid] for _, uid in (c.place for c in next_changes) if uid in retries}
                if retries:
                    self._retries[key_to_check] = retries
                delayed = {uid for uid, retry in retries.items() if self._is_delayed(key_to_check, retry)}
                changes += (change for change in next_changes if change.place[1] not in delayed)
        return changes

    def _is_delayed(self, key_to_check: ObjectKey, retry: "RetryDelay") -> bool:
        """Return whether it is too early to repeat a failed write: never if the object has changed since then."""
        return (
            retry.time > self._clock.monotonic()
            and self._cache.resource_version(*key_to_check) == retry.seen_version
        )

    def _handle_failure(self, place: ObjectWithUid, error: BatchschedError, seen_version: int) -> None:
        """Repeat a failed write later if it may succeed then; otherwise drop it."""
        if _may_succeed_later(error):
            if isinstance(error, ApiError) and error.status == _CONFLICT and place in self._written_versions:
                # The version of the last write does not exist if the API server was restored from a backup.
                self._written_versions[place] = min(self._written_versions[place], seen_version)
            self._retry_later(place, error, seen_version)
            return
        self._forget_retry(place)
        if isinstance(error, ApiError) and not _is_gone(error):
            _LOG.warning("the status of %s is not written: %s", place[0][1], error)

    def _retry_later(self, place: ObjectWithUid, error: BatchschedError, seen_version: int) -> None:
        """Repeat a failed write after the time that the API server asks for, or after a delay that doubles."""
        key_to_check, uid = place
        retries = self._retries.setdefault(key_to_check, {})
        last = retries.get(uid)
        if last is None:
            _LOG.warning("the status of %s is not written yet: %s", key_to_check[1], error)
        seconds = PERIOD_SECONDS if last is None else 2 * last.seconds
        if isinstance(error, ApiError) and error.retry_after:
            seconds = error.retry_after
        seconds = min(MAX_RETRY_SECONDS, seconds)
        retries[uid] = RetryDelay(self._clock.monotonic() + seconds, seconds, seen_version)

    def _forget_retry(self, place: ObjectWithUid) -> None:
        key_to_check, uid = place
        if retries := self._retries.get(key_to_check):
            retries.pop(uid, None)
            if not retries:
                del self._retries[key_to_check]

    def _queue(self, key_to_check: ObjectKey) -> None:
        (self._queued_pods if key_to_check[0] == PODS else self._queued)[key_to_check] = None

    def _report_failure(self, key: ObjectKey, error: Exception) -> None:
        """Log, once for each object, that its status cannot be written."""
        if key not in self._failed:
            self._failed.add(key)
            _LOG.error("the status of %s is not written: a defect", " ".join(key), exc_info=error)

    def _changes_of(self, key_to_check: ObjectKey, now: float) -> "Iterator[StatusChange]":
        """Yield the changes of an object, and of all groups of a tree of groups of Kubernetes."""
        field, key = key_to_check
        group = self._cache.get(field, key)
        if field == POD_GROUPS and group is not None and self._cache.group_trees.groups_of_tree(key):
            yield from self._tree(group, now)
        elif (change := self._change_of(key_to_check, now)) is not None:
            yield change

    def _tree(self, group: PodGroup, now: float) -> "Iterator[StatusChange]":
        if not is_converted_from_external(group):
            return
        key = (POD_GROUPS, group.key)
        numbers, record = self._numbers(group.key), self._refusals.status_record_of(group.key)

        def written_conditions(uid: str) -> status.Conditions | None:
            conditions: status.Conditions | None = (self._written.get((key, uid)) or {}).get("conditions")
            return conditions

        for change in changed_conditions(self._cache, group, numbers, record, written_conditions, now):
            desired = {"conditions": [change.condition]}
            yield StatusChange((key, change.uid), change.resource, desired, None, name=change.name)

    def _change_of(self, key_to_check: ObjectKey, now: float) -> "StatusChange | None":
        """Return the change of an object; None if its status is written already."""
        field, key = key_to_check
        checked_object = self._cache.get(field, key)
        if checked_object is None:
            return None
        place = (key_to_check, _uid(checked_object))
        if field == PODS:
            return self._pod(place, checked_object, now)
        present = self._present_status(place, checked_object)
        before = present.get("conditions", ())
        if field == QUEUES:
            held = self._allocations.get(key) or status.QueueStatusInput({})
            desired = status.desired_queue_status(checked_object, held, before, now)
            return self._change(place, OUR_QUEUES, present, desired)
        if is_converted_from_external(checked_object):
            return self._upstream(place, checked_object, before, now)
        if not checked_object.metadata.uid:  # it does not exist in the API server
            return None
        record = self._refusals.status_record_of(key)
        try:
            desired = status.desired_group_status(
                checked_object, self._numbers(key), record, present, now, self._warnings(checked_object)
            )
        except IllegalStateChange as error:
            # A defect of this controller. The status in the API server stays as it is.
            _LOG.error("the status of %s is not written: %s", key, error)
            return None
        return self._change(place, POD_GROUP_RESOURCE, present, desired)

    def _change(
        self, place: ObjectWithUid, resource: ApiResource, present: Any, desired: Any
    ) -> "StatusChange | None":
        """Return the change of a PodGroup or Queue; None if its status is the desired one already."""
        if place in self._overwritten or _plain(present) != _plain(desired):
            return StatusChange(place, resource, desired, present)
        if place not in self._written:  # another replica wrote it; from now on, a change of it is noticed
            self._written[place], self._written_versions[place] = (
                desired,
                self._cache.resource_version(*place[0]),
            )
        return None

    def _upstream(
        self, place: ObjectWithUid, group: PodGroup, before: status.Conditions, now: float
    ) -> "StatusChange | None":
        """Return the change of a PodGroup of the Kubernetes API; PodGroups of other APIs have their own controllers."""
        version, _ = external_api_version_and_uid(group)
        kind = UPSTREAM_CONDITIONS.get(version)
        if kind is None:
            return None
        key = place[0][1]
        desired = status.desired_kubernetes_group_condition(
            group, kind, self._numbers(key), self._refusals.status_record_of(key), before, now
        )
        resource = ApiResource(version, "podgroups", "PodGroup", namespaced=True)
        return None if desired is None else StatusChange(place, resource, {"conditions": [desired]}, None)

    def _numbers(self, key: str) -> status.GangStatusInput:
        gang = self._cache.gangs.get(key) or GangPods(key)
        succeeded, failed = gang.count_succeeded_and_failed_pods()
        placed = gang.placed_pods()
        return status.GangStatusInput(
            pending=len(gang.nonterminating_pending_pods()),
            placed=len(placed),
            bound=sum(pod.key not in gang.assumed for pod in placed),
            running=sum(pod.status.phase == RUNNING for pod in placed),
            succeeded=succeeded,
            failed=failed,
            queue=self._cache.queue_of_gang(gang),
            position=self._positions.get(key),
            was_whole=gang.was_whole,
            partially_bound_since=gang.partially_bound_since,
        )

    def _warnings(self, group: PodGroup) -> dict[str, tuple[str, str]]:
        warnings = {}
        if capped := self._capped(group):
            (reason,) = status.CAP_REASONS
            warnings[status.PRIORITY_CAPPED] = (reason, capped)
        if group.key in self._protections:
            warnings[status.PROTECTION_LIMITED] = self._protections[group.key]
        return warnings

    def _capped(self, group: PodGroup) -> str:
        """Return why the PriorityClass of a PodGroup has no effect; "" if it has one."""
        gang = self._cache.gangs.get(group.key)
        if gang is None or not group.spec.priority_class_name:
            return ""
        priorities = PriorityTable(self._cache.list_objects("priority_classes"))
        return priorities.advice_on_ineffective_priority_class(
            group, [*gang.pending.values(), *gang.bound.values()]
        )

    def _pod(self, place: ObjectWithUid, pod: Pod, now: float) -> "StatusChange | None":
        record = self._refusals.status_record_of(gang_key_of_pod(pod))
        condition = record.pod_scheduled_condition_reason, record.message
        if not record.message or pod.node_name or pod.terminating or self._written.get(place) == condition:
            return None
        if pod.spec.scheduling_gates:  # the API server writes this condition itself
            return None
        return StatusChange(
            place, POD_RESOURCE, status.desired_unscheduled_pod_status(pod, *condition, now), None, condition
        )

    async def _send(self, change: "StatusChange", seen_version: int) -> None:
        """Write a change that was computed from the given resource version of the object."""
        key_to_check, uid = change.place
        field, key = key_to_check
        namespace, _, name = key.rpartition("/")
        name = change.name or name
        is_own = change.resource.api_version == API_VERSION
        # A strategic merge keeps the conditions of other controllers.
        content_type = MERGE_PATCH if is_own else STRATEGIC_MERGE_PATCH
        version = max(seen_version, self._written_versions.get(change.place, 0))
        # The status of a custom resource is written whatever uid the patch states, and a merge patch replaces the
        # conditions of other controllers. The resource version keeps it from another object and from newer conditions.
        precondition = {"resourceVersion": str(version)} if is_own else {"uid": uid}
        body = {"metadata": precondition, "status": change.desired}
        path = change.resource.path(namespace, name, "status")
        try:
            # A write that waits inside the writer would delay all other statuses.
            answer = await self._writer.send(
                "PATCH", path, msgspec.json.encode(body), content_type, patient=False
            )
        except BatchschedError as error:
            self._handle_failure(change.place, error, seen_version)
        else:
            self._forget_retry(change.place)
            self._overwritten.discard(change.place)
            self._written[change.place] = change.pod_condition or change.desired
            if is_own:
                self._written_versions[change.place] = _version_of(answer)
            if field == POD_GROUPS:
                self._record_scheduled(change)

    def _record_scheduled(self, change: "StatusChange") -> None:
        """Record the Event GangScheduled when the condition becomes True."""
        now, before = _scheduled_condition(change.desired), _scheduled_condition(change.present)
        if now.get("status") == "True" and before.get("status") != "True":
            (_, key), uid = change.place
            namespace, _, name = key.partition("/")
            target = object_reference(POD_GROUP_RESOURCE, namespace, name, uid)
            self._recorder.record_without_series(
                PendingEvent(target, "GangScheduled", "Scheduling", now["message"])
            )


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The delay until a failed write is repeated.

    Args:
      time: The end of the delay, by the monotonic clock.
      seconds: The length of the delay.
      seen_version: The resource version of the object from which the write was computed.
    """

    time: float
    seconds: float
    seen_version: int


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Answer(msgspec.Struct):
    metadata: _Version


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A status that is to be written to an object, with the status that the object has now.

    Args:
      place: The object with its uid.
      resource: Its API resource.
      desired, present: The status to be written, and the one before.
      pod_condition: Reason and message of a pod's condition, which identify the condition; () for other objects.
      name: The name of the object, if it is not that of `place`: a group of a tree.
    """

    place: ObjectWithUid
    resource: ApiResource
    desired: Any
    present: Any
    pod_condition: tuple[str, str] | tuple[()] = ()
    name: str = ""


def _is_gone(error: ApiError) -> bool:
    """Return whether an object was deleted, or replaced by another one of its name."""
    return error.status == _NOT_FOUND or (error.status == _INVALID and "metadata.uid" in error.message)


def _may_succeed_later(error: BatchschedError) -> bool:
    """Return whether a failed write may succeed later: not if the API server refused it, or if another replica leads.

    The API server answers with a conflict if another client changed the object, or replaced it by another one of its
    name, and the cluster state does not show that yet.
    """
    if isinstance(error, ApiError):
        return error.status in (_CONFLICT, _TOO_MANY_REQUESTS) or error.status >= _SERVER_ERROR
    return isinstance(error, Unreachable)


def _version_of(answer: bytes) -> int:
    """The resource version of the object in an answer; 0 if the answer does not state it."""
    try:
        return int(msgspec.json.decode(answer, type=_Answer).metadata.resource_version)
    except (ValueError, msgspec.MsgspecError):
        return 0


def _scheduled_condition(written: Any) -> Any:
    conditions = (written or {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == status.SCHEDULED), {})


def _plain(written: Any) -> Any:
    """Return a status without the fields that are null, and with its conditions by type."""
    plain = {name: value for name, value in written.items() if value is not None}
    return plain | {"conditions": {present["type"]: present for present in plain.get("conditions", ())}}


def _uid(checked_object: Any) -> str:
    if checked_object is None:
        return ""
    uid: str = checked_object.metadata.uid
    return (
        external_api_version_and_uid(checked_object)[1]
        if isinstance(checked_object, PodGroup) and is_converted_from_external(checked_object)
        else uid
    )
