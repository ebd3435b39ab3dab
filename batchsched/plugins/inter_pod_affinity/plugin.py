"""The plugin class with its extension points."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import SpecPart
from batchsched.framework.constrain import Batch, Row
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import ClusterEventWithHint, EnqueueExtensionsPlugin
from batchsched.framework.interface import (
    ConstrainPlugin,
    FilterPlugin,
    LabelReadingPlugin,
    NormalizeScorePlugin,
    PreFilterExtensionsPlugin,
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
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.inter_pod_affinity.counts import (
    Needs,
    Tally,
    count_needs,
    count_wishes,
    keys_of,
    nobody_cares,
)
from batchsched.plugins.inter_pod_affinity.hints import helpful_events
from batchsched.plugins.inter_pod_affinity.rows import affinity_rows
from batchsched.plugins.inter_pod_affinity.terms import attraction_of, repulsion_of

NO_FRIEND: Final = "node(s) didn't match pod affinity rules"
A_FOE: Final = "node(s) didn't match pod anti-affinity rules"
AN_ENEMY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

NEEDS: Final = StateKey[Needs]("PreFilterInterPodAffinity")
WISHES: Final = StateKey[Tally]("PreScoreInterPodAffinity")


class InterPodAffinityArgs(SpecPart):
    """InterPodAffinityArgs of kube-scheduler."""

    hard_pod_affinity_weight: int = Field(
        default=1,
        ge=0,
        le=100,
        description="What required affinity of existing pods to the pod weighs in the score.",
    )
    ignore_preferred_terms_of_existing_pods: bool = Field(
        default=False, description="A pod that prefers nothing itself is not scored."
    )


class InterPodAffinity(
    SignaturePlugin,
    LabelReadingPlugin,
    PreFilterPlugin,
    PreFilterExtensionsPlugin,
    FilterPlugin,
    ConstrainPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Places pods near other pods or away from them, as their own terms and those of the other pods require.

    Source: kube-scheduler's interpodaffinity, v1.36.3.
    """

    name: ClassVar[str] = "InterPodAffinity"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.ANY, reads_priority=False)
    Args: ClassVar[type[InterPodAffinityArgs]] = InterPodAffinityArgs

    def __init__(self, args: InterPodAffinityArgs | None = None) -> None:
        self._args = args or InterPodAffinityArgs()

    @override
    def signature(self, pod: Pod) -> Hashable:
        affinity = pod.spec.affinity
        if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
            return ()
        return msgspec.msgpack.encode((affinity.pod_affinity, affinity.pod_anti_affinity))

    @override
    def label_keys(self, pod: Pod) -> frozenset[str]:
        keys: set[str] = set()
        for affinity in (attraction_of(pod), repulsion_of(pod)):
            for term in (*affinity.required, *(one.pod_affinity_term for one in affinity.preferred)):
                if term.label_selector is not None:
                    keys |= term.label_selector.keys()
        return frozenset(keys)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        if nobody_cares(nodes.table, pod.pod):
            return SKIP_FILTER
        needs = count_needs(nodes.table, pod.pod)
        if not needs.affinity and not needs.anti_affinity and not needs.enemies.any():
            return SKIP_FILTER
        state.write(NEEDS, needs)
        return ASK_FILTER

    @override
    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        if state.has(NEEDS):
            state.read(NEEDS).change(added, node, 1)

    @override
    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        if state.has(NEEDS):
            state.read(NEEDS).change(removed, node, -1)

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        needs = state.read(NEEDS)
        friendless = _friendless(needs, nodes)
        foe = _near(needs.foes, nodes) & ~friendless
        enemy = _near(needs.enemies, nodes) & ~friendless & ~foe
        return Verdict((NO_FRIEND, A_FOE, AN_ENEMY), np.stack([friendless, foe, enemy]), friendless)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return helpful_events()

    @override
    def constrain(self, batch: Batch, nodes: Nodes) -> Sequence[Row]:
        return affinity_rows(batch, nodes.table)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        wants = attraction_of(pod.pod).preferred or repulsion_of(pod.pod).preferred
        if self._args.ignore_preferred_terms_of_existing_pods and not wants:
            return SKIP
        if nobody_cares(nodes.table, pod.pod):
            return SKIP
        tally = count_wishes(nodes.table, pod.pod, self._args.hard_pod_affinity_weight)
        if tally is None:
            return SKIP
        state.write(WISHES, tally)
        return SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        total = np.zeros(len(nodes), np.int64)
        for key, weights in state.read(WISHES).by_key.items():
            total += weights[nodes.label(key)[0]]
        return total

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        if not len(scores) or scores.max() == scores.min():
            return np.zeros(len(scores), np.int64)
        share = (scores - scores.min()).astype(np.float64) / float(scores.max() - scores.min())
        points: IntArray = (100.0 * share).astype(np.int64)
        return points


def _friendless(needs: Needs, nodes: Nodes) -> BoolArray:
    """[n] Return the nodes without the pods that the class requires in the domain, or without its label."""
    unlabelled = np.zeros(len(nodes), np.bool_)
    lonely = np.zeros(len(nodes), np.bool_)
    for key in keys_of(needs.affinity):
        codes = nodes.label(key)[0]
        unlabelled |= codes < 0
        lonely |= needs.friends.of(key)[codes] <= 0
    if lonely.any() and needs.first_of_series():
        return unlabelled
    return unlabelled | lonely


def _near(tally: Tally, nodes: Nodes) -> BoolArray:
    """[n] Return the nodes in a domain with a count above zero."""
    near = np.zeros(len(nodes), np.bool_)
    for key, counts in tally.by_key.items():
        near |= counts[nodes.label(key)[0]] > 0
    return near
