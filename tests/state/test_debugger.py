"""Differences between the state and the API server are found and reported; the dump shows the state."""

import msgspec
from hypothesis import given

from batchsched.api.core.pod import SCHEDULER_NAME
from batchsched.api.snapshot import OBJECT_KINDS, Snapshot
from batchsched.state.cluster_state import ClusterState
from batchsched.state.debugger import (
    OVERDUE_SECONDS,
    StateComparison,
    StateDifference,
    compare_snapshots,
    dump_state,
)
from tests.session.clusters import clusters
from tests.session.scenario import cluster, group, nodes
from tests.state.objects import NOW, ended, node, pod

NAMES = frozenset({SCHEDULER_NAME})


def test_cache_that_agrees_has_no_drift():
    listed = cluster([node("n0", 3)], pods=[pod("a", 1)])
    cached = cluster([node("n0", 2)], pods=[pod("a", 1)])
    found = compare_snapshots(cached, listed, NAMES)
    assert found == StateComparison()
    assert found.has_no_differences
    assert found.text() == "the cache agrees with the API"


def test_missing_and_redundant_objects_are_named():
    cached = cluster(nodes(2), Snapshot(pod_groups=(group("g"),)))
    listed = cluster(nodes(1), Snapshot(pods=(pod("a"),)))
    found = compare_snapshots(cached, listed, NAMES)
    assert found.missing == ("Pod team/a",)
    assert found.redundant == ("Node n1", "PodGroup team/g")
    assert found.text().splitlines() == [
        "missing in the cache: Pod team/a",
        "redundant in the cache: Node n1",
        "redundant in the cache: PodGroup team/g",
    ]


def test_pods_that_do_not_count_are_not_missed():
    other = pod("b")
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, scheduler_name="default"))
    assert compare_snapshots(Snapshot(), Snapshot(pods=(ended(pod("a")), other)), NAMES).has_no_differences


def test_every_differing_field_is_reported_with_both_values():
    cached = cluster([node("n0", cpu=4)], Snapshot(pods=(pod("a", 1),), pod_groups=(group("g", 2),)))
    listed = cluster([node("n0", cpu=8)], Snapshot(pods=(pod("a", 9, on="n0"),), pod_groups=(group("g", 3),)))
    found = compare_snapshots(cached, listed, NAMES)
    assert found.differing == (
        StateDifference("Node n0", "status.allocatable.cpu", '"4"', '"8"'),
        StateDifference("PodGroup team/g", "spec.minMember", "2", "3"),
        StateDifference("Pod team/a", "spec.nodeName", "", '"n0"'),
    )
    assert 'different: Pod team/a: spec.nodeName: cached nothing, listed "n0"' in found.text()


def test_assumed_pod_is_a_difference_only_after_its_time():
    cache = ClusterState(ttl_seconds=600)
    for one in (node("n0"), pod("a"), pod("b")):
        cache.put(one)
    listed = cache.snapshot()
    cache.assume_pod("team/a", "n0", NOW - 100)
    cache.assume_pod("team/b", "n0", NOW - 5)
    cache.finish_binding("team/a", NOW - 99)
    found = compare_snapshots(
        cache.snapshot_without_assumptions(), listed, NAMES, cache.assumed_pods(), NOW - OVERDUE_SECONDS
    )
    assert [one.pod for one in found.overdue] == ["team/a"]
    assert found.text() == (
        f"assumed for too long: Pod team/a on n0, since {NOW - 100:.0f}, its binding has finished"
    )
    assert compare_snapshots(
        cache.snapshot_without_assumptions(), listed, NAMES, cache.assumed_pods()
    ).has_no_differences


@given(snapshot=clusters())
def test_state_with_all_events_has_no_differences(snapshot: Snapshot):
    cache = ClusterState()
    for kind in OBJECT_KINDS:
        for one in getattr(snapshot, kind.field):
            cache.put(one)
    assert compare_snapshots(cache.snapshot_without_assumptions(), snapshot, NAMES).has_no_differences


def test_dump_contains_nodes_with_their_pods_and_requests():
    cache = ClusterState()
    for one in (node("n0", memory="1Gi"), pod("b", on="n0"), pod("a"), pod("c", cpu=2), pod("d", on="gone")):
        cache.put(one)
    cache.assume_pod("team/a", "n0", NOW)
    found = dump_state(cache.snapshot(), cache.assumed_pods())
    assert found.text().splitlines() == [
        "Node gone (not known to the API): 1 pods; cpu 1000/0, pods 1/0",
        "  team/d",
        "Node n0: 2 pods; cpu 2000/64000, memory 0/1073741824, pods 2/110",
        "  team/a (assumed)",
        "  team/b",
        "waiting: 1 pods",
        "  team/c",
    ]


def test_empty_cache_has_an_empty_dump():
    assert dump_state(ClusterState().snapshot()).text() == "waiting: 0 pods"
