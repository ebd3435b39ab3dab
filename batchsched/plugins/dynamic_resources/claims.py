"""The ResourceClaims of a pod, and whether their allocations can be used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from batchsched.api.core.device import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    evaluate_binding_conditions,
)
from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import Pod, PodResourceClaim
from batchsched.devices.ledger import DeviceLedger


class UnusableResourceClaim(Exception):
    """Raised if a ResourceClaim prevents its pod from being placed on any node; the message is the reason."""


class PodClaim(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A ResourceClaim that a pod uses, with its allocation.

    Args:
      key: the `namespace/name` of the claim.
      claim: the claim.
      own: the claim was created from a template for this pod alone.
      allocation: its allocation, of the status or assumed in the session; None if devices must be found.
    """

    key: str
    claim: ResourceClaim
    own: bool
    allocation: AllocationResult | None


@dataclass(frozen=True, eq=False)
class PodClassClaims:
    """The ResourceClaims of a pod class (equal pods), and its extended resources that DeviceClasses provide.

    Args:
      claims: the claims, in the order of the pod's spec.
      resources: extended resources of the pod that DeviceClasses provide.
      other_resources: other extended resources of the pod, which a node has to offer; () if `resources` is empty.
    """

    claims: tuple[PodClaim, ...] = ()
    resources: tuple[str, ...] = ()
    other_resources: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if the pods of the class use no ResourceClaims and no devices."""
        return not self.claims and not self.resources

    @cached_property
    def has_only_unallocated_claims(self) -> bool:
        """True if the pods use ResourceClaims without an allocation, and nothing else that needs devices."""
        return (
            not self.resources
            and bool(self.claims)
            and all(pod_claim.allocation is None for pod_claim in self.claims)
        )

    @cached_property
    def unallocated_claims(self) -> tuple[ResourceClaim, ...]:
        """The pods' ResourceClaims that have no allocation yet."""
        return tuple(pod_claim.claim for pod_claim in self.claims if pod_claim.allocation is None)


def claims_named_by_pod(
    pod: Pod, claims: Mapping[str, ResourceClaim]
) -> tuple[tuple[str, ResourceClaim, bool], ...]:
    """Return the key of each ResourceClaim of a pod, the claim, and whether it was created for this pod only.

    A claim from a template was created for one pod only, unless it was created for the PodGroup of the pod.

    Raises:
      UnusableResourceClaim: a claim does not exist yet, is being deleted, or belongs to another pod.

    Source: `foreachPodResourceClaim` of kube-scheduler's plugins/dynamicresources.
    """
    resolved = []
    for entry in pod.spec.resource_claims or ():
        named = _claim_name(pod, entry)
        if named is None:
            continue
        name, own = named
        key = f"{pod.namespace}/{name}"
        claim = claims.get(key)
        if claim is None:
            raise UnusableResourceClaim(f'could not find ResourceClaim "{key}"')
        if claim.metadata.deletion_timestamp is not None:
            raise UnusableResourceClaim(f'resourceclaim "{name}" is being deleted')
        if own and is_claim_of_group_of(pod, claim):
            own = False  # all pods of the PodGroup share the claim that was created for the group
        if own and not claim.metadata.is_controlled_by(pod.metadata.uid):
            raise UnusableResourceClaim(
                f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)"
            )
        resolved.append((key, claim, own))
    return tuple(resolved)


def _claim_name(pod: Pod, entry: PodResourceClaim) -> tuple[str, bool] | None:
    """Return the name of a pod's claim, and whether it is created for the pod; None if the pod needs no claim.

    Source: `Name` of k8s.io/dynamic-resource-allocation/resourceclaim.
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    if entry.resource_claim_template_name is None:
        raise UnusableResourceClaim(
            f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses or ():
        if status.name == entry.name:
            return None if status.resource_claim_name is None else (status.resource_claim_name, True)
    raise UnusableResourceClaim(f'pod "{pod.key}": ResourceClaim not created yet')


def is_claim_of_group_of(pod: Pod, claim: ResourceClaim) -> bool:
    """Return whether a claim was created for the PodGroup of Kubernetes to which a pod belongs.

    Source: `isForPodGroupByPod` of k8s.io/dynamic-resource-allocation/resourceclaim.
    """
    owner = claim.owner_pod_group_name_and_uid
    return owner is not None and owner[0] == pod.scheduling_group_name != ""


def pod_claims_with_allocations(pod: Pod, ledger: DeviceLedger, *, of_class: bool) -> tuple[PodClaim, ...]:
    """Return the ResourceClaims of a pod, each with its allocation or None.

    Args:
      pod: the pod.
      ledger: the claims, and the allocations that the session assumed.
      of_class: the pod stands for all pods of its class. An allocation that the session assumed for a claim of its own
        says nothing about the other pods, and is left out.

    Raises:
      UnusableResourceClaim: the pod cannot be placed now.
    """
    resolved = []
    for key, claim, own in claims_named_by_pod(pod, ledger.claims):
        allocation = claim.status.allocation
        if allocation is None and not (own and of_class):
            allocation = ledger.reserved_allocation_of_claim(key)
        resolved.append(PodClaim(key, claim, own, allocation))
    return tuple(resolved)


def check_device_classes_exist(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> None:
    """Raise `UnusableResourceClaim` if a request of a ResourceClaim names a DeviceClass that does not exist.

    Raises:
      UnusableResourceClaim: a DeviceClass does not exist, or a request has neither `exactly` nor `firstAvailable`.
    """
    for name, class_name in _classes(claim):
        if class_name not in classes:
            raise UnusableResourceClaim(f"request {name}: device class {class_name} does not exist")


def _classes(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """Yield the name of each request or alternative of a claim with its class."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        elif request.first_available:
            for alternative in request.first_available:
                yield f"{request.name}/{alternative.name}", alternative.device_class_name
        else:
            raise UnusableResourceClaim(
                f"resource claim {claim.key}, request {request.name}: unknown request type"
            )


def device_preparation_failed(claim: ResourceClaim, now: float, timeout_seconds: float) -> bool:
    """Return whether the preparation of a ResourceClaim's allocated devices failed or timed out.

    Source: `isClaimTimeout` of kube-scheduler's plugins/dynamicresources.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return False
    prepared = evaluate_binding_conditions(claim)
    if prepared is not None or allocation.allocation_timestamp is None:
        return prepared is False
    return parse_timestamp(allocation.allocation_timestamp) + timeout_seconds < now
