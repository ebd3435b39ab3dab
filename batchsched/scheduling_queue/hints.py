"""Which refused entities an event may help: rejections, queueing hints, and the events during a scheduling cycle.

A session states one reason for a whole gang. If nodes were insufficient, any Filter plugin may be involved, so the
hints of all of them are evaluated. If the session itself refused, the reason takes the place of a plugin name.

A refused entity was evaluated against a snapshot. An event that arrived since then may already help it, so the events
of a cycle are kept until it ends.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any, Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Refusal
from batchsched.errors import PluginError
from batchsched.framework.events import (
    ANY_EVENT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EnqueueExtensionsPlugin,
    Hint,
    HintFunction,
    Resource,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.scheduling_queue.entity import Entity, Rejection

_CAME_OR_CHANGED: Final = Action.ADD | Action.UPDATE

HELPS: Final[Mapping[str, tuple[ClusterEventWithHint, ...]]] = {
    "NoNodes": (ClusterEventWithHint.on(Resource.NODE, Action.ADD),),
    # Changes of its own PodGroup and additional pods move a gang without a hint.
    "PodGroupNotFound": (),
    "NotEnoughPods": (ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),),
    "QueueNotFound": (ClusterEventWithHint.on(Resource.QUEUE, _CAME_OR_CHANGED),),
    "UnknownTopologyLevel": (ClusterEventWithHint.on(Resource.TOPOLOGY, _CAME_OR_CHANGED),),
    "Gated": (ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),),
    "QueueLimit": (
        ClusterEventWithHint.on(Resource.QUEUE, Action.ALL),
        ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
        ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        ClusterEventWithHint.on(Resource.POD_GROUP, Action.DELETE | Action.UPDATE),
    ),
    "InsufficientTopologyCapacity": (
        ClusterEventWithHint.on(Resource.TOPOLOGY, Action.ALL),
        ClusterEventWithHint.on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
    ),
}
"""Events that may help, by the reason with which the session itself refused."""

SHORT_OF_NODES: Final = frozenset(
    {
        "NoFeasibleNode",
        "InsufficientResources",
        "InsufficientTopologyCapacity",
        "PluginConstraint",
        "PermitRejected",
        "PermitTimeout",
    }
)
"""Reasons in which any plugin that filters nodes or checks placements may be involved."""


EXTENDERS: Final = "Extenders"
"""Stands for all extenders. Which events change their answers is unknown, so every event may help."""


def rejection_of(refusal: Refusal, pipeline: Pipeline) -> Rejection:
    """Return the rejection of a refused gang.

    After an error of a plugin the rejection is empty: the gang backs off and is retried. The reasons `OutOfTurn` and
    `OutsideWindow` have no registered events, so every event moves such gangs.
    """
    if refusal.reason == "PluginFailed":
        return Rejection()
    plugins: set[str] = set()
    if refusal.reason in SHORT_OF_NODES:
        judging = (*pipeline.prefilters, *pipeline.filters, *pipeline.reserves, *pipeline.permits)
        plugins |= {name_of(one) for one in judging}
        if pipeline.extenders:
            plugins.add(EXTENDERS)
    if refusal.reason in HELPS or not plugins:
        plugins.add(refusal.reason)
    return Rejection(frozenset(plugins))


@dataclass(frozen=True, slots=True, eq=False)
class InFlightEvent:
    """An event with the object before and after. If `identity` is set, it concerns only this entity."""

    event: ClusterEvent
    old: Any = None
    new: Any = None
    identity: str = ""


class InFlightEntities:
    """The entities in flight, and the events since the first of their cycles began."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Entity, int]] = {}
        self._log: deque[InFlightEvent] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        """Return the number of entities in flight."""
        return len(self._since)

    def get(self, identity: str) -> Entity | None:
        """Return an entity in flight, or None."""
        entry = self._since.get(identity)
        return None if entry is None else entry[0]

    def begin(self, entity: Entity) -> None:
        """Record that the cycle of an entity begins."""
        self._since[entity.identity] = (entity, self._dropped + len(self._log))

    def note(self, occurrence: InFlightEvent) -> None:
        """Keep an event, if any entity is in flight that it may concern."""
        if occurrence.identity in self._since if occurrence.identity else self._since:
            self._log.append(occurrence)

    def end(self, entity: Entity) -> Sequence[InFlightEvent] | None:
        """Return the events during the cycle of an entity, or None if it is not in flight."""
        entry = self._since.get(entity.identity)
        if entry is None or entry[0] is not entity:
            return None
        del self._since[entity.identity]
        events = [
            event
            for event in islice(self._log, entry[1] - self._dropped, None)
            if event.identity in ("", entity.identity)
        ]
        self._forget()
        return events

    def _forget(self) -> None:
        """Drop events from before the oldest cycle in flight. Cycles are kept in the order of their start."""
        oldest = next((start for _, start in self._since.values()), self._dropped + len(self._log))
        while self._dropped < oldest:
            self._log.popleft()
            self._dropped += 1


EVERY_EVENT = (ClusterEventWithHint(ANY_EVENT),)
"""The registration of a plugin that registers no events, and of an unknown plugin."""


class Strategy(IntEnum):
    """The queue to which an event moves an entity."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class QueueingHints:
    """The queueing hints of the plugins of each scheduler name.

    Args:
      pipelines: pipelines by scheduler name.

    Raises:
      PluginError: a plugin raised while it registered its events.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._registered = {
            (scheduler, name_of(plugin)): _registered(plugin)
            for scheduler, pipeline in pipelines.items()
            for plugin in pipeline.plugins
        }
        self._hints_by_event: dict[tuple[str, str, ClusterEvent], tuple[HintFunction | None, ...]] = {}
        self.faults: Counter[str] = Counter()
        """Number of failed hints by plugin. A failed hint counts as Queue, so that no entity is lost."""

    def of(self, scheduler: str, plugin: str, event: ClusterEvent) -> tuple[HintFunction | None, ...]:
        """Return the hints of a plugin for an event. None among them means that the event helps unconditionally."""
        key = (scheduler, plugin, event)
        hints = self._hints_by_event.get(key)
        if hints is None:
            registered = self._registered.get((scheduler, plugin), HELPS.get(plugin, EVERY_EVENT))
            hints = tuple(entry.hint for entry in registered if entry.event.includes(event))
            self._hints_by_event[key] = hints
        return hints

    def helps(self, plugin: str, hint: HintFunction | None, pod: Pod, occurrence: InFlightEvent) -> bool:
        """Return whether an event may help a pod, according to one plugin."""
        if hint is None:
            return True
        try:
            answer: object = ask(plugin, "QueueingHint", hint, pod, occurrence.old, occurrence.new)
        except PluginError:
            self.faults[plugin] += 1
            return True
        if isinstance(answer, Hint):
            return answer is Hint.QUEUE
        self.faults[plugin] += 1
        return True

    def strategy(self, entity: Entity, occurrence: InFlightEvent, pod: Pod | None = None) -> Strategy:
        """Evaluate the hints of all plugins that refused an entity; with `pod`, only for this pod of the entity.

        Source: `isPodWorthRequeuing` of kube-scheduler's scheduling queue.
        """
        plugins = entity.gated_by or entity.rejection.everyone
        if not plugins or occurrence.event.wildcard:
            return Strategy.AFTER_BACKOFF
        pods = tuple(entity.templates().values()) if pod is None else (pod,)
        strategy = Strategy.SKIP
        for plugin in plugins:
            hints = self.of(entity.scheduler, plugin, occurrence.event)
            if any(self.helps(plugin, hint, candidate, occurrence) for hint in hints for candidate in pods):
                if plugin in entity.rejection.pending:
                    return Strategy.IMMEDIATELY
                strategy = Strategy.AFTER_BACKOFF
        return strategy


def _registered(plugin: object) -> tuple[ClusterEventWithHint, ...]:
    if not isinstance(plugin, EnqueueExtensionsPlugin):
        return EVERY_EVENT
    answer: object = ask(plugin, "EventsToRegister", plugin.events_to_register)
    if not isinstance(answer, Sequence) or not all(isinstance(item, ClusterEventWithHint) for item in answer):
        problem = f"expected a sequence of ClusterEventWithHint, got {type(answer).__name__}"
        raise PluginError(name_of(plugin), "EventsToRegister", problem)
    return tuple(answer)


@dataclass(slots=True, eq=False)
class TemplateEntities:
    """Entities with a pod of one template: one such pod, and the entities by identity."""

    pod: Pod
    entities: dict[str, Entity] = field(default_factory=dict)


class UnschedulableEntities:
    """Entities by refusing plugin: (scheduler name, plugin) → template → entities."""

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._refused: dict[tuple[str, str], dict[bytes, TemplateEntities]] = {}
        self._filed: dict[str, tuple[Entity, tuple[tuple[str, str], ...], tuple[bytes, ...]]] = {}

    def put(self, entity: Entity) -> None:
        """Add an entity. Its rejection and templates must not change while it is in the index."""
        templates = entity.templates()
        plugins = entity.gated_by or entity.rejection.everyone
        keys = tuple((entity.scheduler, plugin) for plugin in plugins)
        self._filed[entity.identity] = (entity, keys, tuple(templates))
        for key in keys:
            alike = self._refused.setdefault(key, {})
            for template, pod in templates.items():
                alike.setdefault(template, TemplateEntities(pod)).entities[entity.identity] = entity

    def remove(self, entity: Entity) -> None:
        """Remove an entity, if it is present."""
        _, keys, templates = self._filed.pop(entity.identity, (entity, (), ()))
        for key in keys:
            alike = self._refused[key]
            for template in templates:
                del alike[template].entities[entity.identity]
                if not alike[template].entities:
                    del alike[template]
            if not alike:
                del self._refused[key]

    def helped(self, occurrence: InFlightEvent) -> list[tuple[Entity, Strategy]]:
        """Return the entities that an event may help, with the target queue of each, in the order of arrival."""
        strategies: dict[str, tuple[Entity, Strategy]] = {}
        for (scheduler, plugin), alike in self._refused.items():
            hints = self._hints.of(scheduler, plugin, occurrence.event)
            for event in alike.values() if hints else ():
                if any(self._hints.helps(plugin, hint, event.pod, occurrence) for hint in hints):
                    _join(strategies, event.entities.values(), plugin)
        return sorted(strategies.values(), key=lambda pair: pair[0].arrival)

    def entities(self) -> Iterable[Entity]:
        """Return all entities in the order in which they were added."""
        return (entity for entity, _, _ in self._filed.values())


def _join(found: dict[str, tuple[Entity, Strategy]], entities: Iterable[Entity], plugin: str) -> None:
    for entity in entities:
        pending = plugin in entity.rejection.pending
        strategy = Strategy.IMMEDIATELY if pending else Strategy.AFTER_BACKOFF
        known = found.get(entity.identity)
        if known is None or known[1] < strategy:
            found[entity.identity] = (entity, strategy)
