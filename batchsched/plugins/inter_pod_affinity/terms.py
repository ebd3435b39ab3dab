"""Affinity terms: which pods a pod's terms match, and which existing pods' terms match a pod.

A namespace selector is read in two ways. That of an existing pod is tested with the labels of the pending pod's
namespace, with none if the Namespace object is missing. That of the pending pod selects the namespaces with matching
labels. For every existing pod it is then tested with no labels: a selector that matches these, such as `{}` but also
`DoesNotExist`, selects the pods of all namespaces.

Source: `AffinityTerm.Matches`, `mergeAffinityTermNamespacesIfNotEmpty` and `GetNamespaceLabelsSnapshot` of
kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from batchsched.api.core.metadata import EMPTY_LABELS
from batchsched.api.core.pod import Pod, PodAffinity, PodAffinityTerm
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.label_index import Selection
from batchsched.framework.nodes.node_table import NodeTable

NO_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A selection of pods in the same domain of a topology key."""

    topology_key: str
    selection: Selection


@dataclass(frozen=True, slots=True, eq=False)
class PendingPod:
    """A pending pod, as the terms of existing pods see it."""

    pod: Pod
    namespace_labels: Mapping[str, str]


def affinity_of(pod: Pod) -> PodAffinity:
    """Return a pod's pod affinity; an empty one if it has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_affinity) or NO_AFFINITY


def anti_affinity_of(pod: Pod) -> PodAffinity:
    """Return a pod's pod anti-affinity; an empty one if it has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_anti_affinity) or NO_AFFINITY


def namespace_labels(table: NodeTable) -> dict[str, Mapping[str, str]]:
    """Return namespace → labels, for all Namespace objects."""

    def build(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
        return {one.metadata.name: one.metadata.labels or EMPTY_LABELS for one in snapshot.namespaces}

    return table.beside("namespace labels", build)


def pending_pod(pod: Pod, table: NodeTable) -> PendingPod:
    """Return the pod with the labels of its namespace."""
    return PendingPod(pod, namespace_labels(table).get(pod.namespace, EMPTY_LABELS))


def own_terms(raw_terms: Iterable[PodAffinityTerm], pod: Pod, table: NodeTable) -> tuple[Term, ...]:
    """Return the terms of a pending pod."""
    return tuple(
        Term(term.topology_key, Selection.of(term.label_selector, _namespaces(term, pod, table)))
        for term in raw_terms
    )


def _namespaces(term: PodAffinityTerm, pod: Pod, table: NodeTable) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or (pod.namespace,))
    if selector.matches(EMPTY_LABELS):
        return None
    matching = {name for name, labels in namespace_labels(table).items() if selector.matches(labels)}
    return frozenset(matching.union(term.namespaces or ()))


def term_matches(term: PodAffinityTerm, owner_namespace: str, incoming: PendingPod) -> bool:
    """Return True if an existing pod's term matches a pending pod."""
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


def matches_all(terms: tuple[Term, ...], pod: Pod) -> bool:
    """Return True if every term matches a pod. No terms match no pod."""
    return bool(terms) and all(term.selection.matches(pod.namespace, pod.labels) for term in terms)
