"""Devices that sessions reserve for ResourceClaims of pods, until the API server shows them in the claims' status."""

import msgspec

from batchsched.api.core.device import AllocationResult, ContainerExtendedResourceRequest, ResourceClaim


class ReservedClaimDevices(msgspec.Struct, frozen=True, gc=False):
    """The devices that a session reserved for one ResourceClaim of a pod.

    Args:
      claim: `namespace/name` of the claim. The claim for extended resources does not exist yet: its key is the one that
        `extended_resource_claim_key` returns.
      allocation: the devices.
    """

    claim: str
    allocation: AllocationResult


class ExtendedResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim that batchsched creates for the extended resources that a pod gets from DeviceClasses.

    Args:
      key: the key under which the session reserves its devices.
      claim: the claim with the name under which it is created.
      mappings: for each extended resource of a container, the request in the claim that serves it.
    """

    key: str
    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


class PodDevices(msgspec.Struct, frozen=True, gc=False):
    """The devices that a session reserved for the ResourceClaims of a pod, and all claims of the pod.

    Args:
      allocations: the reserved devices of each claim.
      claims: the keys of all claims, including the claim for extended resources if the pod gets one.
      created: the claim for extended resources, which is created when the pod is bound; None without one.
      uid: the UID of the pod; "" if it is unknown. A later pod with the same name has another UID.
    """

    allocations: tuple[ReservedClaimDevices, ...]
    claims: tuple[str, ...]
    created: ExtendedResourceClaim | None = None
    uid: str = ""


class ReservedPodDevices(msgspec.Struct, frozen=True, gc=False):
    """A pod and the devices that an earlier session reserved for it.

    Args:
      pod: the `namespace/name` of the pod.
      devices: what the session reserved for it.
    """

    pod: str
    devices: PodDevices
