"""Queues as people ask for them."""

from typing import Any

from msgspec.structs import replace

from batchsched.session.queue_report import QueueReport, QueueTreeReport, report_queues
from tests.session.scenario import GPU, NOW, alone, cluster, gang, nodes, pod, profile, queue

IN = "scheduling.batchsched.dev/queue"


def running(name: str, count: int, gpu: int = 4, node: str = "n0") -> tuple[Any, ...]:
    return tuple(pod(f"{name}-{node}-{at}", gpu=gpu, on=node, labels={IN: name}) for at in range(count))


def view(*parts: Any, **more: Any) -> QueueTreeReport:
    return report_queues(cluster(nodes(4, gpu=8), *parts, **more), profile(), NOW)


def by_name(found: QueueTreeReport) -> dict[str, QueueReport]:
    return {one.name: one for one in found.queues}


TEAMS = (
    queue("ml", guarantee={GPU: "16"}),
    queue("vision", parent="ml", guarantee={GPU: "8"}, limit={GPU: "24"}),
    queue("text", parent="ml", weight=2.0),
    queue("other"),
)


def test_queues_are_listed_parents_first_with_the_capacity_of_the_cluster():
    found = view(queues=TEAMS)
    assert [(one.name, one.parent, one.depth) for one in found.queues] == [
        ("default", "", 0),
        ("ml", "", 0),
        ("text", "ml", 1),
        ("vision", "ml", 1),
        ("other", "", 0),
    ]
    assert found.capacity[GPU] == 32
    assert "pods" not in found.capacity


def test_queue_reports_its_settings_and_allocated_amounts():
    found = by_name(view(queues=TEAMS, pods=(*running("vision", 2), *running("vision", 1, node="n1"))))
    vision = found["vision"]
    assert (vision.guarantee, vision.limit, vision.allocated) == ({GPU: 8}, {GPU: 24}, {GPU: 12})
    assert vision.borrowed == {GPU: 4}
    assert found["ml"].allocated == {GPU: 12}
    assert found["ml"].borrowed == {}
    assert (vision.running, found["ml"].running, found["text"].running) == (3, 3, 0)
    assert vision.weight == 1.0
    assert found["text"].weight == 2.0


def test_pods_of_other_schedulers_count_against_no_queue():
    theirs = pod("theirs", gpu=4, on="n0")
    theirs = replace(theirs, spec=replace(theirs.spec, scheduler_name="default-scheduler"))
    assert by_name(view(queues=TEAMS, pods=(theirs,)))["default"].allocated == {}


def test_queue_reports_pending_gangs_their_requests_and_longest_wait():
    asked = gang("bert", 3, queue="vision", requests={"gpu": 4}, age=90)
    found = view(asked, alone(1, gpu=1), queues=TEAMS)
    queues = by_name(found)
    for name in ("vision", "ml"):
        assert (queues[name].waiting, queues[name].pending, queues[name].longest_wait) == (1, {GPU: 12}, 90.0)
    assert queues["other"].longest_wait == 0.0
    assert queues["default"].pending == {GPU: 1}
    assert {one.pod_group: one.requests for one in found.waiting}["team/bert"] == {GPU: 12}


def test_pending_gangs_are_listed_in_scheduling_order_with_their_share():
    rich = gang("rich", 1, queue="vision", requests={"gpu": 4})
    poor = gang("poor", 8, queue="other", requests={"gpu": 4}, age=100)
    found = view(poor, rich, queues=TEAMS)
    assert [(one.pod_group, one.share) for one in found.waiting] == [
        ("team/rich", "guarantee"),
        ("team/poor", "borrowing"),
    ]


def test_share_is_all_if_no_queue_has_an_entitlement():
    found = view(gang("bert", 1, queue="a"), queues=(queue("a"), queue("b")))
    assert [one.share for one in found.waiting] == ["all"]


def test_gang_of_a_missing_queue_is_not_listed():
    assert view(gang("bert", 1, queue="absent"), queues=TEAMS).waiting == ()


def test_elastic_gang_is_listed_once_with_all_its_requests():
    found = view(gang("bert", 6, 1, queue="vision", requests={"gpu": 4}), queues=TEAMS)
    assert [(one.pod_group, one.requests) for one in found.waiting] == [("team/bert", {GPU: 24})]
