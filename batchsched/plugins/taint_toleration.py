"""TaintToleration: excludes nodes with taints that a pod does not tolerate, and avoids nodes with soft taints."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import (
    Action,
    ClusterEventWithHint,
    EventResource,
    always_queue,
    queue_if_node_begins_to_pass,
)
from batchsched.framework.interface import (
    EnqueueExtensionsPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    PreScorePlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.node_selection import (
    REFUSING_EFFECTS,
    untolerated_taint_counts,
    untolerated_taints,
)
from batchsched.framework.plugin_support.scores import default_normalize
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SUCCESS, IntArray, Status, Verdict
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

UNTOLERATED: Final = "node(s) had untolerated taint(s)"
DISCOURAGING: Final = frozenset({"PreferNoSchedule"})


class TaintToleration(
    SignaturePlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes with taints that the pod does not tolerate; prefers nodes with few PreferNoSchedule taints.

    Source: kube-scheduler's plugins/tainttoleration.
    """

    name: ClassVar[str] = "TaintToleration"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS

    @override
    def signature(self, pod: Pod) -> Hashable:
        return pod.tolerations

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        refused = (
            untolerated_taint_counts(nodes.table, pod.pod.tolerations, REFUSING_EFFECTS)[nodes.where] > 0
        )
        return Verdict.refuse(refused, UNTOLERATED, unresolvable=True)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Return Success without preparing anything: Score reads the tolerations itself."""
        return SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return untolerated_taint_counts(nodes.table, pod.pod.tolerations, DISCOURAGING)[nodes.where]

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return default_normalize(scores, reverse=True)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        welcome = queue_if_node_begins_to_pass(_tolerated)
        return (
            ClusterEventWithHint.for_events(
                EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, welcome
            ),
            ClusterEventWithHint.for_events(
                EventResource.TARGET_POD, Action.UPDATE_POD_TOLERATION, always_queue
            ),
        )


def _tolerated(pod: Pod, node: Node) -> bool:
    return not untolerated_taints(node.taints, pod.tolerations, REFUSING_EFFECTS)
