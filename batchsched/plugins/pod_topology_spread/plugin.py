"""The plugin PodTopologySpread: its extension points, and the events that may help a pod that it refused."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.cluster_objects import ReplicaSet, ReplicationController, Service, StatefulSet
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, TopologySpreadConstraint
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.interface import (
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    ObjectSelectorLabelKeysPlugin,
    PreFilterExtensionsPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SelectorLabelKeysPlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.label_index import PodSelector, selector_key
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.default_selectors import (
    default_selector_label_keys,
    find_controller_with_pod_selector,
)
from batchsched.framework.plugin_support.node_selection import (
    REFUSING_EFFECTS,
    is_node_selected_by_pod,
    untolerated_taints,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    LASTING_SKIP,
    LASTING_SKIP_FILTER,
    SUCCESS,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits
from batchsched.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    HONOR,
    SCHEDULE_ANYWAY,
    PodTopologySpreadArgs,
    label_selectors_of_constraint,
    spread_constraints_with_action,
)
from batchsched.plugins.pod_topology_spread.counts import (
    HardSpreadConstraintCounts,
    ScheduleAnywayConstraints,
    compute_schedule_anyway_penalties,
    count_matching_pods_by_domain,
)
from batchsched.plugins.pod_topology_spread.rows import spread_constraint_rows

NOT_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
NO_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

SPREADS: Final = StateKey[tuple[HardSpreadConstraintCounts, ...]]("PreFilterPodTopologySpread")
PREFERENCES: Final = StateKey[ScheduleAnywayConstraints]("PreScorePodTopologySpread")


class PodTopologySpread(
    SignaturePlugin,
    SelectorLabelKeysPlugin,
    ObjectSelectorLabelKeysPlugin,
    PreFilterPlugin,
    PreFilterExtensionsPlugin,
    FilterPlugin,
    ConstrainPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Spreads matching pods evenly over topology domains, as `topologySpreadConstraints` require or prefer.

    Source: kube-scheduler's podtopologyspread, v1.36.3.
    """

    name: ClassVar[str] = "PodTopologySpread"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.ANY, reads_priority=False)
    Args: ClassVar[type[PodTopologySpreadArgs]] = PodTopologySpreadArgs

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        self._args = args or PodTopologySpreadArgs()
        self._required = self._args.default_constraints_with_action(DO_NOT_SCHEDULE)
        self._preferred = self._args.default_constraints_with_action(SCHEDULE_ANYWAY)

    @override
    def signature(self, pod: Pod) -> Hashable:
        own = pod.spec.topology_spread_constraints
        if own:
            selector_key: Hashable = tuple(_identity(one) for one in own)
        elif self._required or self._preferred:
            owner = find_controller_with_pod_selector(pod)
            selector_key = None if owner is None else (owner.kind, owner.name)
        else:
            return ()
        affinity = pod.spec.affinity
        return (
            selector_key,
            tuple(sorted((pod.spec.node_selector or {}).items())),
            affinity.node_affinity if affinity is not None else None,
            pod.tolerations,
        )

    @override
    def selector_label_keys(self, pod: Pod) -> frozenset[str]:
        keys: set[str] = set()
        for constraint in pod.spec.topology_spread_constraints or ():
            keys.update(constraint.match_label_keys or ())
            if constraint.label_selector is not None:
                keys |= constraint.label_selector.label_keys()
        return frozenset(keys)

    @override
    def object_selector_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        return default_selector_label_keys(snapshot) if self._required or self._preferred else frozenset()

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        constraints = spread_constraints_with_action(pod.pod, DO_NOT_SCHEDULE, self._required, nodes.table)
        if not constraints:
            return LASTING_SKIP_FILTER
        state.write(SPREADS, count_matching_pods_by_domain(nodes.table, pod.pod, constraints))
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
            limit = spread.constraint.max_skew + spread.global_minimum() - spread.itself
            still = ~(refused[0] | refused[1])
            missing = codes < 0
            refused[0] |= still & missing
            refused[1] |= still & ~missing & (spread.counts[codes] > limit)
        return Verdict((NO_LABEL, NOT_SPREAD), refused, refused[0])

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return SpreadHints(self._required).events_to_register()

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        return spread_constraint_rows(batch, nodes.table, self._required)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        constraints = spread_constraints_with_action(pod.pod, SCHEDULE_ANYWAY, self._preferred, nodes.table)
        if not constraints:
            return LASTING_SKIP
        # With kube-scheduler's default constraints, nodes without a zone label still have a score by host name.
        system = self._args.defaulting_type == "System" and not pod.pod.spec.topology_spread_constraints
        state.write(
            PREFERENCES, compute_schedule_anyway_penalties(nodes, pod.pod, constraints, all_keys=not system)
        )
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
            spread.add_matching_pods(node, by)


def _identity(raw: TopologySpreadConstraint) -> Hashable:
    return (
        raw.max_skew,
        raw.topology_key,
        raw.when_unsatisfiable,
        selector_key(raw.label_selector),
        raw.min_domains,
        raw.node_affinity_policy,
        raw.node_taints_policy,
        raw.match_label_keys,
    )


WORKLOADS = (
    EventResource.SERVICE,
    EventResource.REPLICATION_CONTROLLER,
    EventResource.REPLICA_SET,
    EventResource.STATEFUL_SET,
)
Selecting = Service | ReplicationController | ReplicaSet | StatefulSet


class SpreadHints:
    """The queueing hints of PodTopologySpread for one profile, according to its default spread constraints.

    Args:
      defaults: DoNotSchedule constraints of pods without their own. Only Services and workloads define what they
        select, so each pod of the namespace counts as matching.
    """

    def __init__(self, defaults: Sequence[TopologySpreadConstraint]) -> None:
        self._defaults = tuple(defaults)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the cluster events, with queueing hints, after which a refused pod may fit."""
        moved = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        removal = Action.DELETE | Action.UPDATE_POD_TERMINATING
        events = [
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.ADD | removal, self._counted),
            ClusterEventWithHint.for_events(
                EventResource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, self._relabelled
            ),
            ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),
            ClusterEventWithHint.for_events(
                EventResource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self._tolerates
            ),
            ClusterEventWithHint.for_events(EventResource.NODE, moved, self._node_moved),
        ]
        if self._defaults:
            events += [ClusterEventWithHint.for_events(one, Action.ALL, self._selected) for one in WORKLOADS]
        return events

    def _constraints(self, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
        own = pod.spec.topology_spread_constraints
        if not own:
            return self._defaults
        return tuple(one for one in own if one.when_unsatisfiable == DO_NOT_SCHEDULE)

    def _matches(self, pod: Pod, other: Pod) -> tuple[bool, ...]:
        """Return, for each constraint, whether it counts another pod."""
        if other.namespace != pod.namespace:
            return ()
        if not pod.spec.topology_spread_constraints:
            return (True,) * len(self._defaults)
        matches = []
        for constraint in self._constraints(pod):
            selection = PodSelector(label_selectors_of_constraint(constraint, pod.labels))
            matches.append(not selection.selects_whole_namespaces and selection.matches_labels(other.labels))
        return tuple(matches)

    def _counted(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        return Hint.queue_if(any(any(self._matches(pod, one)) for one in (old, new) if one is not None))

    def _relabelled(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        unknown = not pod.spec.topology_spread_constraints and bool(self._matches(pod, new))
        return Hint.queue_if(unknown or self._matches(pod, old) != self._matches(pod, new))

    def _tolerates(self, pod: Pod, _old: Pod, _new: Pod) -> Hint:
        return Hint.queue_if(any(one.node_taints_policy == HONOR for one in self._constraints(pod)))

    def _node_moved(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if old is None or new is None:
            node = new if old is None else old
            return Hint.queue_if(node is not None and self._place(pod, node) is not None)
        return Hint.queue_if(self._place(pod, old) != self._place(pod, new))

    def _place(self, pod: Pod, node: Node) -> Hashable:
        """Return for each constraint the domain of a node, and whether the constraint counts the node.

        The result is None if the node lacks a topology key, so that no constraint counts it.
        """
        constraints = self._constraints(pod)
        if any(one.topology_key not in node.labels for one in constraints):
            return None
        selected = is_node_selected_by_pod(pod, node)
        open_ = not untolerated_taints(node.taints, pod.tolerations, REFUSING_EFFECTS)
        return tuple(
            (
                node.labels[constraint.topology_key],
                (selected or constraint.node_affinity_policy not in (None, HONOR))
                and (open_ or constraint.node_taints_policy != HONOR),
            )
            for constraint in constraints
        )

    def _selected(self, pod: Pod, old: Selecting | None, new: Selecting | None) -> Hint:
        if pod.spec.topology_spread_constraints:
            return Hint.SKIP
        return Hint.queue_if(any(_namespace(one.metadata) == pod.namespace for one in (old, new) if one))


def _namespace(metadata: ObjectMeta) -> str:
    return metadata.namespace or "default"
