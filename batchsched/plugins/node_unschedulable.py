"""NodeUnschedulable: a cordoned node accepts only pods that tolerate it."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from batchsched.api.core.node import Taint
from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import (
    Action,
    ClusterEventWithHint,
    EventResource,
    always_queue,
    queue_if_node_begins_to_pass,
)
from batchsched.framework.interface import EnqueueExtensionsPlugin, FilterPlugin, SignaturePlugin
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import BoolArray, Verdict
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

UNSCHEDULABLE: Final = "node(s) were unschedulable"
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(SignaturePlugin, FilterPlugin, EnqueueExtensionsPlugin):
    """Refuses nodes with `spec.unschedulable`, unless the pod tolerates the taint of cordoned nodes.

    Source: kube-scheduler's plugins/nodeunschedulable.
    """

    name: ClassVar[str] = "NodeUnschedulable"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS

    @override
    def signature(self, pod: Pod) -> Hashable:
        return _tolerates_cordon(pod)

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        cordoned = nodes.table.cached_array("cordoned", _cordoned)[nodes.where]
        if not cordoned.any() or _tolerates_cordon(pod.pod):
            return Verdict.accept(len(nodes))
        return Verdict.refuse(cordoned, UNSCHEDULABLE, unresolvable=True)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        opened = queue_if_node_begins_to_pass(lambda _, node: not node.spec.unschedulable)
        return (
            ClusterEventWithHint.for_events(
                EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, opened
            ),
            ClusterEventWithHint.for_events(
                EventResource.TARGET_POD, Action.UPDATE_POD_TOLERATION, always_queue
            ),
        )


def _cordoned(nodes: Nodes) -> BoolArray:
    return nodes.mask_where(lambda node: node.spec.unschedulable)


def _tolerates_cordon(pod: Pod) -> bool:
    return any(toleration.tolerates(CORDON) for toleration in pod.tolerations)
