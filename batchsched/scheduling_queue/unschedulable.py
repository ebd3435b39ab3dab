"""Unschedulable entities, indexed by the plugins that refused them and by pod template."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from batchsched.api.core.pod import Pod
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.in_flight import ObjectEvent
from batchsched.scheduling_queue.queueing_hints import QueueingHints


@dataclass(slots=True, eq=False)
class EntitiesOfTemplate:
    """All unschedulable gangs and single pods with pods of the same pod template, and one of these pods."""

    pod: Pod
    entities: dict[str, Entity] = field(default_factory=dict)


class UnschedulableEntities:
    """An index of unschedulable and gated gangs and pods, by refusing plugin and by pod template.

    Thousands of pending pods may share one template. The index lets a plugin's hint run once for each template that
    the plugin refused; plugins that did not register an event are not called.
    """

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._refused: dict[str, dict[bytes, EntitiesOfTemplate]] = {}
        self._filed: dict[str, tuple[Entity, tuple[str, ...], set[bytes]]] = {}
        # `remove` needs the plugins and templates under which an entity is filed: both may have changed since.

    def put(self, entity: Entity) -> None:
        """Add an unschedulable or gated gang or single pod to the index.

        The plugins that refused it must not change while it is in the index.
        """
        templates = entity.pod_by_template()
        self._filed[entity.identity] = (entity, entity.blocking_plugins, set(templates))
        entity.changed_templates = set()
        for plugin in entity.blocking_plugins:
            by_template = self._refused.setdefault(plugin, {})
            for template, pod in templates.items():
                by_template.setdefault(template, EntitiesOfTemplate(pod)).entities[entity.identity] = entity

    def update_templates(self, entity: Entity) -> None:
        """Follow the templates of a gang in the index that came or went since the last call."""
        _, plugins, templates = self._filed[entity.identity]
        for template in entity.changed_templates or ():
            pod = entity.pod_of_template(template)
            is_filed = template in templates
            if is_filed == (pod is not None):
                continue
            templates ^= {template}
            for plugin in plugins:
                by_template = self._refused.setdefault(plugin, {})
                if pod is not None:
                    alike = by_template.setdefault(template, EntitiesOfTemplate(pod))
                    alike.entities[entity.identity] = entity
                else:
                    self._remove_template(plugin, template, entity.identity)
        entity.changed_templates = set()

    def remove(self, entity: Entity) -> None:
        """Remove a gang or single pod from the index, if the index contains it."""
        entity.changed_templates = None
        _, plugins, templates = self._filed.pop(entity.identity, (entity, (), set()))
        for plugin in plugins:
            for template in templates:
                self._remove_template(plugin, template, entity.identity)

    def _remove_template(self, plugin: str, template: bytes, identity: str) -> None:
        by_template = self._refused[plugin]
        del by_template[template].entities[identity]
        if not by_template[template].entities:
            del by_template[template]
        if not by_template:
            del self._refused[plugin]

    def entities_helped_by(self, occurrence: ObjectEvent) -> list[Entity]:
        """Return the unschedulable and gated gangs and pods that an event may help, in order of arrival."""
        helped: dict[str, Entity] = {}
        for plugin, by_template in self._refused.items():
            hints = self._hints.hint_functions(plugin, occurrence.event)
            for alike in by_template.values() if hints else ():
                if any(self._hints.event_helps_pod(plugin, hint, alike.pod, occurrence) for hint in hints):
                    helped |= alike.entities
        return sorted(helped.values(), key=lambda entity: entity.arrival)

    def entities(self) -> Iterable[Entity]:
        """Return all unschedulable and gated gangs and pods in the order in which they were added."""
        return (entity for entity, _, _ in self._filed.values())
