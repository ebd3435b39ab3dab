"""The storage objects of a snapshot by name, and functions for the PersistentVolumeClaims of a pod."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable

WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


@dataclass(frozen=True, slots=True)
class StorageObjects:
    """The storage objects of a cluster, such as PersistentVolumes and StorageClasses, by name.

    Args:
      claims: by `namespace/name`; all other objects by name.
      attachments: node name → VolumeAttachments.
      volumes_of: class → volumes in the snapshot's order.
    """

    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]
    csi_nodes: Mapping[str, CSINode]
    drivers: Mapping[str, CSIDriver]
    attachments: Mapping[str, tuple[VolumeAttachment, ...]]
    volumes_of: Mapping[str, tuple[PersistentVolume, ...]]


@dataclass(frozen=True, slots=True)
class PodVolumeClaim:
    """A PersistentVolumeClaim that a pod uses.

    Args:
      name: the claim's name in the pod's namespace.
      ephemeral: the claim is created for this pod, which must own it.
    """

    name: str
    ephemeral: bool = False


def storage_objects(table: NodeTable) -> StorageObjects:
    """Return the storage objects of the session's snapshot, such as PersistentVolumes and StorageClasses."""
    return table.cached_value_of_cluster_objects("storage", _read)


def _read(snapshot: Snapshot) -> StorageObjects:
    attachments: dict[str, tuple[VolumeAttachment, ...]] = {}
    for attachment in snapshot.volume_attachments:
        attachments[attachment.spec.node_name] = (*attachments.get(attachment.spec.node_name, ()), attachment)
    volumes_of: dict[str, list[PersistentVolume]] = {}
    for volume in snapshot.persistent_volumes:
        volumes_of.setdefault(volume_storage_class(volume), []).append(volume)
    return StorageObjects(
        claims={claim.key: claim for claim in snapshot.persistent_volume_claims},
        volumes={volume.metadata.name: volume for volume in snapshot.persistent_volumes},
        classes={one.metadata.name: one for one in snapshot.storage_classes},
        csi_nodes={one.metadata.name: one for one in snapshot.csi_nodes},
        drivers={one.metadata.name: one for one in snapshot.csi_drivers},
        attachments=attachments,
        volumes_of={name: tuple(volumes) for name, volumes in volumes_of.items()},
    )


def volume_claims_of_pod(pod: Pod) -> Iterable[PodVolumeClaim]:
    """Return the PersistentVolumeClaims that a pod uses, in the order of its volumes.

    An ephemeral claim is named after pod and volume.
    """
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim:
            yield PodVolumeClaim(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral:
            yield PodVolumeClaim(f"{pod.name}-{volume.name}", ephemeral=True)


def nonephemeral_volume_claim_names(pod: Pod) -> tuple[str, ...]:
    """Return the names of the PersistentVolumeClaims in a pod's spec, without those of ephemeral volumes."""
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes or ())
    return tuple(source.claim_name for source in sources if source)


def has_new_volume_or_storage_class(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Return True if a PersistentVolumeClaim is new, or has another volume or StorageClass than `old`."""
    if old is None or old.spec.volume_name != new.spec.volume_name:
        return True
    return volume_claim_storage_class(old) != volume_claim_storage_class(new)


def uses_volume_claim(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return True if a pod uses a PersistentVolumeClaim."""
    return any(f"{pod.namespace}/{use.name}" == claim.key for use in volume_claims_of_pod(pod))


def claim_ref_allows_pod(volume: PersistentVolume, pod: Pod) -> bool:
    """Return True if a PersistentVolume has no claimRef, or if the claimRef names a claim of the pod."""
    owner = volume.spec.claim_ref
    if owner is None:
        return True
    return any(
        (use.name, pod.namespace) == (owner.name, owner.namespace or "default")
        for use in volume_claims_of_pod(pod)
    )


def signature_of_pod_volume_claims(pod: Pod) -> tuple[object, ...]:
    """Return a hashable value that is equal for pods with the same PersistentVolumeClaims.

    It is unique to the pod if a claim is ephemeral.
    """
    uses = tuple(volume_claims_of_pod(pod))
    own = (pod.key, pod.metadata.uid) if any(use.ephemeral for use in uses) else ()
    return (uses, own) if uses else ()


def reason_pod_does_not_own_claim(pod: Pod, claim: PersistentVolumeClaim) -> str | None:
    """Return the reason why a pod may not use the claim of its ephemeral volume; None if the pod owns the claim.

    Source: `VolumeIsForPod` of k8s.io/component-helpers/storage/ephemeral.
    """
    if claim.metadata.is_controlled_by(pod.metadata.uid):
        return None
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def volume_claim_storage_class(claim: PersistentVolumeClaim) -> str:
    """Return the name of the StorageClass of a PersistentVolumeClaim, "" for none."""
    return _annotated(claim.metadata, claim.spec.storage_class_name or "")


def volume_storage_class(volume: PersistentVolume) -> str:
    """Return the name of the StorageClass of a PersistentVolume, "" for none."""
    return _annotated(volume.metadata, volume.spec.storage_class_name)


def _annotated(metadata: ObjectMeta, field: str) -> str:
    annotated = metadata.annotation(_CLASS)
    return field if annotated is None else annotated
