"""The writes of ResourceClaims for a pod that is bound, or that could not be bound."""

from batchsched.api.core.pod import Pod
from batchsched.devices.ledger import DeviceLedger
from batchsched.errors import BindFailed
from batchsched.ports.claims import ClaimRelease, ClaimReservation


def claim_reservations(pod: Pod, ledger: DeviceLedger) -> tuple[ClaimReservation, ...]:
    """Return the reservations of ResourceClaims that PreBind writes for a pod, in the order of the pod's spec.

    Raises:
      BindFailed: the pod needs a claim for extended resources.
    """
    devices = ledger.reserved_by(pod.key)
    if devices is None:
        return ()
    if not ledger.claims.keys() >= set(devices.claims):
        raise BindFailed("extended resources of DeviceClasses are not allocated in a cluster yet")
    allocations = {allocated.claim: allocated.allocation for allocated in devices.allocations}
    return tuple(
        ClaimReservation(
            namespace=pod.namespace,
            claim=ledger.claims[key].metadata.name,
            uid=ledger.claims[key].metadata.uid,
            pod=pod.name,
            pod_uid=pod.metadata.uid,
            allocation=allocations.get(key),
        )
        for key in devices.claims
    )


def claim_releases(pod: Pod, ledger: DeviceLedger) -> tuple[ClaimRelease, ...]:
    """Return the releases of ResourceClaims for a pod that could not be bound.

    Devices are freed only where the session allocated them: an earlier allocation may serve pods that are still to
    come.
    """
    return tuple(
        ClaimRelease(
            namespace=reservation.namespace,
            claim=reservation.claim,
            uid=reservation.uid,
            pod_uids=frozenset({reservation.pod_uid}),
            deallocates=reservation.allocation is not None,
        )
        for reservation in claim_reservations(pod, ledger)
    )
