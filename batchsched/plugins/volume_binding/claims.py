"""A pod's PersistentVolumeClaims: those that are bound, and those to be bound after a node is chosen."""

from dataclasses import dataclass
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolumeClaim
from batchsched.errors import PluginError
from batchsched.framework.plugin_support.volume_listers import (
    BIND_COMPLETED,
    WAIT_FOR_FIRST_CONSUMER,
    PodVolumeClaim,
    StorageObjects,
    reason_pod_does_not_own_claim,
    volume_claim_storage_class,
    volume_claims_of_pod,
)

NAME: Final = "VolumeBinding"
UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


class VolumeClaimRefused(Exception):
    """The exception for a PersistentVolumeClaim that prevents its pod from being placed on any node.

    The message is the reason.
    """


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """The PersistentVolumeClaims of a pod, divided into bound claims and claims with delayed binding.

    Args:
      bound: claims that are bound to a volume.
      delayed: claims that get their volume after the node is chosen.
    """

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


def bound_and_delayed_volume_claims(pod: Pod, storage: StorageObjects) -> PodVolumeClaims | None:
    """Return a pod's bound PersistentVolumeClaims and those with delayed binding; None if it has no claims.

    Raises:
      VolumeClaimRefused: a claim is missing, lost, being deleted, owned by another pod, or should be bound and is not.
      PluginError: the class of a claim has no binding mode.

    Source: `podHasPVCs` and `GetPodVolumeClaims` of kube-scheduler's plugins/volumebinding.
    """
    claims = [_usable(use, pod, storage) for use in volume_claims_of_pod(pod)]
    if not claims:
        return None
    bound, delayed, immediate = [], [], False
    for claim in claims:
        if claim.spec.volume_name and claim.metadata.annotation(BIND_COMPLETED) is not None:
            bound.append(claim)
        elif _waits(claim, storage) and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            immediate = True
    if immediate:
        raise VolumeClaimRefused(UNBOUND_IMMEDIATE)
    return PodVolumeClaims(tuple(bound), tuple(delayed))


def _usable(use: PodVolumeClaim, pod: Pod, storage: StorageObjects) -> PersistentVolumeClaim:
    claim = storage.claims.get(f"{pod.namespace}/{use.name}")
    if claim is None:
        if use.ephemeral:
            raise VolumeClaimRefused(
                f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
            )
        raise VolumeClaimRefused(f'persistentvolumeclaim "{use.name}" not found')
    if claim.status.phase == "Lost":
        raise VolumeClaimRefused(
            f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume '
            f'"{claim.spec.volume_name}"'
        )
    if claim.metadata.deletion_timestamp is not None:
        raise VolumeClaimRefused(f'persistentvolumeclaim "{use.name}" is being deleted')
    stranger = reason_pod_does_not_own_claim(pod, claim) if use.ephemeral else None
    if stranger is not None:
        raise VolumeClaimRefused(stranger)
    return claim


def _waits(claim: PersistentVolumeClaim, storage: StorageObjects) -> bool:
    storage_class = storage.classes.get(volume_claim_storage_class(claim))
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise PluginError(
            NAME, "PreFilter", f'VolumeBindingMode not set for StorageClass "{storage_class.metadata.name}"'
        )
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
