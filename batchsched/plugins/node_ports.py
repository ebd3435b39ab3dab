"""NodePorts: a host port can be used by one pod on each node."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.constrain import EVERY_NODE, CandidateSet, ConstraintRow, pod_limit_row
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.interface import (
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.nodes.pod_table import EVERY_ADDRESS, HostPort, any_port_conflict, host_ports
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    SKIP_FILTER,
    BoolArray,
    IndexArray,
    IntArray,
    PreFilterAnswer,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits, ResultScope

TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
REQUESTED_PORTS: Final = StateKey[tuple[HostPort, ...]]("NodePorts/wanted")


class NodePorts(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes on which a host port of the pod is in use.

    Source: kube-scheduler's plugins/nodeports.
    """

    name: ClassVar[str] = "NodePorts"
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS,
        result_scope=ResultScope.NODE_AND_ITS_PODS,
        reads_priority=False,
    )

    @override
    def signature(self, pod: Pod) -> Hashable:
        return host_ports(pod)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        requested = host_ports(pod.pod)
        state.write(REQUESTED_PORTS, requested)
        return ASK_FILTER if requested else SKIP_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        requested = state.read(REQUESTED_PORTS)
        if len(nodes) > 1:
            return Verdict.refuse(_taken(nodes.table, requested)[nodes.where], TAKEN, unresolvable=False)
        if not len(nodes) or not _taken_at(nodes.table, nodes.first_node_index, requested):
            return Verdict.accept(len(nodes))
        return Verdict.refuse(np.ones(1, np.bool_), TAKEN, unresolvable=False)

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        requested = host_ports(pod.pod)
        if not requested:
            return True
        return bool((counts <= 1).all()) and not any(
            _taken_at(table, node, requested) for node in nodes[counts > 0].tolist()
        )

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return linear constraints: each node takes at most one of the pods with conflicting host ports."""
        wanting: dict[HostPort, set[int]] = {}
        for candidate in batch.candidates:
            for port in host_ports(candidate.pod_class.pod):
                wanting.setdefault(port, set()).add(candidate.index)
        count = {candidate.index: candidate.count for candidate in batch.candidates}
        holders = _holders(nodes.table)
        rows: dict[tuple[int, ...], ConstraintRow] = {}
        for port, classes in wanting.items():
            # A port of all addresses conflicts with that port of every address; ports of two addresses do not
            # conflict.
            everywhere = wanting.get(port._replace(address=EVERY_ADDRESS), set())
            rivals = tuple(sorted(classes | everywhere))
            if sum(count[index] for index in rivals) > 1:
                free = _free(nodes.table, port, holders)
                row = rows.get(rivals)
                limit = free if row is None else np.minimum(row.right, free)
                rows[rivals] = pod_limit_row(self.name, TAKEN, EVERY_NODE, dict.fromkeys(rivals, 1), limit)
        return tuple(rows.values())

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD),
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _freed),
        )


def _freed(pod: Pod, old: Pod, _new: None) -> Hint:
    return Hint.queue_if(any_port_conflict(host_ports(pod), host_ports(old)))


def _holders(table: NodeTable) -> dict[tuple[str, int], list[tuple[HostPort, int]]]:
    """Return for each protocol and port number the host ports in use, each with the index of its node."""
    holders: dict[tuple[str, int], list[tuple[HostPort, int]]] = {}
    for node, pods in table.pod_table.ports_on.items():
        for ports in pods.values():
            for port in ports:
                holders.setdefault((port.protocol, port.number), []).append((port, node))
    return holders


def _free(
    table: NodeTable, port: HostPort, holders: dict[tuple[str, int], list[tuple[HostPort, int]]]
) -> IntArray:
    """Return for each node [N] 1 if the port is free, and 0 if it is in use."""
    free = np.ones(len(table.nodes), np.int64)
    for held, node in holders.get((port.protocol, port.number), ()):
        if held.conflicts_with(port):
            free[node] = 0
    return free


def _taken(table: NodeTable, requested: tuple[HostPort, ...]) -> BoolArray:
    """Return a mask [N] of the nodes on which one of the requested ports is in use."""
    refused = np.zeros(len(table.nodes), np.bool_)
    for node in table.pod_table.ports_on:
        refused[node] = _taken_at(table, node, requested)
    return refused


def _taken_at(table: NodeTable, node: int, requested: tuple[HostPort, ...]) -> bool:
    used = table.pod_table.ports_on.get(node)
    return used is not None and any(any_port_conflict(requested, ports) for ports in used.values())
