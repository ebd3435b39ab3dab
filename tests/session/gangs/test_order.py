"""Entitlements in a session: the order of queues, the share of each gang, and the precedence of shares over weight."""

from dataclasses import replace
from typing import Any

import pytest

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from tests.session.scenario import bound, cluster, gang, nodes, priority_class, profile, queue, schedule

THREE = (
    queue("a", guarantee={"nvidia.com/gpu": "4"}),
    queue("b", weight=2.0),
    queue("c", weight=1.0),
)


def gangs(of: str, count: int, size: int = 1, **more: Any) -> list[Snapshot]:
    return [gang(f"{of}{number}", size, queue=of, **more) for number in range(count)]


def running(decision: Decision, of: str) -> int:
    return sum(one.pod.startswith(of) for one in decision.assignments)


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_guarantees_come_first_and_the_rest_is_divided_by_weight(selection):
    snapshot = cluster(nodes(2, gpu=5), *gangs("b", 12), *gangs("c", 12), *gangs("a", 4), queues=THREE)
    decision = schedule(snapshot, profile(selection=selection))
    assert [running(decision, of) for of in "abc"] == [4, 4, 2]


def test_tiers_name_their_share_and_a_guarantee_comes_before_borrowing():
    large = gang("b-large", 6, queue="b")
    snapshot = cluster(nodes(1, gpu=6), large, *gangs("a", 4), queues=THREE)
    decision = schedule(snapshot)
    assert running(decision, "a") == 4
    assert [tier.share for tier in decision.solver.tiers] == ["guarantee", "borrowing"]


def test_without_entitlements_every_share_is_all():
    plain = (queue("b", limit={"nvidia.com/gpu": "4"}),)
    decision = schedule(cluster(nodes(1, gpu=6), *gangs("b", 6), queues=plain))
    assert [tier.share for tier in decision.solver.tiers] == ["all"]


def test_a_guarantee_comes_before_a_higher_priority():
    classes = (priority_class("high", 1000),)
    snapshot = cluster(
        nodes(1, gpu=4),
        *gangs("b", 6, priorityClassName="high"),
        *gangs("a", 4),
        queues=THREE,
        priority_classes=classes,
    )
    decision = schedule(snapshot)
    assert running(decision, "a") == 4


def test_a_guarantee_of_a_parent_counts_for_children_that_state_none():
    queues = (
        queue("dept", guarantee={"nvidia.com/gpu": "4"}),
        queue("a", parent="dept"),
        queue("b", weight=9.0),
    )
    snapshot = cluster(nodes(1, gpu=4), *gangs("b", 8), *gangs("a", 4), queues=queues)
    assert running(schedule(snapshot), "a") == 4


def test_queues_of_equal_weight_get_equal_parts_however_many_gangs_wait():
    queues = (queue("a", weight=1.0), queue("b", weight=1.0))
    snapshot = cluster(nodes(2, gpu=4), *gangs("a", 30), *gangs("b", 5), queues=queues)
    decision = schedule(snapshot)
    assert (running(decision, "a"), running(decision, "b")) == (4, 4)


def test_running_pods_count_against_the_fair_share():
    queues = (queue("a", weight=1.0), queue("b", weight=1.0))
    empty = cluster(nodes(2, gpu=4), gang("old", 4, queue="a"), queues=queues)
    there = bound(empty, schedule(empty))
    waiting = cluster((), *gangs("a", 8), *gangs("b", 8))
    snapshot = replace(
        there, pods=there.pods + waiting.pods, pod_groups=there.pod_groups + waiting.pod_groups
    )
    decision = schedule(snapshot)
    assert (running(decision, "a"), running(decision, "b")) == (0, 4)


def test_an_invalid_policy_is_reported_and_that_of_the_parent_applies():
    queues = (queue("a", weight=1.0, policy={"name": "drff"}), queue("b", weight=1.0))
    decision = schedule(cluster(nodes(1, gpu=4), *gangs("a", 4), *gangs("b", 4), queues=queues))
    assert [(one.object, one.field) for one in decision.set_aside] == [("Queue a", "spec.policy.name")]
    assert running(decision, "a") == 2


@pytest.mark.parametrize(
    "settings",
    [
        profile(),
        profile(sessionWindow=1),
        profile(selection="ordered"),
        profile(selection="ordered", backfill="easy"),
        profile(solver={"enabled": False}),
    ],
    ids=["weight", "windows", "ordered", "easy", "pod-by-pod"],
)
def test_a_strict_queue_starts_no_gang_before_its_oldest(settings):
    queues = (queue("a", weight=1.0, policy={"name": "strict-fifo"}), queue("b", weight=1.0))
    first = gang("a-first", 5, queue="a", age=60)
    snapshot = cluster(nodes(1, gpu=4), first, *gangs("a", 2), *gangs("b", 2), queues=queues)
    decision = schedule(snapshot, settings)
    assert (running(decision, "a"), running(decision, "b")) == (0, 2)
    refused = {one.pod_group: one.reason for one in decision.refusals}
    assert refused.keys() == {"team/a-first", "team/a0", "team/a1"}
    assert refused["team/a0"] == refused["team/a1"] == "OutOfTurn"
    plain = replace(snapshot, queues=(queue("a", weight=1.0), queue("b", weight=1.0)))
    assert running(schedule(plain), "a") == 2


def test_a_strict_queue_starts_gangs_in_order_until_one_does_not_fit():
    queues = (queue("a", weight=1.0, policy={"name": "strict-fifo"}),)
    line = [gang(f"a{number}", size, queue="a", age=60 - number) for number, size in enumerate((2, 2, 3, 1))]
    decision = schedule(cluster(nodes(1, gpu=5), *line, queues=queues))
    assert {one.pod.partition("-")[0] for one in decision.assignments} == {"a0", "a1"}
