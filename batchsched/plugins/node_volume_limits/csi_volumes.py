"""The CSI volumes that a pod mounts: by claims, bound or not, and directly if the kind is migrated to CSI."""

from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolume, PersistentVolumeClaim, Volume
from batchsched.errors import PluginError
from batchsched.framework.plugin_support.csi_migration import (
    DRIVERS,
    NEVER,
    csi_handle_of_inline_volume,
    csi_handle_of_persistent_volume,
    migrated_volume_kind,
)
from batchsched.framework.plugin_support.volume_listers import (
    StorageObjects,
    reason_pod_does_not_own_claim,
    volume_claim_storage_class,
)

NAME: Final = "NodeVolumeLimits"
UNBOUND: Final = "unbound:"
"""Marks a claim that is not bound to a volume. No volume handle has this form."""

MountedVolumes = dict[tuple[str, str], str]
"""(driver, handle) of a volume → its driver."""


class VolumeClaimNotFound(Exception):
    """The exception for a pending pod with a PersistentVolumeClaim that does not exist. Filter catches it."""


def csi_volumes_of_pod(pod: Pod, storage: StorageObjects, migrated: bool, *, new: bool) -> MountedVolumes:
    """Return the CSI volumes that a pod mounts; with `migrated`, also in-tree volumes that CSI drivers serve.

    Raises:
      VolumeClaimNotFound: a claim of a `new` pod does not exist.
      PluginError: a claim has no name, an ephemeral volume's claim has another owner, or a disk name is
        invalid.
    """
    volumes: MountedVolumes = {}
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim or volume.ephemeral:
            claim = _claim(pod, volume, storage, new=new)
            resolved = _of_claim(claim, storage, migrated) if claim is not None else None
        else:
            resolved = _inline(volume) if migrated else None
        if resolved is not None and all(resolved):
            volumes[resolved] = resolved[0]
    return volumes


def _inline(volume: Volume) -> tuple[str, str] | None:
    kind = migrated_volume_kind(volume)
    if kind is None:
        return None
    handle = csi_handle_of_inline_volume(volume)
    if handle is None:
        raise PluginError(NAME, "Filter", f"converting volume({volume.name}) from inline to csi")
    return kind.driver, handle


def _claim(pod: Pod, volume: Volume, storage: StorageObjects, *, new: bool) -> PersistentVolumeClaim | None:
    source = volume.persistent_volume_claim
    name = source.claim_name if source else f"{pod.name}-{volume.name}"
    if not name:
        raise PluginError(NAME, "Filter", "PersistentVolumeClaim had no name")
    claim = storage.claims.get(f"{pod.namespace}/{name}")
    if claim is None:
        if new:
            raise VolumeClaimNotFound(
                f'looking up PVC {pod.namespace}/{name}: persistentvolumeclaim "{name}" not found'
            )
        return None
    stranger = None if source else reason_pod_does_not_own_claim(pod, claim)
    if stranger is not None:
        raise PluginError(NAME, "Filter", stranger)
    return claim


def _of_claim(
    claim: PersistentVolumeClaim, storage: StorageObjects, migrated: bool
) -> tuple[str, str] | None:
    """Return the driver and handle of a claim's volume; if unbound, the driver of its class and its key."""
    volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _of_volume(volume, migrated)
    storage_class = storage.classes.get(volume_claim_storage_class(claim))
    if storage_class is None:
        return None
    provisioner = storage_class.provisioner
    if provisioner in DRIVERS or provisioner in NEVER:
        driver = DRIVERS.get(provisioner) if migrated else None
        return (driver, UNBOUND + claim.key) if driver else None
    return provisioner, UNBOUND + claim.key


def _of_volume(volume: PersistentVolume, migrated: bool) -> tuple[str, str] | None:
    spec = volume.spec
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    kind = migrated_volume_kind(spec) if migrated else None
    handle = csi_handle_of_persistent_volume(volume) if kind else None
    return (kind.driver, handle) if kind and handle else None
