"""Bad input, one test each: a message that says what to change, and the rest of the input scheduled."""

import pytest

from tests.cli.conftest import NOW, group, manifests, pod, queue


@pytest.fixture
def decided(command, cluster, tmp_path):
    """Decide over the cluster with a good gang and one more file; check that the good gang is placed."""

    def decide(content: str | bytes, name: str = "bad.yaml"):
        bad = tmp_path / name
        bad.write_bytes(content if isinstance(content, bytes) else content.encode())
        result = command("decide", cluster, bad, "-o", "json", "--now", NOW)
        placed = [one["pod"] for one in result.data["assignments"]]
        assert placed[:2] == ["good-0", "good-1"]
        return result

    return decide


def set_aside(result):
    (one,) = result.data["setAside"]
    return one["object"], one["field"], one["message"]


def test_broken_yaml_is_named_by_file_and_line(decided, tmp_path):
    result = decided("apiVersion: v1\nkind: [Node\nmetadata: {name: n3}\n")
    assert result.code == 3
    assert f"set aside: {tmp_path}/bad.yaml: line 3: is not YAML" in result.err


@pytest.mark.parametrize(
    "spec, field, message",
    [
        ("{minMembers: 2}", "spec.minMembers", "unknown field; did you mean minMember?"),
        ("{minMember: 0}", "spec.minMember", "expected 1 or more, found 0"),
    ],
)
def test_field_of_a_pod_group_that_cannot_be_used_is_named_with_what_is_expected(
    decided, spec, field, message
):
    result = decided(group("bad", spec))
    assert result.code == 3
    assert set_aside(result) == ("PodGroup team-a/bad", field, message)


@pytest.mark.parametrize("amount", ["-4", "4 cores", "99999999999999999999"])
def test_negative_or_absurd_quantity_is_named_to_the_container(decided, amount):
    result = decided(pod("bad", cpu=amount))
    assert result.code == 3
    name, field, message = set_aside(result)
    assert (name, field) == ("Pod team-a/bad", "spec.containers[0].resources.requests.cpu")
    assert repr(amount) in message


TOPOLOGY = """apiVersion: scheduling.batchsched.dev/v1alpha1
kind: Topology
metadata: {name: default}
spec: {levels: [{name: rack, nodeLabel: example.com/rack}]}"""


@pytest.mark.parametrize(
    "documents, pod_group, reason, words",
    [
        ([pod("stray", group="nowhere")], "team-a/nowhere", "PodGroupNotFound", ["nowhere"]),
        (
            [group("bad", "{queue: nowhere}"), pod("bad-0", group="bad")],
            "team-a/bad",
            "QueueNotFound",
            ["nowhere"],
        ),
        (
            [pod("bad", labels="scheduling.batchsched.dev/queue: nowhere")],
            "team-a/bad",
            "QueueNotFound",
            ["nowhere"],
        ),
        (
            [TOPOLOGY, group("bad", "{topology: {required: wing}}"), pod("x", group="bad")],
            "team-a/bad",
            "UnknownTopologyLevel",
            ["wing", "rack"],
        ),
    ],
    ids=["PodGroup", "queue of a PodGroup", "queue of a pod", "topology level"],
)
def test_gang_that_names_a_missing_object_is_refused_by_that_name(
    decided, documents, pod_group, reason, words
):
    result = decided(manifests(*documents))
    assert result.code == 0
    (refusal,) = result.data["refusals"]
    assert (refusal["podGroup"], refusal["reason"]) == (pod_group, reason)
    assert all(word in refusal["message"] for word in words)


def test_queues_of_a_cycle_are_set_aside_and_gangs_that_name_them_are_refused(decided):
    cycle = [queue("a", "{parent: b}"), queue("b", "{parent: a}")]
    result = decided(manifests(*cycle, group("bad", "{queue: a}"), pod("x", group="bad")))
    assert result.code == 3
    assert [one["object"] for one in result.data["setAside"]] == ["Queue a", "Queue b"]
    assert "set aside: " in result.err
    assert "a → b → a" in result.err
    assert [one["reason"] for one in result.data["refusals"]] == ["QueueNotFound"]


def test_second_object_of_a_name_is_set_aside_with_the_place_of_the_first(decided, cluster):
    result = decided(pod("good-0", group="good", cpu="1"))
    assert result.code == 3
    name, field, message = set_aside(result)
    assert (name, field) == ("Pod team-a/good-0", "metadata.name")
    assert str(cluster) in message


@pytest.mark.parametrize(
    "junk",
    [b"\x7fELF\x02\x01\x00\x00", b"\x89PNG\r\n\x1a\n\xff\xfe", b"\x1f\x8b\x08junk"],
    ids=["a program", "a picture", "half a gzip"],
)
def test_binary_junk_is_set_aside(decided, junk):
    result = decided(junk)
    assert result.code == 3
    assert "bad.yaml" in result.err


def test_binary_junk_alone_cannot_be_used(command, tmp_path):
    (tmp_path / "junk.yaml").write_bytes(b"\x7fELF\x02\x01\x00\x00")
    result = command("decide", tmp_path / "junk.yaml", "-o", "json")
    assert result.code == 1
    assert result.out == ""
    assert "there is nothing in the input that can be used" in result.err
    assert "is binary data; expected YAML or JSON text" in result.err


def test_cluster_without_nodes_refuses_everything(command, tmp_path):
    (tmp_path / "pods.yaml").write_text(f"{group('g')}\n---\n{pod('p', group='g')}\n---\n{pod('alone')}")
    result = command("decide", tmp_path / "pods.yaml", "-o", "json", "--now", NOW)
    assert result.code == 0
    assert {(one["podGroup"], one["reason"]) for one in result.data["refusals"]} == {
        ("team-a/g", "NoNodes"),
        ("team-a/alone", "NoNodes"),
    }


def test_cluster_with_nothing_at_all_decides_nothing(command, tmp_path):
    (tmp_path / "empty.json").write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    result = command("decide", tmp_path / "empty.json", "-o", "json")
    assert result.code == 0
    assert result.data["assignments"] == result.data["refusals"] == []


def test_an_empty_directory_is_named(command, tmp_path):
    result = command("decide", tmp_path)
    assert result.code == 1
    assert f"{tmp_path}: no YAML or JSON file in it" in result.err
