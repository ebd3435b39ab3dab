"""Queueing hints: whether an event may help an entity that a session refused.

A session states one reason for a whole gang. If nodes were insufficient, any Filter plugin may be involved, so the
hints of all of them are evaluated. If the session itself refused, the reason takes the place of a plugin name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Refusal
from batchsched.errors import PluginError
from batchsched.framework.events import (
    ANY_EVENT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    Hint,
    HintFunction,
)
from batchsched.framework.interface import EnqueueExtensionsPlugin
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.in_flight import ObjectEvent

_CAME_OR_CHANGED: Final = Action.ADD | Action.UPDATE

HELPS: Final[Mapping[str, tuple[ClusterEventWithHint, ...]]] = {
    "NoNodes": (ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD),),
    # Changes of its own PodGroup and additional pods move a gang without a hint.
    "PodGroupNotFound": (),
    "NotEnoughPods": (ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),),
    "QueueNotFound": (
        ClusterEventWithHint.for_events(EventResource.QUEUE, _CAME_OR_CHANGED),
        # A pod without a PodGroup names its queue in a label.
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),
    ),
    "NamespaceNotSelected": (
        ClusterEventWithHint.for_events(EventResource.QUEUE, Action.ALL),
        ClusterEventWithHint.for_events(EventResource.NAMESPACE, _CAME_OR_CHANGED),
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),
    ),
    "SeveralUsers": (
        ClusterEventWithHint.for_events(EventResource.QUEUE, Action.ALL),
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),
        # A pod of another user that ends or is deleted may leave pods of one user only.
        ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_LABEL),
    ),
    "UnknownTopologyLevel": (ClusterEventWithHint.for_events(EventResource.TOPOLOGY, _CAME_OR_CHANGED),),
    "UnsupportedField": (ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE),),
    "PodSpecLimit": (ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE),),
    "Gated": (
        ClusterEventWithHint.for_events(
            EventResource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        ),
    ),
    "QueueLimit": (
        ClusterEventWithHint.for_events(EventResource.QUEUE, Action.ALL),
        ClusterEventWithHint.for_events(
            EventResource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN
        ),
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        ClusterEventWithHint.for_events(EventResource.POD_GROUP, Action.DELETE | Action.UPDATE),
    ),
    "InsufficientTopologyCapacity": (
        ClusterEventWithHint.for_events(EventResource.TOPOLOGY, Action.ALL),
        ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
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


def possibly_refusing_plugins(refusal: Refusal, pipeline: Pipeline) -> tuple[str, ...]:
    """Return the sorted names of the plugins that may have caused a refusal, according to its reason.

    If the session itself refused the gang, the reason takes the place of a plugin name.

    After an error of a plugin there are none: the gang backs off and is retried. The reasons `OutOfTurn`,
    `OutsideWindow` and `ExplanationFailed` have no registered events, so every event moves such gangs.
    """
    if refusal.reason == "PluginFailed":
        return ()
    plugins: set[str] = set()
    if refusal.reason in SHORT_OF_NODES:
        judging = (*pipeline.prefilters, *pipeline.filters, *pipeline.reserves, *pipeline.permits)
        plugins.update(map(plugin_name, judging))
        if pipeline.extenders:
            plugins.add(EXTENDERS)
    if refusal.reason in HELPS or not plugins:
        plugins.add(refusal.reason)
    return tuple(sorted(plugins))


EVERY_EVENT = (ClusterEventWithHint(ANY_EVENT),)
"""The registration of a plugin that registers no events, and of an unknown plugin."""


class QueueingHints:
    """The queueing hints of all plugins, which decide whether a cluster event may help a refused pod.

    Args:
      pipeline: the plugins.

    Raises:
      PluginError: a plugin raised while it registered its events.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._registered = {plugin_name(plugin): _registered(plugin) for plugin in pipeline.plugins}
        self._hints_by_event: dict[tuple[str, ClusterEvent], tuple[HintFunction | None, ...]] = {}
        self.faults: Counter[str] = Counter()
        """Number of failed hints by plugin. A failed hint counts as Queue, so that no entity is lost."""

    def hint_functions(self, plugin: str, event: ClusterEvent) -> tuple[HintFunction | None, ...]:
        """Return the hint functions of a plugin for a cluster event; None means that the hint is `Queue`."""
        hints = self._hints_by_event.get((plugin, event))
        if hints is None:
            # The "plugin" may be a reason of the session. Of an unknown one, any event may remove the cause.
            registered = self._registered.get(plugin, HELPS.get(plugin, EVERY_EVENT))
            hints = tuple(entry.hint for entry in registered if entry.event.includes(event))
            self._hints_by_event[plugin, event] = hints
        return hints

    def event_helps_pod(
        self, plugin: str, hint: HintFunction | None, pod: Pod, occurrence: ObjectEvent
    ) -> bool:
        """Return whether an event may help a refused pod, according to one hint function of a plugin."""
        if hint is None:
            return True
        try:
            answer: object = call_plugin(plugin, "QueueingHint", hint, pod, occurrence.old, occurrence.new)
        except PluginError:
            # A failed hint counts as Queue: one failed attempt costs less than a pod that never starts.
            answer = None
        if isinstance(answer, Hint):
            return answer is Hint.QUEUE
        self.faults[plugin] += 1
        return True

    def event_helps_entity(self, entity: Entity, occurrence: ObjectEvent, pod: Pod | None = None) -> bool:
        """Return whether a cluster event may help a refused gang or single pod.

        With `pod`, only this pod of the entity is considered.

        Source: `isPodWorthRequeuing` of kube-scheduler's scheduling queue.
        """
        if not entity.blocking_plugins or occurrence.event.is_wildcard:
            return True
        pods = tuple(entity.pod_by_template().values()) if pod is None else (pod,)
        return any(
            self.event_helps_pod(plugin, hint, candidate, occurrence)
            for plugin in entity.blocking_plugins
            for hint in self.hint_functions(plugin, occurrence.event)
            for candidate in pods
        )


def _registered(plugin: object) -> tuple[ClusterEventWithHint, ...]:
    if not isinstance(plugin, EnqueueExtensionsPlugin):
        return EVERY_EVENT
    answer: object = call_plugin(plugin, "EventsToRegister", plugin.events_to_register)
    if not isinstance(answer, Sequence) or not all(isinstance(item, ClusterEventWithHint) for item in answer):
        problem = f"expected a sequence of ClusterEventWithHint, got {type(answer).__name__}"
        raise PluginError(plugin_name(plugin), "EventsToRegister", problem)
    return tuple(answer)
