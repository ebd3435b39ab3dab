"""Partially bound gangs, after a failed leader, a failed binding or a lost node: they are placed first."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import QUEUE_LABEL, USER_LABEL, Pod, PodSpec
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard_registry
from batchsched.session.tables.gang import GangState, PodCountsByGang
from batchsched.session.tables.session_tables import SessionTables
from tests.session.clusters import leaving, on
from tests.session.scenario import cluster, gang, nodes, placed, pod, priority_class, schedule
from tests.session.test_properties import WAYS


def partially_bound(name: str, pods: int, **more: Any) -> Snapshot:
    """A gang of which one pod is bound, to n0."""
    whole = gang(name, pods, **more)
    return replace(whole, pods=(on(whole.pods[0], "n0"), *whole.pods[1:]))


@pytest.mark.parametrize("way", WAYS)
def test_partially_bound_gang_is_placed_before_an_older_pending_gang(way: str):
    snapshot = cluster(nodes(3, gpu=1), partially_bound("half", 3, age=1), gang("fresh", 2, age=1000))
    assert set(placed(schedule(snapshot, WAYS[way]))) == {"half-1", "half-2"}


@pytest.mark.parametrize("way", WAYS)
def test_partially_bound_gang_is_placed_before_one_of_higher_priority(way: str):
    high = gang("high", 2, priorityClassName="high")
    snapshot = cluster(nodes(3, gpu=1), partially_bound("half", 3), high)
    snapshot = replace(snapshot, priority_classes=(priority_class("high", 100),))
    assert set(placed(schedule(snapshot, WAYS[way]))) == {"half-1", "half-2"}


@pytest.mark.parametrize("way", WAYS)
def test_terminating_members_do_not_count_towards_the_minimum(way: str):
    whole = gang("bert", 4, minimum=2)
    going = tuple(leaving(on(one, f"n{at}")) for at, one in enumerate(whole.pods[:2]))
    snapshot = cluster(nodes(3, gpu=1), replace(whole, pods=(*going, *whole.pods[2:])))
    decision = schedule(snapshot, WAYS[way])
    assert placed(decision) == {}
    assert [one.pod_group for one in decision.refusals] == ["team/bert"]


POD = Pod(metadata=ObjectMeta(name="one", namespace="team"), spec=PodSpec())


def alone():
    return PodCountsByGang({"pod/team/one": GangState("pod/team/one", None, {POD.key: POD})})


def test_count_of_placed_pods_is_kept_until_its_gang_is_forgotten():
    counts = alone()
    counts.gang_counts_of_pod(POD).change_placed_counts(POD, 1)
    assert counts.gang_counts_of_pod(POD).placed == 1
    counts.invalidate_counts("pod/team/one")
    assert counts.gang_counts_of_pod(POD).placed == 0


def test_representative_pod_of_several_gangs_has_no_count():
    assert (
        alone().gang_counts_of_named_pod(Pod(metadata=ObjectMeta(namespace="team"), spec=PodSpec())) is None
    )


def test_session_tables_are_freed_without_the_garbage_collector():
    gc.disable()
    try:
        tables = SessionTables(Snapshot(pods=(POD,)), standard_registry().create_pipeline(Profile()))
        tables.update_pending_gangs_and_indexes()
        record = weakref.ref(tables.counts)
        del tables
        assert record() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("names", [("elder", "younger"), ("younger", "elder")])
def test_user_and_queue_of_a_gang_are_those_of_its_oldest_pod(names: tuple[str, str]):
    """Pods come in any order; a gang without its PodGroup takes the queue from a pod."""
    made = {"elder": ("ann", "research", 60.0), "younger": ("bob", "product", 0.0)}
    state = GangState("team/bert", None)
    for name in names:
        user, queue, age = made[name]
        member = pod(name, group="bert", age=age, labels={USER_LABEL: user, QUEUE_LABEL: queue})
        state.pending[member.key] = member
    assert state.queue_and_user == ("research", "ann")
