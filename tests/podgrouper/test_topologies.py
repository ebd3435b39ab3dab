"""Topologies of several schedulers in one cluster state, and labels of nodes from HyperNodes."""

import msgspec
import pytest

from batchsched.api.core.node import Node
from batchsched.api.crd.topology import Topology
from batchsched.api.external.hyper_node import HyperNode
from batchsched.api.external.topology import KaiSchedulerTopology, KueueTopology, convert_topology
from batchsched.podgrouper.grouper import PodGrouper
from batchsched.podgrouper.topologies import HyperNodeLabelingNodeStore, HyperNodeStore, TopologyStore
from batchsched.state.cluster_state import ClusterState

TIER = "hypernode.batchsched.dev/tier-"


@pytest.fixture
def grouper():
    return PodGrouper(ClusterState(), ("batchsched",), lambda: None)


def levels(grouper, name="default"):
    topology = grouper.cache.get("topologies", name)
    return [level.name for level in topology.spec.levels] if topology is not None else None


def own(level):
    spec = {"levels": [{"name": level, "nodeLabel": level}]}
    return Topology.model_validate(
        {"metadata": {"name": "default", "uid": "own", "resourceVersion": "9"}, "spec": spec}
    )


def other(kind, level):
    metadata = {"name": "default", "uid": level, "resourceVersion": "3"}
    return convert_topology(
        msgspec.convert({"metadata": metadata, "spec": {"levels": [{"nodeLabel": level}]}}, kind)
    )


def test_the_topology_of_batchsched_precedes_those_of_kueue_and_kai(grouper):
    mine, kueue, kai = (TopologyStore(grouper.topologies, origin) for origin in (None, 0, 1))
    kai.put(other(KaiSchedulerTopology, "kai"))
    assert levels(grouper) == ["kai"]
    kueue.put(other(KueueTopology, "kueue"))
    assert levels(grouper) == ["kueue"]
    mine.replace(Topology, [own("own")])
    assert levels(grouper) == ["own"]
    mine.remove(own("own"))
    assert levels(grouper) == ["kueue"]
    kueue.replace(KueueTopology, [])
    kai.replace(KaiSchedulerTopology, [])
    assert levels(grouper) is None


def node(name, **labels):
    return msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, Node)


def hyper_node(name, tier, kind, **selector):
    members = [{"type": kind, "selector": selector}]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"tier": tier, "members": members}}, HyperNode
    )


def tiers(grouper, name="n1"):
    labels = grouper.cache.get("nodes", name).metadata.labels
    return {key.removeprefix(TIER): text for key, text in labels.items() if key.startswith(TIER)}


def test_nodes_have_the_labels_of_their_hyper_nodes_in_whatever_order_they_arrive(grouper):
    nodes, hyper_nodes = (
        HyperNodeLabelingNodeStore(grouper.topologies, grouper.cache),
        HyperNodeStore(grouper.topologies),
    )
    nodes.put(node("n1", rack="a"))
    leaf = hyper_node("leaf", 1, "Node", labelMatch={"matchLabels": {"rack": "a"}})
    hyper_nodes.put(leaf)
    assert tiers(grouper) == {"1": "leaf"}
    hyper_nodes.put(hyper_node("top", 3, "HyperNode", exactMatch={"name": "leaf"}))
    # In tier 2, the HyperNode of the highest tier below contains the node.
    assert tiers(grouper) == {"1": "leaf", "2": "leaf", "3": "top"}
    assert levels(grouper, "volcano") == ["tier-3", "tier-2", "tier-1"]
    nodes.replace(Node, [node("n1", rack="a"), node("n2", rack="b")])
    assert tiers(grouper, "n1")["3"] == "top"
    assert tiers(grouper, "n2") == {}
    hyper_nodes.remove(leaf)
    assert tiers(grouper) == {}
    hyper_nodes.replace(HyperNode, [])
    assert levels(grouper, "volcano") is None


@pytest.mark.parametrize(
    "selector, selected",
    [
        ({"exactMatch": {"name": "n1"}}, True),
        ({"regexMatch": {"pattern": "^n[0-9]$"}}, True),
        ({"regexMatch": {"pattern": "["}}, False),
        ({"labelMatch": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}, True),
        ({}, False),
    ],
)
def test_members_are_selected_by_name_pattern_or_labels(grouper, selector, selected):
    HyperNodeLabelingNodeStore(grouper.topologies, grouper.cache).put(node("n1", rack="a"))
    HyperNodeStore(grouper.topologies).put(hyper_node("leaf", 1, "Node", **selector))
    assert tiers(grouper) == ({"1": "leaf"} if selected else {})


def test_hyper_nodes_that_contain_each_other_end_the_search(grouper):
    HyperNodeLabelingNodeStore(grouper.topologies, grouper.cache).put(node("n1"))
    store = HyperNodeStore(grouper.topologies)
    members = [
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "a"}}},
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
    ]
    spec = {"tier": 1, "members": members}
    store.put(msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, HyperNode))
    assert tiers(grouper) == {"1": "a"}


def test_unchanged_hyper_nodes_label_no_nodes_again(grouper, monkeypatch):
    HyperNodeLabelingNodeStore(grouper.topologies, grouper.cache).put(node("n1"))
    store = HyperNodeStore(grouper.topologies)
    store.put(hyper_node("leaf", 1, "Node", exactMatch={"name": "n1"}))
    monkeypatch.setattr(grouper.cache, "put", lambda *_, **__: pytest.fail("labelled again"))
    monkeypatch.setattr(grouper.cache, "list_objects", lambda _: pytest.fail("labelled again"))
    store.put(hyper_node("leaf", 1, "Node", exactMatch={"name": "n1"}))
    store.replace(HyperNode, [hyper_node("leaf", 1, "Node", exactMatch={"name": "n1"})])
    assert tiers(grouper) == {"1": "leaf"}


def test_a_hyper_node_that_cannot_be_used_leaves_the_nodes_of_others_alone(grouper):
    store = HyperNodeStore(grouper.topologies)
    store.put(hyper_node("leaf", 1, "Node", exactMatch={"name": "n1"}))
    store.put(hyper_node("slow", 2, "Node", regexMatch={"pattern": "^(n+)+$"}))
    HyperNodeLabelingNodeStore(grouper.topologies, grouper.cache).put(node("n1"))
    assert tiers(grouper) == {"1": "leaf", "2": "leaf"}
