"""Affinity terms: which pods a pod's terms match, and which existing pods' terms match a pod.

A namespace selector is read in two ways. The selector of an existing pod is tested with the labels of the pending
pod's namespace, or without labels if the Namespace object is missing. The selector of the pending pod selects the
namespaces with matching labels. For every existing pod it is then tested with no labels: a selector that matches
these, such as `{}` but also `DoesNotExist`, selects the pods of all namespaces.

Source: `AffinityTerm.Matches`, `mergeAffinityTermNamespacesIfNotEmpty` and `GetNamespaceLabelsSnapshot` of
kube-scheduler.

The counts are numbers of matching pods by topology domain, for the Filter and the Score of one class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.api.core.metadata import EMPTY_LABELS
from batchsched.api.core.pod import Pod, PodAffinity, PodAffinityTerm
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import sum_by_domain
from batchsched.framework.nodes.affinity_groups import AffinityGroup, ExistingAffinityTerm
from batchsched.framework.nodes.label_index import PodSelector
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import IntArray

NO_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True, eq=False)
class AffinityTerm:
    """A pod affinity term: the pods that it selects, and its topology key."""

    topology_key: str
    selection: PodSelector


@dataclass(frozen=True, slots=True, eq=False)
class PodWithNamespaceLabels:
    """A pending pod with the labels of its namespace, to test which terms of existing pods match the pod."""

    pod: Pod
    namespace_labels: Mapping[str, str]


def pod_affinity_of(pod: Pod) -> PodAffinity:
    """Return the pod affinity of a pod; an empty one if the pod has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_affinity) or NO_AFFINITY


def pod_anti_affinity_of(pod: Pod) -> PodAffinity:
    """Return the pod anti-affinity of a pod; an empty one if the pod has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_anti_affinity) or NO_AFFINITY


def labels_by_namespace(table: NodeTable) -> dict[str, Mapping[str, str]]:
    """Return the labels of each Namespace object, by the name of the namespace."""

    def read_labels_of_namespaces(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
        return {one.metadata.name: one.metadata.labels or EMPTY_LABELS for one in snapshot.namespaces}

    return table.cached_value_of_cluster_objects("namespace labels", read_labels_of_namespaces)


def pod_with_namespace_labels(pod: Pod, table: NodeTable) -> PodWithNamespaceLabels:
    """Return a pending pod together with the labels of its namespace."""
    return PodWithNamespaceLabels(pod, labels_by_namespace(table).get(pod.namespace, EMPTY_LABELS))


def resolve_terms(
    raw_terms: Iterable[PodAffinityTerm], pod: Pod, table: NodeTable
) -> tuple[AffinityTerm, ...]:
    """Return the affinity terms of a pending pod, each with the namespaces and labels that it selects."""
    return tuple(
        AffinityTerm(
            term.topology_key,
            PodSelector.from_label_selector(term.label_selector, _namespaces(term, pod, table)),
        )
        for term in raw_terms
    )


def _namespaces(term: PodAffinityTerm, pod: Pod, table: NodeTable) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or (pod.namespace,))
    selects_all = (
        not selector.label_keys()
        if table.release.replaces_namespace_selector
        else selector.matches(EMPTY_LABELS)
    )
    if selects_all:
        return None
    matching = {name for name, labels in labels_by_namespace(table).items() if selector.matches(labels)}
    return frozenset(matching.union(term.namespaces or ()))


def existing_term_matches_pending_pod(
    term: PodAffinityTerm, owner_namespace: str, incoming: PodWithNamespaceLabels
) -> bool:
    """Return True if an affinity term of an existing pod matches a pending pod."""
    if term.label_selector is None:
        return False
    names, selector = term.namespaces, term.namespace_selector
    if not names and selector is None:
        inside = incoming.pod.namespace == owner_namespace
    else:
        inside = incoming.pod.namespace in (names or ()) or (
            selector is not None and selector.matches(incoming.namespace_labels)
        )
    return inside and term.label_selector.matches(incoming.pod.labels)


def all_terms_match(terms: tuple[AffinityTerm, ...], pod: Pod) -> bool:
    """Return True if every one of the affinity terms matches the given pod; False if there are no terms."""
    return bool(terms) and all(term.selection.matches(pod.namespace, pod.labels) for term in terms)


@dataclass(slots=True, eq=False)
class DomainMatchCounts:
    """Numbers of pods that match affinity terms, or sums of term weights, by topology key and domain.

    Args:
      table: the nodes.
      by_key: topology key → [D+1] the count of each of D domains; the last entry, for nodes without the label, is 0.
    """

    table: NodeTable
    by_key: dict[str, IntArray] = field(default_factory=dict)

    def counts_by_domain(self, key: str) -> IntArray:
        """Return an array [D+1]: the counts of the D domains of a topology key, and 0 for nodes in no domain.

        If no counts of the topology key are stored yet, the method stores zeros and returns them.
        """
        counts = self.by_key.get(key)
        if counts is None:
            counts = self.by_key[key] = np.zeros(
                len(self.table.label_indexes_and_values(key)[1]) + 1, np.int64
            )
        return counts

    def add_pod_counts(self, key: str, counts: IntArray, weight: int = 1) -> bool:
        """Multiply the pod counts [N] of all nodes by a weight, and add them to the counts of their domains.

        Return True if one of the nodes with pods is in a domain.
        """
        codes, values = self.table.label_indexes_and_values(key)
        sums = sum_by_domain(codes, counts, len(values))
        sums[-1] = 0
        if not sums.any():
            return False
        self.counts_by_domain(key)[:] += weight * sums
        return True

    def add_pod_counts_of_affinity_group(self, key: str, group: AffinityGroup, weight: int = 1) -> bool:
        """Add the number of an AffinityGroup's pods in each domain, times a weight, to the domain's count.

        The label `key` divides the nodes into domains. The pods of an AffinityGroup are in one namespace and have equal
        pod affinity.

        Return True if one of the pods is in a domain.
        """
        nodes, pods = group.nodes_and_pod_counts()
        codes = self.table.label_indexes_and_values(key)[0][nodes]
        inside = codes >= 0
        if not inside.any():
            return False
        np.add.at(self.counts_by_domain(key), codes[inside], weight * pods[inside])
        return True

    def add_to_domain_of_node(self, key: str, node: int, by: int) -> None:
        """Add a number to the count of the topology domain that one node is in."""
        code = int(self.table.label_indexes_and_values(key)[0][node])
        if code >= 0:
            self.counts_by_domain(key)[code] += by

    def has_nonzero_count(self) -> bool:
        """Return True if the count of any topology domain is not zero."""
        return any(bool(counts.any()) for counts in self.by_key.values())

    def clone(self) -> "DomainMatchCounts":
        """Return an independent copy of the counts by topology domain."""
        return DomainMatchCounts(self.table, {key: counts.copy() for key, counts in self.by_key.items()})


@dataclass(slots=True, eq=False)
class RequiredTermState:
    """The required affinity and anti-affinity terms of a pod class, with numbers of matching pods by domain.

    Args:
      incoming: a pod of the class, for the terms of existing pods.
      affinity, anti_affinity: the required terms of the class.
      affinity_matches: numbers of pods that match all terms of `affinity`, by the keys of these terms.
      anti_affinity_matches: numbers of pods that match a term of `anti_affinity`, by the key of the term.
      existing_matches: numbers of pods with a required anti-affinity term that matches the class, by its key.
      itself: the class matches all terms of its own `affinity`.
    """

    incoming: PodWithNamespaceLabels
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    affinity_matches: DomainMatchCounts
    anti_affinity_matches: DomainMatchCounts
    existing_matches: DomainMatchCounts
    itself: bool

    def allows_first_pod(self) -> bool:
        """Return True if this pod class matches all its required affinity terms, and no existing pod does.

        Any topology domain may then take the first pod.
        """
        return self.itself and not self.affinity_matches.has_nonzero_count()

    def clone(self) -> "RequiredTermState":
        """Return an independent copy of the required terms with their pod counts."""
        return replace(
            self,
            affinity_matches=self.affinity_matches.clone(),
            anti_affinity_matches=self.anti_affinity_matches.clone(),
            existing_matches=self.existing_matches.clone(),
        )

    def update_with_pod(self, pod: Pod, node: int, by: int) -> None:
        """Update the numbers of matching pods for a pod that is added to a node (by=1) or removed from it (by=-1).

        Source: `updateWithPod` of kube-scheduler.
        """
        for raw_term in pod_anti_affinity_of(pod).required_terms:
            if existing_term_matches_pending_pod(raw_term, pod.namespace, self.incoming):
                self.existing_matches.add_to_domain_of_node(raw_term.topology_key, node, by)
        if all_terms_match(self.affinity, pod):
            for key in topology_keys(self.affinity):
                self.affinity_matches.add_to_domain_of_node(key, node, by)
        for term in self.anti_affinity:
            if term.selection.matches(pod.namespace, pod.labels):
                self.anti_affinity_matches.add_to_domain_of_node(term.topology_key, node, by)


def topology_keys(terms: tuple[AffinityTerm, ...]) -> tuple[str, ...]:
    """Return the distinct topology keys of affinity terms."""
    return tuple(dict.fromkeys(term.topology_key for term in terms))


def no_pod_has_affinity(table: NodeTable, pod: Pod) -> bool:
    """Return True if neither the pod nor any pod on a node has pod affinity or anti-affinity."""
    own = pod.spec.affinity
    return not table.pod_table.with_affinity and (
        own is None or not (own.pod_affinity or own.pod_anti_affinity)
    )


def required_term_state(table: NodeTable, pod: Pod) -> RequiredTermState:
    """Return the required affinity terms of a pending pod, with the numbers of existing pods that match, by domain.

    Existing pods with anti-affinity to the pending pod are counted, too.

    Terminating pods count. Source: `PreFilter` of kube-scheduler's interpodaffinity.
    """
    incoming = pod_with_namespace_labels(pod, table)
    affinity = resolve_terms(pod_affinity_of(pod).required_terms, pod, table)
    anti_affinity = resolve_terms(pod_anti_affinity_of(pod).required_terms, pod, table)
    affinity_matches, anti_affinity_matches, existing_matches = (
        DomainMatchCounts(table),
        DomainMatchCounts(table),
        DomainMatchCounts(table),
    )
    if affinity:
        counts = table.pod_table.count_pods_matching_selector_by_node(combined_selector(affinity))
        for key in topology_keys(affinity):
            affinity_matches.add_pod_counts(key, counts)
    for term in anti_affinity:
        anti_affinity_matches.add_pod_counts(
            term.topology_key, table.pod_table.count_pods_matching_selector_by_node(term.selection)
        )
    for existing in table.pod_table.affinity_groups.terms_that_may_match(pod.labels):
        if not existing.is_anti_affinity or existing.preference is not None:
            continue
        if existing_term_matches_pending_pod(existing.term, existing.group.namespace, incoming):
            existing_matches.add_pod_counts_of_affinity_group(existing.term.topology_key, existing.group)
    return RequiredTermState(
        incoming,
        affinity,
        anti_affinity,
        affinity_matches,
        anti_affinity_matches,
        existing_matches,
        all_terms_match(affinity, pod),
    )


def combined_selector(terms: tuple[AffinityTerm, ...]) -> PodSelector:
    """Combine affinity terms into one selector, which selects the pods that match all of the terms."""
    if any(term.selection.selectors is None for term in terms):
        return PodSelector(None)
    namespaces: frozenset[str] | None = None
    for term in terms:
        own = term.selection.namespaces
        if own is not None:
            namespaces = own if namespaces is None else namespaces & own
    selectors = tuple(one for term in terms for one in term.selection.selectors or ())
    return PodSelector(selectors, namespaces)


def preferred_weights_by_domain(table: NodeTable, pod: Pod, hard_weight: int) -> DomainMatchCounts | None:
    """Return for each topology domain the sum of the weights of the preferred affinity terms that match pods in it.

    Terms of the pending pod and of existing pods count.

    Returns:
      The sums, or None if no term matches a pod.

    Source: `processExistingPod` of kube-scheduler's interpodaffinity.
    """
    incoming = pod_with_namespace_labels(pod, table)
    tally = DomainMatchCounts(table)
    matched = False
    for sign, preferred in (
        (1, pod_affinity_of(pod).preferred_terms),
        (-1, pod_anti_affinity_of(pod).preferred_terms),
    ):
        terms = resolve_terms((one.pod_affinity_term for one in preferred), pod, table)
        for preference, term in zip(preferred, terms, strict=True):
            counts = table.pod_table.count_pods_matching_selector_by_node(term.selection)
            matched |= tally.add_pod_counts(term.topology_key, counts, sign * preference.weight)
    for existing in table.pod_table.affinity_groups.terms_that_may_match(pod.labels):
        weight = _score_weight(existing, hard_weight)
        if weight is not None and existing_term_matches_pending_pod(
            existing.term, existing.group.namespace, incoming
        ):
            matched |= tally.add_pod_counts_of_affinity_group(
                existing.term.topology_key, existing.group, weight
            )
    return tally if matched else None


def _score_weight(existing: ExistingAffinityTerm, hard_weight: int) -> int | None:
    """Return the weight of a term of existing pods in the score; None if the term does not count."""
    if existing.preference is not None:
        return -existing.preference if existing.is_anti_affinity else existing.preference
    return None if existing.is_anti_affinity or hard_weight <= 0 else hard_weight
