"""What the binding cycle of a pod asks an API server to write, as values."""

from dataclasses import dataclass
from typing import Final

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod

_GANG_LABELS: Final = (POD_GROUP_LABEL, SUB_GROUP_LABEL)


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod is bound to a node.

    Args:
      namespace, pod, uid: the pod; uid is "" where it is not known.
      node: where it is to run.
      labels: of its gang; an API server from 1.35 on writes them to the pod together with the node.
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
    """A PersistentVolume is given to a claim: its `spec.claimRef`.

    Args:
      volume: its name.
      namespace, claim, uid: the claim.
    """

    volume: str
    namespace: str
    claim: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """A claim's volume is to be made within reach of a node: its annotation `volume.kubernetes.io/selected-node`.

    Args:
      namespace, claim: the claim.
      node: the node's name.
    """

    namespace: str
    claim: str
    node: str


def binding_of(volume: str, claim: ObjectMeta) -> VolumeBinding:
    """Return the write that gives a volume to a claim."""
    return VolumeBinding(volume, claim.namespace or "default", claim.name, claim.uid)
