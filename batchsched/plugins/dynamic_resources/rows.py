"""Linear rows that count devices: the solver plans pods with claims only where enough devices are free.

For each kind of request, a row limits how many devices the pods on a node need, by the number of free devices of the
node that such a request may get. If the devices of a claim must be equal in an attribute, such as the PCIe root, more
rows limit the number of claims by the free devices with each value. The rows leave out what is not linear:
alternatives, counters, shared capacity. The pipeline checks each proposal pod by pod, so a row may allow too much.

If pods may be evicted, each row states how many devices the eviction of a unit frees. Further rows then allow pods on a
node without enough free devices only if the eviction of a unit frees one of its devices.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from batchsched.api.core.device import ResourceClaim
from batchsched.devices.requests import AllocationError, ResolvedDeviceRequest, claim_requests
from batchsched.framework.constrain import (
    EVERY_NODE,
    CandidatePods,
    CandidateSet,
    ConstraintRow,
    RowRelief,
    pod_limit_row,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_objects import device_objects
from batchsched.framework.status import IntArray
from batchsched.plugins.dynamic_resources.claims import UnusableResourceClaim, pod_claims_with_allocations
from batchsched.plugins.dynamic_resources.extended_resources import (
    build_extended_resource_claim,
    resources_served_by_devices,
)
from batchsched.plugins.dynamic_resources.matching_devices import FreedDevices, MatchingDeviceValues
from batchsched.plugins.dynamic_resources.node_search import (
    NOT_ENOUGH,
    nodes_by_missing_resources,
    search_devices_for_pod_class,
)
from batchsched.plugins.dynamic_resources.reservation import claims_of_pod_class

HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCountConstraint:
    """The linear constraints by which the pods on each node request at most as many devices as are free.

    There is one constraint for each node.

    Args:
      coefficients: index of the candidate → the number of devices, or of sets of devices, that each of its pods needs.
      limit: [N] the limit of each node.
      relief: by how much evictions raise the limit.
    """

    coefficients: dict[int, int]
    limit: IntArray
    relief: RowRelief | None


@dataclass(slots=True)
class DeviceDemand:
    """The requests of pending pods for one kind of device, with the number of devices that each pod requests.

    A kind of device is stated by DeviceClasses, selectors and tolerations. A candidate is the pending pods of one gang
    and pod class.

    Args:
      alternatives: the alternatives of these requests; each requested device meets one alternative.
      devices: index of the candidate → the number of devices of each of its pods.
      matched: attribute → index of the candidate → the number of devices of each request of a pod, for those requests
        of which all devices have an equal value of the attribute.
      sharers: the number of pods that use the devices together; 1 if each pod has its own.
    """

    alternatives: tuple[ResolvedDeviceRequest, ...]
    devices: dict[int, int] = field(default_factory=dict)
    matched: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    sharers: int = 1

    def add_request(self, candidate: CandidatePods, count: int, matched: Iterable[str]) -> None:
        """Add a request for `count` devices of this kind by each pod of the gang and pod class `candidate`.

        All these devices must have the same value of each attribute in `matched`.
        """
        self.devices[candidate.index] = self.devices.get(candidate.index, 0) + count
        for attribute in matched:
            by_candidate = self.matched.setdefault(attribute, {})
            by_candidate.setdefault(candidate.index, []).append(count)

    def device_count_constraints(
        self, table: NodeTable, freed: FreedDevices | None
    ) -> Iterator[DeviceCountConstraint]:
        """Yield linear constraints on the number of devices that the pods on each node request together.

        A node with f free devices of a value has room for ⌊f / k⌋ requests for at least k devices of that value, where
        a request for n devices counts as ⌊n / k⌋. This holds for each k; the numbers that are requested are used.
        """
        devices = MatchingDeviceValues.from_alternative_requests(self.alternatives, table)
        if devices is not None:
            relief = freed.relief_of_device_sets(devices, 1, self.sharers) if freed is not None else None
            yield DeviceCountConstraint(
                self.devices, self.sharers * devices.count_free_device_sets(table, 1), relief
            )
        for attribute, requests in self.matched.items():
            sizes = sorted({count for counts in requests.values() for count in counts if count > 1})
            valued = (
                MatchingDeviceValues.from_alternative_requests(self.alternatives, table, attribute)
                if sizes
                else None
            )
            if valued is None:
                continue
            for size in sizes:
                coefficients = {
                    index: parts
                    for index, counts in requests.items()
                    if (parts := sum(count // size for count in counts))
                }
                relief = freed.relief_of_device_sets(valued, size) if freed is not None else None
                yield DeviceCountConstraint(coefficients, valued.count_free_device_sets(table, size), relief)


def device_constraint_rows(plugin: str, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
    """Return linear constraints for the solver: pods on a node request at most as many devices as are free there.

    A gang with a claim that all its pods share is kept on one node, if the devices of each node serve that node only.
    """
    table = nodes.table
    if device_objects(table).allocator.inventory.is_empty:
        return ()
    demands = _demands(batch, nodes)
    freed = FreedDevices(batch.units, table) if batch.units else None
    pods = {candidate.index: candidate.count for candidate in batch.candidates}
    rows = []
    for demand in demands.values():
        if freed is None and sum(pods[index] for index in demand.devices) <= 1:
            continue
        try:
            rows += [
                pod_limit_row(plugin, NOT_ENOUGH, EVERY_NODE, item.coefficients, item.limit, item.relief)
                for item in demand.device_count_constraints(table, freed)
            ]
        except AllocationError:
            continue  # the Filter refuses these pods
    return rows if freed is None else [*rows, *_eviction_rows(plugin, batch, nodes, freed)]


def _demands(batch: CandidateSet, nodes: Nodes) -> dict[Hashable, DeviceDemand]:
    """Return the device demands of the pods in a candidate set, by the kind of the requests."""
    table = nodes.table
    demands: dict[Hashable, DeviceDemand] = {}
    for candidate in batch.candidates:
        try:
            for claim in _own_claims(candidate, nodes):
                _add_demand(demands, candidate, claim, table, with_alternatives=bool(batch.units))
        except (UnusableResourceClaim, AllocationError):
            continue  # the Filter refuses these pods
    if not device_objects(table).allocator.inventory.has_slices_of_several_nodes:
        shared = _gather_sharers(batch, table)
        if batch.units:
            _add_shared_demands(demands, batch, shared, table)
    return demands


def _own_claims(candidate: CandidatePods, nodes: Nodes) -> list[ResourceClaim]:
    """Return the claims without allocation that each pod of a candidate has for itself."""
    pod, table = candidate.pod_class.pod, nodes.table
    objects = device_objects(table)
    claims = [
        pod_claim.claim
        for pod_claim in pod_claims_with_allocations(pod, table.device_ledger, of_class=True)
        if pod_claim.own and pod_claim.allocation is None
    ]
    served = resources_served_by_devices(pod, objects.class_of_resource)
    patterns = nodes_by_missing_resources(served, nodes) if served else []
    # Where some nodes offer the resource themselves, a row would forbid pods there that need no device.
    if len(patterns) == 1 and patterns[0][0]:
        claims.append(build_extended_resource_claim(pod, patterns[0][0], objects.class_of_resource))
    return claims


def _countable_requests(
    claim: ResourceClaim, table: NodeTable, *, with_alternatives: bool
) -> Iterator[tuple[Hashable, tuple[ResolvedDeviceRequest, ...], int]]:
    """Yield kind, alternatives and lowest number of each request of a claim for a number of devices."""
    for alternatives in claim_requests(claim, device_objects(table).classes).requests:
        if not with_alternatives and (len(alternatives) > 1 or alternatives[0].parent):
            continue
        if not alternatives or any(
            request.requests_all_matching_devices or request.admin for request in alternatives
        ):
            continue
        kind = tuple(
            (request.device_class.metadata.name, request.expressions, request.tolerations)
            for request in alternatives
        )
        yield kind, alternatives, min(request.count for request in alternatives)


def _add_demand(
    demands: dict[Hashable, DeviceDemand],
    candidate: CandidatePods,
    claim: ResourceClaim,
    table: NodeTable,
    *,
    with_alternatives: bool,
) -> None:
    requests = _countable_requests(claim, table, with_alternatives=with_alternatives)
    for kind, alternatives, count in requests:
        matched = _matched_attributes(claim, alternatives[0]) if len(alternatives) == 1 else ()
        demands.setdefault(kind, DeviceDemand(alternatives)).add_request(candidate, count, matched)


def _matched_attributes(claim: ResourceClaim, request: ResolvedDeviceRequest) -> set[str]:
    """Return the attributes in which all devices of a request are equal because of the constraints of its claim."""
    return {
        constraint.match_attribute
        for constraint in claim.spec.devices.constraints or ()
        if constraint.match_attribute and request.name in (constraint.requests or (request.name,))
    }


def _gather_sharers(batch: CandidateSet, table: NodeTable) -> dict[int, set[str]]:
    """Keep each gang on one node if all its pods share an unallocated claim; return these claims by gang."""
    sharers: dict[int, list[set[str]]] = {}
    for candidate in batch.candidates:
        try:
            claims = pod_claims_with_allocations(candidate.pod_class.pod, table.device_ledger, of_class=True)
        except UnusableResourceClaim:
            claims = ()
        shared = {pod_claim.key for pod_claim in claims if not pod_claim.own and pod_claim.allocation is None}
        sharers.setdefault(candidate.gang, []).append(shared)
    shared_by_gang = {}
    for gang, shared_by_class in sharers.items():
        if common := set.intersection(*shared_by_class):
            batch.gathered.setdefault(gang, HOSTNAME)
            shared_by_gang[gang] = common
    return shared_by_gang


def _add_shared_demands(
    demands: dict[Hashable, DeviceDemand],
    batch: CandidateSet,
    shared_by_gang: Mapping[int, set[str]],
    table: NodeTable,
) -> None:
    """Add the devices of claims that all pods of a gang share: they are needed where all pods of the gang are."""
    first_of_gang = {candidate.gang: candidate for candidate in reversed(batch.candidates)}
    for gang, keys in shared_by_gang.items():
        candidate = first_of_gang[gang]
        for key in sorted(keys):
            claim = table.device_ledger.claims[key]
            try:
                requests = list(_countable_requests(claim, table, with_alternatives=True))
            except AllocationError:
                continue  # the Filter refuses these pods
            for kind, alternatives, count in requests:
                # All c pods are on one node: count · c <= c · free there if and only if count <= free.
                demand = demands.setdefault(
                    (candidate.index, kind), DeviceDemand(alternatives, sharers=candidate.count)
                )
                demand.add_request(candidate, count, ())


def _eviction_rows(
    plugin: str, batch: CandidateSet, nodes: Nodes, freed: FreedDevices
) -> Iterator[ConstraintRow]:
    """Yield a row for each candidate: a node of its pods has enough devices, or an eviction frees one."""
    for candidate in batch.candidates:
        try:
            class_claims = claims_of_pod_class(candidate.pod_class.pod, nodes.table)
            results = search_devices_for_pod_class(candidate.pod_class.pod, class_claims, nodes)
        except (UnusableResourceClaim, AllocationError):
            continue  # the Filter refuses these pods
        if not results:
            continue
        accepted = np.ones(len(nodes), np.bool_)
        for searched, where in results:
            accepted[where] = searched.feasible_mask
        limit = accepted * candidate.count
        yield pod_limit_row(
            plugin,
            NOT_ENOUGH,
            EVERY_NODE,
            {candidate.index: 1},
            limit,
            freed.constant_relief_of_freed_devices(candidate.count),
        )
