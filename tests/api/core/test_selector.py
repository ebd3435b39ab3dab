"""Selectors against the rules of k8s.io/apimachinery/pkg/labels and of node affinity."""

import pytest

from batchsched.api.core.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    parse_go_integer,
)
from batchsched.errors import InvalidSelector


def requirement(operator, *values, key="zone"):
    return SelectorRequirement(key=key, operator=operator, values=values or None)


@pytest.mark.parametrize(
    "expression, labels, matches",
    [
        (requirement("In", "a", "b"), {"zone": "a"}, True),
        (requirement("In", "a", "b"), {"zone": "c"}, False),
        (requirement("In", "a"), {}, False),
        (requirement("NotIn", "a"), {"zone": "a"}, False),
        (requirement("NotIn", "a"), {"zone": "b"}, True),
        (requirement("NotIn", "a"), {}, True),
        (requirement("Exists"), {"zone": ""}, True),
        (requirement("Exists"), {}, False),
        (requirement("DoesNotExist"), {"zone": "a"}, False),
        (requirement("DoesNotExist"), {}, True),
        (requirement("Gt", "5"), {"zone": "6"}, True),
        (requirement("Gt", "5"), {"zone": "5"}, False),
        (requirement("Gt", "5"), {"zone": "six"}, False),
        (requirement("Gt", "5"), {}, False),
        (requirement("Gt", "a"), {"zone": "6"}, False),
        (requirement("Gt", "5", "6"), {"zone": "9"}, False),
        (requirement("Lt", "-1"), {"zone": "-2"}, True),
        (requirement("Lt", "5"), {"zone": "99999999999999999999"}, False),
    ],
)
def test_expression_matches_as_upstream_does(expression, labels, matches):
    assert expression.matches(labels) is matches


def test_unknown_operator_is_refused_by_name():
    with pytest.raises(InvalidSelector, match="'Like'; expected In"):
        requirement("Like", "a").matches({"zone": "a"})


def test_empty_label_selector_matches_everything():
    assert LabelSelector().matches_everything
    assert LabelSelector().matches(None)
    assert LabelSelector().matches({"a": "b"})


def test_label_selector_wants_all_labels_and_all_expressions():
    selector = LabelSelector(match_labels={"app": "x"}, match_expressions=(requirement("Exists"),))
    assert selector.matches({"app": "x", "zone": "a"})
    assert not selector.matches({"app": "x"})
    assert not selector.matches({"app": "y", "zone": "a"})
    assert selector.label_keys() == {"app", "zone"}


def test_node_term_without_expressions_matches_no_node():
    assert not NodeSelectorTerm().matches({"zone": "a"}, "n1")
    assert not NodeSelector(node_selector_terms=(NodeSelectorTerm(),)).matches({}, "n1")


def test_node_fields_are_matched_by_name():
    term = NodeSelectorTerm(match_fields=(requirement("In", "n1", key="metadata.name"),))
    assert term.matches({}, "n1")
    assert not term.matches({}, "n2")


def test_node_selector_wants_one_of_its_terms():
    here = NodeSelectorTerm(match_expressions=(requirement("In", "a"),))
    there = NodeSelectorTerm(match_expressions=(requirement("In", "b"),))
    selector = NodeSelector(node_selector_terms=(here, there))
    assert selector.matches({"zone": "b"}, "n1")
    assert not selector.matches({"zone": "c"}, "n1")


@pytest.mark.parametrize(
    "text, number",
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("", None),
        ("-", None),
        (" 7", None),
        ("1_0", None),
        ("٣", None),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("7.0", None),
    ],
)
def test_whole_numbers_read_as_go_reads_them(text, number):
    assert parse_go_integer(text) == number
