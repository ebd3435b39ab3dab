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
    assert plugin.prescore(wish, table.all(), state).code is Code.SUCCESS
    raw = plugin.score(wish, table.all(), state)
    return list(plugin.normalize(raw, wish, table.all(), state).tolist())


def plain(*zones: str):
    return [nb.node(f"n{at}", {nb.ZONE: zone} if zone else {}) for at, zone in enumerate(zones)]


def test_without_zones_the_score_falls_with_the_pods_on_the_node():
    assert scored(plain("", "", ""), members(0, 0, 1)) == [0, 50, 100]


def test_zones_have_two_thirds_of_the_weight():
    # By node 0, 100, 50; by zone 0, 0, 50: a third of the first and two thirds of the second, rounded down.
    assert scored(plain("x", "x", "y"), members(0, 0, 2)) == [0, 33, 50]


def test_a_node_without_a_zone_goes_by_its_own_pods_alone():
    assert scored(plain("x", "", "y"), members(0, 0, 1)) == [0, 50, 100]


def test_equal_zones_of_different_regions_are_two():
    nodes = [nb.node("n0", {nb.ZONE: "x", REGION: "r"}), nb.node("n1", {nb.ZONE: "x", REGION: "s"})]
    assert scored(nodes, members(0)) == [0, 100]


def test_the_older_labels_of_a_node_stand_before_the_newer():
    old = {"failure-domain.beta.kubernetes.io/zone": "x"}
    nodes = [
        nb.node("n0", {nb.ZONE: "y", **old}),
        nb.node("n1", {nb.ZONE: "x"}),
        nb.node("n2", {nb.ZONE: "y"}),
    ]
    assert scored(nodes, members(0)) == [0, 33, 100]


def test_pods_that_are_being_deleted_or_elsewhere_at_home_do_not_count():
    assert scored(plain("", ""), members(0, terminating=True)) == [100, 100]
    stranger = [(nb.pod("m", {"app": "a"}, namespace="other"), 0)]
    assert scored(plain("", ""), stranger) == [100, 100]


def test_a_pod_that_nothing_selects_scores_alike_everywhere():
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
    table.snapshot = Snapshot(nodes=tuple(nodes), replica_sets=(msgspec.convert(content, ReplicaSet),))
    one = msgspec.convert({"metadata": metadata}, Pod)
    assert asked(table, one) == [0, 100]
    assert SelectorSpread().signature(one) == ("ReplicaSet", "rs")
    assert SelectorSpread().snapshot_label_keys(table.snapshot) == {"app"}


def test_a_pod_with_constraints_of_its_own_is_left_to_pod_topology_spread():
    table = nb.table_of(plain("", ""), [])
    one = nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a")])
    assert SelectorSpread().prescore(class_of(table, one), table.all(), CycleState()).code is Code.SKIP
    assert SelectorSpread().signature(one) is None


def test_optional_plugins_are_installed_and_off():
    assert {"SelectorSpread", "QOSSort"} <= set(standard_registry().names)
    assert not {"SelectorSpread", "QOSSort"} & set(DEFAULT_PLUGINS)
