"""The plugin NodeResourceTopologyMatch with its extension points."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, queue_if_changed
from batchsched.framework.interface import (
    BulkFilterPlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    SKIP,
    SKIP_FILTER,
    SUCCESS,
    BoolArray,
    IndexArray,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits, ResultScope
from batchsched.plugins.node_resource_topology.alignment import (
    all_pods_fit_in_any_order,
    mask_nodes_fitting_pod,
    masks_of_nodes_fitting_containers,
)
from batchsched.plugins.node_resource_topology.demands import AlignedDemand, is_guaranteed
from batchsched.plugins.node_resource_topology.rows import zone_constraint_rows
from batchsched.plugins.node_resource_topology.scoring import NodeResourceTopologyMatchArgs, score_nodes
from batchsched.plugins.node_resource_topology.zones import (
    ZoneTable,
    has_node_resource_topologies,
    zone_table,
)

CANNOT_ALIGN_INIT: Final = "cannot align init container"
CANNOT_ALIGN: Final = "cannot align container"
CANNOT_ALIGN_POD: Final = "cannot align pod"
_REASONS: Final = (CANNOT_ALIGN_INIT, CANNOT_ALIGN, CANNOT_ALIGN_POD)


class NodeResourceTopologyMatch(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes on which the kubelet could not align a pod with NUMA zones, and scores nodes by their zones.

    It reads NodeResourceTopologies, and has nothing to do in a cluster without them.

    Source: `pkg/noderesourcetopology` of the scheduler-plugins project. There, a pod that the object does not contain
    yet counts in all zones of its node; here, it counts in one unknown zone.
    """

    name: ClassVar[str] = "NodeResourceTopologyMatch"
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.TIGHTENS,
        result_scope=ResultScope.NODE_AND_ITS_PODS,
        reads_priority=False,
    )
    Args: ClassVar[type[NodeResourceTopologyMatchArgs]] = NodeResourceTopologyMatchArgs

    def __init__(self, args: NodeResourceTopologyMatchArgs | None = None) -> None:
        self.args = args or NodeResourceTopologyMatchArgs()

    @override
    def signature(self, pod: Pod) -> Hashable:
        return is_guaranteed(pod)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        if (
            not has_node_resource_topologies(nodes.table)
            or not zone_table(nodes.table).cached_aligned_demand(pod.pod).total
        ):
            return SKIP_FILTER
        return ASK_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        zones = zone_table(nodes.table)
        demand = zones.cached_aligned_demand(pod.pod)
        checked = np.flatnonzero(zones.single_zone[nodes.where])
        refused = np.zeros((len(_REASONS), len(nodes)), np.bool_)
        indexes = nodes.node_indexes
        if len(checked):
            refused[:, checked] = _refusals(demand, zones, indexes[checked])
        # Evictions change no amount of a NodeResourceTopology.
        unresolvable = np.asarray(refused.any(axis=0))
        for position in checked[~unresolvable[checked]].tolist():
            node = int(indexes[position])
            uncounted = zones.demands_of_uncounted_pods(node, nodes.table)
            if uncounted and not all_pods_fit_in_any_order((*uncounted, demand), zones, node):
                refused[2 if zones.pod_scope[node] else 1, position] = True
        kept = np.flatnonzero(refused.any(axis=1))
        return Verdict(tuple(_REASONS[number] for number in kept), refused[kept], unresolvable)

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        if not has_node_resource_topologies(table):
            return True
        zones = zone_table(table)
        demand = zones.cached_aligned_demand(pod.pod)
        if not demand.total:
            return True
        checked = zones.single_zone[nodes] & (counts > 0)
        if _refusals(demand, zones, nodes[checked]).any():
            return False
        for node, count in zip(nodes[checked].tolist(), counts[checked].tolist(), strict=True):
            uncounted = zones.demands_of_uncounted_pods(node, table)
            if (count > 1 or uncounted) and not all_pods_fit_in_any_order(
                (*uncounted, *[demand] * count), zones, node
            ):
                return False
        return True

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return linear constraints: each node gets at most as many pods as its NUMA zones have room for."""
        if not has_node_resource_topologies(nodes.table):
            return ()
        return zone_constraint_rows(self.name, (CANNOT_ALIGN, CANNOT_ALIGN_POD), batch, nodes.table)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        # All nodes are equally good for a pod that is not Guaranteed, as in scheduler-plugins.
        if not has_node_resource_topologies(nodes.table):
            return SKIP
        demand = zone_table(nodes.table).cached_aligned_demand(pod.pod)
        return SUCCESS if demand.guaranteed and demand.total else SKIP

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        zones = zone_table(nodes.table)
        return score_nodes(self.args.scoring_strategy, zones.cached_aligned_demand(pod.pod), zones, nodes)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed = Action.ADD | Action.UPDATE | Action.DELETE
        return (
            ClusterEventWithHint.for_events(EventResource.NODE_RESOURCE_TOPOLOGY, changed),
            ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD),
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE),
            # A pod that runs is contained in the amounts of the object.
            ClusterEventWithHint.for_events(
                EventResource.ASSIGNED_POD, Action.UPDATE, queue_if_changed(lambda pod: pod.status.phase)
            ),
        )


def _refusals(demand: AlignedDemand, zones: ZoneTable, nodes: IndexArray) -> BoolArray:
    """Return masks [3, n], one for each reason, of nodes that refuse the pod even without uncounted pods."""
    refused = np.zeros((len(_REASONS), len(nodes)), np.bool_)
    by_pod = np.flatnonzero(zones.pod_scope[nodes])
    by_container = np.flatnonzero(~zones.pod_scope[nodes])
    if len(by_container):
        init_fits, fits = masks_of_nodes_fitting_containers(demand, zones, nodes[by_container])
        refused[0, by_container] = ~init_fits
        refused[1, by_container] = init_fits & ~fits
    if len(by_pod):
        refused[2, by_pod] = ~mask_nodes_fitting_pod(demand, zones, nodes[by_pod])
    return refused
