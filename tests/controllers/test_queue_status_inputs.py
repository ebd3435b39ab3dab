"""Positions of gangs in their queues, and what queues use."""

import pytest

from batchsched.controllers.queue_status_inputs import (
    RemainingQueueLimits,
    queue_positions,
    queue_status_inputs,
)
from batchsched.session.queue_report import report_pending_gangs
from tests.controllers.office import observed
from tests.session.explanation.documents import NOW, snapshot_of
from tests.session.explanation.varied_documents import varied_documents
from tests.session.scenario import GPU, gang, group, priority_class, profile, queue
from tests.state.objects import node, pod


def test_position_follows_priority_then_age():
    old, young = gang("old", 1, age=100), gang("young", 1, age=10)
    high = [pod("high-0", group="high", priority=5)]
    other = gang("other", 1, age=1, queue="ml")
    cache = observed(
        old.pods,
        old.pod_groups,
        young.pods,
        young.pod_groups,
        other.pods,
        other.pod_groups,
        high,
        [group("high", 1)],
    )
    found = queue_positions(cache)
    assert found == {"team/high": 1, "team/old": 2, "team/young": 3, "team/other": 1}


def test_class_of_a_podgroup_above_its_pods_does_not_change_its_position():
    old = gang("old", 1, age=100)
    young = [pod("young-0", group="young", priority=0)]
    cache = observed(
        [priority_class("high", 100)],
        old.pods,
        old.pod_groups,
        young,
        [group("young", 1, age=10, priorityClassName="high")],
    )
    assert queue_positions(cache) == {"team/old": 1, "team/young": 2}


def test_order_is_that_of_the_profile_and_of_a_queue_that_states_one():
    long = gang("a-long", 1, age=100, expectedRuntimeSeconds=900)
    short = gang("b-short", 1, age=10, expectedRuntimeSeconds=9)
    here = [long.pods, long.pod_groups, short.pods, short.pod_groups]
    cache = observed(*here)
    assert queue_positions(cache, profile(policy={"name": "fcfs"})) == {"team/a-long": 1, "team/b-short": 2}
    by_time = profile(selection="ordered", policy={"name": "sjf"})
    assert queue_positions(cache, by_time) == {"team/a-long": 2, "team/b-short": 1}
    cache = observed(*here, [queue("default", policy={"name": "sjf"})])
    assert queue_positions(cache) == {"team/a-long": 2, "team/b-short": 1}


def test_partially_bound_gang_is_first_and_size_counts_if_the_policy_reads_it():
    half = [pod("half-0", group="half", on="n0"), pod("half-1", group="half")]
    wide, narrow = gang("a-wide", 2, age=50), gang("b-narrow", 1, age=1)
    cache = observed(
        [node("n0", cpu="8"), node("n1", gpu="8")],
        half,
        [group("half", 2)],
        wide.pods,
        wide.pod_groups,
        narrow.pods,
        narrow.pod_groups,
    )
    found = queue_positions(cache, profile(selection="ordered", policy={"name": "saf"}))
    assert found == {"team/half": 1, "team/b-narrow": 2, "team/a-wide": 3}


def test_complete_gang_and_single_pod_have_no_position():
    bert = [pod("bert-0", group="bert", on="n0"), pod("bert-1", group="bert")]
    cache = observed([node("n0"), pod("solo")], bert, [group("bert", 1)])
    assert queue_positions(cache) == {}


def test_allocated_amounts_of_a_queue_include_its_descendants():
    running = [pod(f"bert-{at}", group="bert", on="n0", cpu=2) for at in range(2)]
    cache = observed(
        [queue("research"), queue("ml", parent="research"), node("n0"), pod("solo")],
        running,
        [group("bert", 2, queue="ml"), group("huge", 5, queue="ml"), pod("huge-0", group="huge")],
    )
    held = queue_status_inputs(cache)
    assert held["ml"].allocated["cpu"] == held["research"].allocated["cpu"] == 4000
    assert held["ml"].pending == held["research"].pending == 1


def test_queue_outside_the_tree_is_marked_and_has_its_own_allocated_amounts():
    cache = observed(
        [queue("lost", parent="absent"), node("n0")],
        [pod("bert-0", group="bert", on="n0")],
        [group("bert", 1, queue="lost")],
    )
    held = queue_status_inputs(cache)["lost"]
    assert held.allocated["cpu"] == 1000
    assert "absent" in held.misplaced


def test_fair_share_is_the_requested_guarantee_and_a_part_of_the_surplus():
    asked = gang("bert", 40, queue="ml", requests={"cpu": 2})
    cache = observed(
        [queue("ml", guarantee={"cpu": "16"}), queue("other"), node("n0")], asked.pods, asked.pod_groups
    )
    held = queue_status_inputs(cache)
    assert (held["ml"].fair_share or {})["cpu"] == 64_000
    assert (held["other"].fair_share or {})["cpu"] == 0


def test_fair_share_that_depends_on_past_usage_is_not_shown():
    cache = observed([queue("ml", policy={"name": "decayed-usage"}), node("n0")])
    assert queue_status_inputs(cache)["ml"].fair_share is None


def test_without_nodes_queues_have_no_fair_share():
    cache = observed([queue("ml", guarantee={"cpu": "16"})])
    assert queue_status_inputs(cache)["ml"].fair_share == {}


def test_headroom_follows_the_limits_of_changed_queues():
    waiting = gang("bert", 1, queue="research")
    cache = observed(waiting.pods, waiting.pod_groups, [queue("research", limit={GPU: "0"})])
    headroom, bert = RemainingQueueLimits(cache), cache.gangs.get("team/bert")
    assert bert is not None
    full_queues = []
    for limit in ("0", "1", "0"):
        cache.put(queue("research", limit={GPU: limit}))
        headroom.refresh()
        full_queues.append(headroom.find_full_queue(bert))
    assert full_queues == ["research", "", "research"]


ORDERS = [
    {},
    {"policy": {"name": "sjf"}},
    {"selection": "ordered", "policy": {"name": "saf"}},
    {"selection": "ordered", "policy": {"name": "priority"}, "queuePolicy": {"name": "drf"}},
]


@pytest.mark.properties
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_positions_in_the_status_are_those_that_explain_reports(order, tmp_path):
    """Pods without a PodGroup, gangs of different pods and partially bound gangs included."""
    for seed in range(12):
        documents, _ = varied_documents(seed)
        if seed % 2:
            documents = [document for document in documents if document["kind"] != "Queue"]
            for document in documents:
                document.get("spec", {}).pop("queue", None)
        read = snapshot_of(documents, tmp_path)
        parts = (read.nodes, read.pods, read.pod_groups, read.queues, read.priority_classes, read.topologies)
        cache, settings = observed(*parts), profile(**order)
        reported = report_pending_gangs(cache.snapshot(), settings, NOW)
        groups = {group.key for group in read.pod_groups}
        expected = {gang.pod_group: gang.position for gang in reported if gang.pod_group in groups}
        found = queue_positions(cache, settings, NOW)
        assert {key: found[key] for key in found if key in expected} == expected, seed
