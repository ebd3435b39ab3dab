"""The queue as a whole: pods and PodGroups come and go, events bring entities back, the next one is popped."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang_identity import identity_of
from batchsched.errors import IllegalMove
from batchsched.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from batchsched.framework.object_changes import events_of
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask
from batchsched.scheduling_queue.active import EntityHeap
from batchsched.scheduling_queue.backoff import BackoffPolicy, BackoffQueue
from batchsched.scheduling_queue.entity import Entity, Rejection
from batchsched.scheduling_queue.gates import gating
from batchsched.scheduling_queue.hints import QueueingHints, Strategy
from batchsched.scheduling_queue.in_flight import InFlightEntities, InFlightEvent
from batchsched.scheduling_queue.nominator import Nominator
from batchsched.scheduling_queue.states import QueueState, check
from batchsched.scheduling_queue.unschedulable import UnschedulableEntities

ATTEMPT_FAILURE: Final = "ScheduleAttemptFailure"
BACKOFF_COMPLETE: Final = "BackoffComplete"
POP_FROM_BACKOFF: Final = "PopFromBackoffQ"
LONGEST_WAIT: Final = 300.0
"""Seconds after which an unschedulable entity is tried again, whatever happened."""
SCAN_EVERY: Final = 30.0
"""Seconds between two looks for those that waited so long."""
QUEUES: Final = {
    QueueState.ACTIVE: "active",
    QueueState.BACKOFF: "backoff",
    QueueState.UNSCHEDULABLE: "unschedulable",
    QueueState.GATED: "gated",
}
"""The queues of `pending_pods`."""
POOLED: Final = frozenset({QueueState.UNSCHEDULABLE, QueueState.GATED})


def stated_priority(entity: Entity) -> int:
    """Return the highest priority that the pods of an entity state."""
    return max((pod.spec.priority or 0 for pod in entity.templates().values()), default=0)


class SchedulingQueue:
    """The scheduling queue of one scheduler. It has no clock: calls state the time in seconds, and it never goes back.

    Pods that have a node, assumed or bound, are none of its pods: what happens to them is an event. Who waits at
    Permit is in flight still. Whoever owns the queue calls `flush` once a second.

    Args:
      pipelines: the plugins by scheduler name; the QueueSort of the first sorts.
      backoff: the waiting times.
      priority_of: resolves an entity's priority.

    Raises:
      PluginError: a plugin broke as it said what it wants to hear of.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        backoff: BackoffPolicy | None = None,
        priority_of: Callable[[Entity], int] = stated_priority,
    ) -> None:
        self._pipelines = dict(pipelines)
        self._sort = next((sort for one in pipelines.values() for sort in one.queue_sorts), None)
        self._priority_of = priority_of
        self._hints = QueueingHints(pipelines)
        self._pool = UnschedulableEntities(self._hints)
        self._active = EntityHeap()
        self._backoff = BackoffQueue(backoff or BackoffPolicy())
        self._flights = InFlightEntities()
        self._entities: dict[str, Entity] = {}
        self._identity_of: dict[str, str] = {}
        self._groups: dict[str, PodGroup] = {}
        self._moved: Counter[tuple[str, str]] = Counter()
        self._arrivals = 0
        self._scanned = -inf
        self.nominations = Nominator()
        """The nodes that are kept for pods."""

    def add_pod(self, pod: Pod, now: float) -> None:
        """Take in a pod that waits. A further member brings its gang back: it asks for something else now."""
        if pod.key in self._identity_of:
            self.update_pod(pod, now)
            return
        came = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
        self.nominations.put(pod)
        self._join(pod, came.label, now)
        self._happened(InFlightEvent(came, None, pod), now)

    def update_pod(self, pod: Pod, now: float) -> None:
        """Take in a new version of a pod that waits; who refused it is asked whether that may help."""
        identity = self._identity_of.get(pod.key)
        if identity != identity_of(pod):
            if identity is not None:
                self.delete_pod(pod.key, now)
            self.add_pod(pod, now)
            return
        entity = self._entities[identity]
        old = entity.pods[pod.key]
        self.nominations.update(old, pod)
        entity.put(pod)
        told = [
            InFlightEvent(event, old, pod, identity) for event in events_of(Resource.TARGET_POD, old, pod)
        ]
        self._refile(entity)
        for one in told:
            self._flights.note(one)
            strategy = self._hints.strategy(entity, one, pod) if entity.place in POOLED else Strategy.SKIP
            if strategy:
                self._requeue(entity, strategy, one.event.label, now)

    def delete_pod(self, key: str, now: float, *, placed: bool = False) -> None:
        """Forget the pod `namespace/name`, since it is gone or has a node (`placed`).

        A node that was kept for a pod that is gone is free for others, which is an event.
        """
        nominated = self.nominations.drop(key)
        identity = self._identity_of.pop(key, None)
        if identity is None:
            return
        entity = self._entities[identity]
        pod = entity.pods[key]
        entity.take(key)
        if entity.pods:
            self._refile(entity)
        elif entity.place is not QueueState.IN_FLIGHT:
            self._drop(entity)
        if nominated and not placed:
            self._happened(InFlightEvent(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), pod, None), now)

    def put_group(self, group: PodGroup, now: float) -> None:
        """Take in a PodGroup, or a new version of it; another spec brings its gang back."""
        old = self._groups.get(group.key)
        self._groups[group.key] = group
        if old is None or old.spec != group.spec:
            self._group_changed(group.key, old, group, now)
        elif group.key in self._entities:
            self._entities[group.key].group = group

    def delete_group(self, key: str, now: float) -> None:
        """Forget the PodGroup `namespace/name`."""
        old = self._groups.pop(key, None)
        if old is not None:
            self._group_changed(key, old, None, now)

    def cluster_changed(self, resource: Resource, old: Any, new: Any, now: float) -> None:
        """Hear of a change of anything but the pods that wait and PodGroups; None for an object that is not there."""
        for event in events_of(resource, old, new):
            self._happened(InFlightEvent(event, old, new), now)

    def pop(self, now: float, *, early: bool = True) -> Entity | None:
        """Begin the cycle of the next entity; None when there is nobody.

        Args:
          now: the time.
          early: when nobody is active, take the next of those that back off after a refusal.
        """
        entity = self._active.first()
        if entity is None:
            entity = self._backoff.first() if early else None
            if entity is None:
                return None
            self._count(QueueState.ACTIVE, POP_FROM_BACKOFF, len(entity.pods))
        self._move(entity, QueueState.IN_FLIGHT, "")
        entity.attempts += 1
        entity.popped = tuple(entity.pods.values())
        entity.first_attempt = now if entity.first_attempt is None else entity.first_attempt
        entity.rejection, entity.gated_by = Rejection(), ()
        self._flights.begin(entity)
        return entity

    def done(self, identity: str, now: float) -> None:
        """End a cycle in which all pods of an entity got a node; members that came meanwhile wait anew."""
        entity = self._flights.get(identity)
        if entity is None:
            return
        self._flights.end(entity)
        for pod in entity.popped:
            entity.take(pod.key)
            self._identity_of.pop(pod.key, None)
            self.nominations.drop(pod.key)
        late = tuple(entity.pods.values())
        self._drop(entity)
        for pod in late:
            self._join(pod, ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD).label, now)

    def add_unschedulable(
        self, entity: Entity, rejection: Rejection, now: float, pods: Iterable[Pod] | None = None
    ) -> None:
        """End a cycle that failed: the pods that the entity still has wait, or try again if something helped meanwhile.

        Pods that got a node in the cycle are deleted before. After `done`, when a binding failed, `pods` are those
        that come back, all of the cycle unless stated; others of the entity may wait there still.

        Raises:
          IllegalMove: the entity is in the queue, not in flight, and nobody is said to come back.
        """
        happened = self._flights.end(entity)
        if happened is None and pods is None and self._entities.get(entity.identity) is entity:
            raise IllegalMove(f"{entity.identity} is {entity.place} in the scheduling queue, not in flight")
        entity.queued, entity.rejection = now, rejection
        refused = bool(rejection.everyone)
        entity.refusals += refused
        entity.errors = 0 if refused else entity.errors + 1
        if happened is None:
            self._come_back(entity, entity.popped if pods is None else tuple(pods), now)
        elif not entity.pods:
            self._drop(entity)
        else:
            strategy = self._meanwhile(entity, happened)
            if strategy:
                self._requeue(entity, strategy, ATTEMPT_FAILURE, now)
            else:
                self._move(entity, QueueState.UNSCHEDULABLE, ATTEMPT_FAILURE)

    def activate(self, keys: Iterable[str], now: float) -> None:
        """Make the entities of some pods, `namespace/name`, active, whatever they wait for."""
        for identity in dict.fromkeys(self._identity_of[key] for key in keys if key in self._identity_of):
            entity = self._entities[identity]
            if entity.place is QueueState.BACKOFF or entity.place in POOLED:
                self._enter(entity, QueueState.ACTIVE, FORCE_ACTIVATE.label, now)
            self._flights.note(InFlightEvent(FORCE_ACTIVATE, identity=identity))

    def flush(self, now: float) -> None:
        """Let go who has backed off long enough, and, twice a minute, who was unschedulable for five."""
        for entity in self._backoff.completed(now):
            self._enter(entity, QueueState.ACTIVE, BACKOFF_COMPLETE, now)
        if now - self._scanned < SCAN_EVERY:
            return
        self._scanned = now
        for entity in tuple(self._pool.entities()):
            if entity.place is QueueState.UNSCHEDULABLE and now - entity.queued > LONGEST_WAIT:
                self._requeue(entity, Strategy.AFTER_BACKOFF, UNSCHEDULABLE_TIMEOUT.label, now)

    def get(self, identity: str) -> Entity | None:
        """Return an entity that waits or is in flight."""
        return self._entities.get(identity)

    def entities(self) -> Iterable[Entity]:
        """All entities that wait or are in flight, in the order in which they came."""
        return self._entities.values()

    def pending(self) -> dict[str, int]:
        """Return the number of pods by queue: active, backoff, unschedulable, gated."""
        found = dict.fromkeys(QUEUES.values(), 0)
        for entity in self._entities.values():
            if entity.place in QUEUES:
                found[QUEUES[entity.place]] += len(entity.pods)
        return found

    def moved(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods went to a queue because of an event: (queue, event's label) → pods."""
        return dict(self._moved)

    def faults(self) -> Mapping[str, int]:
        """Return how often hints broke, by plugin."""
        return dict(self._hints.faults)

    def _join(self, pod: Pod, label: str, now: float) -> None:
        """Put a pod to its entity, which is made or brought back."""
        identity = identity_of(pod)
        entity = self._entities.get(identity)
        if entity is None:
            self._arrivals += 1
            entity = Entity(identity, self._arrivals, now, self._groups.get(identity))
            self._entities[identity] = entity
        self._identity_of[pod.key] = identity
        entity.put(pod)
        before = entity.place
        if before is QueueState.NEW:
            self._enter(entity, QueueState.ACTIVE, label, now)
            return
        self._refile(entity)
        self._changed(entity, label, now)
        if entity.place is before and before in QUEUES:
            self._count(before, label, 1)

    def _group_changed(self, key: str, old: PodGroup | None, new: PodGroup | None, now: float) -> None:
        entity = self._entities.get(key)
        for event in events_of(Resource.POD_GROUP, old, new):
            if entity is not None:
                entity.group = new
                self._refile(entity)
                self._changed(entity, event.label, now)
            self._happened(InFlightEvent(event, old, new), now)

    def _changed(self, entity: Entity, label: str, now: float) -> None:
        """What an entity asks for has changed: whoever refused it refused something else."""
        self._flights.note(
            InFlightEvent(ClusterEvent(Resource.ANY, Action.ALL, label), identity=entity.identity)
        )
        if entity.place in POOLED:
            self._requeue(entity, Strategy.AFTER_BACKOFF, label, now)

    def _happened(self, occurrence: InFlightEvent, now: float) -> None:
        for entity, strategy in self._pool.helped(occurrence):
            self._requeue(entity, strategy, occurrence.event.label, now)
        self._flights.note(occurrence)

    def _meanwhile(self, entity: Entity, happened: Iterable[InFlightEvent]) -> Strategy:
        """Ask who refused an entity about what happened during its cycle."""
        best = Strategy.SKIP if entity.rejection.everyone else Strategy.AFTER_BACKOFF
        enough = Strategy.IMMEDIATELY if entity.rejection.pending else Strategy.AFTER_BACKOFF
        for one in happened:
            if best >= enough:
                break
            own = one.event.resource is Resource.TARGET_POD
            pod = entity.pods.get(one.new.key) if own else None
            if pod is not None or not own:
                best = max(best, self._hints.strategy(entity, one, pod))
        return best

    def _come_back(self, entity: Entity, pods: tuple[Pod, ...], now: float) -> None:
        """Take in an entity whose cycle was over; its gang may have become another entity since."""
        other = self._entities.get(entity.identity)
        if other is None:
            entity.place = QueueState.NEW
            entity.clear()
            self._entities[entity.identity] = entity
        for pod in pods:
            self._identity_of[pod.key] = entity.identity
            (other or entity).put(pod)
        if other is not None:
            self._refile(other)
            self._changed(other, ATTEMPT_FAILURE, now)
        elif pods:
            self._requeue(entity, Strategy.AFTER_BACKOFF, ATTEMPT_FAILURE, now)
        else:
            del self._entities[entity.identity]

    def _requeue(self, entity: Entity, strategy: Strategy, label: str, now: float) -> None:
        waits = strategy is Strategy.AFTER_BACKOFF and self._backoff.backoff.lasts(entity, now)
        self._enter(entity, QueueState.BACKOFF if waits else QueueState.ACTIVE, label, now)

    def _enter(self, entity: Entity, place: QueueState, label: str, now: float) -> None:
        """Bring an entity to a queue if PreEnqueue lets it; who backs off was asked before."""
        entity.gated_by = () if entity.place is QueueState.BACKOFF else gating(entity, self._pipelines)
        if not entity.gated_by and place is QueueState.ACTIVE and entity.first_attempt is None:
            entity.first_attempt = now
        self._move(entity, QueueState.GATED if entity.gated_by else place, label)

    def _refile(self, entity: Entity) -> None:
        """Bring keys up to date after an entity's pods changed."""
        if entity.place in QUEUES:
            self._move(entity, entity.place, "")

    def _drop(self, entity: Entity) -> None:
        self._move(entity, QueueState.GONE, "")
        del self._entities[entity.identity]

    def _move(self, entity: Entity, place: QueueState, label: str) -> None:
        """Move an entity, or file it anew where it is.

        Raises:
          IllegalMove: the table has no such move.
          PluginError: QueueSort broke.
        """
        if entity.place is not place:
            check(entity.place, place)
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
        """Count pods that went to a queue; gated ones count as unschedulable, as in kube-scheduler."""
        queue = QUEUES[QueueState.UNSCHEDULABLE if place is QueueState.GATED else place]
        self._moved[queue, label] += pods

    def _key(self, entity: Entity) -> Any:
        priority = self._priority_of(entity)
        sort = self._sort
        if sort is None:
            return (-priority, entity.queued)
        return min(
            ask(sort, "QueueSort", sort.key, pod, priority, entity.queued)
            for pod in entity.templates().values()
        )
