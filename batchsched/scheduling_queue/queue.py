"""The scheduling queue: adds and removes pods and PodGroups, moves entities on events, and pops the next one."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from math import inf
from typing import Any, Final

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang import gang_identity, gang_namespace
from batchsched.api.queue_access import default_queue_name
from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.errors import IllegalStateChange, PluginError
from batchsched.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    EventResource,
    events_of_change,
)
from batchsched.framework.interface import QueueSortPlugin
from batchsched.framework.runtime.deadline import is_external_plugin
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import call_plugin
from batchsched.scheduling_queue.active import ActiveQueue
from batchsched.scheduling_queue.backoff import BackoffQueue, is_in_backoff
from batchsched.scheduling_queue.entity import Entity, QueueState, check_state_change
from batchsched.scheduling_queue.external_sort_key import ExternalSortKey
from batchsched.scheduling_queue.in_flight import InFlightEntities, ObjectEvent
from batchsched.scheduling_queue.queueing_hints import QueueingHints
from batchsched.scheduling_queue.unschedulable import UnschedulableEntities
from batchsched.state.cluster_state import POD_GROUPS, PODS
from batchsched.state.store import ObjectChange

ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"
LEVEL_WAIT_ENDED: Final = "PreferredWaitEnded"
MAX_UNSCHEDULABLE_SECONDS: Final = 300.0
"""Seconds after which an unschedulable entity is retried without an event."""
SCAN_INTERVAL_SECONDS: Final = 30.0
"""Seconds between two checks for entities that have been unschedulable for too long."""
QUEUES: Final = {
    QueueState.ACTIVE: "active",
    QueueState.BACKOFF: "backoff",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.GATED: "gated",
}
"""The queues of the metric `pending_pods`, by state."""
_RESOURCES: Final = {
    kind.field: EventResource(kind.name)
    for kind in OBJECT_KINDS
    if kind.name in {item.value for item in EventResource}
}
"""The resource of each field of Snapshot, without kinds that have no events, such as PriorityClass."""
_LAST_PLACE: Final = (1,)
"""Key in the active queue after those of all entities with a key of the QueueSort plugin."""
POOLED: Final = frozenset({QueueState.UNSCHEDULABLE, QueueState.GATED})


class SchedulingQueue:
    """The scheduling queue of one profile: pending gangs and pods, from their creation to their placement.

    The queue has no clock: calls take the time of `Clock.steady_now`, which never decreases. Assumed and bound pods
    are not in the queue; their changes are events. A gang that waits at Permit is still in flight. The owner must call
    `flush_expired_entities` once a second.

    Args:
      pipeline: the plugins of the profile; its QueueSort plugin orders the active queue.

    Raises:
      PluginError: a plugin raised while it registered its events.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._sort = next(iter(pipeline.queue_sorts), None)
        # The keys of built-in plugins can be compared, and tuples are compared faster than objects of Python.
        self._is_sort_external = is_external_plugin(self._sort)
        self._hints = QueueingHints(pipeline)
        self._pool = UnschedulableEntities(self._hints)
        self._active = ActiveQueue()
        self._backoff = BackoffQueue()
        self._flights = InFlightEntities()
        self._entities: dict[str, Entity] = {}
        self._identity_of: dict[str, str] = {}
        self._groups: dict[str, PodGroup] = {}
        self._moved: Counter[tuple[str, str]] = Counter()
        self._arrivals = 0
        self._scanned = -inf

    def add_pod(self, pod: Pod, now: float) -> None:
        """Add a pending pod to the queue. An additional pod of a gang moves the gang, because its requests changed."""
        if pod.key in self._identity_of:
            self.update_pod(pod, now)
            return
        event = ClusterEvent(EventResource.UNSCHEDULED_POD, Action.ADD)
        self._add_to_entity(pod, event.metric_label, now)
        self._process_event(ObjectEvent(event, None, pod), now)

    def update_pod(self, pod: Pod, now: float) -> None:
        """Replace a pending pod in the queue by its new version.

        Queueing hints decide whether its entity moves.
        """
        identity = self._identity_of.get(pod.key)
        if identity != gang_identity(pod):
            if identity is not None:
                self.delete_pod(pod.key, now)
            self.add_pod(pod, now)
            return
        entity = self._entities[identity]
        # The events are computed from the old version, which the entity drops with `put_pod`.
        old = entity.pods[pod.key]
        entity.put_pod(pod)
        occurrences = [
            ObjectEvent(event, old, pod, identity)
            for event in events_of_change(EventResource.TARGET_POD, old, pod)
        ]
        # Before the hints: a new template must be in the index, and a new priority in the key of the heap.
        self._update_keys(entity)
        for occurrence in occurrences:
            self._flights.record_event(occurrence)
            if entity.place in POOLED and self._hints.event_helps_entity(entity, occurrence, pod):
                self._requeue(entity, occurrence.event.metric_label, now)

    def delete_pod(self, key: str, now: float, *, placed: bool = False) -> None:
        """Remove a pod from the queue, because the pod was deleted or now has a node.

        `placed` is True if the pod has a node. The deletion of a pod without a node is an event: gangs may wait for its
        gang. If the pod was nominated, its node becomes free for other pods.
        """
        identity = self._identity_of.pop(key, None)
        if identity is None:
            return
        entity = self._entities[identity]
        pod = entity.pods[key]
        entity.remove_pod(key)
        if entity.pods:
            self._update_keys(entity)
        elif entity.place is not QueueState.IN_FLIGHT:
            # An entity in flight is dropped at the end of its cycle, which the session still reports.
            self._drop(entity)
        if not placed:
            is_nominated = bool(pod.status.nominated_node_name)
            resource = EventResource.ASSIGNED_POD if is_nominated else EventResource.UNSCHEDULED_POD
            self._process_event(ObjectEvent(ClusterEvent(resource, Action.DELETE), pod, None), now)

    def put_group(self, group: PodGroup, now: float) -> None:
        """Add a PodGroup, or replace it by a new version. A changed spec moves the gang."""
        old = self._groups.get(group.key)
        self._groups[group.key] = group
        if old is None or old.spec != group.spec:
            self._group_changed(group.key, old, group, now)
        elif group.key in self._entities:
            self._entities[group.key].group = group

    def delete_group(self, key: str, now: float) -> None:
        """Remove the deleted PodGroup `namespace/name`, and retry the refused gangs that this may help."""
        old = self._groups.pop(key, None)
        if old is not None:
            self._group_changed(key, old, None, now)

    def process_object_change(self, resource: EventResource, old: Any, new: Any, now: float) -> None:
        """Retry the refused gangs that a change of a node, bound pod or other object may help.

        Pending pods and PodGroups have methods of their own. None stands for an absent object.
        """
        for event in events_of_change(resource, old, new):
            self._process_event(ObjectEvent(event, old, new), now)
        if resource is EventResource.NAMESPACE and default_queue_name(old) != default_queue_name(new):
            # In another queue a gang may start, whatever it was refused for.
            name = (new if old is None else old).metadata.name
            keys = [
                key
                for entity in self._entities.values()
                if gang_namespace(entity.identity) == name
                for key in entity.pods
            ]
            self.activate(keys, now)

    def retry_gangs_after_failed_binding(self, assumed: Pod, now: float, *, except_gang: str = "") -> None:
        """Retry the refused gangs that may use the resources of a pod that lost its node or its nomination for a node.

        Args:
          assumed: the pod as it was before, with this node.
          now: time in seconds.
          except_gang: identity of a gang that is not retried, since its own pods only lost what they had.
        """
        self._process_event(
            ObjectEvent(ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE), assumed, None),
            now,
            except_gang,
        )

    def apply_change(self, change: ObjectChange, now: float) -> None:
        """Update the queue after a change of any object in the cluster state. Assumed pods count as bound."""
        if change.field == PODS:
            self._apply_pod_change(change, now)
        elif change.field == POD_GROUPS:
            if change.after is None:
                self.delete_group(change.key, now)
            else:
                self.put_group(change.after, now)
        elif change.field in _RESOURCES:
            self.process_object_change(_RESOURCES[change.field], change.before, change.after, now)

    def _apply_pod_change(self, change: ObjectChange, now: float) -> None:
        before, after = change.before, change.after
        if after is not None and not after.terminating and frees_nominated_node(before, after):
            # Its own gang is not kept out by the nomination.
            self.retry_gangs_after_failed_binding(before, now, except_gang=gang_identity(before))
        if after is not None and not after.node_name:
            if after.terminating:  # no session places it
                self.delete_pod(change.key, now)
            else:
                self.add_pod(after, now)  # an update if it is in the queue
            if before is not None and before.node_name:  # its binding failed, and its capacity is free again
                self.process_object_change(EventResource.ASSIGNED_POD, before, None, now)
            return
        placed = after is not None
        if before is not None and not before.node_name:
            self.delete_pod(change.key, now, placed=placed)
            before = None
        if before is not None or placed:
            self.process_object_change(EventResource.ASSIGNED_POD, before, after, now)

    def add_all_pods_and_groups(self, groups: Iterable[PodGroup], pending: Iterable[Pod], now: float) -> None:
        """Add all PodGroups and all pending pods of a cluster to an empty queue."""
        for group in groups:
            self.put_group(group, now)
        for pod in pending:
            if not pod.terminating:
                self.add_pod(pod, now)

    def active_namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a gang or single pod in the active queue."""
        return self._active.namespaces()

    def pop(self, now: float, *, early: bool = True, after_others: Container[str] = ()) -> Entity | None:
        """Begin the scheduling cycle of the next gang or single pod, and return its entry; None if none is ready.

        Args:
          now: time in seconds.
          early: if the active queue is empty, take the next refused entity in backoff.
          after_others: entities in these namespaces come after active entities of the same priority in other
            namespaces.
        """
        entity = self._active.first_entity(after_others)
        if entity is None:
            # Source: `popFromBackoffQ` of kube-scheduler. Entities with errors keep their backoff: an error such as a
            # failing API server would repeat at once.
            entity = self._backoff.first_refused_entity() if early else None
            if entity is None:
                return None
            self._count(QueueState.ACTIVE, POP_FROM_BACKOFF, len(entity.pods))
        return self._begin_cycle(entity, now)

    def pop_gang(self, identity: str, now: float) -> Entity | None:
        """Begin the scheduling cycle of a certain gang or single pod before its turn; return None if it is not active.

        Args:
          identity: identity of the gang.
          now: time in seconds.
        """
        entity = self._entities.get(identity)
        return self._begin_cycle(entity, now) if entity and entity.place is QueueState.ACTIVE else None

    def _begin_cycle(self, entity: Entity, now: float) -> Entity:
        self._move(entity, QueueState.IN_FLIGHT, "")
        entity.attempts += 1
        entity.popped = tuple(entity.pods.values())
        entity.first_attempt = now if entity.first_attempt is None else entity.first_attempt
        entity.refused_by, entity.gated_by = (), ()
        self._flights.begin_cycle(entity)
        return entity

    def done(self, identity: str, now: float) -> None:
        """End the scheduling cycle of a gang after all its pods were placed.

        Pods that were added during the cycle are queued.
        """
        entity = self._flights.find_entity(identity)
        if entity is None:
            return
        self._flights.end_cycle(entity)
        # Only the pods of the start of the cycle were placed. Pods that joined since then form a new entity.
        for pod in entity.popped:
            key = pod.key
            entity.remove_pod(key)
            self._identity_of.pop(key, None)
        late = tuple(entity.pods.values())
        self._drop(entity)
        for pod in late:
            self._add_to_entity(
                pod, ClusterEvent(EventResource.UNSCHEDULED_POD, Action.ADD).metric_label, now
            )

    def add_unschedulable(
        self, entity: Entity, refused_by: tuple[str, ...], now: float, pods: Iterable[Pod] | None = None
    ) -> None:
        """End the scheduling cycle of a gang with pods that were not placed, and queue these pods again.

        An event during the cycle may make the entity active at once. The caller has deleted the pods that were placed
        in the cycle. If a binding fails after `done`, `pods` are the pods that return (default: all pods of the
        cycle); other pods of the entity may still be in the queue.

        Args:
          entity: the entity.
          refused_by: plugins that refused it, sorted; empty after an error.
          now: time in seconds.
          pods: the returning pods.

        Raises:
          IllegalStateChange: the entity is in the queue and not in flight, and no returning pods are given.
        """
        events = self._flights.end_cycle(entity)
        if events is None and pods is None and self._entities.get(entity.identity) is entity:
            raise IllegalStateChange(
                f"{entity.identity} is {entity.place} in the scheduling queue, not in flight"
            )
        entity.queued, entity.refused_by = now, refused_by
        entity.refusals += bool(refused_by)
        entity.errors = 0 if refused_by else entity.errors + 1
        if events is None:
            # Its cycle ended with `done`, and a binding failed later.
            self._return_after_cycle(entity, entity.popped if pods is None else tuple(pods), now)
        elif not entity.pods:
            self._drop(entity)
        elif not refused_by or self._is_helped_by_any(events, entity):
            self._requeue(entity, ATTEMPT_FAILURE, now)
        else:
            self._move(entity, QueueState.UNSCHEDULABLE, ATTEMPT_FAILURE)

    def activate(self, keys: Iterable[str], now: float) -> None:
        """Retry the gangs of these pods (`namespace/name`) now, without waiting for their backoff or an event."""
        for identity in dict.fromkeys(self._identity_of[key] for key in keys if key in self._identity_of):
            entity = self._entities[identity]
            if entity.place is QueueState.BACKOFF or entity.place in POOLED:
                self._enter(entity, QueueState.ACTIVE, FORCE_ACTIVATE.metric_label, now)
            # An entity in flight is retried after its cycle, because the event helps unconditionally.
            self._flights.record_event(ObjectEvent(FORCE_ACTIVATE, identity=identity))

    def flush_expired_entities(self, now: float, wall_offset: float = 0.0) -> None:
        """Move gangs and single pods with expired backoff to the active queue. Call this method once a second.

        Every 30 seconds, also requeue the entities that have been unschedulable for more than 5 minutes, and the
        gangs that no longer wait for a preferred topology level. The end of such a wait is a wall time: `wall_offset`
        is the wall time minus `now`.
        """
        for entity in self._backoff.pop_expired(now):
            self._enter(entity, QueueState.ACTIVE, BACKOFF_COMPLETE, now)
        if now - self._scanned < SCAN_INTERVAL_SECONDS:
            return
        self._scanned = now
        # A hint that wrongly answers Skip delays an entity by five minutes at most, and never loses it.
        for entity in tuple(self._pool.entities()):
            if entity.place is not QueueState.UNSCHEDULABLE:
                continue
            if now - entity.queued > MAX_UNSCHEDULABLE_SECONDS:
                self._requeue(entity, UNSCHEDULABLE_TIMEOUT.metric_label, now)
            elif _level_wait_ended(entity, now, wall_offset):
                self._requeue(entity, LEVEL_WAIT_ENDED, now)

    def find_entity(self, identity: str) -> Entity | None:
        """Return the queue entry of a gang, also during its scheduling cycle; None if there is no entry."""
        return self._entities.get(identity)

    def entities(self) -> Collection[Entity]:
        """Return the entries of all gangs and single pods in order of arrival, including those in flight."""
        return self._entities.values()

    def pending_pod_counts(self) -> dict[str, int]:
        """Return the numbers of pending pods by state: active, backoff, unschedulable and gated."""
        counts = dict.fromkeys(QUEUES.values(), 0)
        for entity in self._entities.values():
            if entity.place in QUEUES:
                counts[QUEUES[entity.place]] += len(entity.pods)
        return counts

    def moved_pod_counts(self) -> Mapping[tuple[str, str], int]:
        """Return the numbers of pods that moved to another state, by new state and by cause of the move.

        The causes are events. The states are active, backoff and unschedulable.
        """
        return dict(self._moved)

    def hint_failure_counts(self) -> Mapping[str, int]:
        """Return the number of failed queueing hints by plugin."""
        return dict(self._hints.faults)

    def _add_to_entity(self, pod: Pod, label: str, now: float) -> None:
        """Add a pod to its entity, which is created or moved."""
        identity = gang_identity(pod)
        entity = self._entities.get(identity)
        if entity is None:
            self._arrivals += 1
            entity = Entity(identity, self._arrivals, now, self._groups.get(identity))
            self._entities[identity] = entity
        self._identity_of[pod.key] = identity
        has_other_templates = entity.put_pod(pod)
        before = entity.place
        if before is QueueState.NEW:
            self._enter(entity, QueueState.ACTIVE, label, now)
            return
        # Keys depend on templates only. A gang of thousands of pods arrives pod by pod.
        if has_other_templates:
            self._update_keys(entity)
        # PreEnqueue is not asked again for all pods if it refuses this one, too: gangs of thousands arrive gated.
        if before is not QueueState.GATED or _refusing_plugin(pod, self._pipeline) not in entity.gated_by:
            self._requests_changed(entity, label, now)
        if entity.place is before and before in QUEUES:
            self._count(before, label, 1)

    def _group_changed(self, key: str, old: PodGroup | None, new: PodGroup | None, now: float) -> None:
        entity = self._entities.get(key)
        for event in events_of_change(EventResource.POD_GROUP, old, new):
            if entity is not None:
                entity.group = new
                self._update_keys(entity)
                self._requests_changed(entity, event.metric_label, now)
            self._process_event(ObjectEvent(event, old, new), now)

    def _requests_changed(self, entity: Entity, label: str, now: float) -> None:
        """Move an entity after its own requests changed: the recorded rejection no longer applies."""
        self._flights.record_event(
            ObjectEvent(ClusterEvent(EventResource.ANY, Action.ALL, label), identity=entity.identity)
        )
        if entity.place in POOLED:
            self._requeue(entity, label, now)

    def _process_event(self, occurrence: ObjectEvent, now: float, except_gang: str = "") -> None:
        for entity in self._pool.entities_helped_by(occurrence):
            if entity.identity != except_gang:
                self._requeue(entity, occurrence.event.metric_label, now)
        self._flights.record_event(occurrence)

    def _is_helped_by_any(self, events: Iterable[ObjectEvent], entity: Entity) -> bool:
        """Return whether an event that arrived during the cycle of an entity may help it."""
        for event in events:
            changes_pod = event.event.resource is EventResource.TARGET_POD
            pod = entity.pods.get(event.new.key) if changes_pod else None
            # The pod of the event may have left the entity since.
            if (pod is not None or not changes_pod) and self._hints.event_helps_entity(entity, event, pod):
                return True
        return False

    def _return_after_cycle(self, entity: Entity, pods: tuple[Pod, ...], now: float) -> None:
        """Queue an entity again after its cycle had ended. Its gang may have become a new entity in the meantime."""
        other = self._entities.get(entity.identity)
        if other is None:
            entity.place = QueueState.NEW
            entity.remove_all_pods()
            self._entities[entity.identity] = entity
        for pod in pods:
            self._identity_of[pod.key] = entity.identity
            (other or entity).put_pod(pod)
        if other is not None:
            self._update_keys(other)
            self._requests_changed(other, ATTEMPT_FAILURE, now)
        elif pods:
            self._requeue(entity, ATTEMPT_FAILURE, now)
        else:
            del self._entities[entity.identity]

    def _requeue(self, entity: Entity, label: str, now: float) -> None:
        place = QueueState.BACKOFF if is_in_backoff(entity, now) else QueueState.ACTIVE
        self._enter(entity, place, label, now)

    def _enter(self, entity: Entity, place: QueueState, label: str, now: float) -> None:
        """Move an entity to a queue if PreEnqueue admits it. Entities in backoff passed PreEnqueue before."""
        entity.gated_by = () if entity.place is QueueState.BACKOFF else gating_plugins(entity, self._pipeline)
        if not entity.gated_by and place is QueueState.ACTIVE and entity.first_attempt is None:
            entity.first_attempt = now
        self._move(entity, QueueState.GATED if entity.gated_by else place, label)

    def _update_keys(self, entity: Entity) -> None:
        """Update the keys of an entity after its pods changed."""
        if entity.place in POOLED:
            self._pool.update_templates(entity)
        elif entity.place in QUEUES:
            self._move(entity, entity.place, "")

    def _drop(self, entity: Entity) -> None:
        self._move(entity, QueueState.GONE, "")
        del self._entities[entity.identity]

    def _move(self, entity: Entity, place: QueueState, label: str) -> None:
        """Move an entity to another state, or update its key in the present state.

        Raises:
          IllegalStateChange: the state table does not contain the move.
        """
        if entity.place is not place:
            check_state_change(entity.place, place)
        key = self._key(entity) if place in (QueueState.ACTIVE, QueueState.BACKOFF) else None
        self._active.remove(entity)
        self._backoff.remove(entity)
        self._pool.remove(entity)
        if entity.place is not place and place in QUEUES:
            self._count(place, label, len(entity.pods))
        entity.place = place
        if place is QueueState.ACTIVE:
            self._active.put(entity, key)
        elif place is QueueState.BACKOFF:
            self._backoff.put(entity, key)
        elif place in POOLED:
            self._pool.put(entity)

    def _count(self, place: QueueState, label: str, pods: int) -> None:
        """Count pods that moved to a queue. Gated pods count as unschedulable, as in kube-scheduler."""
        queue = QUEUES[QueueState.UNSCHEDULABLE if place is QueueState.GATED else place]
        self._moved[queue, label] += pods

    def _key(self, entity: Entity) -> tuple[Any, ...]:
        """Return the key of an entity in the active queue: the last place if the QueueSort plugin fails for it.

        The entity is queued nevertheless: the session that tries it calls the plugin again and refuses it with the
        reason `PluginFailed`.
        """
        if self._sort is None:
            return (0, (-entity.highest_pod_priority, entity.queued))
        try:
            return (0, call_plugin(self._sort, "QueueSort", self._least_sort_key, self._sort, entity))
        except PluginError:
            return _LAST_PLACE

    def _least_sort_key(self, sort: QueueSortPlugin, entity: Entity) -> Any:
        """Return the least key of the pods of an entity; raise if its keys cannot be compared with one another."""
        if not self._is_sort_external:
            return entity.least_sort_key(sort.sort_key)
        priority = entity.highest_pod_priority
        least = min(sort.sort_key(pod, priority, entity.queued) for pod in entity.pod_by_template().values())
        bool(least < least)  # A key that cannot be compared with itself orders nothing.
        return ExternalSortKey(least, entity, sort)


def frees_nominated_node(before: Pod | None, after: Pod | None) -> bool:
    """Return whether a change of a pending pod ends its nomination for a node without a placement on this node."""
    if before is None or before.node_name or before.terminating or not before.status.nominated_node_name:
        return False
    if after is None or (after.terminating and not after.node_name):
        return True
    return (after.node_name or after.status.nominated_node_name) != before.status.nominated_node_name


def gating_plugins(entity: Entity, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the names of PreEnqueue plugins that gate a gang; () if at least one of its pods is accepted.

    A gang is gated if each of its pods is refused by a plugin. For each pod, only the first plugin that refuses it is
    listed. A plugin that raises counts as refusing.
    """
    refusing: dict[str, None] = {}
    for pod in entity.pods.values():
        plugin = _refusing_plugin(pod, pipeline)
        if not plugin:
            return ()
        refusing[plugin] = None
    return tuple(refusing)


def _refusing_plugin(pod: Pod, pipeline: Pipeline) -> str:
    """Return the name of the first PreEnqueue plugin that refuses a pod or raises; "" if all accept the pod."""
    try:
        status = pipeline.preenqueue(pod)
    except PluginError as error:
        return error.plugin
    return "" if status.ok else status.plugin


def _level_wait_ended(entity: Entity, now: float, wall_offset: float) -> bool:
    """Return whether a wait for a preferred level has ended since the gang was refused."""
    deadlines = entity.group.preferred_level_deadlines if entity.group is not None else ()
    ends = (deadline - wall_offset for deadline in deadlines)
    # A session that began before the end may report the refusal shortly after it.
    return any(end <= now and entity.queued <= end + SCAN_INTERVAL_SECONDS for end in ends)
