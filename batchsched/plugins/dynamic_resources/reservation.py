"""Finds the devices to reserve for a pod on a node, for its claims and for its extended resources."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from batchsched.api.core.device import (
    MAX_CONSUMERS_PER_CLAIM,
    MAX_SUB_REQUESTS,
    AllocationResult,
    DeviceClass,
    ResourceClaim,
)
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, extended_resource_claim_name
from batchsched.api.core.selector import NodeSelector
from batchsched.api.pod_devices import ExtendedResourceClaim, PodDevices, ReservedClaimDevices
from batchsched.devices.ledger import DeviceLedger
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_objects import device_objects
from batchsched.framework.status import BoolArray, IndexArray
from batchsched.plugins.dynamic_resources.claims import (
    PodClaim,
    PodClassClaims,
    UnusableResourceClaim,
    check_device_classes_exist,
    device_preparation_failed,
    is_claim_of_group_of,
    pod_claims_with_allocations,
)
from batchsched.plugins.dynamic_resources.extended_resources import (
    build_extended_resource_claim,
    extended_resource_claim_key,
    extended_resource_request_mappings,
    requests_extended_resource,
    resources_not_served_by_devices,
    resources_served_by_devices,
)
from batchsched.plugins.dynamic_resources.node_search import (
    NOT_ENOUGH,
    device_search_of_claim_specs,
    nodes_by_missing_resources,
)

NOT_OFFERED: Final = "cannot fit resource"
NOT_AVAILABLE: Final = "resourceclaim not available on the node"


def nodes_reaching_allocated_devices(
    claims: Sequence[PodClaim], nodes: Nodes, binding_timeout_seconds: float
) -> BoolArray:
    """Return a mask of n nodes: True for each node that can access all devices allocated to the claims.

    If the preparation of the devices failed or timed out, no node is in the mask.
    """
    usable = np.ones(len(nodes), np.bool_)
    for pod_claim in claims:
        if pod_claim.allocation is None:
            continue
        if device_preparation_failed(pod_claim.claim, nodes.table.now, binding_timeout_seconds):
            return np.zeros(len(nodes), np.bool_)
        selector = pod_claim.allocation.node_selector
        if selector is not None:
            usable &= nodes.mask_where(partial(_matches, selector))
    return usable


def nodes_without_resources(resources: Sequence[str], nodes: Nodes) -> BoolArray:
    """Return a mask of n nodes: True if a node's `status.allocatable` lacks one or more of the resources."""
    if not resources:
        return np.zeros(len(nodes), np.bool_)
    resource_names = frozenset(resources)
    return nodes.mask_where(lambda node: not resource_names <= node.allocatable_quantities.keys())


def _matches(selector: NodeSelector, node: Node) -> bool:
    return selector.matches(node.labels, node.name)


def preference_score(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """Return the score of an allocation: higher if it uses earlier alternatives of `firstAvailable`.

    Source: `computeScore` of kube-scheduler's plugins/dynamicresources.
    """
    used = {device.request for device in allocation.devices.results}
    return sum(
        MAX_SUB_REQUESTS - number
        for request in claim.spec.devices.requests
        for number, alternative in enumerate(request.first_available or ())
        if f"{request.name}/{alternative.name}" in used
    )


def may_use_devices(pod: Pod) -> bool:
    """Return whether a pod uses ResourceClaims or requests a resource that a DeviceClass could provide."""
    return bool(pod.spec.resource_claims) or requests_extended_resource(pod)


def claims_of_pod_class(pod: Pod, table: NodeTable) -> PodClassClaims:
    """Return the ResourceClaims of a pod class, and its extended resources that DeviceClasses provide.

    Raises:
      UnusableResourceClaim: the pods cannot be placed now.
    """
    if not pod.spec.resource_claims and not table.cluster_objects.device_classes:
        return PodClassClaims()
    objects = device_objects(table)
    claims = pod_claims_with_allocations(pod, table.device_ledger, of_class=True)
    for pod_claim in claims:
        if pod_claim.allocation is None:
            check_device_classes_exist(pod_claim.claim, objects.classes)
    served = resources_served_by_devices(pod, objects.class_of_resource)
    other_resources = resources_not_served_by_devices(pod, objects.class_of_resource) if served else ()
    return PodClassClaims(claims, served, other_resources)


def nodes_surely_have_devices(pod: Pod, table: NodeTable, nodes: IndexArray, counts: IndexArray) -> bool:
    """Return True only if each node certainly has free devices for all pods that it would get.

    The result is False also if pods share claims, or if several nodes share devices: then pods are judged one by one.

    Args:
      pod: one of the pods, which are all equal.
      table: the nodes.
      nodes: the indexes of the nodes.
      counts: the number of pods that each of these nodes would get.

    Raises:
      UnusableResourceClaim, AllocationError, NodeRefused: as of the search.
    """
    class_claims = claims_of_pod_class(pod, table)
    if (
        not class_claims.has_only_unallocated_claims
        or not all(pod_claim.own for pod_claim in class_claims.claims)
        or device_objects(table).allocator.inventory.has_slices_of_several_nodes
    ):
        return False
    search = device_search_of_claim_specs(table, class_claims.unallocated_claims)
    return all(
        search.count_pods_that_find_devices(node, count, table) >= count
        for node, count in zip(nodes.tolist(), counts.tolist(), strict=True)
    )


def find_devices_to_reserve(
    pod: Pod, node: int, table: NodeTable, binding_timeout_seconds: float
) -> PodDevices | None:
    """Return the devices to reserve for a pod on a node; None if the pod uses no devices.

    Raises:
      UnusableResourceClaim: a claim cannot be used on the node, or devices are missing.
      AllocationError, NodeRefused: as of the search.
    """
    objects, ledger = device_objects(table), table.device_ledger
    claims = pod_claims_with_allocations(pod, ledger, of_class=False)
    served = resources_served_by_devices(pod, objects.class_of_resource)
    if not claims and not served:
        return None
    if served and ledger.find_extended_resource_claim(pod) is not None:
        raise UnusableResourceClaim("cannot schedule extended resource claim")
    _check_use(pod, claims, node, table, binding_timeout_seconds)
    to_allocate = {pod_claim.key: pod_claim.claim for pod_claim in claims if pod_claim.allocation is None}
    resources: tuple[str, ...] = ()
    if served:
        ((resources, _),) = nodes_by_missing_resources(served, table.node_view(node))
    created = _created_claim(pod, resources, objects.class_of_resource) if resources else None
    # A pod may name a claim several times.
    keys = tuple(dict.fromkeys([pod_claim.key for pod_claim in claims]))
    if created is not None:
        to_allocate[created.key], keys = created.claim, (*keys, created.key)
    return PodDevices(
        (*_shared_allocations(claims, ledger), *_new_allocations(to_allocate, node, table)),
        keys,
        created,
        pod.metadata.uid,
    )


def _created_claim(
    pod: Pod, resources: Sequence[str], class_of_resource: Mapping[str, DeviceClass]
) -> ExtendedResourceClaim:
    claim = build_extended_resource_claim(pod, resources, class_of_resource)
    metadata = msgspec.structs.replace(claim.metadata, name=extended_resource_claim_name(pod))
    return ExtendedResourceClaim(
        extended_resource_claim_key(pod),
        msgspec.structs.replace(claim, metadata=metadata),
        extended_resource_request_mappings(pod, resources, class_of_resource),
    )


def _new_allocations(
    claims: Mapping[str, ResourceClaim], node: int, table: NodeTable
) -> list[ReservedClaimDevices]:
    if not claims:
        return []
    to_allocate = tuple(claims.values())
    allocations = device_search_of_claim_specs(table, to_allocate).find_allocations_on_node(
        to_allocate, node, table
    )
    if allocations is None:
        raise UnusableResourceClaim(NOT_ENOUGH)
    return [
        ReservedClaimDevices(key, allocation) for key, allocation in zip(claims, allocations, strict=True)
    ]


def _check_use(
    pod: Pod, claims: Sequence[PodClaim], node: int, table: NodeTable, binding_timeout_seconds: float
) -> None:
    """Check that allocated claims can be used from a node (given by its index), and may get one more consumer.

    Raises:
      UnusableResourceClaim: they cannot.
    """
    allocated = [pod_claim for pod_claim in claims if pod_claim.allocation is not None]
    if (
        allocated
        and not nodes_reaching_allocated_devices(allocated, table.node_view(node), binding_timeout_seconds)[0]
    ):
        raise UnusableResourceClaim(NOT_AVAILABLE)
    for pod_claim in claims:
        if not _may_get_consumer(pod, pod_claim, table.device_ledger):
            raise UnusableResourceClaim(
                f'resourceclaim "{pod_claim.claim.metadata.name}": status.reservedFor has at most '
                f"{MAX_CONSUMERS_PER_CLAIM} consumers"
            )


def _may_get_consumer(pod: Pod, pod_claim: PodClaim, ledger: DeviceLedger) -> bool:
    """Return whether the API server would accept the reservation of a claim for a pod, or for its PodGroup."""
    claim, key = pod_claim.claim, pod_claim.key
    reserved = claim.status.reserved_for or ()
    if len(reserved) + ledger.count_pods_with_reserved_claim(key) < MAX_CONSUMERS_PER_CLAIM:
        return True
    if claim.is_reserved_for(pod.metadata.uid, pod.scheduling_group_name):
        return True
    consumers = {consumer.uid for consumer in reserved}
    if not is_claim_of_group_of(pod, claim):
        # A pod that is being bound may be in the status already: it counts once.
        consumers |= ledger.uids_of_pods_with_reserved_claim(key)
    return len(consumers) < MAX_CONSUMERS_PER_CLAIM


def _shared_allocations(claims: Sequence[PodClaim], ledger: DeviceLedger) -> list[ReservedClaimDevices]:
    """Return the allocations that other pods of the session assumed for claims that a pod shares with them."""
    return [
        ReservedClaimDevices(pod_claim.key, pod_claim.allocation)
        for pod_claim in claims
        if pod_claim.allocation is not None
        and pod_claim.claim.status.allocation is None
        and ledger.reserved_allocation_of_claim(pod_claim.key) is not None
    ]
