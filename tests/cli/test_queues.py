"""`batchsched queues` over files; the cluster is asked as `explain` asks it."""

import pytest

from tests.cli.conftest import NOW, group, node, pod, queue


@pytest.fixture
def files(tmp_path):
    """Two nodes; a queue with a guarantee whose gang fits, and a child whose gang does not."""
    file = tmp_path / "queues.yaml"
    manifests = [
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
    file.write_text("\n---\n".join(manifests))
    return file


@pytest.fixture
def queues(command, files):
    return lambda *arguments: command("queues", *arguments, files, "--now", NOW)


def said(error):
    """What stands in the box of a complaint."""
    return " ".join(error.replace("│", " ").split())


def test_tree_shows_what_is_asked_for_most(queues):
    result = queues()
    assert result.code == 0
    first, titles, *rows, legend = result.out.splitlines()
    assert first == "cpu: 16 in the cluster"
    assert titles.split() == [
        *("QUEUE", "ALLOCATED", "GUARANTEE", "FAIR", "BORROWED"),
        *("PENDING", "LIMIT", "GANGS", "WAIT"),
    ]
    assert [row.split("  ")[0] for row in rows] == ["default", "product", "research", "└─ text"]
    assert "fair share" in legend
    assert max(map(len, result.out.splitlines())) <= 132


def test_another_resource_may_be_asked_for(queues):
    assert queues("-r", "memory").out.startswith("memory: 64Gi ")
    result = queues("-r", "nonsense")
    assert result.code == 2
    assert "no node has 'nonsense'" in said(result.err)


def test_data_have_every_resource(queues):
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


def test_queue_that_is_not_there_is_missed_by_name(queues):
    result = queues("explain", "reserch")
    assert result.code == 2
    assert "research" in said(result.err)


def test_queue_has_to_be_named(command):
    result = command("queues", "explain")
    assert result.code == 2
    assert "which queue" in said(result.err)


def test_name_where_files_are_expected_is_told_how_to_ask(command):
    result = command("queues", "team-a")
    assert result.code == 2
    assert "there is no file 'team-a'; for one queue: batchsched queues explain team-a" in said(result.err)


def test_queue_that_was_set_aside_says_why(queues, tmp_path):
    file = tmp_path / "lost.yaml"
    file.write_text(queue("lost", "{parent: absent}"))
    result = queues("explain", "lost", file)
    assert result.code == 2
    assert "Queue lost was set aside: spec.parent: " in said(result.err)
