"""The label index finds what asking every set would find."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.selector import LabelSelector
from batchsched.framework.nodes.label_index import LabelSetIndex, PodLabelGroups, PodSelector
from tests.plugins import neighbours as nb

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from("abc"),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from("xyz"), max_size=3),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from("abc"), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
)
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
).map(lambda content: msgspec.convert(content, LabelSelector))
SELECTIONS = st.builds(
    PodSelector,
    st.one_of(st.none(), st.lists(SELECTORS, max_size=2).map(tuple)),
    st.one_of(st.none(), st.frozensets(st.sampled_from(["n", "m"]))),
)
SETS = st.lists(st.tuples(st.sampled_from(["n", "m"]), LABELS), max_size=8)


@given(SETS, SETS, st.lists(SELECTIONS, max_size=3))
def test_index_selects_the_same_sets_as_a_scan_of_all_sets(first, then, selections):
    index = LabelSetIndex()
    for batch, known in ((first, first), (then, first + then)):
        for namespace, labels in batch:
            index.add_label_set(namespace, labels)
        for one in selections:
            asked = [at for at, (namespace, labels) in enumerate(known) if one.matches(namespace, labels)]
            assert index.matching_label_set_numbers(one).tolist() == asked


def test_missing_selector_selects_nothing_and_an_empty_one_everything():
    assert not PodSelector.from_label_selector(None).matches("n", {})
    assert PodSelector.from_label_selector(LabelSelector()).matches("n", {})
    assert PodSelector.from_label_selector(LabelSelector()).selects_whole_namespaces
    assert not PodSelector.from_label_selector(None).selects_whole_namespaces


def test_equal_selectors_share_an_identity_whatever_the_order_of_their_labels():
    one = LabelSelector(match_labels={"a": "x", "b": "y"})
    two = LabelSelector(match_labels={"b": "y", "a": "x"})
    assert (
        PodSelector.from_label_selector(one).selector_key == PodSelector.from_label_selector(two).selector_key
    )
    assert (
        PodSelector.from_label_selector(one).selector_key
        != PodSelector.from_label_selector(one, frozenset({"n"})).selector_key
    )


def test_selection_names_the_labels_it_looks_at():
    content = {"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    selector = msgspec.convert(content, LabelSelector)
    assert PodSelector((selector, LabelSelector(match_labels={"c": "z"}))).selector_label_keys() == {
        "a",
        "b",
        "c",
    }


def test_groups_of_labels_keep_their_numbers_while_all_of_them_have_pods():
    groups = PodLabelGroups()
    groups.add_pods([nb.pod(f"p{number}", {"id": str(number)}) for number in range(1000)])
    assert groups.drop_empty_groups() is None
