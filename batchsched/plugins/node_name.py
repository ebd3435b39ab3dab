"""NodeName: a pod with `spec.nodeName` fits only on that node."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import (
    Action,
    ClusterEventWithHint,
    EventResource,
    queue_if_node_begins_to_pass,
)
from batchsched.framework.interface import (
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import ASK_FILTER, PreFilterAnswer, Verdict
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

ANOTHER_NODE: Final = "node(s) didn't match the requested node name"


class NodeName(SignaturePlugin, PreFilterPlugin, FilterPlugin, EnqueueExtensionsPlugin):
    """Refuses all nodes except the one that the pod's `spec.nodeName` names, if it names one.

    Source: kube-scheduler's plugins/nodename.
    """

    name: ClassVar[str] = "NodeName"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS

    @override
    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.node_name

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        node_name = pod.pod.spec.node_name
        if node_name and nodes.table.release.node_name_narrows:
            return PreFilterAnswer(nodes=frozenset((node_name,)))
        return ASK_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        node_name = pod.pod.spec.node_name
        if not node_name:
            return Verdict.accept(len(nodes))
        refused = np.ones(len(nodes.table.nodes), np.bool_)
        if node_name in nodes.table.index:
            refused[nodes.table.index[node_name]] = False
        return Verdict.refuse(refused[nodes.where], ANOTHER_NODE, unresolvable=True)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        named = queue_if_node_begins_to_pass(lambda pod, node: pod.spec.node_name == node.name)
        return (ClusterEventWithHint.for_events(EventResource.NODE, Action.ADD, named),)
