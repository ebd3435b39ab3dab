"""The Protocols between the core and a real or simulated cluster, such as a clock and a binder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.metadata import ObjectMeta, is_label_value
from batchsched.api.core.node import Node
from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.validation import FieldError
from batchsched.api.decision import Decision, SetAside
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.ports.claims import ResourceClaimBinder


class Clock(Protocol):
    """A source of time, waits and random numbers. Tests and the simulator use a clock with virtual time."""

    def now(self) -> float:
        """Return the current time in seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Return the time of a monotonic clock in seconds, for deadlines and Leases.

        Such a clock is never set back or forward; its zero has no meaning.
        """
        ...

    def steady_now(self) -> float:
        """Return the time in seconds since 1970-01-01 UTC as if the clock had not been set since this process started.

        It is for periods that end at a time, such as a backoff. Times of objects are compared with `now`.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for the given number of seconds."""
        ...

    def random_fraction(self) -> float:
        """Return a random number in [0, 1), used to spread the retries of failed requests over time."""
        ...


def wall_clock_offset(clock: Clock) -> float:
    """Return the seconds to be added to a time of `Clock.steady_now` to get that of `Clock.now`."""
    return clock.now() - clock.steady_now()


T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class SetAsideObject:
    """An invalid object that the cluster state leaves out, and the reason why the object is invalid.

    Args:
      why: the entry for decisions, with the name of the object, the field and the message.
      namespace, name, uid: the object; a part that could not be read is "".
    """

    why: SetAside
    namespace: str
    name: str
    uid: str


class ObjectHandler(Protocol[T_contra]):
    """The receiver of the objects that a reflector lists and watches, either as JSON or decoded.

    The methods must not raise for an invalid object. If one raises, the reflector calls `set_object_aside` and
    continues with the other objects.
    """

    set_aside_objects: dict[str, SetAsideObject]
    """The objects that were set aside, by their keys."""

    def on_replace(self, objects: Sequence[T_contra]) -> None:
        """Replace all known objects by a complete list. An object that is not in the list was deleted."""
        ...

    def on_add_or_update(self, item: T_contra) -> None:
        """Add an object, or update the object of the same name."""
        ...

    def on_delete(self, item: T_contra) -> None:
        """Remove a deleted object; the argument is its last known state."""
        ...

    def set_object_aside(self, item: bytes | T_contra, problem: FieldError) -> None:
        """Remove an invalid object from the cluster state, and record why it is invalid.

        Args:
          item: the object as JSON if reading it failed, otherwise the decoded object.
          problem: the invalid field and what is wrong with it.
        """
        ...


_GANG_LABELS: Final = (POD_GROUP_LABEL, SUB_GROUP_LABEL)


@dataclass(frozen=True, slots=True)
class Binding:
    """The assignment of a pod to a node, as it is written to the API server.

    Args:
      namespace, pod, uid: the pod; uid is "" if unknown.
      node: name of the node.
      labels: labels of the pod's gang, if all of them are valid label values. An API server of version 1.35 or later
        writes them to the pod with the node.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_pod_and_node(cls, pod: Pod, node: str) -> "Binding":
        """Return the `Binding` of a pod to a node, with the gang labels of the pod.

        The names in external references may be invalid values of labels. The API server would write them unchecked, and
        then refuse each later update of the pod. Such a pod gets neither label: with one of them only, the names in its
        external reference would no longer be read.
        """
        labels = tuple((key, pod.labels[key]) for key in _GANG_LABELS if key in pod.labels)
        if not all(is_label_value(name) for _, name in labels):
            labels = ()
        return cls(pod.namespace, pod.name, pod.metadata.uid, node, labels)

    @property
    def pod_key(self) -> str:
        """The `namespace/name` of the pod."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True)
class PersistentVolumeBinding:
    """The `spec.claimRef` that binds a PersistentVolume to a PersistentVolumeClaim.

    Args:
      volume: name of the PersistentVolume.
      namespace, claim, uid: the claim.
    """

    volume: str
    namespace: str
    claim: str
    uid: str


@dataclass(frozen=True, slots=True)
class VolumeClaimSelectedNode:
    """The annotation `volume.kubernetes.io/selected-node` of a PersistentVolumeClaim, which names a node.

    Args:
      namespace, claim: the claim.
      node: name of the node.
    """

    namespace: str
    claim: str
    node: str

    @property
    def claim_key(self) -> str:
        """The `namespace/name` of the PersistentVolumeClaim."""
        return f"{self.namespace}/{self.claim}"


def persistent_volume_binding_of(volume: str, claim: ObjectMeta) -> PersistentVolumeBinding:
    """Return the `PersistentVolumeBinding` of a PersistentVolume to a PersistentVolumeClaim."""
    return PersistentVolumeBinding(volume, claim.namespace or "default", claim.name, claim.uid)


class Binder(Protocol):
    """An interface that writes the bindings of pods and volumes to a cluster.

    All writes are idempotent: a value that is already set is a success.
    """

    @property
    def resource_claim_binder(self) -> ResourceClaimBinder:
        """The writer of ResourceClaims."""
        ...

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to its node."""
        ...

    async def bind_volume(self, binding: PersistentVolumeBinding) -> None:
        """Bind a PersistentVolume to a PersistentVolumeClaim."""
        ...

    async def write_selected_node(self, selection: VolumeClaimSelectedNode) -> None:
        """Write the selected node of a PersistentVolumeClaim, so that its volume is provisioned for this node."""
        ...

    async def wait_for_bound_volume_claims(
        self,
        claims: Sequence[str],
        timeout_seconds: float,
        selections: Sequence[VolumeClaimSelectedNode] = (),
    ) -> bool:
        """Return True once the given PersistentVolumeClaims are bound, or False after the timeout.

        Args:
          claims: the claims by `namespace/name`.
          timeout_seconds: the longest time to wait.
          selections: the selected nodes of claims. If a claim no longer selects its node, the wait fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """The changes of a cluster since its scheduler was created or last updated.

    Args:
      nodes: all nodes as they are now, in any order; None if no node changed. No node may offer
        a resource that no node offered and no pod requested when the scheduler was made.
      pod_groups: PodGroups that are new or changed.
      removed_pods: pods that were deleted or finished, each in the version that the scheduler knows.
      bound_pods: bound versions of pods that were pending.
      added_pods: new pods, pending or bound. A pod that changed is both removed and added.
      removed_pod_groups: `namespace/name` of deleted PodGroups.
      ended_pods: pods that give up the devices of their ResourceClaims, in a simulation; in a cluster, the claims
        themselves show it.
      claims: ResourceClaims that are new or changed.
      removed_claims: `namespace/name` of deleted ResourceClaims.
      objects: all objects as they are now, sorted by key, of each kind in `FOLLOWED_FIELDS` with a change, by the field
        of Snapshot. ResourceClaims are among them.
    """

    nodes: Sequence[Node] | None = None
    pod_groups: Sequence[PodGroup] = ()
    removed_pods: Sequence[Pod] = ()
    bound_pods: Sequence[Pod] = ()
    added_pods: Sequence[Pod] = ()
    removed_pod_groups: Sequence[str] = ()
    ended_pods: Sequence[Pod] = ()
    claims: Sequence[ResourceClaim] = ()
    removed_claims: Sequence[str] = ()
    objects: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class Scheduler(Protocol):
    """A scheduler that starts from a Snapshot of a cluster and then follows its changes.

    Objects of kinds that `ClusterChanges` does not contain, such as queues, are read from that Snapshot only: if one of
    them changes, make a new scheduler.
    """

    def apply_changes(self, changes: ClusterChanges) -> None:
        """Update the scheduler with changes of the cluster. Call this method between two sessions only."""
        ...

    def set_waiting_gangs(self, held: tuple[HeldGang, ...]) -> None:
        """Replace the list of gangs that wait at Permit."""
        ...

    def decide(self, now: float, seed: int) -> Decision:
        """Run the next session and return its decision.

        The pods of the decision count as bound only after `apply_changes` reports them.

        Args:
          now: seconds since 1970.
          seed: seed of all random draws.
        """
        ...


SchedulerFactory = Callable[[Snapshot], Scheduler]
"""Makes a scheduler that follows a cluster from a Snapshot on."""
