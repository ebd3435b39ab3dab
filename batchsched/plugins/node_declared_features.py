"""NodeDeclaredFeatures: a pod that needs a kubelet feature is placed on nodes with a kubelet that declares it."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import (
    Action,
    ClusterEventWithHint,
    EventResource,
    queue_if_changed,
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
from batchsched.framework.status import ASK_FILTER, SKIP_FILTER, PreFilterAnswer, Verdict
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

UNSATISFIED: Final = "node(s) didn't match Pod's required features"
USER_NAMESPACES_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"

REQUIRED: Final = StateKey[frozenset[str]]("NodeDeclaredFeatures/required")


class NodeDeclaredFeatures(SignaturePlugin, PreFilterPlugin, FilterPlugin, EnqueueExtensionsPlugin):
    """Compares the features that a pod's spec requires with `status.declaredFeatures` of the node.

    Source: kube-scheduler's plugins/nodedeclaredfeatures, and the features that k8s.io/component-helpers infers
    for scheduling in 1.36.
    """

    name: ClassVar[str] = "NodeDeclaredFeatures"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS

    @override
    def signature(self, pod: Pod) -> Hashable:
        return required_features(pod)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        required = required_features(pod.pod)
        if not required:
            return SKIP_FILTER
        state.write(REQUIRED, required)
        return ASK_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        required = state.read(REQUIRED)
        lacking = nodes.mask_where(lambda node: not required.issubset(node.status.declared_features or ()))
        return Verdict.refuse(lacking, UNSATISFIED, unresolvable=True)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        declared = Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE
        return (
            ClusterEventWithHint.for_events(
                EventResource.NODE, declared, queue_if_node_begins_to_pass(_has_all)
            ),
            ClusterEventWithHint.for_events(
                EventResource.TARGET_POD, Action.UPDATE, queue_if_changed(required_features)
            ),
        )


def _has_all(pod: Pod, node: Node) -> bool:
    return required_features(pod).issubset(node.status.declared_features or ())


def required_features(pod: Pod) -> frozenset[str]:
    """Return the kubelet features that a pod's spec requires."""
    spec = pod.spec
    required = set()
    if spec.host_network and spec.host_users is False:
        required.add(USER_NAMESPACES_HOST_NETWORK)
    rules = (
        rule
        for container in (*spec.containers, *(spec.init_containers or ()))
        for rule in container.restart_policy_rules or ()
    )
    if any(rule.action == "RestartAllContainers" for rule in rules):
        required.add(RESTART_ALL_CONTAINERS)
    return frozenset(required)
