"""The writes of a binding cycle: pods to nodes, volumes to claims.

A failed write raises an exception. It ends the binding cycle of the pod, and Unreserve of every plugin is called.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod

_GANG_LABELS: Final = (POD_GROUP_LABEL, SUB_GROUP_LABEL)


@dataclass(frozen=True, slots=True)
class Binding:
    """The binding of a pod to a node.

    Args:
      namespace, pod, uid: the pod; uid is "" if unknown.
      node: name of the node.
      labels: labels of the pod's gang. An API server of version 1.35 or later writes them to the pod with the node.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, pod: Pod, node: str) -> "Binding":
        """Return the binding of a pod to a node."""
        labels = tuple((key, pod.labels[key]) for key in _GANG_LABELS if key in pod.labels)
        return cls(pod.namespace, pod.name, pod.metadata.uid, node, labels)


@dataclass(frozen=True, slots=True)
class VolumeBinding:
    """The assignment of a PersistentVolume to a claim: its `spec.claimRef`.

    Args:
      volume: name of the PersistentVolume.
      namespace, claim, uid: the claim.
    """

    volume: str
    namespace: str
    claim: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The node for which a claim's volume is provisioned: the annotation `volume.kubernetes.io/selected-node`.

    Args:
      namespace, claim: the claim.
      node: name of the node.
    """

    namespace: str
    claim: str
    node: str


def binding_of(volume: str, claim: ObjectMeta) -> VolumeBinding:
    """Return the write that assigns a volume to a claim."""
    return VolumeBinding(volume, claim.namespace or "default", claim.name, claim.uid)


class Binder(Protocol):
    """Writes bindings. All writes are idempotent: a value that is already set is a success."""

    async def bind(self, binding: Binding) -> None:
        """Bind a pod to its node."""
        ...

    async def bind_volume(self, binding: VolumeBinding) -> None:
        """Bind a PersistentVolume to its claim."""
        ...

    async def select_node(self, selection: NodeSelection) -> None:
        """Write the selected node of a claim, so that its volume is provisioned within reach of that node."""
        ...

    async def claims_bound(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait until all claims are bound. Return False if the timeout expires first.

        Args:
          claims: the claims by `namespace/name`.
          timeout_seconds: the longest time to wait.
        """
        ...
