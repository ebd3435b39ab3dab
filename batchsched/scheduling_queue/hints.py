"""Queueing hints of all profiles: the events that a plugin registers, and its answer to one of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.events import (
    ANY_EVENT,
    ClusterEvent,
    ClusterEventWithHint,
    EnqueueExtensionsPlugin,
    Hint,
    HintFunction,
)
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.in_flight import InFlightEvent
from batchsched.scheduling_queue.rejections import HELPS

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
