"""The entity of the scheduling queue, a gang or a pod without a PodGroup, and the table of moves between its states.

A move that is not in the table raises and changes nothing. The documentation draws its diagram from the table.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.gang import gang_namespace
from batchsched.errors import IllegalStateChange


class QueueState(StrEnum):
    """The state of a gang or single pod in the scheduling queue, such as active or in backoff.

    All states except New, In flight and Gone are queues of the metric `pending_pods`.
    """

    NEW = "New"
    ACTIVE = "Active"
    BACKOFF = "Backoff"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    IN_FLIGHT = "In flight"
    GONE = "Gone"


MOVES: Final = {
    (QueueState.NEW, QueueState.ACTIVE): "it is added, and PreEnqueue admits at least one of its pods",
    (QueueState.NEW, QueueState.GATED): "it is added, and PreEnqueue refuses all of its pods",
    (QueueState.NEW, QueueState.BACKOFF): "its binding failed after its cycle had ended",
    (QueueState.ACTIVE, QueueState.IN_FLIGHT): "it is popped",
    (
        QueueState.BACKOFF,
        QueueState.IN_FLIGHT,
    ): "the active queue is empty, its last attempt was refused, and its backoff ends next",
    (QueueState.BACKOFF, QueueState.ACTIVE): "its backoff has ended, or it was activated",
    (
        QueueState.IN_FLIGHT,
        QueueState.UNSCHEDULABLE,
    ): "it was refused, and no event during its cycle may help it",
    (
        QueueState.IN_FLIGHT,
        QueueState.BACKOFF,
    ): "it was refused and an event during its cycle may help it, or an error occurred",
    (QueueState.IN_FLIGHT, QueueState.GATED): "the same, and PreEnqueue now refuses all of its pods",
    (QueueState.UNSCHEDULABLE, QueueState.BACKOFF): "an event may help it, and its backoff has not ended",
    (
        QueueState.UNSCHEDULABLE,
        QueueState.ACTIVE,
    ): "an event may help it, five minutes have passed, or it was activated",
    (QueueState.UNSCHEDULABLE, QueueState.GATED): "the same, and PreEnqueue now refuses all of its pods",
    (
        QueueState.GATED,
        QueueState.ACTIVE,
    ): "an event may help it, and PreEnqueue admits at least one of its pods",
    (QueueState.GATED, QueueState.BACKOFF): "the same, and its backoff has not ended",
    (QueueState.ACTIVE, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.BACKOFF, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.UNSCHEDULABLE, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.GATED, QueueState.GONE): "its last pod was deleted or has a node",
    (QueueState.IN_FLIGHT, QueueState.GONE): "all of its pods have nodes or were deleted",
}
"""(from, to) → condition. Other moves are illegal."""


def check_state_change(start: QueueState, end: QueueState) -> None:
    """Raise `IllegalStateChange` if the table `MOVES` does not permit a change from one state to another.

    Raises:
      IllegalStateChange: the table of moves does not contain this change.
    """
    if (start, end) not in MOVES:
        legal = ", ".join(to for state, to in MOVES if state is start) or "none"
        raise IllegalStateChange(
            f"an entity in state {start} of the scheduling queue cannot become {end}; it can become: {legal}"
        )


@dataclass(slots=True, eq=False)
class _TemplateSortKeys:
    """The QueueSort keys of an entity's templates for one priority and time, and how many templates have each key."""

    argument: tuple[int, float] | None = None
    unknown: set[bytes] = field(default_factory=set)
    """Templates without a key yet."""
    key_of: dict[bytes, Any] = field(default_factory=dict)
    counts: Counter[Any] = field(default_factory=Counter)

    def put(self, template: bytes, key: Any) -> None:
        self.unknown.discard(template)
        self.key_of[template] = key
        self.counts[key] += 1

    def forget(self, template: bytes) -> None:
        self.unknown.discard(template)
        if template in self.key_of:
            key = self.key_of.pop(template)
            self.counts[key] -= 1
            if not self.counts[key]:
                del self.counts[key]


@dataclass(slots=True, eq=False)
class Entity:
    """An entry of the scheduling queue: a pending gang, or a pending pod without a PodGroup.

    Only the queue changes this record.

    Args:
      identity: `namespace/name` of the PodGroup, or `pod/namespace/name` of a single pod.
      arrival: rank by the order in which entities were added.
      queued: time in seconds at which the entity was added, or returned from its last cycle.
      group: the PodGroup; None for a single pod, or if the PodGroup does not exist.
      pods: pending pods by `namespace/name`, also while the entity is in flight.
      popped: the pods at the start of the current or last cycle.
      place: the state of the entity.
      attempts: number of cycles started.
      refusals: number of cycles that ended with a refusal.
      errors: number of cycles that ended with an error since the last refusal.
      first_attempt: time in seconds at which the entity was first active, or None.
      refused_by: plugins that refused it in the last cycle, sorted; empty after an error, which no plugin decided.
      gated_by: PreEnqueue plugins that refuse its pods, while all pods are refused.
    """

    identity: str
    arrival: int
    queued: float
    group: PodGroup | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    popped: tuple[Pod, ...] = ()
    place: QueueState = QueueState.NEW
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    first_attempt: float | None = None
    refused_by: tuple[str, ...] = ()
    gated_by: tuple[str, ...] = ()
    changed_templates: set[bytes] | None = None
    """Templates of pods that came or went since this was set; None while nothing follows them."""
    _template_of: dict[str, bytes] = field(default_factory=dict)
    _equal: dict[bytes, dict[str, Pod]] = field(default_factory=dict)
    """Pods by template, kept incrementally: a gang of thousands of pods is evaluated after each added pod."""
    _priorities: dict[int, int] = field(default_factory=dict)
    """The number of templates by priority of their pods."""
    _sort_keys: _TemplateSortKeys | None = None
    """None while the pods have one template only, as those of most gangs."""

    @property
    def namespace(self) -> str:
        """The namespace of the gang or single pod."""
        return gang_namespace(self.identity)

    @property
    def highest_pod_priority(self) -> int:
        """The highest `spec.priority` among the pods of the gang; 0 if the gang has no pods."""
        return max(self._priorities, default=0)

    @property
    def blocking_plugins(self) -> tuple[str, ...]:
        """The plugins that gate the gang or single pod; if it is not gated, the plugins that last refused it.

        Their queueing hints decide which events move the entity.
        """
        return self.gated_by or self.refused_by

    def put_pod(self, pod: Pod) -> bool:
        """Add a pod to the gang in the scheduling queue, or replace it by a new version.

        Return whether the gang now has other templates than before.
        """
        key, template = pod.key, template_digest(pod)
        before = self._template_of.get(key)
        has_other_templates = template not in self._equal
        if before is not None and before != template:
            # An empty template must disappear: `pod_by_template` returns one pod of each.
            self._leave(key, before)
            has_other_templates |= before not in self._equal
        self.pods[key] = pod
        self._template_of[key] = template
        equal = self._equal.get(template)
        if equal is None:
            equal = self._equal[template] = {}
            priority = pod.spec.priority or 0
            self._priorities[priority] = self._priorities.get(priority, 0) + 1
            if self._sort_keys is not None:
                self._sort_keys.unknown.add(template)
            self._note_change(template)
        equal[key] = pod
        return has_other_templates

    def remove_pod(self, key: str) -> None:
        """Remove the pod with this `namespace/name` from the gang in the scheduling queue."""
        self.pods.pop(key, None)
        template = self._template_of.pop(key, None)
        if template is not None:
            self._leave(key, template)

    def remove_all_pods(self) -> None:
        """Remove all pods from the gang in the scheduling queue."""
        for key in tuple(self.pods):
            self.remove_pod(key)

    def _leave(self, key: str, template: bytes) -> None:
        equal = self._equal[template]
        pod = equal.pop(key)
        if equal:
            return
        del self._equal[template]
        priority = pod.spec.priority or 0
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        if self._sort_keys is not None:
            self._sort_keys.forget(template)
        self._note_change(template)

    def _note_change(self, template: bytes) -> None:
        if self.changed_templates is not None:
            self.changed_templates.add(template)

    def least_sort_key(self, sort_key: Callable[[Pod, int, float], Any]) -> Any:
        """Return the least QueueSort key of the pods of the gang.

        Keys are computed for new templates only, as long as neither the highest priority nor `queued` changes.

        Args:
          sort_key: `sort_key` of a built-in QueueSort plugin, with keys that are hashable.
        """
        keys, argument = self._sort_keys, (self.highest_pod_priority, self.queued)
        if len(self._equal) == 1:
            self._sort_keys = None
            return sort_key(next(iter(self.pods.values())), *argument)
        if keys is None or keys.argument != argument:
            keys = self._sort_keys = _TemplateSortKeys(argument, set(self._equal))
        for template in tuple(keys.unknown):
            keys.put(template, sort_key(next(iter(self._equal[template].values())), *argument))
        return min(keys.counts)

    def pod_of_template(self, template: bytes) -> Pod | None:
        """Return one of the gang's pods with this template, by the digest of the template; None if it has none."""
        return next(iter(self._equal.get(template, {}).values()), None)

    def pod_by_template(self) -> dict[bytes, Pod]:
        """Return one of the gang's pods for each pod template, by the digest of the template.

        An event that helps one pod of a template helps all of them.
        """
        return {template: next(iter(equal.values())) for template, equal in self._equal.items()}


def template_digest(pod: Pod) -> bytes:
    """Return a digest that is equal for pods that differ only in name, uid and times.

    Pods with ephemeral volumes have different digests, because the volume claims are named after the pods.
    """
    metadata = pod.metadata
    # The claim of an ephemeral volume is named after the pod, so hints may answer differently for equal pods.
    ephemeral = any(volume.ephemeral for volume in pod.spec.volumes or ())
    own = (metadata.name, metadata.uid) if ephemeral else ()
    template = (pod.namespace, metadata.labels, metadata.annotations, metadata.owner_references)
    text = msgspec.msgpack.encode((template, pod.spec, pod.status.nominated_node_name, own))
    return hashlib.blake2b(text, digest_size=16).digest()
