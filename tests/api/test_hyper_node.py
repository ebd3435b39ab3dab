"""HyperNodes with selectors, tiers or tier names that cannot be used."""

import time
from typing import Any

import msgspec
import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.external.hyper_node import (
    HYPER_NODE_KIND,
    HyperNode,
    HyperNodeMemberIndex,
    HyperNodeTree,
    MemberSelector,
    describe_unusable_pattern,
)
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import Document, Envelope

BAD_PATTERNS = [
    "[",
    "n{99999999999}",
    "(" * 90 + "n" + ")" * 91,
    "n" * 201,
    "^(a+)+$",
    "^(a|a)*$",
    "^(a){2,}$",
    ".*.*.*.*x",
    "a?" * 30 + "a" * 30,
    "(a|a)" * 30 + "x",
    r"^(a)\1$",
    "^a(?=b)",
]


def selector(**fields):
    return msgspec.convert(fields, MemberSelector)


def decode(**fields):
    spec = {"tier": 1, "members": [{"type": "Node", "selector": fields}]}
    raw = msgspec.json.encode({"metadata": {"name": "leaf"}, "spec": spec})
    return Decoder().decode(Document("", "", raw, msgspec.json.decode(raw, type=Envelope)), HYPER_NODE_KIND)


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_a_pattern_that_cannot_be_used_selects_nothing_and_is_named(pattern):
    assert not selector(regexMatch={"pattern": pattern}).selects("a" * 60, {})
    with pytest.raises(ObjectDecodeError, match=r"spec\.members\[0\]\.selector\.regexMatch\.pattern"):
        decode(regexMatch={"pattern": pattern})


@pytest.mark.parametrize(
    "pattern, name",
    [
        (r"^dc[0-9]+-r[0-9]+-c\d+-n[0-9]+$", "dc1-r22-c3-n44"),
        ("^gpu-(a|b|c)-[0-9]{3}(-spare)?$", "gpu-b-007-spare"),
        ("^(?:rack|row)-.*$", "row-1"),
        ("node-[(+]?.*", "node-1"),
    ],
)
def test_ordinary_patterns_of_names_are_used(pattern, name):
    assert describe_unusable_pattern(pattern) == ""
    assert selector(regexMatch={"pattern": pattern}).selects(name, {})
    assert decode(regexMatch={"pattern": pattern}).metadata.name == "leaf"


@pytest.mark.parametrize("pattern", ["^.*.*.*x$", ".*.*x$", "^[0-9]+-.*.*.*x", ".*.*" + "(-|-)" * 2 + "x$"])
def test_the_slowest_permitted_patterns_end_soon(pattern):
    started = time.process_time()
    assert not selector(regexMatch={"pattern": pattern}).selects("1-" + "-" * 251, {})
    assert time.process_time() - started < 2


def test_an_unknown_operator_selects_nothing_and_is_named():
    match = {"matchExpressions": [{"key": "rack", "operator": "Near"}]}
    assert not selector(labelMatch=match).selects("n1", {"rack": "a"})
    with pytest.raises(ObjectDecodeError, match=r"spec\.members\[0\]\.selector\.labelMatch"):
        decode(labelMatch=match)


def level_names(*tiers):
    hyper_nodes = [
        msgspec.convert(
            {"metadata": {"name": f"h{tier}"}, "spec": {"tier": tier, "tierName": name}}, HyperNode
        )
        for tier, name in tiers
    ]
    topology = HyperNodeTree.from_hyper_nodes(hyper_nodes).topology
    assert topology is not None
    return [level.name for level in topology.spec.levels]


def test_a_very_high_tier_ends_soon():
    assert level_names((1, ""), (2**62, "")) == [f"tier-{tier}" for tier in range(16, 0, -1)]


def test_the_name_of_a_tier_counts_only_if_no_other_level_has_it():
    assert level_names((1, "rack"), (2, "rack"), (3, "row")) == ["row", "tier-2", "tier-1"]
    assert level_names((1, "tier-2"), (3, "x" * 1000)) == ["tier-3", "tier-2", "tier-1"]


SELECTORS: list[dict[str, Any]] = [
    {"exactMatch": {"name": "n1"}},
    {"exactMatch": {"name": "n2"}, "labelMatch": {"matchLabels": {"rack": "b"}}},
    *(
        {"regexMatch": {"pattern": pattern}}
        for pattern in ("^n1$", "n2$", "^n[12]", "^n1?", "^n2*", "^n1|m", "^", "(")
    ),
    *({"labelMatch": {"matchLabels": labels}} for labels in ({"rack": "a"}, {"rack": "a", "gpu": "yes"}, {})),
    *(
        {"labelMatch": {"matchLabels": {"gpu": "yes"}, "matchExpressions": [{"key": "rack", **expression}]}}
        for expression in (
            {"operator": "In", "values": ["a", "b"]},
            {"operator": "NotIn", "values": ["a"]},
            {"operator": "In", "values": []},
            {"operator": "Near"},
        )
    ),
    {},
]


@pytest.mark.parametrize("name", ["n1", "n2", "n11", "m", "xn2"])
@pytest.mark.parametrize("labels", [{}, {"rack": "a"}, {"rack": "b", "gpu": "yes"}, {"gpu": "yes"}])
def test_the_index_finds_the_hyper_nodes_whose_selectors_match(name, labels):
    hyper_nodes = [leaf(f"h{number}", fields) for number, fields in enumerate(SELECTORS)]
    found = HyperNodeMemberIndex(hyper_nodes, "Node").hyper_nodes_with_member(name, labels)
    expected = [
        hyper_node.metadata.name
        for hyper_node, fields in zip(hyper_nodes, SELECTORS, strict=True)
        if selector(**fields).selects(name, labels)
    ]
    assert sorted(hyper_node.metadata.name for hyper_node in found) == sorted(expected)


def leaf(name, *selectors):
    members = [{"type": "Node", "selector": fields} for fields in selectors]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"tier": 1, "members": members}}, HyperNode)


@pytest.mark.parametrize(
    "fields",
    [
        lambda number: {"exactMatch": {"name": f"n{number:04}"}},
        lambda number: {"regexMatch": {"pattern": f"^n{number:04}$"}},
        lambda number: {"labelMatch": {"matchLabels": {"gpu": "yes", "rack": f"r{number}"}}},
    ],
    ids=["name", "pattern", "labels"],
)
def test_few_of_a_thousand_selectors_are_tried_for_a_node(monkeypatch, fields):
    tried, selects = [], MemberSelector.selects

    def counted(self, name, labels):
        tried.append(name)
        return selects(self, name, labels)

    monkeypatch.setattr(MemberSelector, "selects", counted)
    tree = HyperNodeTree.from_hyper_nodes(leaf(f"h{number}", fields(number)) for number in range(1000))
    for number in range(1000):
        node = Node(metadata=ObjectMeta(name=f"n{number:04}", labels={"gpu": "yes", "rack": f"r{number}"}))
        assert [one.metadata.name for one in tree.hyper_nodes_containing_node(node)] == [f"h{number}"]
    assert len(tried) <= 2000
