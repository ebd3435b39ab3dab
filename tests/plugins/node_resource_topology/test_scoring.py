"""The Score of NodeResourceTopologyMatch, by examples computed by hand."""

from itertools import combinations

import pytest

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.node_resource_topology import NodeResourceTopologyMatch, scoring
from batchsched.plugins.node_resource_topology.scoring import NodeResourceTopologyMatchArgs
from tests.plugins.cluster import class_of, node, pod, scores
from tests.plugins.node_resource_topology.topologies import guaranteed, table, topology

HALF = {"cpu": "4", "memory": "2Gi"}
ZONE = {"cpu": "8", "memory": "8Gi"}
SMALL = {"cpu": "5", "memory": "8Gi"}


def scored(strategy, one, *topologies, resources=None, **more):
    settings = {"type": strategy} | ({"resources": resources} if resources else {})
    args = NodeResourceTopologyMatchArgs.model_validate({"scoringStrategy": settings})
    return scores(NodeResourceTopologyMatch(args), one, table(topologies, **more))


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    "strategy, expected",
    [
        # cpu: 4 of 8 free, memory: 6 of 8 free; (50 + 75) // 2. In the small zone (20 + 75) // 2.
        ("LeastAllocated", [62, 47]),
        # cpu 50, memory 25: 37. In the small zone (80 + 25) // 2 = 52, so 37 is the lowest score.
        ("MostAllocated", [37, 37]),
        # Variance of 0.5 and 0.25: 0.03125. In the small zone of 0.8 and 0.25: 0.15125.
        ("BalancedAllocation", [96, 84]),
    ],
)
def test_the_score_of_a_node_is_the_lowest_of_its_zones(strategy, expected, scope):
    one = guaranteed("x", HALF)
    found = scored(
        strategy, one, topology("a", ZONE, ZONE, scope=scope), topology("b", ZONE, SMALL, scope=scope)
    )
    assert found == expected


def test_zones_in_which_a_container_does_not_fit_do_not_count():
    """In the zone without room both resources score 0."""
    full = {"cpu": "1", "memory": "1Gi"}
    assert scored("LeastAllocated", guaranteed("x", HALF), topology("a", ZONE, full)) == [62]


def test_the_score_of_a_pod_is_the_mean_over_its_containers():
    """62 for the first container; (87 + 87) // 2 for the second one, with 1 of 8 cpus and 1 of 8Gi."""
    one = guaranteed("x", HALF, {"cpu": "1", "memory": "1Gi"})
    assert scored("LeastAllocated", one, topology("a", ZONE)) == [(62 + 87) // 2]


def test_resources_have_weights():
    """(3 * 50 + 75) // 4."""
    weights = [{"name": "cpu", "weight": 3}]
    assert scored("LeastAllocated", guaranteed("x", HALF), topology("a", ZONE), resources=weights) == [56]


def test_pods_that_are_not_counted_use_all_zones_in_the_score():
    """4 of 4 free cpus and 2 of 6Gi: (0 + 66) // 2."""
    waiting = guaranteed("w", HALF)
    found = scored("LeastAllocated", guaranteed("x", HALF), topology("a", ZONE), bound={"a": [waiting]})
    assert found == [33]


def test_nodes_without_a_topology_or_with_another_policy_score_0():
    made = [topology("a", ZONE), topology("b", ZONE, policy="restricted")]
    found = scored("LeastAllocated", guaranteed("x", HALF), *made, nodes=[node("a"), node("b"), node("c")])
    assert found == [62, 0, 0]


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_fewer_and_nearer_zones_score_higher(policy, scope):
    """12 for each zone, and 6 more if no zones are nearer: one zone 94; zones 0 and 1 with distance 21 need 76."""
    near = {0: [10, 12, 21], 1: [12, 10, 21], 2: [21, 21, 10]}
    one = guaranteed("x", {"cpu": "6", "memory": "1Gi"})
    large, small = {"cpu": "8", "memory": "4Gi"}, {"cpu": "3", "memory": "4Gi"}
    none = {"cpu": "1", "memory": "4Gi"}
    nodes = [
        topology("a", large, small, policy=policy, scope=scope),
        topology("b", small, small, small, policy=policy, scope=scope, costs=near),
        topology("c", small, none, small, policy=policy, scope=scope, costs=near),
        topology("d", none, none, policy=policy, scope=scope, costs=near),
    ]
    assert scored("LeastNUMANodes", one, *nodes) == [94, 82, 76, 0]


def test_zones_without_a_requested_resource_are_not_counted():
    """Only zones 1 and 2 list memory, so that 6 of 3 + 3 cpus need both of these, although zone 0 has 8."""
    one = guaranteed("x", {"cpu": "6", "memory": "1Gi"})
    small = {"cpu": "3", "memory": "4Gi"}
    assert scored("LeastNUMANodes", one, topology("a", {"cpu": "8"}, small, small)) == [100 - 2 * 12 + 6]


def test_more_zones_may_be_needed_than_each_resource_needs_alone():
    """Zone 0 has enough memory and zone 1 enough cpus, so that one zone would do for each; both need two."""
    one = guaranteed("x", {"cpu": "6", "memory": "6Gi"})
    zones = {"cpu": "1", "memory": "8Gi"}, {"cpu": "8", "memory": "1Gi"}
    assert scored("LeastNUMANodes", one, topology("a", *zones)) == [100 - 2 * 12 + 6]


def test_a_node_with_more_zones_than_the_kubelet_supports_scores_0():
    """Eight zones score 100 - 8 * 12 and 6; nine would be below 0."""
    zone = {"cpu": "1", "memory": "4Gi"}
    eight, nine = (
        guaranteed("x", {"cpu": "8", "memory": "1Gi"}),
        guaranteed("x", {"cpu": "9", "memory": "1Gi"}),
    )
    nodes = topology("a", *[zone] * 8), topology("b", *[zone] * 9)
    assert scored("LeastNUMANodes", eight, *nodes) == [10, 0]
    assert scored("LeastNUMANodes", nine, *nodes) == [0, 0]


@pytest.mark.parametrize("count", [8, 14, 64])
@pytest.mark.parametrize("cpus", ["1", "7", "8", "65"])
def test_few_sets_of_zones_are_compared(monkeypatch, count, cpus):
    """At most 70 sets, of four in eight zones, for a container that has as many cpus as these zones or fewer."""
    compared = 0

    def counted(*of):
        nonlocal compared
        for places in combinations(*of):
            compared += 1
            assert compared <= 70
            yield places

    monkeypatch.setattr(scoring, "combinations", counted)
    one = guaranteed("x", {"cpu": cpus, "memory": "1Gi"})
    scored("LeastNUMANodes", one, topology("a", *[{"cpu": "1", "memory": "4Gi"}] * count))


def test_only_guaranteed_pods_are_scored():
    made = table([topology("a", ZONE)])
    plugin = NodeResourceTopologyMatch()
    for one in (pod(requests={"cpu": "1"}), pod(requests={"nvidia.com/gpu": "1"})):
        answer = plugin.prescore(class_of(made, one), made.all_nodes_view(), CycleState())
        assert answer.code is Code.SKIP
