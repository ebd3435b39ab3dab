"""Writes a pod's ResourceClaims: reserves them before binding, and releases them if the binding fails."""

from batchsched.api.core.device import AllocationResult, ResourceClaim
from batchsched.api.core.pod import Pod
from batchsched.api.pod_devices import ExtendedResourceClaim, PodDevices
from batchsched.devices.ledger import DeviceLedger
from batchsched.plugins.dynamic_resources.claims import is_claim_of_group_of
from batchsched.ports.claims import (
    ExtendedResourceClaimRelease,
    ExtendedResourceClaimReservation,
    ResourceClaimBinder,
    ResourceClaimRelease,
    ResourceClaimReservation,
)


async def write_claim_reservations(pod: Pod, ledger: DeviceLedger, claims: ResourceClaimBinder) -> bool:
    """Write the allocations of a pod's ResourceClaims to the API server, and reserve the claims for the pod.

    Return False if the session reserved no devices for the pod.
    """
    devices = ledger.devices_reserved_for_pod(pod.key, pod.metadata.uid)
    if devices is None:
        return False
    for reservation in reservations_of_existing_claims(pod, devices, ledger):
        await claims.reserve_resource_claim(reservation)
    created = devices.created
    if created is not None:
        allocation = _created_allocation(devices, created)
        await claims.reserve_extended_resource_claim(
            ExtendedResourceClaimReservation(
                created.claim, pod.name, pod.metadata.uid, allocation, created.mappings
            )
        )
    return True


async def release_claims_of_unbound_pod(pod: Pod, ledger: DeviceLedger, claims: ResourceClaimBinder) -> None:
    """Release the ResourceClaims of a pod that could not be bound.

    The devices of a claim are freed only if the session allocated them: an earlier allocation may serve later pods. A
    claim that is reserved for the PodGroup of the pod stays reserved, because other pods of the group may use it.
    """
    devices = ledger.devices_reserved_for_pod(pod.key, pod.metadata.uid)
    if devices is None:
        return
    if devices.created is not None:
        name = devices.created.claim.metadata.name
        await claims.delete_extended_resource_claim(
            ExtendedResourceClaimRelease(pod.namespace, name, pod.metadata.uid)
        )
    for reservation in reservations_of_existing_claims(pod, devices, ledger):
        await claims.release_resource_claim(
            ResourceClaimRelease(
                namespace=reservation.namespace,
                claim=reservation.claim,
                uid=reservation.uid,
                consumer_uids=frozenset({reservation.pod_uid}),
                allocation=reservation.allocation,
            )
        )


def reservations_of_existing_claims(
    pod: Pod, devices: PodDevices, ledger: DeviceLedger
) -> tuple[ResourceClaimReservation, ...]:
    """Return what to write into each existing ResourceClaim of a pod: allocation and `reservedFor` entry.

    The order is that of the claims in the pod's spec. A claim that batchsched creates for extended resources is left
    out.
    """
    allocations = {allocated.claim: allocated.allocation for allocated in devices.allocations}
    created_key = devices.created.key if devices.created is not None else ""
    return tuple(
        ResourceClaimReservation(
            namespace=pod.namespace,
            claim=ledger.claims[key].metadata.name,
            uid=ledger.claims[key].metadata.uid,
            pod=pod.name,
            pod_uid=pod.metadata.uid,
            allocation=allocations.get(key),
            pod_group=pod.scheduling_group_name,
            pod_group_uid=_uid_of_consuming_group(pod, ledger.claims[key]),
            present_allocation=ledger.claims[key].status.allocation,
        )
        for key in devices.claims
        if key != created_key
    )


def _uid_of_consuming_group(pod: Pod, claim: ResourceClaim) -> str:
    """Return the UID of the PodGroup for which a claim of a pod is reserved; "" if it is reserved for the pod."""
    owner = claim.owner_pod_group_name_and_uid
    return owner[1] if owner is not None and is_claim_of_group_of(pod, claim) else ""


def claims_with_binding_conditions(pod: Pod, ledger: DeviceLedger) -> tuple[str, ...]:
    """Return the keys of a pod's ResourceClaims with devices that drivers must prepare before the pod is bound."""
    devices = ledger.devices_reserved_for_pod(pod.key, pod.metadata.uid)
    if devices is None:
        return ()
    allocations = {
        reservation.claim_key: reservation.allocation or reservation.present_allocation
        for reservation in reservations_of_existing_claims(pod, devices, ledger)
    }
    if devices.created is not None:
        allocations[devices.created.claim.key] = _created_allocation(devices, devices.created)
    return tuple(
        key
        for key, allocation in allocations.items()
        if allocation is not None and any(device.binding_conditions for device in allocation.devices.results)
    )


def _created_allocation(devices: PodDevices, created: ExtendedResourceClaim) -> AllocationResult:
    return next(allocated.allocation for allocated in devices.allocations if allocated.claim == created.key)
