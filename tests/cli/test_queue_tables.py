"""The tree of queues with its bars, and why a queue waits."""

from typing import Any

import pytest

from batchsched.api.decision import Decision, Refusal
from batchsched.cli.queue_tables import (
    BORROWED,
    FAIR,
    OWN,
    PENDING,
    WIDTH,
    bar,
    explain_queue,
    most_demanded_resource,
    print_queue_explanation,
    tree_prefixes,
)
from batchsched.session.queue_report import PendingGangReport, QueueReport, QueuesReport


def queue(name: str, parent: str = "", depth: int = 0, **more: Any) -> QueueReport:
    plain: dict[str, Any] = {
        "weight": 1.0,
        "priority": 0,
        "policy": "drf",
        "guarantee": {},
        "limit": {},
        "fair_share": {},
        "allocated": {},
        "borrowed": {},
        "pending": {},
        "running": 0,
        "waiting": 0,
        "longest_wait": 0.0,
    }
    return QueueReport(name=name, parent=parent, depth=depth, **(plain | more))


def test_bar_is_as_long_as_the_cluster_is_large():
    one = queue("a", allocated={"g": 12}, borrowed={"g": 4}, pending={"g": 6}, fair_share={"g": 20})
    drawn = bar(one, "g", 24)
    assert drawn == OWN * 8 + BORROWED * 4 + PENDING * 6 + "  " + FAIR + "    "
    assert len(drawn) == WIDTH + 1


@pytest.mark.parametrize("capacity", [0, 1, 7])
def test_bar_stays_in_its_bounds_whatever_is_asked(capacity):
    one = queue("a", allocated={"g": 99}, borrowed={"g": 1}, pending={"g": 10**9}, fair_share={"g": 500})
    assert len(bar(one, "g", capacity)) == WIDTH + 1


def test_little_shows_too():
    assert bar(queue("a", allocated={"g": 1}), "g", 1000)[1] == " "
    assert OWN in bar(queue("a", allocated={"g": 1}, fair_share={"g": 1000}), "g", 1000)


def test_tree_shows():
    tree = [
        queue("a"),
        queue("b", "a", 1),
        queue("c", "b", 2),
        queue("d", "a", 1),
        queue("e", "d", 2),
        queue("f"),
    ]
    assert tree_prefixes(tree) == ["", "├─ ", "│  └─ ", "└─ ", "   └─ ", ""]


def test_resource_that_is_asked_for_most_is_compared():
    one = queue("a", allocated={"cpu": 10, "g": 5}, pending={"g": 3})
    assert (
        most_demanded_resource(QueuesReport(capacity={"cpu": 100, "g": 8}, queues=(one,), waiting=())) == "g"
    )


def waits(name: str, where: str, share: str = "fair") -> PendingGangReport:
    return PendingGangReport(
        pod_group=f"team/{name}", queue=where, share=share, waited=90.0, wanted={"cpu": 2000}
    )


TREE = QueuesReport(
    capacity={"cpu": 8000},
    queues=(
        queue("ml", guarantee={"cpu": 4000}),
        queue("text", "ml", 1, waiting=2, longest_wait=90.0, pending={"cpu": 4000}),
        queue("vision", "ml", 1, allocated={"cpu": 6000}, fair_share={"cpu": 5000}),
    ),
    waiting=(waits("one", "text"), waits("other", "vision"), waits("two", "text", "borrowing")),
)
DECISION = Decision(
    refusals=(
        Refusal(
            pod_group="team/two",
            reason="InsufficientResources",
            message="no room",
            missing={"cpu": 1000},
            relaxation="a node",
        ),
    )
)


def test_queue_is_explained_by_those_above_its_gangs_and_those_with_more_than_their_share():
    found = explain_queue("text", TREE, DECISION)
    assert [one.name for one in found.above] == ["ml"]
    assert [one.gang.pod_group for one in found.waiting] == ["team/one", "team/two"]
    assert found.over_share == {"vision": {"cpu": 1000}}
    assert [one.gang.pod_group for one in explain_queue("ml", TREE, DECISION).waiting] == [
        "team/one",
        "team/other",
        "team/two",
    ]


def test_explanation_says_what_is_missing_and_what_would_help(capsys):
    print_queue_explanation(explain_queue("text", TREE, DECISION))
    said = capsys.readouterr().out
    for part in (
        "Queue text: gangs: 0 run, 2 wait, the longest for 90s",
        "team/one (text, for 90s) requests 2 cpu",
        "it is placed by the next session",
        "InsufficientResources: no room",
        "missing: 1 cpu",
        "would help: a node",
        "vision: 1 cpu",
    ):
        assert part in said


def test_queue_in_which_nobody_waits_says_so(capsys):
    found = explain_queue(
        "vision", QueuesReport(capacity=TREE.capacity, queues=TREE.queues, waiting=()), Decision()
    )
    print_queue_explanation(found)
    assert capsys.readouterr().out.startswith("Queue vision: gangs: 0 run, none waits")


def test_queue_that_has_and_wants_nothing_has_no_table(capsys):
    view = QueuesReport(capacity={}, queues=(queue("idle"),), waiting=())
    print_queue_explanation(explain_queue("idle", view, Decision()))
    assert capsys.readouterr().out == "Queue idle: gangs: 0 run, none waits\n"
