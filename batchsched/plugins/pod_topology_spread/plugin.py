"""The plugin class with its extension points."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.pod import Pod, TopologySpreadConstraint
from batchsched.api.snapshot import Snapshot
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
    SnapshotLabelsPlugin,
)
from batchsched.framework.nodes.label_index import identity
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.default_selectors import controller_of, default_label_keys
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    SKIP,
    SKIP_FILTER,
    SUCCESS,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.pod_topology_spread import constraints as wishes
from batchsched.plugins.pod_topology_spread.counts import (
    Preferences,
    Spread,
    count_preferences,
    count_spreads,
)
from batchsched.plugins.pod_topology_spread.hints import SpreadHints
from batchsched.plugins.pod_topology_spread.rows import spread_rows

NOT_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
NO_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

SPREADS: Final = StateKey[tuple[Spread, ...]]("PreFilterPodTopologySpread")
PREFERENCES: Final = StateKey[Preferences]("PreScorePodTopologySpread")


class PodTopologySpread(
    SignaturePlugin,
    LabelReadingPlugin,
    SnapshotLabelsPlugin,
    PreFilterPlugin,
    PreFilterExtensionsPlugin,
    FilterPlugin,
    ConstrainPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Spreads matching pods evenly over the domains of a topology key.

    Source: kube-scheduler's podtopologyspread, v1.36.3.
    """

    name: ClassVar[str] = "PodTopologySpread"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.ANY, reads_priority=False)
    Args: ClassVar[type[wishes.Args]] = wishes.Args

    def __init__(self, args: wishes.Args | None = None) -> None:
        self._args = args or wishes.Args()
        self._required = self._args.defaults(wishes.DO_NOT_SCHEDULE)
        self._preferred = self._args.defaults(wishes.SCHEDULE_ANYWAY)

    @override
    def signature(self, pod: Pod) -> Hashable:
        own = pod.spec.topology_spread_constraints
        if own:
            identity: Hashable = tuple(_identity(one) for one in own)
        elif self._required or self._preferred:
            owner = controller_of(pod)
            identity = None if owner is None else (owner.kind, owner.name)
        else:
            return ()
        affinity = pod.spec.affinity
        return (
            identity,
            tuple(sorted((pod.spec.node_selector or {}).items())),
            affinity.node_affinity if affinity is not None else None,
            pod.tolerations,
        )

    @override
    def label_keys(self, pod: Pod) -> frozenset[str]:
        keys: set[str] = set()
        for constraint in pod.spec.topology_spread_constraints or ():
            keys.update(constraint.match_label_keys or ())
            if constraint.label_selector is not None:
                keys |= constraint.label_selector.keys()
        return frozenset(keys)

    @override
    def snapshot_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        return default_label_keys(snapshot) if self._required or self._preferred else frozenset()

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        constraints = wishes.constraints_of(pod.pod, wishes.DO_NOT_SCHEDULE, self._required, nodes.table)
        if not constraints:
            return SKIP_FILTER
        state.write(SPREADS, count_spreads(nodes.table, pod.pod, constraints))
        return ASK_FILTER

    @override
    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        _change(pod.pod, added, node, state, 1)

    @override
    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        _change(pod.pod, removed, node, state, -1)

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        # [2, n]: the label is missing; the skew is too large. The reason is that of the first constraint that fails.
        refused = np.zeros((2, len(nodes)), np.bool_)
        for spread in state.read(SPREADS):
            codes = spread.codes[nodes.where]
            limit = spread.constraint.max_skew + spread.lowest() - spread.itself
            still = ~(refused[0] | refused[1])
            missing = codes < 0
            refused[0] |= still & missing
            refused[1] |= still & ~missing & (spread.counts[codes] > limit)
        return Verdict((NO_LABEL, NOT_SPREAD), refused, refused[0])

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return SpreadHints(self._required).events()

    @override
    def constrain(self, batch: Batch, nodes: Nodes) -> Sequence[Row]:
        return spread_rows(batch, nodes.table, self._required)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        constraints = wishes.constraints_of(pod.pod, wishes.SCHEDULE_ANYWAY, self._preferred, nodes.table)
        if not constraints:
            return SKIP
        # With kube-scheduler's default constraints, nodes without a zone label still have a score by host name.
        system = self._args.defaulting_type == "System" and not pod.pod.spec.topology_spread_constraints
        state.write(PREFERENCES, count_preferences(nodes, pod.pod, constraints, all_keys=not system))
        return SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        preferences = state.read(PREFERENCES)
        total = np.zeros(len(nodes), np.float64)
        for preference in preferences.each:
            total += np.where(preference.has[nodes.where], preference.cost[nodes.where], 0.0)
        whole = np.floor(total)
        rounded = whole + (total - whole >= 0.5)
        rounded[preferences.ignored[nodes.where]] = 0
        return rounded.astype(np.int64)

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        scored = ~state.read(PREFERENCES).ignored[nodes.where]
        result = np.zeros(len(scores), np.int64)
        if not scored.any():
            return result
        lowest, highest = int(scores[scored].min()), max(0, int(scores[scored].max()))
        result[scored] = 100 if highest == 0 else 100 * (highest + lowest - scores[scored]) // highest
        return result


def _change(pod: Pod, changed: Pod, node: int, state: CycleState, by: int) -> None:
    """Update the counts for a pod that is added or removed.

    As in `updateWithPod` of kube-scheduler, a terminating pod counts here although it did not count before, and an
    empty selector counts every pod. The global minimum is exact. kube-scheduler tracks only the two lowest domains,
    which gives the same minimum while pods of one node change.
    """
    if changed.namespace != pod.namespace or not state.has(SPREADS):
        return
    for spread in state.read(SPREADS):
        if spread.constraint.selection.matches_labels(changed.labels):
            spread.change(node, by)


def _identity(raw: TopologySpreadConstraint) -> Hashable:
    return (
        raw.max_skew,
        raw.topology_key,
        raw.when_unsatisfiable,
        identity(raw.label_selector),
        raw.min_domains,
        raw.node_affinity_policy,
        raw.node_taints_policy,
        raw.match_label_keys,
    )
