"""Unschedulable and gated entities, indexed by the refusing plugin and by pod template.

Thousands of pending pods may share one template. The index lets a plugin's hint run once for each template that the
plugin refused; plugins that did not register an event are not called.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from batchsched.api.core.pod import Pod
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.hints import QueueingHints, Strategy
from batchsched.scheduling_queue.in_flight import InFlightEvent


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
