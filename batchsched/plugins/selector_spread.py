"""SelectorSpread: the older way to spread the pods of a Service or a workload. Disabled by default."""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.interface import (
    NormalizeScorePlugin,
    ObjectSelectorLabelKeysPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.label_index import PodSelector
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.default_selectors import (
    default_selector_label_keys,
    default_selectors,
    find_controller_with_pod_selector,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import LASTING_SKIP, SUCCESS, IndexArray, IntArray, Status
from batchsched.framework.traits import PluginTraits

HIGHEST: Final = 100.0
ZONE_WEIGHT: Final = 2.0 / 3.0
"""Share of the zone in the score of a node that has a zone; the rest is by node."""
ZONE_LABELS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
REGION_LABELS: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
SELECTION: Final = StateKey[PodSelector]("PreScoreSelectorSpread")


class SelectorSpread(
    SignaturePlugin, ObjectSelectorLabelKeysPlugin, PreScorePlugin, ScorePlugin, NormalizeScorePlugin
):
    """Prefers nodes and zones with fewer pods of the same Services and workload.

    Zones determine two thirds of the score.

    Pods with their own topology spread constraints are left to PodTopologySpread.

    Source: kube-scheduler's plugins/selectorspread, as it was up to v1.26.
    """

    name: ClassVar[str] = "SelectorSpread"
    traits: ClassVar[PluginTraits] = PluginTraits(reads_priority=False)

    @override
    def signature(self, pod: Pod) -> Hashable:
        if pod.spec.topology_spread_constraints:
            return None
        owner = find_controller_with_pod_selector(pod)
        return () if owner is None else (owner.kind, owner.name)

    @override
    def object_selector_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        return default_selector_label_keys(snapshot)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        # kube-scheduler scores such a pod 0 on every node; skipping the Score has the same effect.
        if pod.pod.spec.topology_spread_constraints:
            return LASTING_SKIP
        selectors = default_selectors(pod.pod, nodes.table)
        state.write(SELECTION, PodSelector(selectors, frozenset({pod.pod.namespace})))
        return SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        selection = state.read(SELECTION)
        if selection.selects_whole_namespaces:
            return np.zeros(len(nodes), np.int64)
        return nodes.pod_table.count_pods_matching_selector_by_node(selection, terminating=False)[nodes.where]

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        most = scores.max(initial=0)
        final = np.full(len(scores), HIGHEST)
        if most > 0:
            final = HIGHEST * ((most - scores) / most)
        zones = zone_indexes(nodes.table)[nodes.where]
        inside = zones >= 0
        if inside.any():
            counts = np.bincount(zones[inside], weights=scores[inside])[zones[inside]]
            fullest = counts.max()
            by_zone = (
                HIGHEST * ((fullest - counts) / fullest) if fullest > 0 else np.full(len(counts), HIGHEST)
            )
            final[inside] = final[inside] * (1.0 - ZONE_WEIGHT) + ZONE_WEIGHT * by_zone
        return final.astype(np.int64)


def zone_indexes(table: NodeTable) -> IndexArray:
    """Return for each node [N] the index of its zone; -1 if it has neither a zone label nor a region label.

    Zones of the same name in different regions have different indexes.

    Source: `GetZoneKey` of k8s.io/component-helpers/node/topology.
    """

    def zone_index_by_node(table: NodeTable) -> IndexArray:
        numbers: dict[tuple[str, str], int] = {}
        codes = np.full(len(table.nodes), -1, np.int32)
        for index, node in enumerate(table.nodes):
            zone = (_first(node, REGION_LABELS), _first(node, ZONE_LABELS))
            if any(zone):
                codes[index] = numbers.setdefault(zone, len(numbers))
        return codes

    return table.cached_value_of_nodes("zones in their regions", zone_index_by_node)


def _first(node: Node, labels: tuple[str, ...]) -> str:
    return next((node.labels[label] for label in labels if label in node.labels), "")
