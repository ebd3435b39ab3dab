"""Terms: which pods a pod means, and whether a pod is meant by those that are there.

A term's namespaces are read in two ways, and the difference shows where a namespace has no object: the pod to place
names the namespaces that exist and match, an existing pod's selector is asked about the labels of the pod's own
namespace, none where there is no such object.

Source: `AffinityTerm.Matches`, `mergeAffinityTermNamespacesIfNotEmpty` and `GetNamespaceLabelsSnapshot` of
kube-scheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchsched.framework.label_index import Selection
from batchsched.framework.nodes import NodeTable
from batchsched.model.affinity import PodAffinity, PodAffinityTerm
from batchsched.model.pod import Pod
from batchsched.model.selector import EMPTY_LABELS

NO_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Pods that are meant, in the same domain of a topology key."""

    topology_key: str
    selection: Selection


@dataclass(frozen=True, slots=True, eq=False)
class Newcomer:
    """A pod to place, as the terms of existing pods see it."""

    pod: Pod
    namespace_labels: Mapping[str, str]


def attraction_of(pod: Pod) -> PodAffinity:
    """Return a pod's pod affinity, an empty one where it has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_affinity) or NO_AFFINITY


def repulsion_of(pod: Pod) -> PodAffinity:
    """Return a pod's pod anti-affinity, an empty one where it has none."""
    return (pod.spec.affinity and pod.spec.affinity.pod_anti_affinity) or NO_AFFINITY


def namespace_labels(table: NodeTable) -> dict[str, Mapping[str, str]]:
    """Return the labels of every namespace that has an object."""

    def build(table: NodeTable) -> dict[str, Mapping[str, str]]:
        return {one.metadata.name: one.metadata.labels or EMPTY_LABELS for one in table.snapshot.namespaces}

    return table.memo("namespace labels", build)


def newcomer(pod: Pod, table: NodeTable) -> Newcomer:
    """Return the pod with the labels of its namespace."""
    return Newcomer(pod, namespace_labels(table).get(pod.namespace, EMPTY_LABELS))


def required_terms(stated: PodAffinity, pod: Pod, table: NodeTable) -> tuple[Term, ...]:
    """Return the required terms of a pod to place."""
    return tuple(
        Term(term.topology_key, Selection.of(term.label_selector, _namespaces(term, pod, table)))
        for term in stated.required
    )


def preferred_terms(stated: PodAffinity, pod: Pod, table: NodeTable) -> tuple[tuple[int, Term], ...]:
    """Return the preferred terms of a pod to place, with their weights.

    kube-scheduler 1.36 asks a preferred term's namespace selector once more, about no labels at all: one that
    matches those, such as `DoesNotExist`, means the pods of every namespace.
    """
    found = []
    for one in stated.preferred:
        term = one.pod_affinity_term
        wanted = term.namespace_selector
        everywhere = wanted is not None and wanted.matches(EMPTY_LABELS)
        namespaces = None if everywhere else _namespaces(term, pod, table)
        found.append((one.weight, Term(term.topology_key, Selection.of(term.label_selector, namespaces))))
    return tuple(found)


def _namespaces(term: PodAffinityTerm, pod: Pod, table: NodeTable) -> frozenset[str] | None:
    wanted = term.namespace_selector
    if wanted is None:
        return frozenset(term.namespaces or (pod.namespace,))
    if wanted.empty:
        return None
    matching = {name for name, labels in namespace_labels(table).items() if wanted.matches(labels)}
    return frozenset(matching.union(term.namespaces or ()))


def means(term: PodAffinityTerm, owner_namespace: str, who: Newcomer) -> bool:
    """Tell whether an existing pod's term means a pod to place."""
    if term.label_selector is None:
        return False
    names, wanted = term.namespaces, term.namespace_selector
    if not names and wanted is None:
        inside = who.pod.namespace == owner_namespace
    else:
        inside = who.pod.namespace in (names or ()) or (
            wanted is not None and wanted.matches(who.namespace_labels)
        )
    return inside and term.label_selector.matches(who.pod.labels)


def matches_all(terms: tuple[Term, ...], pod: Pod) -> bool:
    """Tell whether a pod is meant by every term; no terms mean nobody."""
    return bool(terms) and all(term.selection.matches(pod.namespace, pod.labels) for term in terms)
