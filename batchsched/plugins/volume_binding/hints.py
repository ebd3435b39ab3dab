"""Events that may help a pod refused by VolumeBinding: claims, volumes, classes, storage capacity, and nodes."""

from collections.abc import Sequence

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from batchsched.framework.events import Action, ClusterEventWithHint, Hint, Resource
from batchsched.framework.plugin_support.csi_migration import migrated_on
from batchsched.framework.plugin_support.volume_listers import claims, may_back


def helpful_events() -> Sequence[ClusterEventWithHint]:
    """Return the events with their hints."""
    come_or_change = Action.ADD | Action.UPDATE
    return (
        ClusterEventWithHint.on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        ClusterEventWithHint.on(Resource.CLAIM, come_or_change, _claim_changed),
        ClusterEventWithHint.on(Resource.VOLUME, come_or_change, _volume_changed),
        ClusterEventWithHint.on(Resource.VOLUME, Action.DELETE, _volume_gone),
        ClusterEventWithHint.on(Resource.STORAGE_CLASS, come_or_change, _class_changed),
        ClusterEventWithHint.on(Resource.CSI_NODE, come_or_change | Action.DELETE, _migration_changed),
        ClusterEventWithHint.on(Resource.CSI_DRIVER, Action.DELETE | Action.UPDATE, _driver_changed),
        ClusterEventWithHint.on(Resource.CSI_STORAGE_CAPACITY, come_or_change, _room_changed),
    )


def _claim_changed(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    """Return QUEUE if a claim of the pod was created or changed in a field other than its metadata for users."""
    if old is not None and _claim_fields(old) == _claim_fields(new):
        return Hint.SKIP
    return Hint.queue_if(claims(pod, new))


def _claim_fields(claim: PersistentVolumeClaim) -> tuple[object, ...]:
    metadata = claim.metadata
    return (
        claim.spec,
        claim.status,
        metadata.uid,
        metadata.annotations,
        metadata.owner_references,
        metadata.deletion_timestamp is None,
    )


def _volume_changed(_pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> Hint:
    return Hint.queue_if(old is None or _offered(old) != _offered(new))


def _offered(volume: PersistentVolume) -> tuple[object, ...]:
    metadata = volume.metadata
    return (
        volume.spec,
        volume.status,
        metadata.labels,
        metadata.annotations,
        metadata.deletion_timestamp is None,
    )


def _volume_gone(pod: Pod, old: PersistentVolume, _new: None) -> Hint:
    """Return QUEUE if a volume was deleted that was assumed for a claim of the pod, so that it can use another."""
    return Hint.queue_if(old.spec.claim_ref is not None and may_back(old, pod))


def _class_changed(_pod: Pod, old: StorageClass | None, new: StorageClass) -> Hint:
    return Hint.queue_if(old is None or _made(old) != _made(new))


def _made(storage_class: StorageClass) -> tuple[object, ...]:
    return (storage_class.provisioner, storage_class.volume_binding_mode, storage_class.allowed_topologies)


def _migration_changed(_pod: Pod, old: CSINode | None, new: CSINode | None) -> Hint:
    """Return QUEUE if the set of migrated in-tree plugins changed, because their volumes use other node labels."""
    return Hint.queue_if(migrated_on(old) != migrated_on(new))


def _driver_changed(_pod: Pod, old: CSIDriver, new: CSIDriver | None) -> Hint:
    """Return QUEUE if the driver no longer requires storage capacity."""
    return Hint.queue_if(
        bool(old.spec.storage_capacity) and not (new is not None and new.spec.storage_capacity)
    )


def _room_changed(_pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> Hint:
    return Hint.queue_if(old is None or _room(old) != _room(new))


def _room(capacity: CSIStorageCapacity) -> tuple[object, ...]:
    return (
        capacity.node_topology,
        capacity.storage_class_name,
        capacity.capacity,
        capacity.maximum_volume_size,
    )
