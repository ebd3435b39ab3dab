"""Gangs that are half bound: a leader fell, a binding failed, or a node was lost. They come first."""

from dataclasses import replace
from typing import Any

import pytest

from batchsched.api.snapshot import Snapshot
from tests.session.clusters import leaving, on
from tests.session.scenario import cluster, gang, nodes, placed, priority_class, schedule
from tests.session.test_properties import WAYS


def half_bound(name: str, pods: int, **more: Any) -> Snapshot:
    """A gang of which one pod is bound, to n0."""
    whole = gang(name, pods, **more)
    return replace(whole, pods=(on(whole.pods[0], "n0"), *whole.pods[1:]))


@pytest.mark.parametrize("way", WAYS)
def test_gang_that_is_half_bound_gets_the_room_before_one_that_is_fresh_and_older(way: str):
    snapshot = cluster(nodes(3, gpu=1), half_bound("half", 3, age=1), gang("fresh", 2, age=1000))
    assert set(placed(schedule(snapshot, WAYS[way]))) == {"half-1", "half-2"}


@pytest.mark.parametrize("way", WAYS)
def test_gang_that_is_half_bound_gets_the_room_before_one_of_higher_priority(way: str):
    high = gang("high", 2, priorityClassName="high")
    snapshot = cluster(nodes(3, gpu=1), half_bound("half", 3), high)
    snapshot = replace(snapshot, priority_classes=(priority_class("high", 100),))
    assert set(placed(schedule(snapshot, WAYS[way]))) == {"half-1", "half-2"}


@pytest.mark.parametrize("way", WAYS)
def test_members_that_are_being_deleted_count_for_no_minimum(way: str):
    whole = gang("bert", 4, minimum=2)
    going = tuple(leaving(on(one, f"n{at}")) for at, one in enumerate(whole.pods[:2]))
    snapshot = cluster(nodes(3, gpu=1), replace(whole, pods=(*going, *whole.pods[2:])))
    decision = schedule(snapshot, WAYS[way])
    assert placed(decision) == {}
    assert [one.pod_group for one in decision.refusals] == ["team/bert"]
