"""Linear rows that count devices: the solver plans pods with claims only where enough devices are free.

For each kind of request, a row limits how many devices the pods on a node need, by the number of free devices of the
node that such a request may get. The rows leave out what is not linear: alternatives, constraints between devices,
counters, shared capacity. The pipeline checks each proposal pod by pod, so a row may allow too much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.node import Node
from batchsched.devices.allocator import SEARCH_STEPS_PER_DEVICE, Allocator
from batchsched.devices.requests import AllocationError, Request, claim_requests
from batchsched.framework.constrain import (
    EVERY_NODE,
    CandidatePods,
    CandidateSet,
    ConstraintRow,
    pod_limit_row,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_objects import device_objects, equal_device_groups
from batchsched.framework.status import IntArray
from batchsched.plugins.dynamic_resources.claims import ClaimRefused, claims_with_allocations
from batchsched.plugins.dynamic_resources.extended_resources import (
    extended_claim,
    resources_served_by_devices,
)
from batchsched.plugins.dynamic_resources.node_search import (
    MAX_STEPS_OF_ALL_GROUPS,
    NOT_ENOUGH,
    nodes_by_resources,
)

HOSTNAME: Final = "kubernetes.io/hostname"

RequestKind = tuple[str, tuple[tuple[str, str], ...], object]
"""What decides which devices a request may get: its class, its expressions, and its tolerations."""


@dataclass(slots=True)
class DeviceDemand:
    """Equal device requests of pending pods, with the number of devices that each pod needs for them.

    Args:
      request: one of the requests.
      devices: index of the candidate → devices of each of its pods.
    """

    request: Request
    devices: dict[int, int] = field(default_factory=dict)


def device_rows(plugin: str, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
    """Return linear constraints for the solver: pods on a node request at most as many devices as are free there.

    A gang with a claim that all its pods share is kept on one node, if the devices of each node serve that node only.
    """
    table = nodes.table
    objects = device_objects(table)
    if objects.allocator.inventory.is_empty:
        return ()
    demands: dict[RequestKind, DeviceDemand] = {}
    for candidate in batch.candidates:
        try:
            for claim in _own_claims(candidate, nodes):
                _add_demand(demands, candidate, claim, table)
        except (ClaimRefused, AllocationError):
            continue  # the Filter refuses these pods
    if not objects.allocator.inventory.has_shared_slices:
        _gather_sharers(batch, table)
    pods = {candidate.index: candidate.count for candidate in batch.candidates}
    rows = []
    for demand in demands.values():
        if sum(pods[index] for index in demand.devices) <= 1:
            continue
        try:
            free = _free_devices(demand.request, table)
        except AllocationError:
            continue  # the Filter refuses these pods
        if free is not None:
            rows.append(pod_limit_row(plugin, NOT_ENOUGH, EVERY_NODE, demand.devices, free))
    return rows


def _own_claims(candidate: CandidatePods, nodes: Nodes) -> list[ResourceClaim]:
    """Return the claims without allocation that each pod of a candidate has for itself."""
    pod, table = candidate.pod_class.pod, nodes.table
    objects = device_objects(table)
    claims = [
        pod_claim.claim
        for pod_claim in claims_with_allocations(pod, table.device_ledger, of_class=True)
        if pod_claim.own and pod_claim.allocation is None
    ]
    served = resources_served_by_devices(pod, objects.class_of_resource)
    patterns = nodes_by_resources(served, nodes) if served else []
    # Where some nodes offer the resource themselves, a row would forbid pods there that need no device.
    if len(patterns) == 1 and patterns[0][0]:
        claims.append(extended_claim(pod, patterns[0][0], objects.class_of_resource))
    return claims


def _add_demand(
    demands: dict[RequestKind, DeviceDemand], candidate: CandidatePods, claim: ResourceClaim, table: NodeTable
) -> None:
    for alternatives in claim_requests(claim, device_objects(table).classes).requests:
        request = alternatives[0]
        if len(alternatives) > 1 or request.parent or request.requests_all_matching_devices or request.admin:
            continue
        kind = request.device_class.metadata.name, request.expressions, request.tolerations
        demand = demands.setdefault(kind, DeviceDemand(request))
        demand.devices[candidate.index] = demand.devices.get(candidate.index, 0) + request.count


def _free_devices(request: Request, table: NodeTable) -> IntArray | None:
    """Return the number of free devices [N] of each node that a request may get; a shareable device counts as many.

    Return None if it takes too long to evaluate the expressions of the request.
    """
    allocator = device_objects(table).allocator
    numbers = equal_device_groups(table).group_numbers(request.attributes_read_by_selectors())
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    examples = [table.nodes[int(node)] for node in first]
    devices = sum(len(allocator.inventory.candidate_devices_of(node)) for node in examples)
    if devices * request.evaluation_work() > MAX_STEPS_OF_ALL_GROUPS + SEARCH_STEPS_PER_DEVICE * devices:
        return None
    counts = np.array([_count_free(request, node, allocator) for node in examples], np.int64)
    result: IntArray = counts[inverse]
    return result


UNLIMITED_SHARES: Final = 2**20
"""Stands for the allocations of a device that may have several; its capacity limits them, and no row does."""


def _count_free(request: Request, node: Node, allocator: Allocator) -> int:
    count = 0
    for pool in allocator.inventory.pools_of(node):
        if not pool.usable:
            continue
        for devices in pool.slices:
            for device in devices:
                if allocator.ledger.use_of(device.key).exclusive:
                    continue
                if device.is_accessible_from(node) and request.tolerates(device) and request.selects(device):
                    count += UNLIMITED_SHARES if device.shareable else 1
    return count


def _gather_sharers(batch: CandidateSet, table: NodeTable) -> None:
    """Keep each gang on one node of which all pods share one claim without allocation."""
    sharers: dict[int, list[set[str]]] = {}
    for candidate in batch.candidates:
        try:
            claims = claims_with_allocations(candidate.pod_class.pod, table.device_ledger, of_class=True)
        except ClaimRefused:
            claims = ()
        shared = {
            pod_claim.claim.key for pod_claim in claims if not pod_claim.own and pod_claim.allocation is None
        }
        sharers.setdefault(candidate.gang, []).append(shared)
    for gang, shared_by_class in sharers.items():
        if set.intersection(*shared_by_class):
            batch.gathered.setdefault(gang, HOSTNAME)
