"""Trees of the Workload API are read from manifests as gangs, and are never placed in part."""

import json
from typing import Any

import pytest

from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.session.session import decide
from tests.session.scenario import NOW, placed, reasons

ALPHA, BETA = "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1"


def node(name: str, rack: str, cpu: int = 8) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"example.com/rack": rack}},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}},
    }


def group(name: str, parent: str = "", minimum: int = 1, **spec: Any) -> dict[str, Any]:
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return _object("PodGroup", BETA, name, **policy, **above, **spec)


def composite(name: str, parent: str = "", minimum: int = 1, **spec: Any) -> dict[str, Any]:
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}}}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    return _object("CompositePodGroup", ALPHA, name, **policy, **above, **spec)


def _object(kind: str, api_version: str, name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team"}
    stated = {"workloadRef": {"workloadName": "train", "templateName": name}, **spec}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": stated}


def pods(group: str, count: int, cpu: int = 1) -> list[dict[str, Any]]:
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {
        "schedulerName": "batchsched",
        "schedulingGroup": {"podGroupName": group},
        "containers": [container],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{group}-{number}", "namespace": "team"},
            "spec": spec,
        }
        for number in range(count)
    ]


def decide_manifests(tmp_path, *objects: dict[str, Any]) -> Any:
    path = tmp_path / "input.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    read = read_manifests([path])
    assert read.snapshot.set_aside == ()
    return decide(read.snapshot, Profile(), NOW, 0)


TREE = (composite("train", minimum=2), group("driver", "train"), group("workers", "train", 3))


def test_a_tree_is_placed_as_one_gang(tmp_path):
    decision = decide_manifests(tmp_path, node("n0", "r0"), *TREE, *pods("driver", 1), *pods("workers", 3))
    assert len(placed(decision)) == 4
    assert decision.refusals == ()


def test_a_tree_that_does_not_fit_is_not_placed_in_part(tmp_path):
    members = [*pods("driver", 1), *pods("workers", 3, cpu=3)]
    decision = decide_manifests(tmp_path, node("n0", "r0"), *TREE, *members)
    assert placed(decision) == {}
    assert list(reasons(decision)) == ["team/train"]


@pytest.mark.parametrize("missing", ["driver", "workers"])
def test_a_tree_without_the_pods_of_a_group_waits_for_them(tmp_path, missing):
    members = [*pods("driver", 1), *pods("workers", 3)]
    present = [one for one in members if not one["metadata"]["name"].startswith(missing)]
    decision = decide_manifests(tmp_path, node("n0", "r0"), *TREE, *present)
    assert placed(decision) == {}
    assert reasons(decision) == {"team/train": "NotEnoughPods"}


def test_a_tree_without_a_group_waits_for_it(tmp_path):
    decision = decide_manifests(tmp_path, node("n0", "r0"), *TREE[:2], *pods("driver", 1))
    assert placed(decision) == {}
    assert reasons(decision) == {"team/train": "NotEnoughPods"}


def test_a_tree_without_its_root_waits_for_it(tmp_path):
    decision = decide_manifests(
        tmp_path, node("n0", "r0"), *TREE[1:], *pods("driver", 1), *pods("workers", 3)
    )
    assert placed(decision) == {}
    assert reasons(decision) == {"team/train": "PodGroupNotFound"}


def test_every_group_keeps_its_topology(tmp_path):
    within = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    tree = (composite("train", minimum=2), group("a", "train", 2, **within), group("b", "train", 2, **within))
    members = [*pods("a", 2, cpu=4), *pods("b", 2, cpu=4)]
    nodes = [node(f"n{number}", f"r{number // 2}", cpu=4) for number in range(4)]
    decision = decide_manifests(tmp_path, *nodes, *tree, *members)
    assert decision.refusals == ()
    racks = {pod: int(found[1:]) // 2 for pod, found in placed(decision).items()}
    assert racks["a-0"] == racks["a-1"] != racks["b-0"] == racks["b-1"]


def test_a_nested_tree_is_placed_with_enough_groups_at_every_level(tmp_path):
    within = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
    tree = (
        composite("train", minimum=1),
        composite("left", "train", minimum=2, **within),
        composite("right", "train", minimum=2, **within),
        *(group(f"{side}-{number}", side, 2) for side in ("left", "right") for number in range(2)),
    )
    members = [
        one for side in ("left", "right") for number in range(2) for one in pods(f"{side}-{number}", 2, cpu=2)
    ]
    nodes = [node(f"n{number}", f"r{number}", cpu=8) for number in range(2)]
    decision = decide_manifests(tmp_path, *nodes, *tree, *members)
    assert len(placed(decision)) == 8
    half = decide_manifests(tmp_path, nodes[0], node("n9", "r9", cpu=7), *tree, *members)
    sides = {name.partition("-")[0] for name in placed(half)}
    assert (len(placed(half)), len(sides)) == (4, 1)
    none = decide_manifests(tmp_path, node("n8", "r8", cpu=7), node("n9", "r9", cpu=7), *tree, *members)
    assert placed(none) == {}
