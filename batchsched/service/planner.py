"""Sessions of one profile over the cache: who takes part, what was decided, and what becomes of it.

The scheduling queue says who takes part: gangs that nothing can have helped since they were refused rest. What a
decision places is assumed, gang by gang, all or nothing; whoever it refuses waits for what may help.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from batchsched.cache.cache import Cache
from batchsched.cache.feed import Feed
from batchsched.framework.nodes import NodeTable
from batchsched.framework.pipeline import Pipeline
from batchsched.framework.registry import standard
from batchsched.model.decision import Decision, Refusal
from batchsched.model.meta import seconds
from batchsched.model.pod import Pod
from batchsched.model.snapshot import HeldGang, HeldPod, Snapshot
from batchsched.service import queueing
from batchsched.service.session import reached
from batchsched.session.follow import Follower
from batchsched.session.gang import identity_of
from batchsched.session.scheduling_queue.entity import Entity, Rejection
from batchsched.session.scheduling_queue.queue import SchedulingQueue
from batchsched.session.scheduling_queue.refusals import rejection_of
from batchsched.settings.schema import Profile


@dataclass(frozen=True, slots=True)
class Placement:
    """A gang, or what is left of one, that is to be bound.

    Args:
      entity: as the scheduling queue knows it.
      places: its pods and their nodes; all of them are assumed.
    """

    entity: Entity
    places: tuple[tuple[Pod, str], ...]


class Planner:
    """Plans for one profile.

    Args:
      profile: how to schedule.
      cache: what is known of the cluster.
      seed: of every session.
    """

    def __init__(self, profile: Profile, cache: Cache, seed: int = 0) -> None:
        self.profile = profile
        self.pipeline: Pipeline = standard().pipeline(profile, reached(profile))
        self.queue = SchedulingQueue({profile.scheduler_name: self.pipeline})
        self.held: tuple[HeldGang, ...] = ()
        self._cache = cache
        self._seed = seed
        self._told = 0
        self._feed = Feed(cache, self._follower)
        self._scheduler = Follower(Snapshot(), profile, self.pipeline, brief=False)
        self._in_flight: dict[str, Entity] = {}
        self._waiting: dict[str, Entity] = {}

    def _follower(self, snapshot: Snapshot) -> Follower:
        self._scheduler = Follower(snapshot, self.profile, self.pipeline, brief=False)
        return self._scheduler

    @property
    def table(self) -> NodeTable:
        """The nodes as the last session found them."""
        return self._scheduler.table

    def sync(self, now: float) -> None:
        """Tell the queue what changed in the cache since the last time."""
        changes = self._cache.changes(self._told)
        self._told = self._cache.generation
        if changes is None:
            raise RuntimeError("the journal is too short for one turn of the loop")
        for change in changes:
            if self._concerns(change.after if change.after is not None else change.before):
                queueing.tell(self.queue, change, now)
        self.queue.flush(now)

    def _concerns(self, found: object) -> bool:
        """Tell whether it is no waiting pod of another scheduler."""
        return (
            not isinstance(found, Pod)
            or bool(found.node)
            or found.spec.scheduler_name == self.profile.scheduler_name
        )

    def begin(self, now: float) -> Callable[[], Decision] | None:
        """Begin a session; returns what decides it, None when nobody takes part. It may run in another thread."""
        # Whoever is further back takes part in the next session, while those of this one are being bound.
        while len(self._in_flight) < self.profile.session_window:
            entity = self.queue.pop(now, early=not self._in_flight)
            if entity is None:
                break
            self._in_flight[entity.identity] = entity
        if not self._in_flight and not self.held:
            return None
        self._feed.scheduler(self.held)
        scheduler, taking_part = self._scheduler, frozenset(self._in_flight)
        return lambda: scheduler.decide(now, self._seed, taking_part)

    def finish(self, decision: Decision, now: float) -> list[Placement]:
        """Take in a decision; returns who is to be bound."""
        self._hold(decision)
        placed = self._placed(decision)
        refused = {one.pod_group: one for one in decision.refusals}
        found: list[Placement] = []
        for identity, entity in self._in_flight.items():
            places = placed.pop(identity, ())
            if places and not self._assume(places, now):
                self.queue.add_unschedulable(entity, Rejection(), now)  # overtaken: it tries again
                continue
            if places:
                found.append(Placement(entity, places))
                for pod, _ in places:
                    self.queue.delete_pod(pod.key, now, placed=True)
            if identity in self._waiting:
                continue
            if len(places) == len(entity.popped):
                self.queue.done(identity, now)
            else:
                self.queue.add_unschedulable(entity, self._rejection(refused.get(_key(identity))), now)
        self._in_flight = {}
        for identity, places in placed.items():  # held so far, and allowed now
            held = self._waiting.pop(identity, None)
            if held is not None and self._assume(places, now):
                found.append(Placement(held, places))
                self.queue.done(identity, now)
        return found

    def failed(self, entity: Entity, pods: Sequence[tuple[Pod, str]], now: float) -> None:
        """Let pods wait again whose binding failed."""
        for pod, node in pods:
            self._cache.forget(pod.key, node)
        self.sync(now)
        self.queue.add_unschedulable(entity, Rejection(), now, tuple(pod for pod, _ in pods))

    def _rejection(self, refusal: Refusal | None) -> Rejection:
        return Rejection() if refusal is None else rejection_of(refusal, self.pipeline)

    def _assume(self, places: Iterable[tuple[Pod, str]], now: float) -> bool:
        """Assume all of a gang's places, or none."""
        done: list[tuple[Pod, str]] = []
        for pod, node in places:
            if not self._cache.assume(pod.key, node, now, pod.metadata.uid):
                for other, where in done:
                    self._cache.forget(other.key, where)
                return False
            done.append((pod, node))
        return True

    def _placed(self, decision: Decision) -> dict[str, tuple[tuple[Pod, str], ...]]:
        """Return the pods that the decision binds, by gang."""
        pods = {
            pod.key: pod
            for entity in (*self._in_flight.values(), *self._waiting.values())
            for pod in entity.pods.values()
        }
        found: dict[str, list[tuple[Pod, str]]] = {}
        for one in decision.assignments:
            pod = pods.get(f"{one.namespace}/{one.pod}")
            if pod is not None:
                found.setdefault(identity_of(pod), []).append((pod, one.node))
        return {identity: tuple(places) for identity, places in found.items()}

    def _hold(self, decision: Decision) -> None:
        """Remember who waits at Permit, on which nodes."""
        groups = {
            _key(identity): entity for identity, entity in (*self._in_flight.items(), *self._waiting.items())
        }
        nodes = {f"{one.namespace}/{one.pod}": one.node for one in decision.nominations}
        before, self._waiting, held = self._waiting, {}, []
        for one in decision.waiting:
            entity = groups.get(one.pod_group)
            if entity is None:
                continue
            self._waiting[entity.identity] = entity
            pods = tuple(HeldPod(key, nodes[key]) for key in entity.pods if key in nodes)
            held.append(HeldGang(one.pod_group, one.plugin, seconds(one.until), pods))
        self.held = tuple(held)
        bound = {f"{one.namespace}/{one.pod}" for one in decision.assignments}
        for identity, entity in before.items():
            if identity in self._waiting:
                continue
            if bound.isdisjoint(entity.pods):  # sent back, or its time is over: it waits as anybody else
                self._in_flight[identity] = entity
            else:
                self._waiting[identity] = entity


def _key(identity: str) -> str:
    """Return how a decision names a gang or a pod alone."""
    return identity.removeprefix("pod/")
