"""Linear rows that count pods by NUMA zone: the solver plans no more pods on a node than its zones have room for.

A size is an amount of each of some resources. A zone has room for a number of parts of a size, and a part that is k
times as large counts as k of them. So the parts on a node are together at most the sum over its zones. This holds for
each size; the sizes of the pending pods are used. A part is a pod or a container, as in `alignment`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from batchsched.framework.constrain import EVERY_NODE, CandidateSet, ConstraintRow, pod_limit_row
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import IndexArray, IntArray
from batchsched.plugins.node_resource_topology.alignment import Amounts, fits_in_any_zone
from batchsched.plugins.node_resource_topology.demands import AlignedDemand
from batchsched.plugins.node_resource_topology.zones import ZoneTable, zone_table
from batchsched.solver.problem import UNLIMITED

MAX_SIZES: Final = 16
"""The number of sizes for which rows are added."""


def zone_constraint_rows(
    plugin: str, reasons: tuple[str, str], batch: CandidateSet, table: NodeTable
) -> Sequence[ConstraintRow]:
    """Return linear constraints: each node gets at most as many pods as its NUMA zones have room for.

    Only nodes with the policy `single-numa-node` are constrained.

    Args:
      plugin: the name of the plugin.
      reasons: the messages for nodes with the scopes `container` and `pod`.
      batch: the pending pods.
      table: the nodes.
    """
    zones = zone_table(table)
    rows = []
    for pod_scope, reason in zip((False, True), reasons, strict=True):
        nodes = np.flatnonzero(zones.single_zone & (zones.pod_scope == pod_scope)).astype(np.int32)
        if not len(nodes):
            continue
        parts = {
            candidate.index: _parts(
                zones.cached_aligned_demand(candidate.pod_class.pod), zones, pod_scope=pod_scope
            )
            for candidate in batch.candidates
        }
        pods = {candidate.index: candidate.count for candidate in batch.candidates}
        for size in _sizes(parts.values()):
            coefficients = _coefficients(parts, size)
            limit = np.full(len(table.nodes), UNLIMITED, np.int64)
            limit[nodes] = _room(size, zones, table, nodes)
            # A limit that all pods together do not reach is no constraint.
            if sum(count * pods[index] for index, count in coefficients.items()) > int(limit.min()):
                rows.append(pod_limit_row(plugin, reason, EVERY_NODE, coefficients, limit))
    return rows


def _parts(demand: AlignedDemand, zones: ZoneTable, *, pod_scope: bool) -> list[Amounts]:
    """Return the amounts that a pod needs at the same time, each in a single zone."""
    parts = (demand.total,) if pod_scope else demand.running
    return [tuple(zones.request_vector(part).tolist()) for part in parts]


def _sizes(parts: Iterable[Sequence[Amounts]]) -> list[Amounts]:
    """Return the different sizes of parts, and then each of them reduced to one resource."""
    whole = dict.fromkeys(part for one_pod in parts for part in one_pod if any(part))
    single = dict.fromkeys(
        tuple(amount if column == kept else 0 for column, amount in enumerate(part))
        for part in whole
        for kept in range(len(part))
        if part[kept]
    )
    return list({**whole, **single})[:MAX_SIZES]


def _coefficients(parts: Mapping[int, Sequence[Amounts]], size: Amounts) -> dict[int, int]:
    counts = {index: sum(_multiples(part, size) for part in of_pod) for index, of_pod in parts.items()}
    return {index: count for index, count in counts.items() if count}


def _multiples(part: Amounts, size: Amounts) -> int:
    return min(amount // unit for amount, unit in zip(part, size, strict=True) if unit)


def _room(size: Amounts, zones: ZoneTable, table: NodeTable, nodes: IndexArray) -> IntArray:
    """Return the number [n] of parts of a size for which the zones of each node have room."""
    shape = zones.available[nodes].shape[:2]
    # The sum over all zones must not overflow.
    room = np.full(shape, UNLIMITED // shape[1], np.int64)
    for column in np.flatnonzero(size).tolist():
        fitting = np.maximum(zones.available[nodes, :, column], 0) // size[column]
        room = np.where(zones.listed[nodes, column, np.newaxis], np.minimum(room, fitting), room)
    total = room.sum(axis=1)
    for row, node in enumerate(nodes.tolist()):
        for demand in zones.demands_of_uncounted_pods(node, table):
            for part in _parts(demand, zones, pod_scope=bool(zones.pod_scope[node])):
                if fits_in_any_zone(part, zones.available[node], zones.listed[node]):
                    total[row] -= _multiples(part, size)
    aligned = zones.listed[nodes][:, np.flatnonzero(size)].any(axis=1)
    limit: IntArray = np.where(aligned, np.maximum(total, 0), UNLIMITED)
    return limit
