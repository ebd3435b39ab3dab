"""Linear rows that count devices: the solver plans pods with claims only where enough devices are free.

For each kind of request, a row limits how many devices the pods on a node need, by the number of free devices of the
node that such a request may get. If the devices of a claim must be equal in an attribute, such as the PCIe root, more
rows limit the number of claims by the free devices with each value. The rows leave out what is not linear:
alternatives, counters, shared capacity. The pipeline checks each proposal pod by pod, so a row may allow too much.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.node import Node
from batchsched.devices.allocator import SEARCH_STEPS_PER_DEVICE, Allocator
from batchsched.devices.constraints import attribute_value
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
from batchsched.framework.status import IndexArray, IntArray
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
      matched: attribute → the requests of which all devices have an equal value of it: index of the candidate → devices
        by request of each of its pods.
    """

    request: Request
    devices: dict[int, int] = field(default_factory=dict)
    matched: dict[str, dict[int, list[int]]] = field(default_factory=dict)

    def add_request(self, candidate: CandidatePods, request: Request, matched: Iterable[str]) -> None:
        """Add a request of each pod of a candidate, given the attributes that its devices must be equal in."""
        self.devices[candidate.index] = self.devices.get(candidate.index, 0) + request.count
        for attribute in matched:
            by_candidate = self.matched.setdefault(attribute, {})
            by_candidate.setdefault(candidate.index, []).append(request.count)

    def limits(self, table: NodeTable) -> Iterator[tuple[dict[int, int], IntArray]]:
        """Yield coefficients by candidate, and limits [N] of the sum over the pods of each node.

        A node with f free devices of a value has room for ⌊f / k⌋ requests for at least k devices of that value, where
        a request for n devices counts as ⌊n / k⌋. This holds for each k; the numbers that are requested are used.
        """
        free = _free_devices(self.request, table)
        if free is not None:
            yield self.devices, free
        for attribute, requests in self.matched.items():
            sizes = sorted({count for counts in requests.values() for count in counts if count > 1})
            rooms = _room_by_size(self.request, table, attribute, sizes)
            for size, room in zip(sizes, rooms, strict=False):
                yield (
                    {
                        index: parts
                        for index, counts in requests.items()
                        if (parts := sum(count // size for count in counts))
                    },
                    room,
                )


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
            rows += [
                pod_limit_row(plugin, NOT_ENOUGH, EVERY_NODE, coefficients, limit)
                for coefficients, limit in demand.limits(table)
            ]
        except AllocationError:
            continue  # the Filter refuses these pods
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
        matched = _matched_attributes(claim, request)
        demands.setdefault(kind, DeviceDemand(request)).add_request(candidate, request, matched)


def _matched_attributes(claim: ResourceClaim, request: Request) -> set[str]:
    """Return the attributes in which all devices of a request are equal because of the constraints of its claim."""
    return {
        constraint.match_attribute
        for constraint in claim.spec.devices.constraints or ()
        if constraint.match_attribute and request.name in (constraint.requests or (request.name,))
    }


def _free_devices(request: Request, table: NodeTable) -> IntArray | None:
    """Return the number of free devices [N] of each node that a request may get; a shareable device counts as many.

    Return None if it takes too long to evaluate the expressions of the request.
    """
    counts = _counts_by_value(request, table, "")
    return None if counts is None else counts[0].sum(axis=1)[counts[1]]


def _room_by_size(
    request: Request, table: NodeTable, attribute: str, sizes: Sequence[int]
) -> Sequence[IntArray]:
    """Return for each size the number [N] of requests for so many devices with one value that fit on each node.

    Return nothing if it takes too long to evaluate the expressions of the request.
    """
    counted = _counts_by_value(request, table, attribute) if sizes else None
    if counted is None:
        return ()
    counts, inverse = counted
    return [(counts // size).sum(axis=1)[inverse] for size in sizes]


def _counts_by_value(
    request: Request, table: NodeTable, attribute: str
) -> tuple[IntArray, IndexArray] | None:
    """Return the numbers of free devices by kind of node and value of an attribute, and the kind of each node [N].

    Return None if it takes too long to evaluate the expressions of the request.

    Args:
      request: the devices that the request may get are counted.
      table: the nodes.
      attribute: the fully qualified name; "" counts all devices together.
    """
    allocator = device_objects(table).allocator
    names = request.attributes_read_by_selectors()
    if attribute and names is not None:
        names |= {attribute.rpartition("/")[2]}
    numbers = equal_device_groups(table).group_numbers(names)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    examples = [table.nodes[int(node)] for node in first]
    devices = sum(len(allocator.inventory.candidate_devices_of(node)) for node in examples)
    if devices * request.evaluation_work() > MAX_STEPS_OF_ALL_GROUPS + SEARCH_STEPS_PER_DEVICE * devices:
        return None
    by_value = [_count_free(request, node, allocator, attribute) for node in examples]
    widest = max((len(values) for values in by_value), default=0)
    counts = [[*values.values(), *[0] * (widest - len(values))] for values in by_value]
    return np.array(counts, np.int64).reshape(len(examples), widest), inverse.astype(np.int32)


UNLIMITED_SHARES: Final = 2**20
"""Stands for the allocations of a device that may have several; its capacity limits them, and no row does."""


def _count_free(request: Request, node: Node, allocator: Allocator, attribute: str) -> Counter[object]:
    """Count the free devices by value of an attribute; "" counts all together."""
    count = Counter[object]()
    for pool in allocator.inventory.pools_of(node):
        if not pool.usable:
            continue
        for devices in pool.slices:
            for device in devices:
                if allocator.ledger.use_of(device.key).exclusive:
                    continue
                if device.is_accessible_from(node) and request.tolerates(device) and request.selects(device):
                    value = attribute_value(device, attribute) if attribute else ""
                    if value is not None:
                        count[value] += UNLIMITED_SHARES if device.shareable else 1
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
