"""The state of one cluster: watch events come in, Snapshots and changes go out.

The last event about an object decides. Events may be repeated, late or missing, so an event that is older than the
known version is ignored, a deleted object stays deleted, and a list replaces everything. Events of different objects
may come in any order: a pod may be bound to a node of which no event has come yet.

A pod that a session placed is **assumed**: it counts on its node until a watch event **confirms** the binding (on this
node or another, since the API server is right), until the binding fails and `forget_assumption` makes the pod pending
again, or until the confirmation is overdue.

Source: `pkg/scheduler/backend/cache` of kube-scheduler, 1.36. Pending pods are kept here too, since sessions decide
about them.
"""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import ReferenceType, ref

import msgspec
from pydantic import BaseModel

from batchsched.api.core.pod import SCHEDULER_NAME, Pod, PodSpec, keys_of_unreferenced_pod_specs
from batchsched.api.core.requests import requests_with_pod_count
from batchsched.api.core.selector import parse_go_integer
from batchsched.api.crd.validation import excluded_queue_reasons
from batchsched.api.decision import SetAside
from batchsched.api.gang import gang_namespace
from batchsched.api.queue_access import QueueAccess, default_queue_name
from batchsched.api.snapshot import OBJECT_KINDS, Snapshot
from batchsched.state.group_trees import GroupTrees
from batchsched.state.podgroup_state import GangIndex, GangPods
from batchsched.state.queue_usage import QueueUsageTally
from batchsched.state.store import (
    MAX_UNREAD,
    ChangeReader,
    SortedObjectStore,
    Tombstones,
    are_equal_for_scheduling,
)

PODS: Final = "pods"
NODES: Final = "nodes"
POD_GROUPS: Final = "pod_groups"
QUEUES: Final = "queues"
NAMESPACES: Final = "namespaces"
_KIND_OF_TYPE: Final = {kind.type: kind for kind in OBJECT_KINDS}

MIN_CACHED_SPECS: Final = 1024


@dataclass(frozen=True, slots=True)
class Assumption:
    """The node on which a pod is assumed, with the time of the assumption and the deadline of its confirmation.

    Args:
      node: The name of the node.
      since: The time at which the pod was assumed, by `Clock.steady_now`.
      deadline: The time at which an unconfirmed binding is overdue; None before the binding has finished, and if
        bindings are never overdue.
    """

    node: str
    since: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """The `namespace/name` and the uid of an assumed pod, with its node and the time of the assumption."""

    pod: str
    uid: str
    assumption: Assumption


class BoundPodBuilder:
    """Builder of bound copies of pods; copies of equal pods on the same node share one spec object.

    With the spec object, they share all results that are cached for it. Specs that no pod uses are dropped.
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], PodSpec] = {}
        """By the id of a pod's spec and the node, the spec with this node."""
        self._pending_specs: dict[tuple[int, str], PodSpec] = {}
        """By the same keys, the pod's spec, so that no other spec can get its id."""
        self._next_drop = MIN_CACHED_SPECS
        """The number of cached specs at which those without a pod are dropped."""

    def bound_copy(self, pod: Pod, node: str) -> Pod:
        """Return a copy of a pod with the given node in `spec.nodeName`."""
        key = (id(pod.spec), node)
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) >= self._next_drop:
                self._drop_unused_specs()
            self._pending_specs[key] = pod.spec
            spec = self._specs[key] = msgspec.structs.replace(pod.spec, node_name=node)
        return Pod(metadata=pod.metadata, spec=spec, status=pod.status)

    def _drop_unused_specs(self) -> None:
        for key in keys_of_unreferenced_pod_specs(self._specs):
            del self._specs[key], self._pending_specs[key]
        # In proportion to the specs in use, so that an average call stays cheap.
        self._next_drop = max(MIN_CACHED_SPECS, len(self._specs) * 5 // 4)


class ClusterState:
    """The objects of one cluster, its assumed pods, and the indexes and tallies computed from them.

    Args:
      scheduler_names: The scheduler names of the profiles. Pending pods of other schedulers are ignored.
      ttl_seconds: Time after its binding at which an assumed pod without a confirmation is overdue; 0 for never, as
        in kube-scheduler.
      max_unread: Number of changed objects that a reader of changes may leave unread.
    """

    def __init__(
        self,
        scheduler_names: Iterable[str] = (SCHEDULER_NAME,),
        ttl_seconds: float = 0.0,
        max_unread: int = MAX_UNREAD,
    ) -> None:
        self.scheduler_names = frozenset(scheduler_names)
        self.queue_usage = QueueUsageTally(self.scheduler_names, self.queue_access)
        self.gangs = GangIndex(self.queue_usage, self.scheduler_names)
        self.group_trees = GroupTrees()
        """The trees of groups of Kubernetes. The pod grouper changes them, and makes one gang of each."""
        self.capacity: Counter[str] = Counter()
        """Allocatable resources of all nodes, in base units."""
        self._ttl = ttl_seconds
        self.generation = 0
        """The number of changes so far to the objects that a Snapshot shows."""
        self._max_unread = max_unread
        # Weak references, so that a reader ends with its scheduler. A WeakSet takes longer to iterate.
        self._readers: list[ReferenceType[ChangeReader]] = []
        self._stores: dict[str, SortedObjectStore[Any]] = {
            kind.field: SortedObjectStore() for kind in OBJECT_KINDS
        }
        self._versions: dict[tuple[str, str], int] = {}
        self._tombstones = Tombstones()
        self._statuses: dict[tuple[str, str], tuple[str, BaseModel]] = {}
        """The uid and the status of each custom resource, as the API server showed them last."""
        self._changed_statuses: set[tuple[str, str]] = set()
        """Custom resources with a changed status since `take_keys_of_changed_statuses` was called last."""
        self._api_pods: dict[str, Pod] = {}
        """Assumed pods as the API server showed them last: without a node."""
        self._assumed: dict[str, Assumption] = {}
        self._in_flight: set[str] = set()
        """UIDs of the pods with a binding that has not ended; such a pod may have been deleted."""
        self._placements = BoundPodBuilder()
        self._snapshot: tuple[int, Snapshot] = (0, Snapshot())
        self._queue_access: QueueAccess | None = None

    # Events

    def put(self, changed: Any, version: str | None = None, *, is_latest: bool = False) -> None:
        """Add an object to the state, or replace its previous version; ignore outdated versions.

        Args:
          changed: The object, of any kind that a Snapshot has.
          version: Its resourceVersion, if its metadata lacks it.
          is_latest: Whether the object is not outdated, whatever its version. A lower version is one of another object
            of this name, and the same version is an object with fields that did not come from the API server.

        Raises:
          KeyError: The object is of a kind that no Snapshot has.
        """
        if is_latest:
            self._tombstones.forget_deletion(changed.metadata.uid)
        self._put(changed, _version(changed, version), is_latest=is_latest)

    def is_outdated(self, changed: Any) -> bool:
        """Return whether `put` ignores an object: a later version is known, or the object was deleted."""
        field, key = _address(changed)
        return self._is_late(field, key, changed, _version(changed, None))

    def remove(self, deleted: Any) -> None:
        """Remove an object from the state, because the object was deleted in the cluster.

        The last state of the object may be outdated, so only its name and its uid are read. A younger object of the
        same name stays.
        """
        field, key = _address(deleted)
        uid = deleted.metadata.uid
        self._tombstones.record_deletion(uid)
        if field == PODS:
            self.gangs.handle_deletion_of_finished_pod(key)
        self._statuses.pop((field, key), None)
        present = self._stores[field].get(key)
        if present is not None and uid and present.metadata.uid and present.metadata.uid != uid:
            return
        self._drop(field, key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Replace all objects of one kind by a complete list. Objects that are not in the list are deleted."""
        field = _KIND_OF_TYPE[kind].field
        for address in [address for address in self._statuses if address[0] == field]:
            del self._statuses[address]
        keys = set()
        for listed_object in listed:
            keys.add(_address(listed_object)[1])
            self._tombstones.forget_deletion(listed_object.metadata.uid)
            self._put(listed_object, _version(listed_object, None), is_latest=True)
        for key in sorted(set(self._stores[field]) - keys):
            self._bury(field, key)
        if field == PODS:
            self.gangs.record_unlisted_finished_pods_as_deleted(keys)

    def _bury(self, field: str, key: str) -> None:
        present = self._stores[field].get(key)
        if present is not None:
            self._tombstones.record_deletion(present.metadata.uid)
            self._drop(field, key)

    def _put(self, changed: Any, version: int, *, is_latest: bool) -> None:
        field, key = _address(changed)
        present = self._api_pods.get(key) if field == PODS else None
        present = present or self._stores[field].get(key)
        if not is_latest and self._is_late(field, key, changed, version):
            return
        if present is not None and _is_other_object(present, changed):
            self._bury(field, key)
            present = None
        if version:
            self._versions[field, key] = version
        status = getattr(changed, "status", None)
        if isinstance(status, BaseModel):
            if self._statuses.get((field, key)) != (changed.metadata.uid, status):
                self._changed_statuses.add((field, key))
            self._statuses[field, key] = (changed.metadata.uid, status)
        try:
            if field == PODS:
                self._put_pod(key, present, changed)
            elif present is None or not are_equal_for_scheduling(present, changed):
                self._show(field, key, changed)
        except Exception:
            # This version was not handled: if it comes again, it is not late.
            self._versions.pop((field, key), None)
            raise

    def _is_late(self, field: str, key: str, changed: Any, version: int) -> bool:
        if changed.metadata.uid in self._tombstones:
            return True
        return 0 < version <= self._versions.get((field, key), 0)

    def _put_pod(self, key: str, present: Pod | None, pod: Pod) -> None:
        if not pod.is_relevant_to_schedulers(self.scheduler_names):
            self._drop(PODS, key)
            if pod.finished:
                self._tombstones.record_deletion(pod.metadata.uid)
                self.gangs.record_finished_pod(pod)
            return
        assumption = self._assumed.get(key)
        if assumption is not None and not pod.node_name:
            if present is None or not are_equal_for_scheduling(present, pod):
                self._api_pods[key] = pod
                self._show(PODS, key, self._placements.bound_copy(pod, assumption.node))
            return
        shown: Pod | None = self._stores[PODS].get(key)
        if assumption is not None:
            del self._assumed[key], self._api_pods[key]
            self._in_flight.discard(pod.metadata.uid)
            if shown is not None:
                self.gangs.confirm_binding(shown)
        if shown is None or not are_equal_for_scheduling(shown, pod):
            if shown is not None and shown.spec == pod.spec:
                # Plugins cache results by the identity of the spec, so an equal spec keeps its identity.
                pod = Pod(metadata=pod.metadata, spec=shown.spec, status=pod.status)
            self._show(PODS, key, pod)

    def _drop(self, field: str, key: str) -> None:
        self._versions.pop((field, key), None)
        if field == PODS:
            self._assumed.pop(key, None)
            self._api_pods.pop(key, None)
        if key in self._stores[field]:
            self._show(field, key, None)

    def _show(self, field: str, key: str, after: Any) -> None:
        """Change what a Snapshot shows of an object; None removes it. Each change passes here, and only here."""
        store = self._stores[field]
        before = store.get(key)
        if after is None:
            store.pop(key)
        else:
            store.put(key, after)
        if field == PODS:
            self.gangs.set_pod(key, before, after, assumed=key in self._assumed)
        elif field == POD_GROUPS:
            self.gangs.set_group(key, after)
        elif field == NODES:
            if before is not None:
                self.capacity.subtract(before.parse_allocatable_in_base_units())
            if after is not None:
                self.capacity.update(after.parse_allocatable_in_base_units())
        if field in (QUEUES, NAMESPACES):
            self._queue_access = None
        if field == NAMESPACES and default_queue_name(before) != default_queue_name(after):
            self.gangs.mark_gangs_of_namespace_changed(key)
        self._record_change(field, key, before, after)

    def _record_change(self, field: str, key: str, before: Any, after: Any) -> None:
        """Record a change for all readers, after the store has it."""
        self.generation += 1
        for reference in self._readers:
            reader = reference()
            if reader is not None:
                reader.record_change(field, key, before, after)

    # Assumed pods

    def assume_pod(self, key: str, node: str, now: float, uid: str = "") -> bool:
        """Assume that a pending pod is bound to a node, before the API server confirms it.

        Args:
          key: `namespace/name` of the pod.
          node: The node on which a session placed it.
          now: The time by `Clock.steady_now`.
          uid: The uid of the pod that the session saw; "" if it is unknown. The binding of this uid is in flight until
            `finish_binding` or `forget_assumption` is called with the uid, or a watch event confirms the binding.

        Returns:
          False, with no change, if the decision is outdated: the pod is deleted, finished, terminating, bound, already
          assumed or another pod of the same name, or the node is deleted.
        """
        pod: Pod | None = self._stores[PODS].get(key)
        if pod is None or pod.node_name or pod.terminating or node not in self._stores[NODES]:
            return False
        if uid and pod.metadata.uid and uid != pod.metadata.uid:
            return False
        self._api_pods[key] = pod
        self._assumed[key] = Assumption(node, now)
        if uid:
            self._in_flight.add(uid)
        self._show(PODS, key, self._placements.bound_copy(pod, node))
        return True

    def finish_binding(self, key: str, now: float, uid: str = "") -> None:
        """Record that the API server accepted the binding of an assumed pod.

        If a watch event does not confirm the binding within `ttl_seconds`, the confirmation is overdue.
        """
        self._in_flight.discard(uid)
        assumption = self._assumption_of(key, uid)
        shown: Pod | None = self._stores[PODS].get(key)
        if assumption is None or shown is None:
            return
        self.gangs.record_accepted_binding(shown)
        if self._ttl > 0:
            self._assumed[key] = Assumption(assumption.node, assumption.since, now + self._ttl)

    def forget_assumption(self, key: str, node: str, uid: str = "") -> bool:
        """Make an assumed pod pending again after its binding failed.

        Returns:
          False if the pod is no longer assumed on that node. Then only the binding of the pod with this uid counts as
            ended.
        """
        self._in_flight.discard(uid)
        assumption = self._assumption_of(key, uid)
        if assumption is None or assumption.node != node:
            return False
        del self._assumed[key]
        self._show(PODS, key, self._api_pods.pop(key))
        return True

    def _assumption_of(self, key: str, uid: str) -> Assumption | None:
        """Return the assumption of the pod with this key and uid; any uid counts for "" as uid.

        A deleted pod may still be in flight while a new pod of its name is assumed.
        """
        pod = self._api_pods.get(key)
        is_other_pod = pod is not None and uid and pod.metadata.uid and pod.metadata.uid != uid
        return None if is_other_pod else self._assumed.get(key)

    def overdue_assumed_pods(self, now: float) -> tuple[AssumedPod, ...]:
        """Return the assumed pods that no watch event has confirmed within the time limit, sorted by name."""
        keys = [
            key
            for key, assumption in self._assumed.items()
            if assumption.deadline is not None and assumption.deadline <= now
        ]
        return tuple(self._assumed_pod(key) for key in sorted(keys))

    def assumed_pods(self) -> tuple[AssumedPod, ...]:
        """Return all assumed pods with their nodes, sorted by name."""
        return tuple(self._assumed_pod(key) for key in sorted(self._assumed))

    def _assumed_pod(self, key: str) -> AssumedPod:
        return AssumedPod(key, self._api_pods[key].metadata.uid, self._assumed[key])

    def is_assumed_or_being_bound(self, key: str, uid: str) -> bool:
        """Return whether a pod is assumed, or was deleted while its binding is still in flight.

        As long as this is True, everything that the pod uses stays reserved. A deleted pod is identified by its uid,
        because a new pod may have the same name.
        """
        return uid in self._in_flight or self._assumption_of(key, uid) is not None

    def is_bound(self, key: str, uid: str) -> bool:
        """Return whether the API server shows the pod with a node; an empty `uid` matches every uid."""
        pod: Pod | None = self._stores[PODS].get(key)
        return (
            pod is not None
            and bool(pod.node_name)
            and key not in self._assumed
            and (not uid or uid == pod.metadata.uid)
        )

    # Reading

    def create_change_reader(self) -> ChangeReader:
        """Return a new reader of the changes of this cluster state."""
        reader = ChangeReader(self._stores, self._max_unread)
        self._readers = [present for present in self._readers if present() is not None]
        self._readers.append(ref(reader))
        return reader

    def queue_access(self) -> QueueAccess:
        """Return which namespaces may use which queues, according to the current Queues and Namespaces."""
        if self._queue_access is None:
            self._queue_access = QueueAccess(self.list_objects(QUEUES), self.list_objects(NAMESPACES))
        return self._queue_access

    def queue_of_gang(self, gang: GangPods) -> str:
        """Return the queue to which a gang belongs at present."""
        return gang.stated_queue or self.queue_access().default_queue_name(gang_namespace(gang.identity))

    def count_objects(self, field: str) -> int:
        """Return the number of objects in one field of Snapshot, such as `pods`."""
        return len(self._stores[field])

    def snapshot(self) -> Snapshot:
        """Return a Snapshot of the cluster with assumed pods on their nodes. Unchanged objects keep their identity.

        Objects are sorted by key. Queues without a place in the tree are set aside. Gangs held at Permit are not
        included, since only the profile's scheduler knows them.
        """
        if self._snapshot[0] != self.generation:
            self._snapshot = (self.generation, _without_misplaced_queues(self._frozen()))
        return self._snapshot[1]

    def _frozen(self) -> Snapshot:
        objects: dict[str, Any] = {field: store.sorted_objects() for field, store in self._stores.items()}
        return Snapshot(**objects)

    def snapshot_without_assumptions(self) -> Snapshot:
        """Return a Snapshot of the cluster as the API server showed it, with assumed pods pending."""
        frozen = self._frozen()
        return replace(frozen, pods=tuple(self._api_pods.get(pod.key, pod) for pod in frozen.pods))

    def get(self, field: str, key: str) -> Any:
        """Return the object with this key in one field of Snapshot, or None if the object does not exist."""
        return self._stores[field].get(key)

    def list_objects(self, field: str) -> tuple[Any, ...]:
        """Return all objects of one field of Snapshot, including invalid queues that `snapshot` sets aside."""
        return tuple(self._stores[field].sorted_objects())

    def has_node(self, name: str) -> bool:
        """Return whether the cluster has a node of this name."""
        return name in self._stores[NODES]

    def free_capacity_by_node(self, nodes: Set[str]) -> dict[str, Counter[str]]:
        """Return the free capacity of nodes: allocatable resources minus the requests of bound and assumed pods.

        Args:
          nodes: Names of nodes; those that do not exist are left out.

        Returns:
          Amounts by resource in base units, `pods` included; negative if the pods request more than the node has.
        """
        free: dict[str, Counter[str]] = {}
        for name in nodes:
            node = self._stores[NODES].get(name)
            if node is not None:
                free[name] = Counter(node.parse_allocatable_in_base_units())
        if free:
            for pod in self._stores[PODS].sorted_objects():
                if pod.node_name in free:
                    free[pod.node_name].subtract(requests_with_pod_count(pod))
        return free

    def status_of_custom_resource(self, field: str, key: str, uid: str) -> dict[str, Any]:
        """Return the last known status of a custom resource, or {} if it has none.

        Args:
          field: The field of Snapshot that has the object.
          key: Its key there.
          uid: Its uid; the status of another object of the same name is not returned.
        """
        known_uid, status = self._statuses.get((field, key), ("", None))
        if status is None or known_uid != uid:
            return {}
        return status.model_dump(mode="json", by_alias=True, exclude_none=True)

    def take_keys_of_changed_statuses(self) -> set[tuple[str, str]]:
        """Return (Snapshot field, key) of each custom resource that has another status than at the last call."""
        changed, self._changed_statuses = self._changed_statuses, set()
        return changed

    def resource_version(self, field: str, key: str) -> int:
        """Return the resource version of an object as the API server showed it last; 0 if it is unknown."""
        return self._versions.get((field, key), 0)


def _address(changed: Any) -> tuple[str, str]:
    """Return the field of Snapshot for an object, and its key there."""
    kind = _KIND_OF_TYPE[type(changed)]
    return kind.field, kind.object_key(changed.metadata)


def _without_misplaced_queues(snapshot: Snapshot) -> Snapshot:
    """Set aside the queues that have no place in the tree; the event of a parent may still come."""
    reasons = excluded_queue_reasons(snapshot.queues)
    if not reasons:
        return snapshot
    return replace(
        snapshot,
        queues=tuple(queue for queue in snapshot.queues if queue.name not in reasons),
        set_aside=tuple(
            SetAside("", f"Queue {name}", "spec.parent", reasons[name]) for name in sorted(reasons)
        ),
    )


def _version(changed: Any, version: str | None) -> int:
    """Return the resourceVersion of an object as a number, which grows within a kind; 0 without one."""
    text = getattr(changed.metadata, "resource_version", "") if version is None else version
    return max(0, parse_go_integer(text) or 0)


def _is_other_object(present: Any, changed: Any) -> bool:
    """Return whether two objects of the same name have different uids."""
    old_uid, new_uid = present.metadata.uid, changed.metadata.uid
    return bool(old_uid and new_uid and old_uid != new_uid)
