"""The hints of all profiles: which events a plugin wants to hear of, and what it says of one."""

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
"""What a plugin hears of that does not say; so does one that nobody knows."""


class Strategy(IntEnum):
    """Where an event leads an entity."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class QueueingHints:
    """What the plugins of each scheduler name say of events.

    Args:
      pipelines: by scheduler name.

    Raises:
      PluginError: a plugin broke as it said what it wants to hear of.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._registered = {
            (scheduler, name_of(plugin)): _registered(plugin)
            for scheduler, pipeline in pipelines.items()
            for plugin in pipeline.plugins
        }
        self._known: dict[tuple[str, str, ClusterEvent], tuple[HintFunction | None, ...]] = {}
        self.faults: Counter[str] = Counter()
        """How often a hint broke, by plugin. What breaks counts as Queue: nobody may be lost for it."""

    def of(self, scheduler: str, plugin: str, event: ClusterEvent) -> tuple[HintFunction | None, ...]:
        """Return a plugin's hints for an event; None among them: it helps without asking."""
        key = (scheduler, plugin, event)
        found = self._known.get(key)
        if found is None:
            registered = self._registered.get((scheduler, plugin), HELPS.get(plugin, EVERY_EVENT))
            found = tuple(one.hint for one in registered if one.event.includes(event))
            self._known[key] = found
        return found

    def helps(self, plugin: str, hint: HintFunction | None, pod: Pod, occurrence: InFlightEvent) -> bool:
        """Tell whether an event may help a pod, as a plugin sees it."""
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
        """Ask everyone who refused an entity; `pod`: about this pod of it alone.

        Source: `isPodWorthRequeuing` of kube-scheduler's scheduling queue.
        """
        plugins = entity.gated_by or entity.rejection.everyone
        if not plugins or occurrence.event.wildcard:
            return Strategy.AFTER_BACKOFF
        pods = tuple(entity.templates().values()) if pod is None else (pod,)
        found = Strategy.SKIP
        for plugin in plugins:
            hints = self.of(entity.scheduler, plugin, occurrence.event)
            if any(self.helps(plugin, hint, one, occurrence) for hint in hints for one in pods):
                if plugin in entity.rejection.pending:
                    return Strategy.IMMEDIATELY
                found = Strategy.AFTER_BACKOFF
        return found


def _registered(plugin: object) -> tuple[ClusterEventWithHint, ...]:
    if not isinstance(plugin, EnqueueExtensionsPlugin):
        return EVERY_EVENT
    answer: object = ask(plugin, "EventsToRegister", plugin.events_to_register)
    if not isinstance(answer, Sequence) or not all(isinstance(one, ClusterEventWithHint) for one in answer):
        problem = f"expected a sequence of ClusterEventWithHint, got {type(answer).__name__}"
        raise PluginError(name_of(plugin), "EventsToRegister", problem)
    return tuple(answer)
