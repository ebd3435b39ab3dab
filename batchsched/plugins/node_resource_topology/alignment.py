"""Whether the requests of a pod can be taken from single NUMA zones of a node.

If all pods of the node are counted in its NodeResourceTopology, the answer follows the kubelet: each container takes
the zone with the lowest number in which it fits. Otherwise the zones of the pods that are not counted are unknown, also
because the kubelet may receive them in any order. The pod fits then if, whatever zones the kubelet has chosen, each of
these pods and the pod itself still find a zone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.plugins.node_resource_topology.demands import AlignedDemand
from batchsched.plugins.node_resource_topology.zones import ABSENT, ZoneTable

Amounts = tuple[int, ...]
"""Amounts [K] of one pod or container."""


def mask_zones_fitting_requests(requests: IntArray, free: IntArray, listed: BoolArray) -> BoolArray:
    """Return a mask [n, Z] of n nodes with Z NUMA zones: True if a zone has room for all requests.

    Args:
      requests: [K] amounts.
      free: [n, Z, K] free amounts.
      listed: [n, K] the resources that are aligned on each node; all others are ignored.
    """
    fits = np.ones(free.shape[:2], np.bool_)
    for column in np.flatnonzero(requests).tolist():
        fits &= (free[:, :, column] >= requests[column]) | ~listed[:, column, np.newaxis]
    return fits


def mask_nodes_fitting_pod(demand: AlignedDemand, zones: ZoneTable, nodes: IndexArray) -> BoolArray:
    """Return a mask [n]: True for each node that has a NUMA zone with enough of all resources for the whole pod."""
    fits = mask_zones_fitting_requests(
        zones.request_vector(demand.total), zones.available[nodes], zones.listed[nodes]
    )
    return np.asarray(fits.any(axis=1))


def masks_of_nodes_fitting_containers(
    demand: AlignedDemand, zones: ZoneTable, nodes: IndexArray
) -> tuple[BoolArray, BoolArray]:
    """Return masks of the nodes with NUMA zones for each init container, and for all other containers.

    The shape of each of the two masks is [n]. The other containers must fit together. Restartable init containers count
    among the other containers.
    """
    free, listed = zones.available[nodes].copy(), zones.listed[nodes]
    init_fits = np.ones(len(nodes), np.bool_)
    for requests in demand.init:
        init_fits &= mask_zones_fitting_requests(zones.request_vector(requests), free, listed).any(axis=1)
    fits = np.ones(len(nodes), np.bool_)
    rows = np.arange(len(nodes))
    for requests in demand.running:
        amounts = zones.request_vector(requests)
        fitting_zones = mask_zones_fitting_requests(amounts, free, listed)
        fits &= fitting_zones.any(axis=1)
        # The first zone has the lowest number. Rows without a zone are refused already.
        chosen = free[rows, fitting_zones.argmax(axis=1)]
        free[rows, fitting_zones.argmax(axis=1)] = np.where(chosen == ABSENT, ABSENT, chosen - amounts)
    return init_fits, fits


def all_pods_fit_in_any_order(demands: Iterable[AlignedDemand], zones: ZoneTable, node: int) -> bool:
    """Return whether all pods find NUMA zones on a node, however the kubelet orders them and chooses zones.

    A part is a pod, or a container if this is the scope. It finds no zone only if the other parts block each zone in
    which it fits. To block a zone, a number of parts must be in it, and each part is in one zone only. So a part
    certainly finds a zone if the zones need more parts to be blocked than there are. For equal parts this is exact.

    A part that fits into no zone is ignored: the object counts it already, although its pod is not Running yet, or the
    kubelet will reject its pod. The caller checks that the parts of the new pods fit.
    """
    available = zones.available[node]
    counts = Counter(_parts(demands, zones, node))
    counts = Counter(
        {
            part: count
            for part, count in counts.items()
            if fits_in_any_zone(part, available, zones.listed[node])
        }
    )
    for part in counts:
        other_parts = counts - Counter({part: 1})
        columns = [column for column, amount in enumerate(part) if amount]
        competing = sum(
            count for other, count in other_parts.items() if any(other[column] for column in columns)
        )
        if _parts_to_block_all(part, other_parts, columns, available) <= competing:
            return False
    return True


def _parts(demands: Iterable[AlignedDemand], zones: ZoneTable, node: int) -> Iterator[Amounts]:
    """Yield the parts that need a zone of the node, without resources that no zone of the node lists."""
    listed = zones.listed[node]
    for demand in demands:
        for requests in demand.single_zone_parts(pod_scope=bool(zones.pod_scope[node])):
            part = np.where(listed, zones.request_vector(requests), 0)
            if part.any():
                yield tuple(part.tolist())


def fits_in_any_zone(part: Amounts, available: IntArray, listed: BoolArray) -> bool:
    """Return whether a NUMA zone of a node has the amounts that a pod or container needs from a single zone.

    Resources that no zone of the node lists are ignored.

    Args:
      part: [K] amounts.
      available: [Z, K] the available amounts of each zone.
      listed: [K] the resources that some zone lists.
    """
    amounts = np.where(listed, part, 0)
    return bool(((available >= amounts) | (amounts == 0)).all(axis=1).any())


def _parts_to_block_all(
    part: Amounts, other_parts: Counter[Amounts], columns: Sequence[int], available: IntArray
) -> float:
    """Return how many other parts are needed at least to leave no zone for a part; infinite if some zone remains."""
    sums = {column: _largest_sums(other_parts, column) for column in columns}
    total = 0
    for zone in available:
        spare = {column: int(zone[column]) - part[column] for column in columns}
        if min(spare.values()) < 0:
            continue  # the part does not fit into the empty zone
        needed = [int(np.searchsorted(sums[column], spare[column], side="right")) for column in columns]
        blocking = [
            count + 1 for column, count in zip(columns, needed, strict=True) if count < len(sums[column])
        ]
        if not blocking:
            return float("inf")
        total += min(blocking)
    return total


def _largest_sums(other_parts: Counter[Amounts], column: int) -> IntArray:
    """Return the sums of the 1, 2, … largest amounts of one resource."""
    amounts = sorted((other[column] for other in other_parts.elements() if other[column]), reverse=True)
    return np.cumsum(np.asarray(amounts, np.int64))
