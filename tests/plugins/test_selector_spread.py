"""SelectorSpread: fewer pods of the same Service or workload on the node, and above all in the zone."""

from collections.abc import Iterable
from typing import Any

import msgspec

from batchsched.api.core.cluster_objects import ReplicaSet, Service
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.plugins import DEFAULT_PLUGINS
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.runtime.registry import standard_registry
from batchsched.framework.status import Code
from batchsched.plugins.selector_spread import SelectorSpread
from tests.plugins import neighbours as nb
from tests.plugins.cluster import class_of

REGION = "topology.kubernetes.io/region"
SERVICE = msgspec.convert(
    {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "a"}}}, Service
)


def members(*places: int, **fields: Any) -> Iterable[tuple[Pod, int]]:
    return [(nb.pod(f"m{at}-{place}", {"app": "a"}, **fields), place) for at, place in enumerate(places)]


def scored(nodes, bound, one=None) -> list[int]:
    table = nb.table_of(nodes, list(bound), services=[SERVICE])
    return asked(table, one or nb.pod("w", {"app": "a"}))


def asked(table, one) -> list[int]:
    wish, state, plugin = class_of(table, one), CycleState(), SelectorSpread()
    assert plugin.prescore(wish, table.all_nodes_view(), state).code is Code.SUCCESS
    raw = plugin.score(wish, table.all_nodes_view(), state)
    return list(plugin.normalize(raw, wish, table.all_nodes_view(), state).tolist())


def plain(*zones: str):
    return [nb.node(f"n{at}", {nb.ZONE: zone} if zone else {}) for at, zone in enumerate(zones)]


def test_without_zones_the_score_falls_with_the_pods_on_the_node():
    assert scored(plain("", "", ""), members(0, 0, 1)) == [0, 50, 100]


def test_the_zone_has_two_thirds_of_the_weight_of_the_score():
    # By node 0, 100, 50; by zone 0, 0, 50: a third of the first and two thirds of the second, rounded down.
    assert scored(plain("x", "x", "y"), members(0, 0, 2)) == [0, 33, 50]


def test_a_node_without_a_zone_is_scored_by_its_own_pods_only():
    assert scored(plain("x", "", "y"), members(0, 0, 1)) == [0, 50, 100]


def test_zones_of_the_same_name_in_different_regions_differ():
    nodes = [nb.node("n0", {nb.ZONE: "x", REGION: "r"}), nb.node("n1", {nb.ZONE: "x", REGION: "s"})]
    assert scored(nodes, members(0)) == [0, 100]


def test_the_beta_labels_of_a_node_override_the_stable_ones():
    old = {"failure-domain.beta.kubernetes.io/zone": "x"}
    nodes = [
        nb.node("n0", {nb.ZONE: "y", **old}),
        nb.node("n1", {nb.ZONE: "x"}),
        nb.node("n2", {nb.ZONE: "y"}),
    ]
    assert scored(nodes, members(0)) == [0, 33, 100]


def test_terminating_pods_and_pods_of_other_namespaces_do_not_count():
    assert scored(plain("", ""), members(0, terminating=True)) == [100, 100]
    stranger = [(nb.pod("m", {"app": "a"}, namespace="other"), 0)]
    assert scored(plain("", ""), stranger) == [100, 100]


def test_a_pod_that_nothing_selects_has_equal_scores_on_all_nodes():
    assert scored(plain("x", "y"), members(0), nb.pod("w", {"app": "b"})) == [100, 100]


def test_the_selector_of_the_owner_counts():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True}
    metadata = {"name": "w", "namespace": "default", "labels": {"app": "a"}, "ownerReferences": [owner]}
    content = {
        "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
    }
    nodes = plain("", "")
    table = nb.table_of(nodes, list(members(0)))
    table.cluster_objects = Snapshot(nodes=tuple(nodes), replica_sets=(msgspec.convert(content, ReplicaSet),))
    one = msgspec.convert({"metadata": metadata}, Pod)
    assert asked(table, one) == [0, 100]
    assert SelectorSpread().signature(one) == ("ReplicaSet", "rs")
    assert SelectorSpread().object_selector_label_keys(table.cluster_objects) == {"app"}


def test_a_pod_with_its_own_constraints_is_scored_by_pod_topology_spread_only():
    table = nb.table_of(plain("", ""), [])
    one = nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a")])
    assert (
        SelectorSpread().prescore(class_of(table, one), table.all_nodes_view(), CycleState()).code
        is Code.SKIP
    )
    assert SelectorSpread().signature(one) is None


def test_optional_plugins_are_installed_and_disabled():
    assert {"SelectorSpread", "QOSSort"} <= set(standard_registry().names)
    assert not {"SelectorSpread", "QOSSort"} & set(DEFAULT_PLUGINS)
