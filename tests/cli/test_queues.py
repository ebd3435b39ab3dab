"""`batchsched queues` over files; the cluster is asked as `explain` asks it."""

import json
from pathlib import Path

from tests.cli.conftest import NOW

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster.yaml"
JOBS = CLUSTER.with_name("jobs.yaml")


def queues(command, *arguments):
    return command("queues", *arguments, CLUSTER, JOBS, "--now", NOW)


def test_tree_shows_what_is_asked_for_most(command):
    result = queues(command)
    assert result.code == 0
    first, titles, *rows = result.out.splitlines()
    assert first == "nvidia.com/gpu: 64 in the cluster"
    assert titles.split() == [
        "QUEUE",
        "ALLOCATED",
        "GUARANTEE",
        "FAIR",
        "BORROWED",
        "PENDING",
        "LIMIT",
        "GANGS",
        "WAIT",
    ]
    assert [row.split()[0] for row in rows[:-1]] == ["default", "product", "research"]


def test_another_resource_may_be_asked_for(command):
    assert queues(command, "-r", "cpu").out.startswith("cpu: ")
    result = queues(command, "-r", "nonsense")
    assert result.code == 2
    assert "no node has" in " ".join(result.err.replace("│", " ").split())


def test_data_have_every_resource(command):
    data = queues(command, "-o", "json").data
    research = next(one for one in data["queues"] if one["name"] == "research")
    assert {"cpu", "memory", "nvidia.com/gpu"} <= set(research["pending"])
    assert research["waiting"] == sum(one["queue"] == "research" for one in data["waiting"])


def test_queue_is_explained(command):
    result = queues(command, "explain", "research")
    assert result.out.startswith("Queue research: gangs: ")
    assert "InsufficientTopologyCapacity" in result.out
    data = queues(command, "explain", "research", "-o", "json").data
    refused = {one["gang"]["podGroup"] for one in data["waiting"] if one["refusal"]}
    decided = command("decide", CLUSTER, JOBS, "--now", NOW, "-o", "json").data
    assert refused <= {one["podGroup"] for one in decided["refusals"]}


def test_queue_that_is_not_there_is_missed_by_name(command):
    result = queues(command, "explain", "reserch")
    assert result.code == 2
    assert "research" in result.err


def test_queue_has_to_be_named(command):
    result = command("queues", "explain")
    assert result.code == 2
    assert "which queue" in " ".join(result.err.replace("│", " ").split())


def test_queue_that_was_set_aside_says_why(command, tmp_path):
    file = tmp_path / "lost.yaml"
    lost = {"apiVersion": "scheduling.batchsched.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "lost"}}
    file.write_text(json.dumps(lost | {"spec": {"parent": "absent"}}))
    result = queues(command, "explain", "lost", file)
    assert result.code == 2
    assert "set aside" in " ".join(result.err.replace("│", " ").split())


def test_lines_of_the_tree_fit_a_wide_terminal(command):
    assert max(map(len, queues(command).out.splitlines())) <= 132
