"""The Filter of NodeResourceTopologyMatch, by examples computed by hand."""

import msgspec
import numpy as np
import pytest

from batchsched.api.core.node_resource_topology import NodeResourceTopology
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.node_resource_topology import NodeResourceTopologyMatch
from batchsched.plugins.node_resource_topology.zones import read_node_numa_zones
from tests.plugins import cluster
from tests.plugins.cluster import class_of, filtered, land, named, node, pod, refusals
from tests.plugins.node_resource_topology.topologies import container, guaranteed, running, table, topology

GPU = "nvidia.com/gpu"
FOUR_CPUS = {"cpu": "4", "memory": "4Gi"}
SIX_CPUS = {"cpu": "6", "memory": "6Gi"}
ZONE = {"cpu": "8", "memory": "8Gi"}
PLUGIN = NodeResourceTopologyMatch()


def refused(one, *topologies, **more):
    return refusals(PLUGIN, one, table(topologies, **more))


def test_a_container_needs_one_zone_with_all_of_its_requests():
    """Neither zone has 6 cpus and 6Gi, although both together have more."""
    one = topology("a", {"cpu": "8", "memory": "4Gi"}, {"cpu": "4", "memory": "8Gi"})
    assert refused(guaranteed("x", SIX_CPUS), one) == {"a": ("cannot align container",)}
    assert refused(guaranteed("x", FOUR_CPUS), one) == {}


def test_containers_of_a_pod_may_use_different_zones_in_container_scope():
    zones = (ZONE, ZONE)
    two = guaranteed("x", SIX_CPUS, SIX_CPUS)
    assert refused(two, topology("a", *zones, scope="container")) == {}
    assert refused(two, topology("a", *zones, scope="pod")) == {"a": ("cannot align pod",)}


def test_each_container_takes_the_zone_with_the_lowest_number_in_which_it_fits():
    """4 cpus go to zone 0, so 6 cpus go to zone 1. Then 4 fit into zone 0, and 6 fit into none."""
    zones = (ZONE, ZONE)
    assert refused(guaranteed("x", FOUR_CPUS, SIX_CPUS, FOUR_CPUS), topology("a", *zones)) == {}
    assert refused(guaranteed("x", FOUR_CPUS, FOUR_CPUS, SIX_CPUS), topology("a", *zones)) == {}
    assert refused(guaranteed("x", FOUR_CPUS, SIX_CPUS, SIX_CPUS), topology("a", *zones)) == {
        "a": ("cannot align container",)
    }


def test_init_containers_run_one_after_the_other_and_leave_their_amounts():
    six = container(SIX_CPUS)
    assert refused(guaranteed("x", FOUR_CPUS, init=[six, six]), topology("a", ZONE)) == {}
    nine = container({"cpu": "9", "memory": "1Gi"})
    assert refused(guaranteed("x", FOUR_CPUS, init=[nine]), topology("a", ZONE)) == {
        "a": ("cannot align init container",)
    }


def test_a_restartable_init_container_keeps_its_amounts():
    sidecar = container(SIX_CPUS, restartPolicy="Always")
    one = guaranteed("x", FOUR_CPUS, init=[sidecar])
    assert refused(one, topology("a", ZONE)) == {"a": ("cannot align container",)}
    assert refused(one, topology("a", ZONE, ZONE)) == {}


def test_only_devices_of_a_burstable_pod_are_aligned():
    offered = topology("a", {"cpu": "1", "memory": "1Gi", GPU: "2"}, {"cpu": "1", "memory": "1Gi", GPU: "2"})
    assert refused(pod(requests={"cpu": "6", GPU: "2"}), offered) == {}
    assert refused(pod(requests={"cpu": "6", GPU: "3"}), offered) == {"a": ("cannot align container",)}
    assert refused(pod(requests={"cpu": "6"}), offered) == {}


def test_resources_that_no_zone_lists_are_not_aligned():
    nic = {**FOUR_CPUS, "example.com/nic": "1"}
    assert refused(guaranteed("x", nic), topology("a", ZONE)) == {}
    with_nic = topology("a", {**ZONE, "cpu": "2", "example.com/nic": "1"}, ZONE)
    assert refused(guaranteed("x", nic), with_nic) == {"a": ("cannot align container",)}


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_the_filter_refuses_no_node_with_another_policy(policy):
    assert refused(guaranteed("x", SIX_CPUS), topology("a", {"cpu": "1"}, policy=policy)) == {}


def test_a_node_without_a_topology_is_not_refused():
    made = table([topology("a", {"cpu": "1"})], nodes=[node("a"), node("b")])
    assert set(refusals(PLUGIN, guaranteed("x", FOUR_CPUS), made)) == {"a"}


def test_the_plugin_has_nothing_to_do_without_topologies_or_aligned_requests():
    for made, one in (
        (cluster.table([node("a")]), guaranteed("x", FOUR_CPUS)),
        (table([topology("a", ZONE)]), pod(requests={"cpu": "1"})),
    ):
        answer = PLUGIN.prefilter(class_of(made, one), made.all_nodes_view(), CycleState())
        assert answer.status.code is Code.SKIP


def test_a_refusal_for_lack_of_a_zone_cannot_be_resolved_by_evictions():
    made = table([topology("a", {"cpu": "1"})])
    assert filtered(PLUGIN, guaranteed("x", FOUR_CPUS), made).unresolvable.all()


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_equal_pods_that_are_not_counted_fill_each_zone(scope):
    """In each zone of 8 cpus there is room for 2 pods of 4 cpus; the pods on the node are not Running."""
    one = guaranteed("x", FOUR_CPUS)
    made = table([topology("a", ZONE, ZONE, scope=scope)])
    for number in range(4):
        assert refusals(PLUGIN, one, made) == {}
        land(made, named(one, f"p{number}"), "a")
    assert set(refusals(PLUGIN, one, made)) == {"a"}
    assert not filtered(PLUGIN, one, made).unresolvable.any()


def test_running_pods_are_contained_in_the_amounts_of_the_object():
    pods = [running(named(guaranteed("x", SIX_CPUS), f"p{number}")) for number in range(3)]
    assert refused(guaranteed("y", SIX_CPUS), topology("a", ZONE), bound={"a": pods}) == {}


def test_the_zones_of_pods_that_are_not_counted_are_unknown():
    """A pod of 2 cpus may be in either zone, and then 7 cpus fit into the other one; two such pods may be in both."""
    small, large = (
        guaranteed("s", {"cpu": "2", "memory": "1Gi"}),
        guaranteed("l", {"cpu": "7", "memory": "1Gi"}),
    )
    offered = topology("a", ZONE, ZONE)
    assert refused(large, offered, bound={"a": [small]}) == {}
    both = [small, named(small, "s2")]
    assert refused(large, offered, bound={"a": both}) == {"a": ("cannot align container",)}


def test_a_pod_must_not_take_the_last_zone_of_a_pod_that_is_not_counted():
    """The kubelet may start the new pod first, in zone 0, and zone 1 is too small for the other pod."""
    offered = topology("a", ZONE, {"cpu": "4", "memory": "8Gi"})
    waiting = guaranteed("w", {"cpu": "7", "memory": "1Gi"})
    assert refused(guaranteed("x", {"cpu": "2", "memory": "1Gi"}), offered, bound={"a": [waiting]}) == {
        "a": ("cannot align container",)
    }


def test_a_pod_that_fits_into_no_zone_is_counted_in_the_object_already():
    """The object counts the pod of 8 cpus in zone 0 although the pod is not Running: 6 cpus fit into zone 1."""
    offered = topology("a", {"cpu": "0", "memory": "8Gi"}, {"cpu": "7", "memory": "8Gi"})
    eight = guaranteed("w", {"cpu": "8", "memory": "1Gi"})
    assert refused(guaranteed("x", SIX_CPUS), offered, bound={"a": [eight]}) == {}


def test_an_init_container_shares_the_amounts_of_a_container_of_its_pod():
    """Two pods, each with an init container as large as the container, fill two zones."""
    one = guaranteed("x", SIX_CPUS, init=[container(SIX_CPUS)])
    assert refused(named(one, "y"), topology("a", ZONE, ZONE), bound={"a": [one]}) == {}


def test_admits_counts_pods_by_zone():
    one = guaranteed("x", FOUR_CPUS)
    made = table([topology("a", ZONE, {"cpu": "7", "memory": "8Gi"}), topology("b", ZONE)])
    nodes = np.array([0, 1], np.int32)
    for counts, admitted in (([3, 2], True), ([4, 0], False), ([0, 3], False), ([0, 0], True)):
        assert (
            PLUGIN.allows_bulk_placement(class_of(made, one), made, nodes, np.array(counts, np.int32))
            is admitted
        )


@pytest.mark.parametrize(
    "policies, attributes, found",
    [
        (["SingleNUMANodePodLevel"], [], (True, True)),
        (["SingleNUMANodeContainerLevel"], [], (True, False)),
        (["RestrictedPodLevel"], [], (False, True)),
        ([], [], (False, False)),
        (["SingleNUMANodePodLevel"], [("topologyManagerScope", "container")], (True, False)),
        ([], [("topologyManagerPolicy", "single-numa-node")], (True, False)),
        (["SingleNUMANodePodLevel"], [("topologyManagerPolicy", "restricted")], (False, True)),
        ([], [("topologyManagerPolicy", "unknown"), ("topologyManagerScope", "pod")], (False, True)),
    ],
)
def test_attributes_override_the_deprecated_policies(policies, attributes, found):
    stated = {
        "metadata": {"name": "a"},
        "zones": [],
        "topologyPolicies": policies,
        "attributes": [{"name": name, "value": value} for name, value in attributes],
    }
    read = read_node_numa_zones(msgspec.convert(stated, NodeResourceTopology))
    assert (read.single_zone, read.pod_scope) == found


def test_zones_of_other_types_and_with_other_names_are_ignored():
    zones = [
        ("node-1", "Node"),
        ("node-0", "Node"),
        ("core-3", "Node"),
        ("node-x", "Node"),
        ("node-2", "Core"),
    ]
    stated = {"metadata": {"name": "a"}, "zones": [{"name": name, "type": kind} for name, kind in zones]}
    read = read_node_numa_zones(msgspec.convert(stated, NodeResourceTopology))
    assert [zone.number for zone in read.zones] == [0, 1]
