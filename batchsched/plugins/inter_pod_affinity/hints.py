"""Events that may help a pod refused by InterPodAffinity: changes of pods, of their labels, and of topology labels."""

from collections.abc import Iterable, Sequence

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodAffinityTerm
from batchsched.framework.events import Action, ClusterEventWithHint, Hint, Resource
from batchsched.plugins.inter_pod_affinity.terms import affinity_of, anti_affinity_of


def helpful_events() -> Sequence[ClusterEventWithHint]:
    """Return the events with their hints.

    A hint does not know the labels of namespaces. A term with a namespace selector therefore counts as matching
    every namespace. Any changed node label counts, because it may be the key of another pod's anti-affinity.
    """
    return (
        ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.ADD, _pod_added),
        ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.DELETE, _pod_deleted),
        ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, _relabelled),
        ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
        ClusterEventWithHint.on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, _node_moved),
        ClusterEventWithHint.on(Resource.NAMESPACE, Action.ADD | Action.DELETE | Action.UPDATE, _namespace),
    )


def _pod_added(pod: Pod, _old: None, new: Pod) -> Hint:
    return Hint.queue_if(_may_match_affinity(pod, new))


def _pod_deleted(pod: Pod, old: Pod, _new: None) -> Hint:
    """Return QUEUE if a pod was deleted that prevented the placement.

    It matched the anti-affinity, or had one; or it was the last match of the affinity, so that the pod may now be
    the first.
    """
    return Hint.queue_if(
        _may_match_anti_affinity(pod, old)
        or _may_exclude(pod, old)
        or (_may_match_affinity(pod, old) and _may_match_affinity(pod, pod))
    )


def _relabelled(pod: Pod, old: Pod, new: Pod) -> Hint:
    befriended = _may_match_affinity(pod, new) and not _may_match_affinity(pod, old)
    first_now = (
        _may_match_affinity(pod, old) and not _may_match_affinity(pod, new) and _may_match_affinity(pod, pod)
    )
    appeased = any(
        _may_match(term, pod, old) and not _may_match(term, pod, new)
        for term in anti_affinity_of(pod).required
    )
    return Hint.queue_if(befriended or first_now or appeased)


def _node_moved(pod: Pod, old: Node | None, new: Node) -> Hint:
    if old is not None:
        return Hint.QUEUE
    return Hint.queue_if(all(term.topology_key in new.labels for term in affinity_of(pod).required))


def _namespace(pod: Pod, old: Namespace | None, new: Namespace | None) -> Hint:
    """Return QUEUE for a namespace if its labels may matter.

    The pod's own for other pods' terms, others for its own.
    """
    if old is not None and new is not None and (old.metadata.labels or {}) == (new.metadata.labels or {}):
        return Hint.SKIP
    namespace = new or old
    is_own = namespace is not None and namespace.metadata.name == pod.namespace
    terms = (*affinity_of(pod).required, *anti_affinity_of(pod).required)
    return Hint.queue_if(is_own or any(term.namespace_selector is not None for term in terms))


def _may_match_affinity(pod: Pod, other: Pod) -> bool:
    """Return True if another pod may match the pod's affinity."""
    terms = affinity_of(pod).required
    return bool(terms) and all(_may_match(term, pod, other) for term in terms)


def _may_match_anti_affinity(pod: Pod, other: Pod) -> bool:
    return _any_matches(anti_affinity_of(pod).required, pod, other)


def _may_exclude(pod: Pod, other: Pod) -> bool:
    return _any_matches(anti_affinity_of(other).required, other, pod)


def _any_matches(terms: Iterable[PodAffinityTerm], owner: Pod, other: Pod) -> bool:
    return any(_may_match(term, owner, other) for term in terms)


def _may_match(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    """Return True if a term of one pod may match another, whatever the labels of its namespace."""
    if term.label_selector is None or not term.label_selector.matches(other.labels):
        return False
    named = term.namespaces or (owner.namespace,)
    return term.namespace_selector is not None or other.namespace in named
