"""The queue equals a model without indexes: entities move only for a reason, and none is lost."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.gang import gang_identity
from batchsched.framework.events import Action, ClusterEvent, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SUCCESS, Code, Status
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.queue import SchedulingQueue
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import Listening, Silent, pod

COLOURS = ("red", "blue")
GATES = [{"name": "g"}]


def same_colour(one: Pod, _old: Any, new: Any) -> Hint:
    return Hint.queue_if(new is None or one.labels.get("colour") == new.labels.get("colour"))


class Gate:
    """Keeps pods with gates out."""

    name = "Gate"

    def preenqueue(self, one: Pod) -> Status:
        return Status(Code.UNRESOLVABLE, ("gated",)) if one.spec.scheduling_gates else SUCCESS

    def events_to_register(self):
        gone = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        return (ClusterEventWithHint.for_events(EventResource.TARGET_POD, gone),)


# What the model knows of each plugin: the events it hears of, and whether it looks at colours.
HEARS: dict[str, tuple[tuple[EventResource, Action, bool], ...]] = {
    "Colour": ((EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, True),),
    "Room": (
        (EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, False),
        (EventResource.ASSIGNED_POD, Action.DELETE, False),
    ),
    "Own": ((EventResource.TARGET_POD, Action.UPDATE_POD_LABEL, False),),
    "Deaf": (),
}
ALL_EARS = ("Silent", "Unknown")
REFUSING = (*HEARS, *ALL_EARS)


def plugins() -> list[object]:
    heard = [
        Listening(
            name,
            *(
                ClusterEventWithHint(ClusterEvent(resource, action), same_colour if looks else None)
                for resource, action, looks in events
            ),
        )
        for name, events in HEARS.items()
    ]
    return [Gate(), *heard, Silent("Silent")]


def may_help(plugin: str, pods: list[Pod], happened: tuple[EventResource, Action, Any, str]) -> bool:
    """What the model says of an event: by plain rules, without templates, indexes or logs."""
    resource, action, new, key = happened
    if plugin in ALL_EARS:
        return True
    for one in pods:
        if resource is EventResource.TARGET_POD and one.key != key:
            continue
        for wanted, actions, looks in HEARS.get(plugin, ()):
            hears = wanted is resource and bool(actions & action)
            colour = new is None or new.labels.get("colour") == one.labels.get("colour")
            if hears and (colour or not looks):
                return True
    return False


@dataclass
class Known:
    """An entity, as the model knows it."""

    pods: dict[str, Pod] = field(default_factory=dict)
    place: str = "trying"  # trying (active or backing off), waiting, gated, in flight
    refused_by: frozenset[str] = frozenset()
    happened: list[Any] = field(default_factory=list)
    changed: bool = False


class Model:
    """The expected state of every entity, evaluated for all entities at every event."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}

    def settle(self, one: Known) -> None:
        """Move an entity to the active queue, unless all of its pods are gated."""
        gated = all(each.spec.scheduling_gates for each in one.pods.values())
        one.place = "gated" if gated else "trying"

    def join(self, new: Pod) -> None:
        one = self.known.setdefault(gang_identity(new), Known())
        fresh = not one.pods and one.place != "in flight"
        one.pods[new.key] = new
        if one.place == "in flight":
            one.changed = True
        elif fresh or one.place in ("waiting", "gated"):
            self.settle(one)

    def event(self, resource: EventResource, action: Action, new: Any, key: str = "") -> None:
        happened = (resource, action, new, key)
        for one in self.known.values():
            if resource is EventResource.TARGET_POD and key not in one.pods:
                continue
            if one.place == "in flight":
                one.happened.append(happened)
            elif one.place == "waiting" and any(
                may_help(name, list(one.pods.values()), happened) for name in one.refused_by
            ):
                self.settle(one)

    def update(self, new: Pod, actions: list[Action]) -> None:
        one = self.known[gang_identity(new)]
        one.pods[new.key] = new
        if one.place == "gated":
            if Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED in actions:
                self.settle(one)
            return
        for action in actions:
            self.event(EventResource.TARGET_POD, action, new, new.key)

    def refuse(self, identity: str, by: frozenset[str]) -> None:
        one = self.known[identity]
        one.refused_by = by
        pods = list(one.pods.values())
        back = not by or one.changed
        back = back or any(may_help(name, pods, what) for what in one.happened for name in by)
        one.happened, one.changed, one.place = [], False, "waiting"
        if back:
            self.settle(one)
        if not one.pods:
            del self.known[identity]


SEEN = {
    QueueState.ACTIVE: "trying",
    QueueState.BACKOFF: "trying",
    QueueState.UNSCHEDULABLE: "waiting",
    QueueState.GATED: "gated",
    QueueState.IN_FLIGHT: "in flight",
}


class Trial:
    """One queue and one model, driven alike by a random sequence of what may happen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.queue = SchedulingQueue(Pipeline(plugins()))
        self.model = Model()
        self.flying: list[Entity] = []
        self.nodes: dict[str, Node] = {}
        self.now = 0.0
        self._names = 0

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.1, 0.7))
        often = [self.pop, self.end, self.node] * 3 + [self.add] * 2
        self.random.choice([*often, self.pod_left, self.update, self.delete, self.flush_expired_entities])()

    def add(self) -> None:
        self._names += 1
        gates = {"schedulingGates": GATES} if self.random.random() < 0.2 else {}
        colour = {"colour": self.random.choice(COLOURS)}
        new = pod(f"p{self._names}", self.random.choice(("", "", "g", "h")), colour, **gates)
        self.queue.add_pod(new, self.now)
        self.model.join(new)
        self.model.event(EventResource.UNSCHEDULED_POD, Action.ADD, new)

    def pop(self) -> None:
        entity = self.queue.pop(self.now)
        if entity is None:
            trying = [one for one in self.model.known.values() if one.place == "trying"]
            assert all(self.erred(one) for one in trying)
            return
        known = self.model.known[entity.identity]
        assert known.place == "trying"
        assert set(known.pods) == {one.key for one in entity.popped}
        known.place, known.happened, known.changed = "in flight", [], False
        self.flying.append(entity)

    def erred(self, known: Known) -> bool:
        """Whether the entity backs off after an error: only such an entity is not popped early."""
        identity = gang_identity(next(iter(known.pods.values())))
        entity = self.queue.find_entity(identity)
        return entity is not None and entity.place is QueueState.BACKOFF and not known.refused_by

    def end(self) -> None:
        if not self.flying:
            return
        entity = self.flying.pop(self.random.randrange(len(self.flying)))
        if self.random.random() < 0.2:
            self.place(entity)
            return
        count = self.random.choice((0, 1, 1, 2))
        by = frozenset(self.random.sample(REFUSING, count))
        self.queue.add_unschedulable(entity, tuple(sorted(by)), self.now)
        self.model.refuse(entity.identity, by)

    def place(self, entity: Entity) -> None:
        """All pods with which the cycle began get a node."""
        self.queue.done(entity.identity, self.now)
        known = self.model.known.pop(entity.identity)
        placed = {one.key for one in entity.popped}
        for late in [one for key, one in known.pods.items() if key not in placed]:
            self.model.join(late)

    def node(self) -> None:
        name = f"n{self.random.randrange(3)}"
        old = self.nodes.pop(name, None)
        if old is not None and self.random.random() < 0.3:
            self.queue.process_object_change(EventResource.NODE, old, None, self.now)
            self.model.event(EventResource.NODE, Action.DELETE, None)
            return
        new = node(name, {"cpu": self.random.choice("14")}, {"colour": self.random.choice(COLOURS)})
        self.nodes[name] = new
        self.queue.process_object_change(EventResource.NODE, old, new, self.now)
        if old is None:
            self.model.event(EventResource.NODE, Action.ADD, new)
            return
        if old.status != new.status:
            self.model.event(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE, new)
        if old.labels != new.labels:
            self.model.event(EventResource.NODE, Action.UPDATE_NODE_LABEL, new)

    def pod_left(self) -> None:
        self.queue.process_object_change(EventResource.ASSIGNED_POD, pod("bound"), None, self.now)
        self.model.event(EventResource.ASSIGNED_POD, Action.DELETE, None)

    def one(self) -> Pod | None:
        there = [one for known in self.model.known.values() for one in known.pods.values()]
        return self.random.choice(there) if there else None

    def update(self) -> None:
        old = self.one()
        if old is None:
            return
        gates = {"schedulingGates": GATES} if old.spec.scheduling_gates and self.random.random() < 0.5 else {}
        gang = old.labels.get("scheduling.batchsched.dev/pod-group", "")
        new = pod(old.name, gang, {"colour": self.random.choice(COLOURS)}, **gates)
        self.queue.update_pod(new, self.now)
        actions = [Action.UPDATE_POD_LABEL] if old.labels != new.labels else []
        if old.spec.scheduling_gates and not gates:
            actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        self.model.update(new, actions or [Action.UPDATE_OTHER])

    def delete(self) -> None:
        old = self.one()
        if old is None:
            return
        self.queue.delete_pod(old.key, self.now)
        known = self.model.known[gang_identity(old)]
        del known.pods[old.key]
        if not known.pods and known.place != "in flight":
            del self.model.known[gang_identity(old)]
        self.model.event(EventResource.UNSCHEDULED_POD, Action.DELETE, None)

    def flush_expired_entities(self) -> None:
        self.queue.flush_expired_entities(self.now)

    def check(self) -> None:
        """Every entity is in the state of the model, and none is missing."""
        found = {identity: self.queue.find_entity(identity) for identity in self.model.known}
        assert None not in found.values(), "an entity is lost"
        waiting = {name: (SEEN[one.place], set(one.pods)) for name, one in found.items() if one}
        expected = {identity: (one.place, set(one.pods)) for identity, one in self.model.known.items()}
        assert waiting == expected
        flying = sum(len(one.pods) for one in self.model.known.values() if one.place == "in flight")
        total = sum(len(one.pods) for one in self.model.known.values())
        assert sum(self.queue.pending_pod_counts().values()) + flying == total


@pytest.mark.properties
@given(seed=st.integers(0, 2**32))
def test_entities_move_as_in_the_model_and_none_is_lost(seed):
    trial = Trial(seed)
    for _ in range(150):
        trial.step()
        trial.check()


@pytest.mark.properties
@given(seed=st.integers(0, 2**32))
def test_every_ungated_entity_is_retried_within_six_minutes(seed):
    trial = Trial(seed)
    for _ in range(60):
        trial.step()
    for entity in trial.flying:
        trial.queue.add_unschedulable(entity, ("Deaf",), trial.now)
    ungated = {
        identity
        for identity, one in trial.model.known.items()
        if not all(each.spec.scheduling_gates for each in one.pods.values()) and one.pods
    }
    trial.queue.flush_expired_entities(trial.now + 301)
    trial.queue.flush_expired_entities(trial.now + 331)
    popped = set()
    while (following := trial.queue.pop(trial.now + 331)) is not None:
        popped.add(following.identity)
    assert ungated <= popped


@pytest.mark.properties
@given(seed=st.integers(0, 2**32))
def test_same_sequence_of_events_gives_the_same_queue(seed):
    trials = [Trial(seed), Trial(seed)]
    for _ in range(100):
        for one in trials:
            one.step()
        assert trials[0].queue.moved_pod_counts() == trials[1].queue.moved_pod_counts()
