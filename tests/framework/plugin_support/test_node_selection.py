import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Toleration
from batchsched.api.core.selector import NodeSelector, NodeSelectorTerm, SelectorRequirement
from batchsched.errors import InvalidSelector
from batchsched.framework.plugin_support.node_selection import (
    mask_nodes_matching_selector,
    mask_nodes_matching_term,
    mask_nodes_selected_by_pod,
    mask_nodes_with_labels,
    taint_set_indexes_and_sets,
    untolerated_taint_counts,
)
from tests.plugins.cluster import node, pod, table

VALUES = st.sampled_from(["1", "2", "10", "x"])
EXPRESSIONS = st.builds(
    SelectorRequirement,
    key=st.sampled_from(["zone", "gen", "missing"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=st.lists(VALUES, min_size=1, max_size=2).map(tuple),
)
FIELDS = st.builds(
    SelectorRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from(["n0", "n1", "gone"]), min_size=1, max_size=2).map(tuple),
)
TERMS = st.builds(
    NodeSelectorTerm,
    match_expressions=st.none() | st.lists(EXPRESSIONS, max_size=3).map(tuple),
    match_fields=st.none() | st.lists(FIELDS, max_size=1).map(tuple),
)
LABELS = st.lists(st.dictionaries(st.sampled_from(["zone", "gen"]), VALUES), min_size=1, max_size=4)


@pytest.mark.properties
@given(labels=LABELS, terms=st.lists(TERMS, max_size=3))
def test_masks_equal_the_selector_evaluated_node_by_node(labels, terms):
    made = table([node(f"n{at}", labels=one) for at, one in enumerate(labels)])
    selector = NodeSelector(node_selector_terms=tuple(terms))
    assert mask_nodes_matching_selector(made, selector).tolist() == [
        selector.matches(one.labels, one.name) for one in made.nodes
    ]
    for term in terms:
        assert mask_nodes_matching_term(made, term).tolist() == [
            term.matches(one.labels, one.name) for one in made.nodes
        ]


def test_nodes_with_labels_have_all_of_them():
    made = table([node("a", labels={"x": "1", "y": "2"}), node("b", labels={"x": "1"})])
    assert mask_nodes_with_labels(made, {"x": "1", "y": "2"}).tolist() == [True, False]
    assert mask_nodes_with_labels(made, {}).tolist() == [True, True]


def test_an_affinity_without_terms_selects_nothing():
    made = table([node("a")])
    must: dict[str, object] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    assert mask_nodes_selected_by_pod(made, pod(affinity={"nodeAffinity": must})).tolist() == [False]
    assert mask_nodes_selected_by_pod(made, pod()).tolist() == [True]


def test_an_unknown_operator_is_an_error():
    term = NodeSelectorTerm(match_expressions=(SelectorRequirement(key="x", operator="Near", values=("1",)),))
    with pytest.raises(InvalidSelector, match="Near"):
        mask_nodes_matching_term(table([node("a")]), term)


HARD = {"key": "k", "value": "v", "effect": "NoSchedule"}
SOFT = {"key": "k", "value": "v", "effect": "PreferNoSchedule"}


def test_nodes_with_equal_taints_are_one_group():
    made = table([node("a", taints=[HARD]), node("b"), node("c", taints=[HARD])])
    codes, groups = taint_set_indexes_and_sets(made)
    assert codes.tolist() == [0, 1, 0]
    assert [len(taints) for taints in groups] == [1, 0]


def test_only_untolerated_taints_of_the_given_effects_are_counted():
    made = table([node("a", taints=[HARD, SOFT, {**SOFT, "key": "other"}]), node("b")])
    soft = frozenset({"PreferNoSchedule"})
    assert untolerated_taint_counts(made, (), soft).tolist() == [2, 0]
    assert untolerated_taint_counts(made, (Toleration(key="k", operator="Exists"),), soft).tolist() == [1, 0]
    assert untolerated_taint_counts(made, (), frozenset({"NoExecute"})).tolist() == [0, 0]
