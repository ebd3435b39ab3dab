"""NodeAffinity: the nodes that a pod requires or prefers, by label and by name."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
from pydantic import BeforeValidator, ConfigDict
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import NodeAffinity as Affinity
from batchsched.api.core.pod import Pod, PreferredSchedulingTerm
from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm
from batchsched.api.crd.base import StrictModel
from batchsched.api.json_errors import to_field_error
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
    NormalizeScorePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.node_selection import (
    FIELD_NAME,
    is_node_selected_by_pod,
    mask_nodes_matching_selector,
    mask_nodes_matching_term,
    mask_nodes_selected_by_pod,
)
from batchsched.framework.plugin_support.scores import default_normalize
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    SKIP,
    SKIP_FILTER,
    SUCCESS,
    Code,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

NOT_MATCHED: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
CONFLICT: Final = "pod affinity terms conflict"


def _as_affinity(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return msgspec.convert(value, Affinity)
    except msgspec.ValidationError as error:
        raise ValueError(str(to_field_error(error))) from error


class NodeAffinityArgs(StrictModel):
    """Arguments of NodeAffinity, as in kube-scheduler: a node affinity that applies to every pod."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    added_affinity: Annotated[Affinity | None, BeforeValidator(_as_affinity)] = None


class NodeAffinity(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Checks the pod's nodeSelector and node affinity, and the node affinity that the profile adds.

    Source: kube-scheduler's plugins/nodeaffinity.
    """

    name: ClassVar[str] = "NodeAffinity"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS
    Args: ClassVar[type[NodeAffinityArgs]] = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs | None = None) -> None:
        added = args.added_affinity if args else None
        must = added.required_during_scheduling_ignored_during_execution if added else None
        self._enforced = must if must and must.node_selector_terms else None
        self._added = (added.preferred_during_scheduling_ignored_during_execution if added else None) or ()

    @override
    def signature(self, pod: Pod) -> Hashable:
        selector = pod.spec.node_selector
        return (tuple(sorted(selector.items())) if selector else (), _affinity(pod))

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        must = _required(pod.pod)
        if must is None and self._enforced is None and pod.pod.spec.node_selector is None:
            return SKIP_FILTER
        names = _names(must.node_selector_terms) if must else None
        if names is not None and not names:
            return PreFilterAnswer(Status(Code.UNRESOLVABLE, (CONFLICT,)))
        return PreFilterAnswer(nodes=names)

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        own = ~mask_nodes_selected_by_pod(nodes.table, pod.pod)[nodes.where]
        if self._enforced is None:
            return Verdict.refuse(own, NOT_MATCHED, unresolvable=True)
        enforced = ~mask_nodes_matching_selector(nodes.table, self._enforced)[nodes.where]
        refused = np.stack((enforced, own & ~enforced))
        return Verdict((NOT_ENFORCED, NOT_MATCHED), refused, enforced | own)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        return SUCCESS if self._added or _preferred(pod.pod) is not None else SKIP

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        total = np.zeros(len(nodes), np.int64)
        for term in (*self._added, *(_preferred(pod.pod) or ())):
            total += term.weight * mask_nodes_matching_term(nodes.table, term.preference)[nodes.where]
        return total

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        return default_normalize(scores, reverse=False)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        matching_now = queue_if_node_begins_to_pass(self._passes)
        return (
            ClusterEventWithHint.for_events(
                EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, matching_now
            ),
        )

    def _passes(self, pod: Pod, node: Node) -> bool:
        enforced = self._enforced is None or self._enforced.matches(node.labels, node.name)
        return enforced and is_node_selected_by_pod(pod, node)


def _affinity(pod: Pod) -> Affinity | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def _required(pod: Pod) -> NodeSelector | None:
    affinity = _affinity(pod)
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _preferred(pod: Pod) -> tuple[PreferredSchedulingTerm, ...] | None:
    affinity = _affinity(pod)
    return affinity.preferred_during_scheduling_ignored_during_execution if affinity else None


def _names(terms: Iterable[NodeSelectorTerm]) -> frozenset[str] | None:
    """Return the node names to which the terms are restricted.

    None if a term is not restricted, or there is no term.
    """
    names: frozenset[str] | None = None
    for term in terms:
        named = [
            frozenset(field.values or ())
            for field in term.match_fields or ()
            if field.key == FIELD_NAME and field.operator == "In"
        ]
        if not named:
            return None
        names = (names or frozenset()) | frozenset.intersection(*named)
    return names
