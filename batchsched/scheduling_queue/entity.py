"""The entity of the scheduling queue: a gang, or a pod without a PodGroup."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.scheduling_queue.states import QueueState

NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a scheduling cycle ended without a placement. Empty after an error: no plugin refused.

    Args:
      plugins: plugins that refused.
      pending: plugins that answered Pending: the entity is retried without backoff as soon as their condition holds.
    """

    plugins: frozenset[str] = NOBODY
    pending: frozenset[str] = NOBODY

    @classmethod
    def by(cls, *plugins: str, pending: Iterable[str] = ()) -> "Rejection":
        """Create a rejection by these plugins."""
        return cls(frozenset(plugins), frozenset(pending))

    @property
    def everyone(self) -> tuple[str, ...]:
        """All plugins of the rejection, sorted."""
        return tuple(sorted(self.plugins | self.pending))


@dataclass(slots=True, eq=False)
class Entity:
    """A pending gang or single pod: a mutable record that only the queue changes.

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
      rejection: why the last cycle failed.
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
    rejection: Rejection = Rejection()
    gated_by: tuple[str, ...] = ()
    _template_of: dict[str, bytes] = field(default_factory=dict)
    _equal: dict[bytes, dict[str, Pod]] = field(default_factory=dict)
    """Pods by template, kept incrementally: a gang of thousands of pods is evaluated after each added pod."""

    @property
    def scheduler(self) -> str:
        """The scheduler name of its pods, or "" without pods."""
        return next((pod.spec.scheduler_name for pod in self.pods.values()), "")

    def put(self, pod: Pod) -> None:
        """Add a pod, or replace it by a new version."""
        key, template = pod.key, template_of(pod)
        before = self._template_of.get(key)
        if before is not None and before != template:
            self._leave(key, before)
        self.pods[key] = pod
        self._template_of[key] = template
        self._equal.setdefault(template, {})[key] = pod

    def take(self, key: str) -> None:
        """Remove a pod."""
        self.pods.pop(key, None)
        template = self._template_of.pop(key, None)
        if template is not None:
            self._leave(key, template)

    def clear(self) -> None:
        """Remove all pods."""
        self.pods.clear()
        self._template_of.clear()
        self._equal.clear()

    def _leave(self, key: str, template: bytes) -> None:
        equal = self._equal[template]
        del equal[key]
        if not equal:
            del self._equal[template]

    def templates(self) -> dict[bytes, Pod]:
        """Return one pod of each template. An event that helps one pod of a template helps all of them."""
        return {template: next(iter(equal.values())) for template, equal in self._equal.items()}


def template_of(pod: Pod) -> bytes:
    """Return a digest of a pod without name, uid and times. A volume claim that is named after the pod is included."""
    metadata = pod.metadata
    ephemeral = any(volume.ephemeral for volume in pod.spec.volumes or ())
    own = (metadata.name, metadata.uid) if ephemeral else ()
    template = (pod.namespace, metadata.labels, metadata.annotations, metadata.owner_references)
    text = msgspec.msgpack.encode((template, pod.spec, pod.status.nominated_node_name, own))
    return hashlib.blake2b(text, digest_size=16).digest()
