"""Invariants of the cluster state in any order of events: no pod is lost, and none is counted twice."""

import random
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from batchsched.state.cluster_state import ClusterState
from batchsched.state.debugger import compare_snapshots
from batchsched.state.up_to_date_scheduler import UpToDateScheduler
from tests.session.clusters import clusters
from tests.session.scenario import group
from tests.state.objects import NOW, Ledger, ended, expire, node, pod

pytestmark = pytest.mark.properties

NODES = ["n0", "n1"]
PODS = ["a", "b"]
KINDS: list[type] = [Node, Pod, PodGroup]
TTL = 10.0


class Api:
    """An API server with three kinds of objects, and what a watcher of it has heard so far."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[type, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.heard: dict[type, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.coming: dict[type, deque[tuple[bool, Any]]] = {kind: deque() for kind in KINDS}
        self.past: dict[type, list[tuple[bool, Any]]] = {kind: [] for kind in KINDS}

    def next(self) -> int:
        self.version += 1
        return self.version

    def put(self, found: Any) -> None:
        self.objects[type(found)][found.name] = found
        self.coming[type(found)].append((True, found))

    def delete(self, kind: type, name: str) -> None:
        self.coming[kind].append((False, self.objects[kind].pop(name)))

    def rewrite(self, old: Pod, **more: Any) -> Pod:
        """A new version of a pod."""
        meta = msgspec.structs.replace(old.metadata, resource_version=str(self.next()))
        return msgspec.structs.replace(old, metadata=meta, **more)


def objects_of(cache: ClusterState) -> dict[tuple[str, str], Any]:
    """All objects of a cluster state by field of Snapshot and key."""
    snapshot = cache.snapshot()
    objects: dict[tuple[str, str], Any] = {("pods", one.key): one for one in snapshot.pods}
    objects |= {("pod_groups", one.key): one for one in snapshot.pod_groups}
    return objects | {("nodes", one.name): one for one in snapshot.nodes}


class Follower:
    """The objects of a cluster state as one reader of its changes knows them."""

    def __init__(self, cache: ClusterState) -> None:
        self.cache = cache
        self.reader = cache.create_change_reader()
        self.objects: dict[tuple[str, str], Any] = {}

    def follow(self) -> dict[tuple[str, str], Any]:
        """Apply the changes since the last call, or start again if there were too many."""
        unread, changes = self.reader.unread_changes(), self.reader.read_changes()
        if changes is None:
            assert unread is None
            self.objects = objects_of(self.cache)
            return self.objects
        assert [(one.before, one.after) for one in unread or ()] == [
            (one.before, one.after) for one in changes
        ]
        for change in changes:
            address = change.field, change.key
            assert change.before is not change.after
            assert self.objects.pop(address, None) is change.before
            if change.after is not None:
                self.objects[address] = change.after
        return self.objects


class Life(RuleBasedStateMachine):
    """An API, a cache that watches it with any delay between kinds, decisions in between, and a follower."""

    def __init__(self) -> None:
        super().__init__()
        self.api = Api()
        self.cache = ClusterState(ttl_seconds=TTL, max_unread=4)
        self.now = NOW
        self.assumed: dict[str, str] = {}
        """Pods by name that should be assumed, with their nodes."""
        self.bound_at: dict[str, float] = {}
        self.feed = UpToDateScheduler(self.cache, Ledger)
        self.followers = [Follower(self.cache) for _ in range(3)]
        self.before = (self.cache.create_change_reader(), self.cache.snapshot())

    @initialize()
    def cluster_is_there(self) -> None:
        for name in NODES:
            self.node_comes_or_changes(name, 1)
        for name in PODS:
            self.pod_comes(name, "x", "")
        for kind in (*KINDS, *KINDS):
            self.event_arrives(kind, stale=False)

    # The world

    @rule(name=st.sampled_from(NODES), cpu=st.integers(1, 2))
    def node_comes_or_changes(self, name: str, cpu: int) -> None:
        known = self.api.objects[Node].get(name)
        uid = known.metadata.uid if known else f"node-{self.api.version}"
        self.api.put(node(name, self.api.next(), uid, cpu=cpu))

    @rule(name=st.sampled_from(PODS), label=st.sampled_from("xy"), on=st.sampled_from(["", "", "n0", "n9"]))
    def pod_comes(self, name: str, label: str, on: str) -> None:
        if name not in self.api.objects[Pod]:
            version = self.api.next()
            self.api.put(pod(name, version, f"pod-{version}", labels={"v": label}, on=on))

    @rule(name=st.sampled_from(PODS), label=st.sampled_from("xy"))
    def pod_changes(self, name: str, label: str) -> None:
        known = self.api.objects[Pod].get(name)
        if known is not None:
            changed = pod(name, 0, known.metadata.uid, labels={"v": label}, on=known.node_name)
            self.api.put(self.api.rewrite(changed, status=known.status))  # a finished pod does not run again

    @rule(name=st.sampled_from(PODS), where=st.sampled_from(NODES))
    def pod_is_bound(self, name: str, where: str) -> None:
        """By this scheduler or by another one: the API server does not distinguish them."""
        known = self.api.objects[Pod].get(name)
        if known is not None and not known.node_name and not known.finished:
            where = self.assumed.get(name, where)
            self.api.put(self.api.rewrite(known, spec=msgspec.structs.replace(known.spec, node_name=where)))

    @rule(name=st.sampled_from(PODS))
    def pod_ends(self, name: str) -> None:
        known = self.api.objects[Pod].get(name)
        if known is not None and known.node_name and not known.finished:
            self.api.put(self.api.rewrite(ended(known)))

    @rule(name=st.sampled_from("gh"), minimum=st.integers(1, 2))
    def group_comes_or_changes(self, name: str, minimum: int) -> None:
        self.api.put(group(name, minimum))

    @rule(kind=st.sampled_from([Pod, *KINDS]), pick=st.randoms(use_true_random=False), at_once=st.booleans())
    def object_is_deleted(self, kind: type, pick: random.Random, at_once: bool) -> None:
        names = sorted(self.api.objects[kind])
        if not names:
            return
        self.api.delete(kind, pick.choice(names))
        while at_once and self.api.coming[kind]:
            self.event_arrives(kind, stale=True)

    # The watch

    @rule(kind=st.sampled_from([Pod, Pod, *KINDS]), stale=st.booleans())
    def event_arrives(self, kind: type, stale: bool) -> None:
        if not self.api.coming[kind]:
            return
        put, found = event = self.api.coming[kind].popleft()
        self.api.past[kind].append(event)
        if put:
            self._hear(found)
            self.cache.put(found)
        else:
            self._forget(kind, found.name)
            earlier = [one for here, one in self.api.past[kind] if here and one.name == found.name]
            tombstone = earlier[0] if stale and earlier and _uid(earlier[0]) == _uid(found) else found
            self.cache.remove(tombstone)

    @rule(kind=st.sampled_from([Node, Pod]))
    def past_is_repeated(self, kind: type) -> None:
        """All of it, in another order: what is known already, or is gone, changes nothing."""
        for put, found in reversed(self.api.past[kind]):
            if put:
                self.cache.put(found)
            elif _uid(found) not in self._alive(kind):
                self.cache.remove(found)

    @rule(kind=st.sampled_from(KINDS))
    def list_arrives(self, kind: type) -> None:
        self.api.coming[kind].clear()
        for name in sorted(set(self.api.heard[kind]) - set(self.api.objects[kind])):
            self._forget(kind, name)
        for found in self.api.objects[kind].values():
            self._hear(found)
        self.cache.replace(kind, self.api.objects[kind].values())

    def _alive(self, kind: type) -> set[str]:
        return {_uid(one) for one in self.api.heard[kind].values()}

    def _hear(self, found: Any) -> None:
        before = self.api.heard[type(found)].get(found.name)
        self.api.heard[type(found)][found.name] = found
        if isinstance(found, Pod):
            renewed = before is not None and _uid(before) != _uid(found)
            if renewed or found.node_name or found.finished:
                self._confirm(found.name)

    def _forget(self, kind: type, name: str) -> None:
        self.api.heard[kind].pop(name, None)
        if kind is Pod:
            self._confirm(name)

    def _confirm(self, name: str) -> None:
        self.assumed.pop(name, None)
        self.bound_at.pop(name, None)

    # Decisions

    @precondition(lambda self: self._waiting())
    @rule(pick=st.randoms(use_true_random=False), where=st.sampled_from(NODES))
    def waiting_pod_is_assumed(self, pick: random.Random, where: str) -> None:
        self.pod_is_assumed(pick.choice(self._waiting()), where)

    def _waiting(self) -> list[str]:
        heard = self.api.heard[Pod]
        return [name for name in sorted(heard) if not heard[name].node_name and name not in self.assumed]

    @rule(name=st.sampled_from(PODS), where=st.sampled_from(NODES))
    def pod_is_assumed(self, name: str, where: str) -> None:
        known = self.api.heard[Pod].get(name)
        may = (
            known is not None
            and not known.node_name
            and not known.finished
            and name not in self.assumed
            and where in self.api.heard[Node]
        )
        assert self.cache.assume_pod(f"team/{name}", where, self.now, _uid(known) if known else "") is may
        if may:
            self.assumed[name] = where

    @precondition(lambda self: self.assumed)
    @rule(pick=st.randoms(use_true_random=False))
    def binding_fails(self, pick: random.Random) -> None:
        name = pick.choice(sorted(self.assumed))
        assert self.cache.forget_assumption(f"team/{name}", self.assumed[name])
        self._confirm(name)

    @precondition(lambda self: self.assumed)
    @rule(pick=st.randoms(use_true_random=False))
    def binding_finishes(self, pick: random.Random) -> None:
        name = pick.choice(sorted(self.assumed))
        self.cache.finish_binding(f"team/{name}", self.now)
        self.bound_at[name] = self.now

    @rule(passed=st.sampled_from([1.0, TTL]))
    def time_passes(self, passed: float) -> None:
        self.now += passed
        expected = sorted(name for name, since in self.bound_at.items() if since + TTL <= self.now)
        assert [one.pod for one in expire(self.cache, self.now)] == [f"team/{name}" for name in expected]
        for name in expected:
            self._confirm(name)

    @rule()
    def scheduler_follows(self) -> None:
        ledger = self.feed.updated_scheduler()
        snapshot = self.cache.snapshot()
        assert isinstance(ledger, Ledger)
        assert ledger.pods == {one.key: one for one in snapshot.pods}
        assert ledger.groups == {one.key: one for one in snapshot.pod_groups}

    @rule(number=st.integers(0, 2))
    def follower_reads(self, number: int) -> None:
        """Some followers read often, some hardly ever, and one may end and another begin."""
        assert self.followers[number].follow() == objects_of(self.cache)

    @rule(number=st.integers(0, 2))
    def follower_is_replaced(self, number: int) -> None:
        self.followers[number] = Follower(self.cache)

    # What holds

    @invariant()
    def every_pod_is_there_once_and_where_it_should_be(self) -> None:
        snapshot = self.cache.snapshot()
        expected = {
            name: known.node_name or self.assumed.get(name, "")
            for name, known in self.api.heard[Pod].items()
            if not known.finished
        }
        assert [(one.name, one.node_name) for one in snapshot.pods] == sorted(expected.items())
        assert [one.pod for one in self.cache.assumed_pods()] == [
            f"team/{name}" for name in sorted(self.assumed)
        ]

    @invariant()
    def snapshot_is_that_of_a_cache_that_starts_now(self) -> None:
        fresh = ClusterState()
        for kind in reversed(KINDS):
            fresh.replace(kind, self.api.heard[kind].values())
        assert compare_snapshots(
            self.cache.snapshot_without_assumptions(),
            fresh.snapshot_without_assumptions(),
            fresh.scheduler_names,
        ).has_no_differences
        for name, where in self.assumed.items():
            if where in self.api.heard[Node]:
                assert fresh.assume_pod(f"team/{name}", where, self.now)
        if all(where in self.api.heard[Node] for where in self.assumed.values()):
            assert compare_snapshots(
                self.cache.snapshot(), fresh.snapshot(), fresh.scheduler_names
            ).has_no_differences

    @invariant()
    def what_changes_do_not_name_is_the_same_object(self) -> None:
        reader, before = self.before
        now = self.cache.snapshot()
        changes = reader.read_changes()
        assert changes is not None
        named = {(one.field, one.key) for one in changes}
        for field, key in (("nodes", "name"), ("pods", "key")):
            known = {getattr(one, key): one for one in getattr(before, field)}
            found = {getattr(one, key): one for one in getattr(now, field)}
            unnamed = {name for name in known.keys() | found.keys() if (field, name) not in named}
            assert all(known.get(name) is found.get(name) for name in unnamed)
        self.before = (reader, now)


def _uid(found: Any) -> str:
    return str(found.metadata.uid)


TestLife = Life.TestCase


@given(snapshot=clusters(), seed=st.integers(0, 2**32 - 1))
def test_order_of_events_of_different_objects_does_not_matter(snapshot: Snapshot, seed: int):
    objects = [*snapshot.nodes, *snapshot.pods, *snapshot.pod_groups, *snapshot.queues]
    found = []
    for _ in range(2):
        cache = ClusterState()
        for one in objects:
            cache.put(one)
        found.append(cache.snapshot())
        random.Random(seed).shuffle(objects)
    assert found[0] == found[1]
