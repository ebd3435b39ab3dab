"""Writes of ResourceClaims: allocation and reservation before the binding of a pod, and their release after a failure.

Each write states the resourceVersion on which it is based. If another client changed the claim meanwhile, the claim is
read again, and its present state decides. The cluster state gets each written claim at once: a session that saw the
pod bound, and its claim without an allocation, would allocate the same devices to another pod.

Source: `bindClaim` and `Unreserve` of kube-scheduler's plugins/dynamicresources.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from batchsched.api.core.device import (
    AllocationResult,
    ResourceClaim,
    evaluate_binding_conditions,
)
from batchsched.api.core.metadata import format_timestamp
from batchsched.api.json_errors import to_field_error
from batchsched.errors import ApiError, BindFailed, Unreachable
from batchsched.kube.clock import RetryBackoff
from batchsched.kube.connection import CLAIM_RESOURCE, POD_RESOURCE, STRATEGIC_MERGE_PATCH
from batchsched.kube.writer import Writer
from batchsched.ports.claims import (
    ExtendedResourceClaimRelease,
    ExtendedResourceClaimReservation,
    ResourceClaimRelease,
    ResourceClaimReservation,
)
from batchsched.ports.cluster import Clock

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Finalizer of allocated claims: the claim of a running pod is not deleted before its devices are released."""
_MAX_ATTEMPTS: Final = 6
"""How often a claim is written that other clients change at the same time, or that gets no answer."""
_POLL_SECONDS: Final = 0.5
"""Seconds between two looks at claims with devices that are being prepared."""
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500


def claim_release_is_always_needed() -> bool:
    """Return True, so that a ResourceClaim is released or deleted without a further check."""
    return True


class ResourceClaimWriter:
    """A writer that reserves ResourceClaims for pods and releases them, with one write per claim at a time.

    Args:
      writer: sends the requests.
      clock: the clock for the timestamps of allocations and for waits.
      handle_claim: receives each written claim as JSON.
      find_claim: returns a claim, `namespace/name`, according to the watch; None if there is none.
    """

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        handle_claim: Callable[[bytes], None],
        find_claim: Callable[[str], ResourceClaim | None],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._handle_claim = handle_claim
        self._find_claim = find_claim
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def reserve_resource_claim(self, reservation: ResourceClaimReservation) -> None:
        """Reserve a ResourceClaim for a pod or its PodGroup, and write its allocation if it has none yet.

        Raises:
          BindFailed: the claim was deleted, or it has other devices or no devices by now, or the server refused.
          NotLeading: this replica may have lost the Lease.
        """
        # Pods of a gang that share a claim are prepared at the same time: in turn, they cause no conflicts.
        await self._repeat_alone(
            reservation.claim_key,
            f"reserving ResourceClaim {reservation.claim_key} for pod {reservation.pod}",
            lambda: self._try_to_reserve(reservation),
        )

    async def reserve_extended_resource_claim(self, reservation: ExtendedResourceClaimReservation) -> None:
        """Create, allocate and reserve a ResourceClaim for the extended resources of a pod.

        The status of the pod then names the ResourceClaim.

        Raises:
          BindFailed: the claim exists with other devices, or the server refused.
          NotLeading: this replica may have lost the Lease.
        """
        await self._repeat_alone(
            reservation.claim.key,
            f"creating ResourceClaim {reservation.claim.key} for extended resources",
            lambda: self._try_to_reserve_extended(reservation),
        )

    async def delete_extended_resource_claim(
        self,
        deletion: ExtendedResourceClaimRelease,
        is_wanted: Callable[[], bool] = claim_release_is_always_needed,
    ) -> None:
        """Delete the ResourceClaim for the extended resources of a pod, if the deletion is still needed.

        It is not an error if the claim was already deleted.

        Raises:
          BindFailed: the server refused.
          NotLeading: this replica may have lost the Lease.
        """
        await self._repeat_alone(
            deletion.claim_key,
            f"deleting ResourceClaim {deletion.claim_key}",
            lambda: self._try_to_delete(deletion, is_wanted),
        )

    async def release_resource_claim(
        self, release: ResourceClaimRelease, is_wanted: Callable[[], bool] = claim_release_is_always_needed
    ) -> None:
        """Remove consumers from a ResourceClaim's `status.reservedFor`, and free its devices if it has no other one.

        Args:
          release: the consumers and the claim.
          is_wanted: asked immediately before the write; if it returns False, nothing is written. Before a pod is bound,
            its claim is read, so that either the reservation or the release sees the other one.

        Raises:
          BindFailed: the server refused.
          NotLeading: this replica may have lost the Lease.
        """
        await self._repeat_alone(
            release.claim_key,
            f"releasing ResourceClaim {release.claim_key}",
            lambda: self._try_to_release(release, is_wanted),
        )

    async def wait_for_prepared_devices(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait until drivers have prepared the devices of ResourceClaims; return whether this succeeded.

        Return False if the preparation fails or exceeds the timeout, or if a claim is deleted.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        while True:
            present_claims = [self._find_claim(key) for key in claims]
            states = [
                False if claim is None else evaluate_binding_conditions(claim) for claim in present_claims
            ]
            if all(states):
                return True
            if False in states or self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(_POLL_SECONDS)

    async def _repeat_alone(self, claim: str, purpose: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat an attempt to write a claim while other clients write it, or while the API server does not answer.

        This replica has only one write of a claim in flight.
        """
        backoff = RetryBackoff(self._clock, first=0.05, longest=2.0)
        async with self._locks.setdefault(claim, asyncio.Lock()):
            for remaining_attempts in reversed(range(_MAX_ATTEMPTS)):
                try:
                    await attempt()
                except (ApiError, Unreachable) as error:
                    is_lasting = isinstance(error, ApiError) and _CONFLICT != error.status < _SERVER_ERROR
                    if is_lasting or not remaining_attempts:
                        raise BindFailed(f"{purpose}: {error}") from error
                    await backoff.wait()
                else:
                    return

    async def _try_to_reserve(self, reservation: ResourceClaimReservation) -> None:
        if reservation.allocation is None:
            raw = await self._writer.get(CLAIM_RESOURCE, reservation.namespace, reservation.claim)
        else:
            raw = await self._add_finalizer(reservation)
        claim = _decoded(raw)
        allocation = claim.status.allocation
        _check_claim(claim, reservation)
        if allocation is not None and claim.is_reserved_for(reservation.pod_uid, reservation.pod_group):
            self._handle_claim(raw)
            return
        consumers = (*(claim.status.reserved_for or ()), reservation.consumer)
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(consumers)}
        if allocation is None:
            assert reservation.allocation is not None  # otherwise `_check_claim` raised
            # With the time of the allocation, drivers and schedulers know when its preparation takes too long.
            timed = msgspec.structs.replace(
                reservation.allocation, allocation_timestamp=format_timestamp(int(self._clock.now()))
            )
            status["allocation"] = msgspec.to_builtins(timed)
        await self._write_status(claim, status)

    async def _try_to_reserve_extended(self, reservation: ExtendedResourceClaimReservation) -> None:
        claim = reservation.claim
        namespace, name = claim.metadata.namespace, claim.metadata.name
        manifest = {
            "apiVersion": CLAIM_RESOURCE.api_version,
            "kind": CLAIM_RESOURCE.kind,
            **msgspec.to_builtins(claim),
        }
        try:
            raw = await self._writer.create(CLAIM_RESOURCE, namespace, manifest)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            raw = await self._writer.get(CLAIM_RESOURCE, namespace, name)
        created = _decoded(raw)
        if not created.metadata.is_controlled_by(reservation.pod_uid):
            raise BindFailed(f"ResourceClaim {claim.key} exists and belongs to another pod")
        await self._try_to_reserve(
            ResourceClaimReservation(
                namespace=namespace,
                claim=name,
                uid=created.metadata.uid,
                pod=reservation.pod,
                pod_uid=reservation.pod_uid,
                allocation=reservation.allocation,
            )
        )
        status = {
            "requestMappings": msgspec.to_builtins(reservation.mappings),
            "resourceClaimName": name,
        }
        change = {
            "metadata": {"uid": reservation.pod_uid},
            "status": {"extendedResourceClaimStatus": status},
        }
        await self._writer.patch(POD_RESOURCE, namespace, reservation.pod, change, "status")

    async def _try_to_delete(
        self, deletion: ExtendedResourceClaimRelease, is_wanted: Callable[[], bool]
    ) -> None:
        namespace, name = deletion.namespace, deletion.claim
        try:
            claim = _decoded(await self._writer.get(CLAIM_RESOURCE, namespace, name))
            if not claim.metadata.is_controlled_by(deletion.pod_uid) or not is_wanted():
                return
            # Without its finalizer, the claim is gone at once.
            change = {
                "metadata": {
                    "uid": claim.metadata.uid,
                    "$deleteFromPrimitiveList/finalizers": [FINALIZER],
                }
            }
            path = CLAIM_RESOURCE.path(namespace, name)
            await self._writer.send("PATCH", path, msgspec.json.encode(change), STRATEGIC_MERGE_PATCH)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return
            raise
        await self._writer.delete(CLAIM_RESOURCE, namespace, name, claim.metadata.uid)

    async def _add_finalizer(self, reservation: ResourceClaimReservation) -> bytes:
        """Add the finalizer to a claim that gets devices, if it is missing, and return the claim."""
        metadata = {"finalizers": [FINALIZER], **({"uid": reservation.uid} if reservation.uid else {})}
        path = CLAIM_RESOURCE.path(reservation.namespace, reservation.claim)
        change = msgspec.json.encode({"metadata": metadata})
        return await self._writer.send("PATCH", path, change, STRATEGIC_MERGE_PATCH)

    async def _try_to_release(self, release: ResourceClaimRelease, is_wanted: Callable[[], bool]) -> None:
        try:
            raw = await self._writer.get(CLAIM_RESOURCE, release.namespace, release.claim)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return
            raise
        claim = _decoded(raw)
        if release.uid not in ("", claim.metadata.uid) or not is_wanted():
            return
        reserved_for = claim.status.reserved_for or ()
        consumers = tuple(one for one in reserved_for if one.uid not in release.consumer_uids)
        present, freed = claim.status.allocation, release.allocation
        frees = (
            not consumers
            and present is not None
            and freed is not None
            and _devices(present) == _devices(freed)
        )
        if not frees and len(consumers) == len(reserved_for):
            self._handle_claim(raw)
            return
        status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(consumers) or None}
        if frees:
            status |= {"allocation": None, "devices": None}
        await self._write_status(claim, status)

    async def _write_status(self, claim: ResourceClaim, status: dict[str, Any]) -> None:
        metadata = {"resourceVersion": claim.metadata.resource_version, "uid": claim.metadata.uid}
        raw = await self._writer.patch(
            CLAIM_RESOURCE,
            claim.metadata.namespace,
            claim.metadata.name,
            {"metadata": metadata, "status": status},
            "status",
        )
        self._handle_claim(raw)


def _decoded(raw: bytes) -> ResourceClaim:
    try:
        return msgspec.json.decode(raw, type=ResourceClaim)
    except msgspec.DecodeError as error:
        raise BindFailed(
            f"the API server returned a ResourceClaim that cannot be decoded: {to_field_error(error)}"
        ) from error


def _check_claim(claim: ResourceClaim, reservation: ResourceClaimReservation) -> None:
    """Check that a claim is still the one of the decision, with the devices of the decision or with none.

    Raises:
      BindFailed: it is not.
    """
    key, allocation = reservation.claim_key, claim.status.allocation
    if reservation.uid not in ("", claim.metadata.uid):
        raise BindFailed(f"another ResourceClaim has the name {key} by now")
    if claim.metadata.deletion_timestamp is not None:
        raise BindFailed(f"ResourceClaim {key} is being deleted")
    if allocation is None and reservation.allocation is None:
        raise BindFailed(f"ResourceClaim {key} lost its devices meanwhile")
    expected = reservation.allocation or reservation.present_allocation
    if allocation is not None and expected is not None and _devices(allocation) != _devices(expected):
        raise BindFailed(f"ResourceClaim {key} got other devices meanwhile")


def _devices(allocation: AllocationResult) -> frozenset[tuple[str, str, str, str, str | None]]:
    """Return what an allocation gives to each request: the API server may add defaults to the other fields."""
    return frozenset(
        (device.request, device.driver, device.pool, device.device, device.share_id)
        for device in allocation.devices.results
    )
