"""The writes of ResourceClaims to the API server: their reservation for pods, allocation and release."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batchsched.api.core.device import (
    POD_GROUP_API_GROUP,
    AllocationResult,
    ContainerExtendedResourceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)


@dataclass(frozen=True, slots=True)
class _ClaimWrite:
    """A write of the ResourceClaim that has a name in a namespace."""

    namespace: str
    claim: str

    @property
    def claim_key(self) -> str:
        """The `namespace/name` of the ResourceClaim."""
        return f"{self.namespace}/{self.claim}"


@dataclass(frozen=True, slots=True)
class ResourceClaimReservation(_ClaimWrite):
    """The reservation of a ResourceClaim for a pod or its PodGroup, as it is to be written to `status.reservedFor`.

    Args:
      namespace, claim, uid: the claim.
      pod, pod_uid: the pod, of the same namespace.
      allocation: the devices to allocate if the claim has none yet; None if the session found the claim allocated.
      pod_group: the PodGroup of Kubernetes to which the pod belongs, "" without one; a claim that is reserved for the
        group is reserved for its pods.
      pod_group_uid: the UID of this PodGroup if the claim was created for it, and is reserved for it once instead of
        for each pod; "" otherwise.
      present_allocation: the allocation that the session found on the claim; None if there was none.
    """

    uid: str
    pod: str
    pod_uid: str
    allocation: AllocationResult | None = None
    pod_group: str = ""
    pod_group_uid: str = ""
    present_allocation: AllocationResult | None = None

    @property
    def consumer(self) -> ResourceClaimConsumerReference:
        """The pod or the PodGroup for which the claim is reserved.

        Source: `BindTo` of k8s.io/dynamic-resource-allocation/resourceclaim.
        """
        if self.pod_group_uid:
            return ResourceClaimConsumerReference(
                api_group=POD_GROUP_API_GROUP,
                resource="podgroups",
                name=self.pod_group,
                uid=self.pod_group_uid,
            )
        return ResourceClaimConsumerReference(resource="pods", name=self.pod, uid=self.pod_uid)


@dataclass(frozen=True, slots=True)
class ResourceClaimRelease(_ClaimWrite):
    """The removal of consumers from `status.reservedFor` of a ResourceClaim, after which its devices may be freed.

    Args:
      namespace, claim, uid: the claim.
      consumer_uids: the pods and PodGroups that no longer use the claim.
      allocation: the devices to free if the claim has no other consumer; None frees none. Other devices, which another
        client allocated meanwhile, stay.
    """

    uid: str
    consumer_uids: frozenset[str]
    allocation: AllocationResult | None


@dataclass(frozen=True, slots=True)
class ExtendedResourceClaimReservation:
    """The ResourceClaim that is to be created, allocated and reserved for the extended resources of a pod.

    Args:
      claim: the claim with its name; the pod is its owner.
      pod, pod_uid: the pod, of the same namespace.
      allocation: the devices.
      mappings: which requests serve which containers, for `status.extendedResourceClaimStatus` of the pod.
    """

    claim: ResourceClaim
    pod: str
    pod_uid: str
    allocation: AllocationResult
    mappings: tuple[ContainerExtendedResourceRequest, ...]


@dataclass(frozen=True, slots=True)
class ExtendedResourceClaimRelease(_ClaimWrite):
    """The deletion of the ResourceClaim for a pod's extended resources, after the pod could not be bound.

    Args:
      namespace, claim: the claim.
      pod_uid: the pod that owns the claim; a claim of another owner is not deleted.
    """

    pod_uid: str


class ResourceClaimBinder(Protocol):
    """An interface that writes the reservations and releases of ResourceClaims to the API server.

    All writes are idempotent: a value that is already set is a success.
    """

    async def reserve_resource_claim(self, reservation: ResourceClaimReservation) -> None:
        """Reserve a ResourceClaim for a pod, and write its allocation if it has none yet."""
        ...

    async def reserve_extended_resource_claim(self, reservation: ExtendedResourceClaimReservation) -> None:
        """Create, allocate and reserve a ResourceClaim for a pod's extended resources.

        Name the claim in the status of the pod.
        """
        ...

    async def delete_extended_resource_claim(self, deletion: ExtendedResourceClaimRelease) -> None:
        """Delete the ResourceClaim for the extended resources of a pod, if the claim still exists."""
        ...

    async def wait_for_prepared_devices(self, claims: Sequence[str], timeout_seconds: float) -> bool:
        """Wait for the drivers to prepare the devices of ResourceClaims, and return whether all are prepared.

        The result is False if the preparation fails or exceeds the timeout.
        """
        ...

    async def release_resource_claim(self, release: ResourceClaimRelease) -> None:
        """Remove consumers from a ResourceClaim's `status.reservedFor`, and free its devices if it has no other one.

        It is no error if the claim no longer exists.
        """
        ...
