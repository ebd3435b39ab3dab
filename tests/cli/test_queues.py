"""`batchsched queues` over files; the cluster is asked as `explain` asks it."""

from typing import Any

import pytest

from batchsched.api.decision import Decision, Refusal
from batchsched.cli.queues import (
    BORROWED,
    FAIR,
    OWN,
    PENDING,
    WIDTH,
    explain_pending_gangs,
    most_demanded_resource,
    print_queue_explanation,
    print_queues,
    queue_usage_bar,
    tree_prefixes,
)
from batchsched.session.queue_report import PendingGangReport, QueueReport, QueueTreeReport
from tests.cli.conftest import NOW, group, manifests, node, pod, queue


@pytest.fixture
def files(tmp_path):
    """Two nodes; a queue with a guarantee and a gang that fits, and a child queue with a gang that does not."""
    file = tmp_path / "queues.yaml"
    documents = [
        node("n1"),
        node("n2"),
        queue("research", '{guarantee: {cpu: "8"}}'),
        queue("text", "{parent: research}"),
        queue("product"),
        group("bert", "{minMember: 2, queue: research}"),
        group("huge", "{minMember: 5, queue: text}"),
        *(pod(f"bert-{at}", "bert") for at in range(2)),
        *(pod(f"huge-{at}", "huge") for at in range(5)),
    ]
    file.write_text(manifests(*documents))
    return file


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables have their full width, as in a pipe."""
    monkeypatch.delenv("COLUMNS")


@pytest.fixture
def queues(command, files):
    return lambda *arguments: command("queues", *arguments, files, "--now", NOW)


def test_tree_shows_the_most_requested_resource(queues):
    result = queues()
    assert result.code == 0
    titles, *rows = result.out.splitlines()
    first, legend = result.err.splitlines()
    assert first == "cpu: 16 in the cluster"
    assert titles.split() == [
        *("QUEUE", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED"),
        *("PENDING", "LIMIT", "GANGS", "WAIT"),
    ]
    assert [row.split("  ")[0] for row in rows] == ["default", "product", "research", "└─ text"]
    assert "fair share" in legend
    assert max(map(len, result.out.splitlines())) <= 132


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_tree_keeps_to_the_width_and_names_the_columns_that_do_not_fit(queues, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = queues()
    assert max(map(len, result.out.splitlines())) <= width
    assert "too narrow for the bars" in result.err
    assert "BORROWED" in queues("-o", "wide").out


def test_another_resource_may_be_selected(queues):
    assert queues("-r", "memory").err.startswith("memory: 64Gi ")
    result = queues("-r", "nonsense")
    assert result.code == 2
    assert "no node has 'nonsense'" in result.complaint


def test_structured_output_has_every_resource(queues):
    data = queues("-o", "json").data
    assert data["capacity"]["memory"] == 64 * 2**30
    research = next(one for one in data["queues"] if one["name"] == "research")
    assert (research["pending"], research["guarantee"], research["waiting"]) == (
        {"cpu": 28_000},
        {"cpu": 8000},
        2,
    )


def test_queue_is_explained_with_those_below_it(queues):
    result = queues("explain", "research")
    assert result.out.startswith("Queue research: gangs: 0 run, 2 wait")
    assert "inside the guarantee" in result.out
    assert "it is placed by the next session" in result.out
    assert "InsufficientResources" in result.out


def test_explanation_as_data_has_the_refusals_of_the_decision(queues, command, files):
    (one,) = queues("explain", "text", "-o", "json").data["waiting"]
    decided = command("decide", files, "--now", NOW, "-o", "json").data
    assert [one["refusal"]] == decided["refusals"]


def test_missing_queue_is_reported_by_name(queues):
    result = queues("explain", "reserch")
    assert result.code == 2
    assert "research" in result.complaint


def test_name_of_a_queue_is_required(command):
    result = command("queues", "explain")
    assert result.code == 2
    assert "which queue" in result.complaint


def test_name_in_place_of_files_is_refused_with_the_correct_usage(command):
    result = command("queues", "team-a")
    assert result.code == 2
    assert "there is no file 'team-a'; for one queue: batchsched queues explain team-a" in result.complaint


def test_queue_that_was_set_aside_says_why(queues, tmp_path):
    file = tmp_path / "lost.yaml"
    file.write_text(queue("lost", "{parent: absent}"))
    result = queues("explain", "lost", file)
    assert result.code == 2
    assert "Queue lost was set aside: spec.parent: " in result.complaint


def report(name: str, parent: str = "", depth: int = 0, **more: Any) -> QueueReport:
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
    one = report("a", allocated={"g": 12}, borrowed={"g": 4}, pending={"g": 6}, fair_share={"g": 20})
    drawn = queue_usage_bar(one, "g", 24)
    assert drawn == OWN * 8 + BORROWED * 4 + PENDING * 6 + "  " + FAIR + "    "
    assert len(drawn) == WIDTH + 1


@pytest.mark.parametrize("capacity", [0, 1, 7])
def test_bar_stays_within_its_bounds_whatever_the_requests(capacity):
    one = report("a", allocated={"g": 99}, borrowed={"g": 1}, pending={"g": 10**9}, fair_share={"g": 500})
    assert len(queue_usage_bar(one, "g", capacity)) == WIDTH + 1


def test_small_amounts_are_visible_in_the_bar():
    assert queue_usage_bar(report("a", allocated={"g": 1}), "g", 1000)[1] == " "
    assert OWN in queue_usage_bar(report("a", allocated={"g": 1}, fair_share={"g": 1000}), "g", 1000)


def test_tree_prefixes_draw_the_branches_of_queues():
    tree = [
        report("a"),
        report("b", "a", 1),
        report("c", "b", 2),
        report("d", "a", 1),
        report("e", "d", 2),
        report("f"),
    ]
    assert tree_prefixes(tree) == ["", "├─ ", "│  └─ ", "└─ ", "   └─ ", ""]


def test_the_most_requested_resource_is_compared():
    one = report("a", allocated={"cpu": 10, "g": 5}, pending={"g": 3})
    assert (
        most_demanded_resource(QueueTreeReport(capacity={"cpu": 100, "g": 8}, queues=(one,), waiting=()))
        == "g"
    )


def pending(name: str, where: str, share: str = "fair") -> PendingGangReport:
    return PendingGangReport(
        pod_group=f"team/{name}", queue=where, share=share, waited=90.0, requests={"cpu": 2000}
    )


TREE = QueueTreeReport(
    capacity={"cpu": 8000},
    queues=(
        report("ml", guarantee={"cpu": 4000}),
        report("text", "ml", 1, waiting=2, longest_wait=90.0, pending={"cpu": 4000}),
        report("vision", "ml", 1, allocated={"cpu": 6000}, fair_share={"cpu": 5000}),
    ),
    waiting=(pending("one", "text"), pending("other", "vision"), pending("two", "text", "borrowing")),
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
    found = explain_pending_gangs("text", TREE, DECISION)
    assert [one.name for one in found.above] == ["ml"]
    assert [one.gang.pod_group for one in found.waiting] == ["team/one", "team/two"]
    assert found.over_share == {"vision": {"cpu": 1000}}
    assert [one.gang.pod_group for one in explain_pending_gangs("ml", TREE, DECISION).waiting] == [
        "team/one",
        "team/other",
        "team/two",
    ]


def test_explanation_has_the_text_of_the_refusal(capsys):
    print_queue_explanation(explain_pending_gangs("text", TREE, DECISION))
    said = capsys.readouterr().out
    for part in (
        "Queue text: gangs: 0 run, 2 wait, the longest for 90s",
        "team/one (text, for 90s) requests 2 cpu",
        "it is placed by the next session",
        "InsufficientResources: no room; would help (not verified): a node",
        "vision: 1 cpu",
    ):
        assert part in said


def test_gang_without_a_creation_time_is_youngest_and_has_an_unknown_age(command, tmp_path):
    file = tmp_path / "ages.yaml"
    old = group("old").replace("name: old", "name: old, creationTimestamp: 2025-12-31T00:00:00Z")
    file.write_text(manifests(node("n1"), group("new"), pod("new-0", "new"), old, pod("old-0", "old")))
    result = command("queues", "explain", "default", file, "--now", "2026-01-01T00:00:00Z")
    lines = [line for line in result.out.splitlines() if line.startswith("  team-a/")]
    assert lines == [
        "  team-a/old (default, for 24h) requests 4 cpu",
        "  team-a/new (default, age unknown) requests 4 cpu",
    ]


def test_queue_with_pending_gangs_of_unknown_age_has_an_unknown_wait(queues):
    titles, *rows = queues().out.splitlines()
    assert titles.split()[-1] == "WAIT"
    assert next(row.split()[-1] for row in rows if "0+0" not in row) == "<unknown>"


def test_queues_without_entitlements_are_explained_with_the_fields_that_would_entitle(command, tmp_path):
    file = tmp_path / "plain.yaml"
    file.write_text(manifests(node("n1"), queue("a"), group("g", "{queue: a}"), pod("g-0", "g")))
    lines = command("queues", "explain", "a", file, "--now", NOW).out.splitlines()
    assert "    no queue is entitled to a part of the cluster: priority and age decide" in lines
    assert lines[-1].startswith("No Queue sets spec.guarantee, spec.weight, spec.priority or spec.policy")
    assert "Set spec.guarantee or spec.weight of a Queue" in lines[-1]


def test_queue_without_pending_gangs_is_explained_as_such(capsys):
    found = explain_pending_gangs(
        "vision", QueueTreeReport(capacity=TREE.capacity, queues=TREE.queues, waiting=()), Decision()
    )
    print_queue_explanation(found)
    assert capsys.readouterr().out.startswith("Queue vision: gangs: 0 run, none waits")


def test_queue_without_pods_has_no_table(capsys):
    view = QueueTreeReport(capacity={}, queues=(report("idle"),), waiting=())
    print_queue_explanation(explain_pending_gangs("idle", view, Decision()))
    assert capsys.readouterr().out == "Queue idle: gangs: 0 run, none waits\n"


def test_namespaces_of_a_queue_are_printed_in_the_tree_and_in_its_explanation(capsys):
    queues = (report("ml", namespaces="team=ml"), report("web"))
    view = QueueTreeReport(capacity={"cpu": 8000}, queues=queues, waiting=())
    print_queues(view, None, wide=True)
    _, ml, web = capsys.readouterr().out.splitlines()
    assert ml.endswith("   team=ml")
    assert web.endswith("   <none>")
    print_queue_explanation(explain_pending_gangs("ml", view, Decision()))
    assert "  for namespaces with team=ml" in capsys.readouterr().out
