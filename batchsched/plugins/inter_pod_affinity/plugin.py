"""The plugin InterPodAffinity: its extension points, and the events that may help a pod that it refused."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import msgspec
import numpy as np
from pydantic import Field
from typing_extensions import override

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodAffinityTerm
from batchsched.api.crd.base import StrictModel
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.interface import (
    ConstrainPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    PreFilterExtensionsPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SelectorLabelKeysPlugin,
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
from batchsched.plugins.inter_pod_affinity.rows import affinity_constraint_rows
from batchsched.plugins.inter_pod_affinity.terms import (
    DomainMatchCounts,
    RequiredTermState,
    no_pod_has_affinity,
    pod_affinity_of,
    pod_anti_affinity_of,
    preferred_weights_by_domain,
    required_term_state,
    topology_keys,
)

AFFINITY_MISMATCH: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_MATCH: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

REQUIRED_TERMS: Final = StateKey[RequiredTermState]("PreFilterInterPodAffinity")
PREFERRED_TERMS: Final = StateKey[DomainMatchCounts]("PreScoreInterPodAffinity")


class InterPodAffinityArgs(StrictModel):
    """Arguments of InterPodAffinity, as in kube-scheduler."""

    hard_pod_affinity_weight: int = Field(
        default=1,
        ge=0,
        le=100,
        description="Weight in the score of a required affinity term of an existing pod that matches the pod.",
    )
    ignore_preferred_terms_of_existing_pods: bool = Field(
        default=False, description="Skip the score for pods without preferred terms."
    )


class InterPodAffinity(
    SignaturePlugin,
    SelectorLabelKeysPlugin,
    PreFilterPlugin,
    PreFilterExtensionsPlugin,
    FilterPlugin,
    ConstrainPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Places pods near other pods or away from them, as the affinity terms of the pod and of the other pods state.

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
    def selector_label_keys(self, pod: Pod) -> frozenset[str]:
        if pod.spec.affinity is None:
            return frozenset()
        keys: set[str] = set()
        for affinity in (pod_affinity_of(pod), pod_anti_affinity_of(pod)):
            for term in (
                *affinity.required_terms,
                *(one.pod_affinity_term for one in affinity.preferred_terms),
            ):
                if term.label_selector is not None:
                    keys |= term.label_selector.label_keys()
        return frozenset(keys)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        if no_pod_has_affinity(nodes.table, pod.pod):
            return SKIP_FILTER
        terms_state = required_term_state(nodes.table, pod.pod)
        if (
            not terms_state.affinity
            and not terms_state.anti_affinity
            and not terms_state.existing_matches.has_nonzero_count()
        ):
            return SKIP_FILTER
        state.write(REQUIRED_TERMS, terms_state)
        return ASK_FILTER

    @override
    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        if state.has(REQUIRED_TERMS):
            state.read(REQUIRED_TERMS).update_with_pod(added, node, 1)

    @override
    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        if state.has(REQUIRED_TERMS):
            state.read(REQUIRED_TERMS).update_with_pod(removed, node, -1)

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        terms_state = state.read(REQUIRED_TERMS)
        unmatched = _without_affinity_match(terms_state, nodes)
        excluded = _near(terms_state.anti_affinity_matches, nodes) & ~unmatched
        excluded_by_existing = _near(terms_state.existing_matches, nodes) & ~unmatched & ~excluded
        return Verdict(
            (AFFINITY_MISMATCH, ANTI_AFFINITY_MATCH, EXISTING_ANTI_AFFINITY),
            np.stack([unmatched, excluded, excluded_by_existing]),
            unmatched,
        )

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return helpful_events()

    @override
    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        return affinity_constraint_rows(batch, nodes.table)

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        wants = pod_affinity_of(pod.pod).preferred_terms or pod_anti_affinity_of(pod.pod).preferred_terms
        if self._args.ignore_preferred_terms_of_existing_pods and not wants:
            return SKIP
        if no_pod_has_affinity(nodes.table, pod.pod):
            return SKIP
        tally = preferred_weights_by_domain(nodes.table, pod.pod, self._args.hard_pod_affinity_weight)
        if tally is None:
            return SKIP
        state.write(PREFERRED_TERMS, tally)
        return SUCCESS

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        total = np.zeros(len(nodes), np.int64)
        for key, weights in state.read(PREFERRED_TERMS).by_key.items():
            total += weights[nodes.label_indexes_and_values(key)[0]]
        return total

    @override
    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        if not len(scores) or scores.max() == scores.min():
            return np.zeros(len(scores), np.int64)
        share = (scores - scores.min()).astype(np.float64) / float(scores.max() - scores.min())
        points: IntArray = (100.0 * share).astype(np.int64)
        return points


def _without_affinity_match(terms_state: RequiredTermState, nodes: Nodes) -> BoolArray:
    """Return a mask [n] of nodes in domains without the required pods, or without a topology key."""
    unlabelled = np.zeros(len(nodes), np.bool_)
    missing = np.zeros(len(nodes), np.bool_)
    for key in topology_keys(terms_state.affinity):
        codes = nodes.label_indexes_and_values(key)[0]
        unlabelled |= codes < 0
        missing |= terms_state.affinity_matches.counts_by_domain(key)[codes] <= 0
    if missing.any() and terms_state.allows_first_pod():
        return unlabelled
    return unlabelled | missing


def _near(tally: DomainMatchCounts, nodes: Nodes) -> BoolArray:
    """Return a mask [n] of the nodes in a domain with a count above zero."""
    near = np.zeros(len(nodes), np.bool_)
    for key, counts in tally.by_key.items():
        near |= counts[nodes.label_indexes_and_values(key)[0]] > 0
    return near


def helpful_events() -> Sequence[ClusterEventWithHint]:
    """Return the cluster events, with queueing hints, after which a pod refused by InterPodAffinity may fit.

    A hint does not know the labels of namespaces. A term with a namespace selector therefore counts as matching
    every namespace. Any changed node label counts, because it may be the key of another pod's anti-affinity.
    """
    return (
        ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.ADD, _pod_added),
        ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _pod_deleted),
        ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, _relabelled),
        ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL),
        ClusterEventWithHint.for_events(
            EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, _node_moved
        ),
        ClusterEventWithHint.for_events(
            EventResource.NAMESPACE, Action.ADD | Action.DELETE | Action.UPDATE, _namespace
        ),
    )


def _pod_added(pod: Pod, _old: None, new: Pod) -> Hint:
    return Hint.queue_if(_may_match_affinity(pod, new))


def _pod_deleted(pod: Pod, old: Pod, _new: None) -> Hint:
    """Return QUEUE if a pod was deleted that prevented the placement.

    It matched the anti-affinity, or had one; or it was the last match of the affinity, so that the pod may now be
    the first.
    """
    repelling = any(_may_match(term, pod, old) for term in pod_anti_affinity_of(pod).required_terms)
    repelled = any(_may_match(term, old, pod) for term in pod_anti_affinity_of(old).required_terms)
    first_now = _may_match_affinity(pod, old) and _may_match_affinity(pod, pod)
    return Hint.queue_if(repelling or repelled or first_now)


def _relabelled(pod: Pod, old: Pod, new: Pod) -> Hint:
    befriended = _may_match_affinity(pod, new) and not _may_match_affinity(pod, old)
    first_now = (
        _may_match_affinity(pod, old) and not _may_match_affinity(pod, new) and _may_match_affinity(pod, pod)
    )
    appeased = any(
        _may_match(term, pod, old) and not _may_match(term, pod, new)
        for term in pod_anti_affinity_of(pod).required_terms
    )
    return Hint.queue_if(befriended or first_now or appeased)


def _node_moved(pod: Pod, old: Node | None, new: Node) -> Hint:
    if old is not None:
        return Hint.QUEUE
    return Hint.queue_if(all(term.topology_key in new.labels for term in pod_affinity_of(pod).required_terms))


def _namespace(pod: Pod, old: Namespace | None, new: Namespace | None) -> Hint:
    """Return QUEUE for a namespace if its labels may matter.

    Labels of the pod's own namespace may matter for terms of other pods, and labels of others for terms of the pod.
    """
    if old is not None and new is not None and (old.metadata.labels or {}) == (new.metadata.labels or {}):
        return Hint.SKIP
    namespace = new or old
    is_own = namespace is not None and namespace.metadata.name == pod.namespace
    terms = (*pod_affinity_of(pod).required_terms, *pod_anti_affinity_of(pod).required_terms)
    return Hint.queue_if(is_own or any(term.namespace_selector is not None for term in terms))


def _may_match_affinity(pod: Pod, other: Pod) -> bool:
    """Return True if another pod may match the pod's affinity."""
    terms = pod_affinity_of(pod).required_terms
    return bool(terms) and all(_may_match(term, pod, other) for term in terms)


def _may_match(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Return True if a term of one pod may match another, whatever the labels of its namespace."""
    if term.label_selector is None or not term.label_selector.matches(other.labels):
        return False
    named = term.namespaces or (owner.namespace,)
    return term.namespace_selector is not None or other.namespace in named
