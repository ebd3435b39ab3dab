"""Terms of pods on nodes are found by the labels of the pending pods that they may match."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.selector import LabelSelector, SelectorRequirement
from batchsched.framework.nodes.affinity_groups import AffinityGroups
from tests.plugins import neighbours as nb

VALUES = st.sampled_from("xyz")
KEYS = st.sampled_from("ab")
LABELS = st.dictionaries(KEYS, VALUES)
REQUIREMENTS = st.builds(
    SelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(VALUES, max_size=3).map(tuple),
)
SELECTORS = st.none() | st.builds(
    LabelSelector,
    match_labels=st.none() | LABELS,
    match_expressions=st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple),
)
MOVES = st.lists(st.tuples(st.integers(0, 5), SELECTORS, st.booleans()), max_size=20)


def pod_with(number, selector, *, is_preferred=False):
    term = {"topologyKey": nb.HOST, "labelSelector": msgspec.to_builtins(selector)}
    affinity = nb.preferred(apart=[(5, term)]) if is_preferred else nb.required(apart=[term])
    return nb.pod(f"p{number}", affinity=affinity)


@given(MOVES, LABELS)
def test_every_term_that_matches_a_pod_is_found_once(moves, labels):
    groups = AffinityGroups()
    there: dict[int, Any] = {}
    for number, selector, is_preferred in moves:
        if number in there:
            pod = there.pop(number)
            groups.update_pod_count(pod, pod.spec.affinity, 0, -1)
        else:
            pod = there[number] = pod_with(number, selector, is_preferred=is_preferred)
            groups.update_pod_count(pod, pod.spec.affinity, 0, 1)
    found = list(groups.terms_that_may_match(labels))
    assert len(found) == len(set(found))
    matching = {id(term) for group in groups for term in _terms(group) if _matches(term, labels)}
    assert matching == {id(existing.term) for existing in found if _matches(existing.term, labels)}


def _matches(term, labels):
    return term.label_selector is not None and term.label_selector.matches(labels)


def _terms(group):
    repulsion = group.affinity.pod_anti_affinity
    return [*repulsion.required_terms, *(one.pod_affinity_term for one in repulsion.preferred_terms)]


def test_a_pod_reads_only_the_terms_of_its_own_labels():
    groups = AffinityGroups()
    for number in range(100):
        pod = pod_with(number, LabelSelector(match_labels={"app": "web", "id": str(number)}))
        groups.update_pod_count(pod, pod.spec.affinity, 0, 1)
    labels = {"id": "57", "app": "web"}
    found = list(groups.terms_that_may_match(labels))
    assert any(_matches(existing.term, labels) for existing in found)
    assert len(found) <= 2


def test_no_term_is_found_once_its_pods_are_gone():
    groups = AffinityGroups()
    pod = pod_with(0, LabelSelector(match_labels={"app": "web"}))
    for by in (1, 1, -1, -1):
        groups.update_pod_count(pod, pod.spec.affinity, 0, by)
    assert not list(groups.terms_that_may_match({"app": "web"}))
    assert not list(groups)
