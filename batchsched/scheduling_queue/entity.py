"""The entity: a gang, or a pod alone, as the scheduling queue knows it."""

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
    """Why a cycle ended without a place. Empty: nobody refused, something broke.

    Args:
      plugins: those that refused.
      pending: those that said Pending: what they wait for makes another try worthwhile at once.
    """

    plugins: frozenset[str] = NOBODY
    pending: frozenset[str] = NOBODY

    @classmethod
    def by(cls, *plugins: str, pending: Iterable[str] = ()) -> "Rejection":
        """Name the plugins."""
        return cls(frozenset(plugins), frozenset(pending))

    @property
    def everyone(self) -> tuple[str, ...]:
        """All of them, sorted."""
        return tuple(sorted(self.plugins | self.pending))


@dataclass(slots=True, eq=False)
class Entity:
    """A gang that waits, or a pod alone: a record that the queue changes.

    Args:
      identity: `namespace/name` of the PodGroup, or that of the pod after `pod/`.
      arrival: grows with the order in which entities came.
      queued: seconds at which it came, or came back from its last cycle.
      group: the PodGroup, None for a pod alone and where it does not exist.
      pods: those that wait, by `namespace/name`; also while it is in flight.
      popped: the pods with which the current cycle, or the last one, began.
      place: where it is.
      attempts: cycles that it began.
      refusals: cycles that ended in a refusal.
      errors: cycles that broke since the last refusal.
      first_attempt: seconds at which it was first active, None before.
      rejection: why the last cycle failed.
      gated_by: PreEnqueue plugins that refuse its pods, while they refuse all of them.
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
    """The pods by template: a gang of thousands grows pod by pod, and is asked about after each."""

    @property
    def scheduler(self) -> str:
        """The scheduler name of its pods, "" when there are none."""
        return next((pod.spec.scheduler_name for pod in self.pods.values()), "")

    def put(self, pod: Pod) -> None:
        """Take in a pod, or its new version."""
        key, template = pod.key, template_of(pod)
        before = self._template_of.get(key)
        if before is not None and before != template:
            self._leave(key, before)
        self.pods[key] = pod
        self._template_of[key] = template
        self._equal.setdefault(template, {})[key] = pod

    def take(self, key: str) -> None:
        """Forget a pod."""
        self.pods.pop(key, None)
        template = self._template_of.pop(key, None)
        if template is not None:
            self._leave(key, template)

    def clear(self) -> None:
        """Forget all pods."""
        self.pods.clear()
        self._template_of.clear()
        self._equal.clear()

    def _leave(self, key: str, template: bytes) -> None:
        equal = self._equal[template]
        del equal[key]
        if not equal:
            del self._equal[template]

    def templates(self) -> dict[bytes, Pod]:
        """One pod of each template: what helps one of them helps them all."""
        return {template: next(iter(equal.values())) for template, equal in self._equal.items()}


def template_of(pod: Pod) -> bytes:
    """Return a digest of a pod's template: all but name, uid and times, but for a volume claim named after the pod."""
    metadata = pod.metadata
    ephemeral = any(volume.ephemeral for volume in pod.spec.volumes or ())
    own = (metadata.name, metadata.uid) if ephemeral else ()
    stated = (pod.namespace, metadata.labels, metadata.annotations, metadata.owner_references)
    text = msgspec.msgpack.encode((stated, pod.spec, pod.status.nominated_node_name, own))
    return hashlib.blake2b(text, digest_size=16).digest()
