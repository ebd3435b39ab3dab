"""A scheduler that follows changes equals a new one."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.node import ContainerImage, NodeCondition
from batchsched.api.decision import to_json
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.state.cluster_state import ClusterState
from batchsched.state.up_to_date_scheduler import UpToDateScheduler
from tests.session.clusters import random_cluster
from tests.session.scenario import GPU, group, queue
from tests.session.test_properties import WAYS
from tests.state.objects import NOW, Ledger, ended, node, pod


class Watcher:
    """A cache with a feed; counts how often a scheduler was made."""

    def __init__(self, *objects: Any, length: int = 1000, whole: bool = False, many: int = 1000) -> None:
        self.cache = ClusterState(max_unread=length)
        self.made: list[Ledger] = []
        self.feed = UpToDateScheduler(self.cache, self.make, whole_nodes=whole, min_followed_changes=many)
        self.put(*objects)

    def make(self, snapshot: Snapshot) -> Any:
        self.made.append(Ledger(snapshot))
        return self.made[-1]

    def put(self, *objects: Any) -> None:
        for one in objects:
            self.cache.put(one)

    def follow(self) -> Ledger:
        scheduler = self.feed.updated_scheduler()
        snapshot, ledger = self.cache.snapshot(), self.made[-1]
        assert scheduler is ledger
        assert ledger.pods == {one.key: one for one in snapshot.pods}
        assert ledger.groups == {one.key: one for one in snapshot.pod_groups}
        assert ledger.nodes == {one.name for one in snapshot.nodes}
        return ledger


def told(**status: Any) -> Any:
    """A node with something in its status."""
    one = node("n0")
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, **status))


def noted(one: Any) -> Any:
    """The same node with an annotation."""
    metadata = msgspec.structs.replace(one.metadata, annotations={"example.com/beat": "2"})
    return msgspec.structs.replace(one, metadata=metadata)


def ready(status: str) -> tuple[NodeCondition, ...]:
    return (NodeCondition(type="Ready", status=status),)


UNREAD = [
    pytest.param(told(conditions=ready("False")), id="condition"),
    pytest.param(noted(node("n0")), id="annotation"),
]
READ = [
    pytest.param(told(images=(ContainerImage(names=("busybox",), size_bytes=1),)), id="image"),
    pytest.param(told(allocatable={"cpu": "1"}), id="allocatable"),
    pytest.param(node("n1"), id="another"),
]


@pytest.mark.parametrize("changed", UNREAD)
def test_scheduler_is_not_rebuilt_for_node_fields_that_no_built_in_plugin_reads(changed):
    watcher = Watcher(told(conditions=ready("True")), pod("a"))
    watcher.follow()
    watcher.put(changed, pod("b"))
    watcher.follow()
    assert len(watcher.made) == 1


@pytest.mark.parametrize("changed", READ)
def test_scheduler_receives_the_nodes_if_a_field_that_plugins_read_has_changed(changed):
    watcher = Watcher(node("n0"), pod("a"))
    watcher.follow()
    watcher.put(changed, pod("b", on="n1"))
    watcher.follow()
    watcher.cache.remove(node("n0"))
    assert watcher.follow().laid_out == 2
    assert len(watcher.made) == 1


@pytest.mark.parametrize("changed", UNREAD)
@pytest.mark.parametrize("whole", [False, True])
def test_node_fields_that_built_in_plugins_ignore_reach_only_schedulers_with_other_plugins(whole, changed):
    watcher = Watcher(told(conditions=ready("True")), pod("a"), whole=whole)
    watcher.follow()
    watcher.put(changed)
    assert watcher.follow().laid_out == int(whole)
    assert len(watcher.made) == 1


def test_pods_and_pod_groups_are_followed_event_by_event():
    watcher = Watcher(node("n0"), pod("a"), group("g"))
    watcher.follow()
    watcher.put(pod("b"), group("g", 2), group("h"))
    watcher.cache.remove(pod("a"))
    watcher.follow()
    watcher.cache.assume_pod("team/b", "n0", NOW)
    watcher.cache.remove(group("g"))
    watcher.follow()
    watcher.cache.forget_assumption("team/b", "n0")
    watcher.follow()
    watcher.put(pod("b", on="n0"), pod("c", on="nowhere"))
    watcher.follow()
    watcher.put(ended(pod("b", on="n0")))
    assert set(watcher.follow().pods) == {"team/c"}
    assert len(watcher.made) == 1


@pytest.mark.parametrize("uids", [("elder", "younger"), ("younger", "elder")])
def test_pod_that_is_replaced_or_changes_its_gang_is_removed_and_added(uids):
    watcher = Watcher(node("n0"), pod("a", 1, uids[0]))
    watcher.follow()
    watcher.put(pod("a", 2, uids[1], on="n0"))
    watcher.follow()
    watcher.put(pod("a", 3, uids[1], on="n0", group="g"))
    watcher.follow()
    assert len(watcher.made) == 1


@pytest.mark.parametrize(
    "change",
    [
        told(allocatable={"example.com/fpga": "1"}),
        queue("q"),
        pod("b", spec={"overhead": {"example.com/fpga": "1"}}),
    ],
    ids=["resource of a node", "queue", "resource of a pod"],
)
def test_a_scheduler_is_rebuilt_for_changes_that_it_cannot_follow(change: Any):
    watcher = Watcher(node("n0"), pod("a"))
    watcher.follow()
    watcher.put(change)
    watcher.follow()
    watcher.put(pod("c"), change)
    watcher.follow()
    assert len(watcher.made) == 2


def test_a_scheduler_is_not_rebuilt_for_kinds_on_which_no_decision_depends():
    watcher = Watcher(node("n0"), pod("a"))
    watcher.feed = UpToDateScheduler(watcher.cache, watcher.make, ignored_fields=frozenset({"queues"}))
    watcher.follow()
    watcher.put(queue("q"), pod("b"))
    watcher.follow()
    assert len(watcher.made) == 1


def test_a_scheduler_that_is_too_far_behind_is_rebuilt():
    watcher = Watcher(node("n0"), length=2)
    watcher.follow()
    watcher.put(*(pod(name) for name in "abc"))
    watcher.follow()
    assert len(watcher.made) == 2


def test_a_scheduler_is_rebuilt_after_many_changes_to_release_deleted_objects():
    watcher = Watcher(node("n0"), many=3)
    watcher.follow()
    made = []
    for name in "abc":
        watcher.put(pod(name))
        watcher.follow()
        watcher.cache.remove(pod(name))
        watcher.follow()
        made.append(len(watcher.made))
    # Four changes are followed: three are not too many.
    assert made == [1, 1, 2]


def test_held_gangs_are_passed_to_the_new_scheduler():
    watcher = Watcher(node("n0"))
    held = (HeldGang("team/g", "Quota", NOW, ()),)
    watcher.feed.updated_scheduler(held)
    assert watcher.made[0].held == held


def test_resources_requested_by_bound_pods_are_known():
    watcher = Watcher(node("n0"), pod("a", gpu=1, on="n0"))
    watcher.follow()
    watcher.put(pod("b", gpu=1))
    assert GPU in str(watcher.follow().pods["team/b"].spec)
    assert len(watcher.made) == 1


class History:
    """A random cluster that comes about event by event, with assumptions on the way."""

    def __init__(self, seed: int, settings: Profile) -> None:
        self.rng = random.Random(seed)
        self.full = random_cluster(self.rng.getrandbits(32))
        self.settings = settings
        self.cache = ClusterState(ttl_seconds=10.0)
        self.feed = UpToDateScheduler(self.cache, self.follower)

    def follower(self, snapshot: Snapshot) -> Session:
        return Session(snapshot, self.settings)

    def events(self) -> Iterator[None]:
        full = self.full
        missing = [*full.nodes, *full.queues, *full.topologies, *full.priority_classes, *full.pod_groups]
        missing += full.pods
        self.rng.shuffle(missing)
        for one in missing:
            self.cache.put(one)
            if self.rng.random() < 0.5:
                self.move()
            if self.rng.random() < 0.2:
                yield

    def move(self) -> None:
        snapshot = self.cache.snapshot()
        assumed = self.cache.assumed_pods()
        waiting = [one for one in snapshot.pods if not one.node_name]
        move = self.rng.choice(["assume", "forget", "confirm", "remove", "leave", "change"])
        if move == "assume" and waiting and snapshot.nodes:
            self.cache.assume_pod(self.rng.choice(waiting).key, self.rng.choice(snapshot.nodes).name, NOW)
        elif move == "forget" and assumed:
            one = self.rng.choice(assumed)
            self.cache.forget_assumption(one.pod, one.assumption.node)
        elif move == "confirm" and assumed:
            key = self.rng.choice(assumed).pod
            (shown,) = [one for one in snapshot.pods if one.key == key]
            spec = msgspec.convert(msgspec.to_builtins(shown.spec), type(shown.spec))
            self.cache.put(msgspec.structs.replace(shown, spec=spec))
        elif move == "remove" and snapshot.pods:
            self.cache.remove(self.rng.choice(snapshot.pods))
        elif snapshot.nodes:
            node = self.rng.choice(snapshot.nodes)
            if move == "leave":
                self.cache.remove(node)
            else:
                others = random_cluster(self.rng.getrandbits(32)).nodes
                self.cache.put(next((other for other in others if other.name == node.name), node))


@pytest.mark.properties
@pytest.mark.parametrize("way", WAYS)
@given(seed=st.integers(0, 2**32 - 1))
def test_sessions_that_follow_the_feed_decide_as_those_of_a_snapshot(way: str, seed: int):
    history = History(seed, WAYS[way])
    for _ in history.events():
        history.feed.updated_scheduler().decide(NOW, 0)
    fed = history.feed.updated_scheduler().decide(NOW, 0)
    assert to_json(fed) == to_json(history.follower(history.cache.snapshot()).decide(NOW, 0))
