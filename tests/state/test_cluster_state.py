"""The cluster state, event by event, with events that are late, repeated or missing."""

from weakref import ref

import msgspec
import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import KubernetesValue, ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.state import cluster_state
from batchsched.state.cluster_state import BoundPodBuilder, ClusterState
from tests.session.scenario import group, priority_class, queue, topology
from tests.state.objects import NOW, ended, expire, leaving, node, places, pod, told, with_payload

A = "team/a"


def cache_of(*objects: object, ttl: float = 0.0) -> ClusterState:
    cache = ClusterState(ttl_seconds=ttl)
    for one in objects:
        cache.put(one)
    return cache


def assumed(ttl: float = 0.0) -> ClusterState:
    """A waiting pod that is assumed on the first of two nodes."""
    cache = cache_of(node("n0", 1), node("n1", 2), pod("a", 3, "ua"), ttl=ttl)
    assert cache.assume_pod(A, "n0", NOW, "ua")
    return cache


# Objects


def test_every_kind_of_object_finds_its_place_in_the_snapshot():
    objects = (
        node("n0"),
        pod("a"),
        group("g"),
        queue("q"),
        topology("zone"),
        priority_class("high", 1),
        Namespace(metadata=told(pod("x")).metadata),
    )
    snapshot = cache_of(*objects).snapshot()
    fields = ("nodes", "pods", "pod_groups", "queues", "topologies", "priority_classes", "namespaces")
    assert [getattr(snapshot, name) for name in fields] == [(one,) for one in objects]


class Strange(KubernetesValue, frozen=True, gc=False):
    metadata: ObjectMeta


def test_objects_of_unknown_kinds_are_refused():
    with pytest.raises(KeyError):
        ClusterState().put(Strange(metadata=pod("a").metadata))


def test_snapshot_is_sorted_by_key_whatever_the_order_of_events():
    names = ["n2", "n0", "n10", "n1"]
    assert [one.name for one in cache_of(*map(node, names)).snapshot().nodes] == ["n0", "n1", "n10", "n2"]


def test_nodes_that_did_not_change_are_the_same_objects_and_an_unchanged_cluster_the_same_snapshot():
    cache = cache_of(node("n0", 1), node("n1", 2), pod("a", 3))
    before = cache.snapshot()
    assert cache.snapshot() is before
    cache.put(node("n1", 4, cpu=128))
    after = cache.snapshot()
    assert after.nodes[0] is before.nodes[0]
    assert after.nodes[1] is not before.nodes[1]
    assert after.pods is before.pods


def test_write_that_changes_nothing_that_scheduling_reads_is_no_change():
    cache = cache_of(node("n0", 1), group("g"))
    before, generation = cache.snapshot(), cache.generation
    cache.put(node("n0", 7))
    cache.put(group("g").model_copy(update={"status": None}))
    assert cache.generation == generation
    assert cache.snapshot() is before


def test_pending_pods_of_other_schedulers_are_ignored_until_they_are_bound():
    theirs = pod("a", 1)
    theirs = msgspec.structs.replace(
        theirs, spec=msgspec.structs.replace(theirs.spec, scheduler_name="default")
    )
    cache = cache_of(node("n0"), theirs)
    assert cache.snapshot().pods == ()
    cache.put(
        msgspec.structs.replace(
            theirs,
            spec=msgspec.structs.replace(theirs.spec, node_name="n0"),
            metadata=told(theirs, 2).metadata,
        )
    )
    assert places(cache.snapshot()) == {"a": "n0"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_frees_its_room_and_does_not_come_back(phase: str):
    running = pod("a", 1, "ua", on="n0")
    cache = cache_of(node("n0"), running)
    cache.put(ended(told(running, 2, "ua"), phase))
    assert cache.snapshot().pods == ()
    cache.put(running)
    assert cache.snapshot().pods == ()
    cache.remove(running)
    assert cache.snapshot().pods == ()


def test_queue_without_its_parent_is_set_aside_until_the_parent_is_added():
    cache = cache_of(queue("child", parent="org"))
    snapshot = cache.snapshot()
    assert snapshot.queues == ()
    assert [(one.object, one.field) for one in snapshot.set_aside] == [("Queue child", "spec.parent")]
    assert len(cache.snapshot_without_assumptions().queues) == 1
    cache.put(queue("org"))
    assert [one.name for one in cache.snapshot().queues] == ["child", "org"]
    assert cache.snapshot().set_aside == ()


# Order of events


def test_event_older_than_the_known_version_is_ignored():
    cache = cache_of(pod("a", 5, labels={"v": "new"}))
    cache.put(pod("a", 4, labels={"v": "old"}))
    assert cache.snapshot().pods[0].labels == {"v": "new"}


def test_the_same_addition_twice_counts_once():
    cache = cache_of(node("n0"), pod("a", 1, on="n0"), pod("a", 1, on="n0"))
    assert places(cache.snapshot()) == {"a": "n0"}


def test_objects_without_a_resource_version_are_known_by_their_last_event():
    cache = cache_of(group("g", 1), group("g", 2))
    assert cache.snapshot().pod_groups[0].effective_min_member == 2
    cache.put(group("g", 3), version="9")
    cache.put(group("g", 4), version="8")
    assert cache.snapshot().pod_groups[0].effective_min_member == 3


def test_update_after_the_deletion_is_ignored():
    cache = cache_of(pod("a", 1, "ua"))
    cache.remove(pod("a", 3, "ua"))
    cache.put(pod("a", 2, "ua", labels={"late": "yes"}))
    assert cache.snapshot().pods == ()


def test_delete_event_with_an_outdated_object_deletes_it():
    cache = cache_of(node("n0"), pod("a", 9, "ua", on="n0"))
    cache.remove(pod("a", 3, "ua"))
    assert cache.snapshot().pods == ()


def test_deletion_of_an_older_pod_keeps_the_newer_one_of_its_name():
    cache = cache_of(pod("a", 1, "elder"), pod("a", 5, "younger"))
    cache.remove(pod("a", 1, "elder"))
    assert [one.metadata.uid for one in cache.snapshot().pods] == ["younger"]
    cache.put(pod("a", 2, "elder"))
    assert [one.metadata.uid for one in cache.snapshot().pods] == ["younger"]


def test_deletion_of_an_unknown_object_changes_nothing():
    cache = cache_of()
    cache.remove(node("n0"))
    assert (cache.generation, cache.snapshot()) == (0, Snapshot())


def test_pod_may_come_before_its_node_and_stay_after_it():
    cache = cache_of(pod("a", 1, on="n0"))
    assert places(cache.snapshot()) == {"a": "n0"}
    cache.put(node("n0", 2, "u1"))
    cache.remove(node("n0", 2, "u1"))
    assert (cache.snapshot().nodes, places(cache.snapshot())) == ((), {"a": "n0"})
    cache.put(node("n0", 5, "u2", cpu=8))
    (again,) = cache.snapshot().nodes
    assert again.metadata.uid == "u2"


def test_list_deletes_objects_that_it_does_not_contain():
    cache = cache_of(node("n0"), pod("a", 1, "ua"), pod("b", 2, "ub", on="n0"), pod("c", 3, "uc"))
    cache.remove(pod("c", 3, "uc"))
    cache.replace(Pod, [pod("a", 9, "other"), pod("c", 8, "uc"), pod("d", 7, "ud")])
    assert {one.name: one.metadata.uid for one in cache.snapshot().pods} == {
        "a": "other",
        "c": "uc",
        "d": "ud",
    }
    assert len(cache.snapshot().nodes) == 1
    cache.put(pod("b", 2, "ub", on="n0"))
    assert "b" not in places(cache.snapshot())


def test_list_with_older_versions_replaces_newer_objects():
    cache = cache_of(node("n0", 90, cpu=1))
    cache.replace(Node, [node("n0", 5, cpu=2)])
    cache.put(node("n0", 6, cpu=3))
    assert cache.snapshot().nodes[0].parse_allocatable_in_base_units()["cpu"] == 3000


# Assumed pods


def test_assumed_pod_counts_on_its_node_before_the_api_says_so():
    cache = assumed()
    assert places(cache.snapshot()) == {"a": "n0"}
    assert places(cache.snapshot_without_assumptions()) == {"a": ""}
    assert [(one.pod, one.assumption.node, one.assumption.since) for one in cache.assumed_pods()] == [
        (A, "n0", NOW)
    ]


@pytest.mark.parametrize(
    "objects, uid",
    [
        ([node("n0")], ""),
        ([pod("a")], ""),
        ([node("n0"), pod("a", on="n0")], ""),
        ([node("n0"), leaving(pod("a"))], ""),
        ([node("n0"), ended(pod("a"))], ""),
        ([node("n0"), pod("a", uid="younger")], "elder"),
    ],
    ids=["no pod", "no node", "bound", "leaving", "ended", "another"],
)
def test_outdated_decision_is_not_assumed(objects: list[object], uid: str):
    cache = cache_of(*objects)
    before = cache.snapshot()
    assert not cache.assume_pod(A, "n0", NOW, uid)
    assert cache.snapshot() is before


def test_pod_is_assumed_once():
    cache = assumed()
    assert not cache.assume_pod(A, "n1", NOW)
    assert places(cache.snapshot()) == {"a": "n0"}


def test_pod_with_a_failed_binding_is_pending_as_the_same_object():
    cache = cache_of(node("n0"), pod("a"))
    waiting, reader = cache.snapshot().pods[0], cache.create_change_reader()
    reader.read_changes()
    cache.assume_pod(A, "n0", NOW)
    assert cache.forget_assumption(A, "n0")
    assert cache.snapshot().pods[0] is waiting
    assert reader.read_changes() == ()
    assert not cache.forget_assumption(A, "n0")


@pytest.mark.parametrize("is_bound", [True, False])
def test_deleted_pod_keeps_its_reservations_until_its_binding_ends(is_bound: bool):
    cache = cache_of(node("n0"), pod("a", uid="old"))
    cache.assume_pod(A, "n0", NOW, "old")
    cache.remove(pod("a", uid="old"))
    assert cache.is_assumed_or_being_bound(A, "old")
    assert not cache.is_assumed_or_being_bound(A, "new")
    if is_bound:
        cache.finish_binding(A, NOW, "old")
    else:
        assert not cache.forget_assumption(A, "n0", "old")
    assert not cache.is_assumed_or_being_bound(A, "old")


def recreated(ttl: float = 0.0) -> ClusterState:
    """A pod that was deleted while it was bound to n0, and a new pod of its name that is assumed there."""
    cache = cache_of(node("n0"), pod("a", 1, "old"), ttl=ttl)
    assert cache.assume_pod(A, "n0", NOW, "old")
    cache.remove(pod("a", 1, "old"))
    cache.put(pod("a", 2, "new"))
    assert cache.assume_pod(A, "n0", NOW, "new")
    return cache


def test_failed_binding_of_a_deleted_pod_leaves_the_new_pod_of_its_name_assumed():
    cache = recreated()
    assert not cache.forget_assumption(A, "n0", "old")
    assert [one.pod for one in cache.assumed_pods()] == [A]
    assert (cache.is_assumed_or_being_bound(A, "old"), cache.is_assumed_or_being_bound(A, "new")) == (
        False,
        True,
    )


def test_late_success_of_the_binding_of_a_deleted_pod_sets_no_deadline_for_the_new_pod_of_its_name():
    cache = recreated(ttl=30.0)
    cache.finish_binding(A, NOW, "old")
    assert expire(cache, NOW + 1000) == ()
    assert (cache.is_assumed_or_being_bound(A, "old"), cache.is_assumed_or_being_bound(A, "new")) == (
        False,
        True,
    )
    cache.finish_binding(A, NOW, "new")
    assert [one.pod for one in expire(cache, NOW + 1000)] == [A]


def test_confirmed_pod_keeps_no_reservations():
    cache = cache_of(node("n0"), pod("a", uid="ua"))
    cache.assume_pod(A, "n0", NOW, "ua")
    cache.put(pod("a", 2, "ua", on="n0"))
    assert not cache.is_assumed_or_being_bound(A, "ua")


def test_pods_that_came_and_went_are_freed_although_no_reader_reads():
    cache = cache_of(node("n0"))
    readers = [cache.create_change_reader(), cache.create_change_reader()]
    readers[0].read_changes()
    payloads = []
    for version in range(3):
        waiting, payload = with_payload(pod("a", version + 1, f"uid-{version}"))
        cache.put(waiting)
        cache.assume_pod(A, "n0", NOW)
        cache.remove(waiting)
        payloads.append(payload)
    cache.snapshot()
    del waiting
    assert [payload() for payload in payloads] == [None, None, None]


def test_reader_ends_with_its_owner_and_the_others_continue():
    cache = cache_of()
    alive, ended_reader = cache.create_change_reader(), ref(cache.create_change_reader())
    cache.put(node("n0"))
    late = cache.create_change_reader()
    assert ended_reader() is None
    assert [change.key for change in alive.read_changes() or ()] == ["n0"]
    assert late.read_changes() is None
    cache.put(node("n1"))
    assert [change.key for change in late.read_changes() or ()] == ["n1"]


def test_forget_assumption_of_an_earlier_node_keeps_the_later_assumption():
    cache = assumed()
    cache.forget_assumption(A, "n0")
    cache.assume_pod(A, "n1", NOW)
    assert not cache.forget_assumption(A, "n0")
    assert places(cache.snapshot()) == {"a": "n1"}


def test_watch_confirms_an_assumed_pod():
    cache = assumed()
    cache.put(pod("a", 4, "ua", on="n0"))
    assert (cache.assumed_pods(), places(cache.snapshot())) == ((), {"a": "n0"})
    assert not cache.forget_assumption(A, "n0")
    assert cache.snapshot_without_assumptions() == cache.snapshot()


def test_confirmation_of_an_assumed_pod_does_not_change_the_snapshot():
    cache = assumed()
    before = cache.snapshot()
    cache.put(pod("a", 4, "ua", on="n0"))
    assert cache.snapshot() is before


def test_binding_of_the_api_server_replaces_the_assumed_node():
    cache = assumed()
    cache.put(pod("a", 4, "ua", on="n1"))
    assert (cache.assumed_pods(), places(cache.snapshot())) == ((), {"a": "n1"})


def test_update_of_an_assumed_pod_keeps_its_node():
    cache = assumed()
    cache.put(pod("a", 4, "ua", labels={"v": "2"}))
    (shown,) = cache.snapshot().pods
    assert (shown.node_name, shown.labels) == ("n0", {"v": "2"})
    cache.forget_assumption(A, "n0")
    (waiting,) = cache.snapshot().pods
    assert (waiting.node_name, waiting.labels) == ("", {"v": "2"})


def test_deletion_of_an_assumed_pod_frees_its_room():
    cache = assumed()
    cache.remove(pod("a", 3, "ua"))
    assert (cache.assumed_pods(), cache.snapshot().pods) == ((), ())
    cache.finish_binding(A, NOW)
    assert not cache.forget_assumption(A, "n0")


def test_another_pod_of_the_same_name_does_not_inherit_the_assumption():
    cache = assumed()
    cache.put(pod("a", 9, "younger"))
    assert (cache.assumed_pods(), places(cache.snapshot())) == ((), {"a": ""})


def test_list_confirms_keeps_and_drops_assumed_pods():
    cache = cache_of(node("n0"), *(pod(name, at + 1, f"u{name}") for at, name in enumerate("abc")))
    for name in "abc":
        cache.assume_pod(f"team/{name}", "n0", NOW)
    cache.replace(Pod, [pod("a", 7, "ua"), pod("b", 8, "ub", on="n0")])
    assert [one.pod for one in cache.assumed_pods()] == [A]
    assert places(cache.snapshot()) == {"a": "n0", "b": "n0"}


def test_assumed_pod_stays_when_its_node_is_deleted():
    cache = assumed()
    cache.remove(node("n0", 1))
    assert places(cache.snapshot()) == {"a": "n0"}
    assert cache.forget_assumption(A, "n0")


def test_only_a_binding_that_has_finished_expires():
    cache = assumed(ttl=30.0)
    assert expire(cache, NOW + 1000) == ()
    cache.finish_binding(A, NOW + 1000)
    assert expire(cache, NOW + 1029) == ()
    (gone,) = expire(cache, NOW + 1030)
    assert (gone.pod, gone.assumption.node) == (A, "n0")
    assert places(cache.snapshot()) == {"a": ""}


def test_without_a_time_to_live_nothing_expires():
    cache = assumed()
    cache.finish_binding(A, NOW)
    assert expire(cache, NOW + 1e9) == ()


def test_confirmed_pods_do_not_expire():
    cache = assumed(ttl=1.0)
    cache.put(pod("a", 4, "ua", on="n0"))
    cache.finish_binding(A, NOW)
    assert expire(cache, NOW + 100) == ()
    assert places(cache.snapshot()) == {"a": "n0"}


def test_equal_pods_on_one_node_share_a_spec():
    one = pod("a")
    other = type(one)(metadata=pod("b").metadata, spec=one.spec)
    placements = BoundPodBuilder()
    placed = [placements.bound_copy(each, "n0") for each in (one, other)]
    assert placed[0].spec is placed[1].spec
    assert [each.key for each in placed] == ["team/a", "team/b"]
    assert placements.bound_copy(one, "n1").node_name == "n1"


def test_shared_specs_are_kept_as_long_as_a_bound_pod_has_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_state, "MIN_CACHED_SPECS", 4)
    one, placements = pod("a"), BoundPodBuilder()
    held = placements.bound_copy(one, "n0")
    for number in range(100):
        assert placements.bound_copy(pod(f"p{number}"), "n1").node_name == "n1"
    assert placements.bound_copy(one, "n0").spec is held.spec
    assert len(placements._specs) <= 5


def test_events_after_a_list_with_lower_versions_are_not_late():
    cache = ClusterState()
    cache.put(node("n0", 900))
    cache.put(pod("a", 1000, "uid-a"))
    cache.put(pod("ghost", 1001, "uid-ghost", on="n0"))
    cache.replace(Pod, [pod("a", 90, "uid-a")])
    cache.put(pod("a", 101, "uid-a", on="n0"))
    cache.put(pod("ghost", 102, "uid-of-a-new-pod"))
    assert places(cache.snapshot()) == {"a": "n0", "ghost": ""}
