from pathlib import Path

import pytest

from tests.cli.conftest import NOW, group

EXAMPLES = Path(__file__).parents[2] / "examples"


def explain(command, name, *more):
    return command("explain", EXAMPLES, "--pod-group", name, "--now", NOW, *more)


def test_refused_gang_is_told_what_binds_what_is_missing_and_the_room_in_each_domain(command):
    result = explain(command, "research/long-context")
    assert result.code == 0
    assert "PodGroup research/long-context: refused" in result.out
    for part in (
        "what binds:",
        "would help:",
        "3 members of 64 cpu, 512Gi memory, 8 nvidia.com/gpu",
        "rack-2",
        "block-1",
    ):
        assert part in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_refusal_is_that_of_the_decision(command):
    data = explain(command, "research/long-context", "-o", "json").data
    decision = command("decide", EXAMPLES, "--now", NOW, "-o", "json").data
    assert data["state"] == "Refused"
    assert data["refusal"] in decision["refusals"]


def test_room_in_domains_adds_up_to_the_room_in_all(command):
    data = explain(command, "research/long-context", "-o", "json").data
    (part,) = data["outlook"]["parts"]
    for level in part["levels"]:
        assert sum(domain["room"] for domain in level["domains"]) == part["room"]
        assert sum(domain["nodes"] for domain in level["domains"]) == part["nodes"] == 8


def test_placed_gang_is_told_where(command):
    result = explain(command, "research/llama")
    assert "PodGroup research/llama: placed, 2 pods" in result.out
    assert "to be bound:" in result.out


def test_sub_groups_are_told_apart(command):
    data = explain(command, "research/tuning", "-o", "json").data
    assert {part["subGroup"]: part["members"] for part in data["outlook"]["parts"]} == {
        "launcher": 1,
        "workers": 4,
    }


@pytest.mark.parametrize("name, state", [("product/evaluation", "Placed"), ("research/notebook", "Bound")])
def test_pod_alone_can_be_asked_for(command, name, state):
    assert explain(command, name, "-o", "json").data["state"] == state


def test_pod_group_without_pods_is_told_so(command, cluster, tmp_path):
    (tmp_path / "none.yaml").write_text(group("none"))
    result = command("explain", cluster, tmp_path / "none.yaml", "--pod-group", "team-a/none", "--now", NOW)
    assert result.code == 0
    assert "NotEnoughPods" in result.out


def test_unknown_pod_group_is_wrong_usage_with_the_name_that_was_meant(command):
    result = explain(command, "research/longcontext")
    assert result.code == 2
    words = " ".join(result.err.replace("│", " ").split())
    assert "there is no PodGroup or pod 'research/longcontext'; did you mean research/long-context?" in words


def test_file_that_is_not_there_is_named(command):
    result = command("explain", "podgrup/bert")
    assert result.code == 2
    assert "there is no file 'podgrup/bert'" in " ".join(result.err.replace("│", " ").split())


def test_pod_group_that_was_set_aside_says_why(command, cluster, tmp_path):
    (tmp_path / "bad.yaml").write_text(group("bad", "{minMember: 0}"))
    result = command("explain", cluster, tmp_path / "bad.yaml", "--pod-group", "team-a/bad")
    assert result.code == 2
    assert "spec.minMember" in result.err
