"""Gangs with nested subGroups and slices in a whole session."""

import json
from typing import Any

import pytest

from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.session.session import decide
from tests.session.scenario import NOW, placed
from tests.session.test_unsupported_fields import OWN_LABEL, pod, pod_group

TOPOLOGY = {
    "apiVersion": "scheduling.batchsched.dev/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "default"},
    "spec": {
        "levels": [
            {"name": "block", "nodeLabel": "example.com/block"},
            {"name": "rack", "nodeLabel": "example.com/rack"},
        ]
    },
}
PREFILL: dict[str, Any] = {"minMember": 2}
DECODE: dict[str, Any] = {"minMember": 4, "topology": {"slices": {"level": "rack", "size": 2}}}
REPLICAS: dict[str, Any] = {
    "minSubGroups": 1,
    "subGroups": [
        {"name": "r0", "topology": {"required": "block"}},
        {"name": "r1", "topology": {"required": "block"}},
        {"name": "prefill-0", "parent": "r0", **PREFILL},
        {"name": "decode-0", "parent": "r0", **DECODE},
        {"name": "prefill-1", "parent": "r1", **PREFILL},
        {"name": "decode-1", "parent": "r1", **DECODE},
    ],
}
"""Two replicas of six pods each; one of them must run."""


def nodes(racks: int, size: int):
    """Nodes with eight GPUs in racks, two racks in a block."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"n{rack}-{n}",
                "labels": {"example.com/rack": f"r{rack}", "example.com/block": f"b{rack // 2}"},
            },
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}},
        }
        for rack in range(racks)
        for n in range(size)
    ]


def pods(count: int, sub_group: str = "", bound: tuple[str, ...] = ()):
    """Pods of eight GPUs; the first ones are bound to nodes."""
    labels = OWN_LABEL | ({"scheduling.batchsched.dev/sub-group": sub_group} if sub_group else {})
    result = []
    for number in range(count):
        one = pod(f"{sub_group or 'pod'}-{number}", labels=labels)
        one["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "8"
        if number < len(bound):
            one["spec"]["nodeName"] = bound[number]
            one["status"] = {"phase": "Running"}
        result.append(one)
    return result


def replicas():
    return [one for n in (0, 1) for one in pods(2, f"prefill-{n}") + pods(4, f"decode-{n}")]


def run(tmp_path, *objects, profile: Profile | None = None):
    path = tmp_path / "input.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [TOPOLOGY, *objects]}))
    read = read_manifests([path])
    assert read.snapshot.set_aside == ()
    return decide(read.snapshot, profile or Profile(), NOW, 0)


def racks(decision, prefix: str) -> list[int]:
    """The numbers of the racks of placed pods, by the names of these pods."""
    nodes = placed(decision)
    return [int(nodes[name].partition("-")[0][1:]) for name in sorted(nodes) if name.startswith(prefix)]


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_both_replicas_are_placed_in_a_block_each(tmp_path, selection):
    decision = run(
        tmp_path, *nodes(4, 4), pod_group(**REPLICAS), *replicas(), profile=Profile(selection=selection)
    )
    assert len(placed(decision)) == 12
    blocks = [
        {rack // 2 for rack in racks(decision, f"prefill-{n}") + racks(decision, f"decode-{n}")}
        for n in (0, 1)
    ]
    assert sorted(blocks) == [{0}, {1}]


def test_optional_replica_is_left_out_as_a_whole(tmp_path):
    decision = run(tmp_path, *nodes(3, 3), pod_group(**REPLICAS), *replicas())
    names = [f"decode-0-{n}" for n in range(4)] + [f"prefill-0-{n}" for n in range(2)]
    assert sorted(placed(decision)) == names


def test_refusal_of_a_tree_says_that_no_placement_exists(tmp_path):
    decision = run(tmp_path, *nodes(2, 2), pod_group(**REPLICAS), *replicas())
    assert placed(decision) == {}
    assert decision.refusals[0].message.endswith(
        "; proved: no placement on the free nodes meets all its constraints"
    )


def test_refusal_names_the_slices_that_do_not_fit(tmp_path):
    slices: dict[str, Any] = {"minMember": 6, "topology": {"slices": {"level": "rack", "count": 2}}}
    decision = run(tmp_path, *nodes(3, 2), pod_group(**slices), *pods(6))
    assert decision.refusals[0].reason == "InsufficientTopologyCapacity"
    assert decision.refusals[0].message == (
        "6 of the 6 pods it needs fit, but not in the domains that its slices require; its pods would fit without the "
        "slices of the gang in one rack each; proved: no placement on the free nodes meets all its constraints"
    )


TWO_SIDES: dict[str, Any] = {
    "subGroups": [{"name": "left", "minMember": 2}, {"name": "right", "minMember": 2}]
}


def with_affinity(sub_group: str, kind: str, other: str):
    """Two pods with one required term of affinity or anti-affinity, to the pods of a subgroup in their rack."""
    selector = {"matchLabels": {"scheduling.batchsched.dev/sub-group": other}}
    term = {"labelSelector": selector, "topologyKey": "example.com/rack"}
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return [{**one, "spec": {**one["spec"], "affinity": affinity}} for one in pods(2, sub_group)]


def test_subgroup_with_affinity_to_itself_is_placed_in_the_only_rack_with_room(tmp_path):
    crowd = [
        {**one, "spec": {**one["spec"], "nodeName": node}}
        for one, node in zip(pods(1, "left") + pods(1, "right"), ("n0-0", "n1-0"), strict=True)
    ]
    for one in crowd:
        one["metadata"] = {"name": f"old-{one['metadata']['name']}", "namespace": "team", "labels": {}}
    apart = with_affinity("left", "podAffinity", "left") + pods(2, "right")
    decision = run(tmp_path, *nodes(3, 2), pod_group(**TWO_SIDES), *crowd, *apart)
    assert {node[:2] for name, node in placed(decision).items() if name.startswith("left")} == {"n2"}
    assert len(placed(decision)) == 4


def test_subgroups_that_must_be_in_different_racks_are_placed_so(tmp_path):
    apart = with_affinity("left", "podAntiAffinity", "right") + pods(2, "right")
    decision = run(tmp_path, *nodes(2, 2), pod_group(**TWO_SIDES), *apart)
    racks = {name: node[:2] for name, node in placed(decision).items()}
    assert racks["left-0"] == racks["left-1"] != racks["right-0"] == racks["right-1"]


def test_refusal_because_of_anti_affinity_says_that_no_placement_exists(tmp_path):
    apart = with_affinity("left", "podAntiAffinity", "right") + pods(2, "right")
    refusal = run(tmp_path, *nodes(4, 1)[:3], pod_group(**TWO_SIDES), *apart).refusals[0]
    assert refusal.message.endswith("; proved: no placement on the free nodes meets all its constraints")
    three_racks = run(tmp_path, *nodes(3, 1), *nodes(4, 1)[3:], pod_group(**TWO_SIDES), *apart)
    assert len(placed(three_racks)) == 4


def test_slices_are_even_over_the_fewest_racks(tmp_path):
    slices: dict[str, Any] = {"minMember": 6, "topology": {"slices": {"level": "rack", "size": 1}}}
    decision = run(tmp_path, *nodes(4, 4), pod_group(**slices), *pods(6))
    assert sorted(map(racks(decision, "").count, set(racks(decision, "")))) == [3, 3]


def test_elastic_pods_come_in_whole_slices(tmp_path):
    slices: dict[str, Any] = {"minMember": 2, "topology": {"slices": {"level": "rack", "size": 2}}}
    decision = run(tmp_path, *nodes(2, 3), pod_group(**slices), *pods(5))
    assert len(placed(decision)) == 4


def test_lost_pod_of_a_slice_returns_to_the_rack_of_the_slice(tmp_path):
    slices: dict[str, Any] = {"minMember": 4, "topology": {"slices": {"level": "rack", "size": 2}}}
    decision = run(tmp_path, *nodes(3, 4), pod_group(**slices), *pods(4, bound=("n1-0", "n2-0", "n2-1")))
    assert racks(decision, "") == [1]


def test_lost_pod_of_a_replica_returns_to_its_block(tmp_path):
    objects = [
        *pods(2, "prefill-1", bound=("n2-0", "n2-1")),
        *pods(4, "decode-1", bound=("n2-2", "n2-3", "n3-0")),
    ]
    decision = run(tmp_path, *nodes(4, 4), pod_group(**REPLICAS), *objects)
    assert racks(decision, "decode-1") == [3]


def test_without_the_solver_an_optional_replica_is_not_placed_in_part(tmp_path):
    spec: dict[str, Any] = {
        "minSubGroups": 1,
        "subGroups": [{"name": "a", "minMember": 3}, {"name": "b", "minMember": 3}],
    }
    pod_by_pod = Profile.model_validate({"solver": {"enabled": False}})
    decision = run(
        tmp_path, *nodes(1, 5), pod_group(**spec), *pods(3, "a"), *pods(3, "b"), profile=pod_by_pod
    )
    assert sorted(placed(decision)) == ["a-0", "a-1", "a-2"]


def test_tree_preempts_the_cheapest_gangs_of_one_block(tmp_path):
    tree: dict[str, Any] = {
        "priorityClassName": "high",
        "subGroups": [
            {"name": "top", "topology": {"required": "block"}},
            {"name": "a", "parent": "top", "minMember": 2, "topology": {"required": "rack"}},
            {"name": "b", "parent": "top", "minMember": 2, "topology": {"required": "rack"}},
        ],
    }
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
    }
    busy = []
    # In block 0 each rack has one free node; in block 1 all nodes are used.
    for node in ("n0-0", "n1-0", "n2-0", "n2-1", "n3-0", "n3-1"):
        one = pod(f"busy-{node}")
        one["spec"]["nodeName"] = node
        one["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "8"
        one["status"] = {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}
        busy.append(one)
    members = pods(2, "a") + pods(2, "b")
    for one in members:
        one["spec"]["priorityClassName"] = "high"
        one["spec"]["priority"] = 100
    decision = run(tmp_path, *nodes(4, 2), high, pod_group(**tree), *busy, *members)
    assert sorted(eviction.pod.rpartition("/")[2] for eviction in decision.evictions) == [
        "busy-n0-0",
        "busy-n1-0",
    ]


def test_ranks_do_not_move_pods_out_of_their_slices(tmp_path):
    spec: dict[str, Any] = {
        "minMember": 6,
        "topology": {"rankLabel": "example.com/rank", "slices": {"level": "rack", "size": 3}},
    }
    members = pods(6)
    for number, member in enumerate(members):
        member["metadata"]["labels"]["example.com/rank"] = str(number)
    # Without slices, five of the ranks would be in one rack.
    decision = run(tmp_path, *nodes(3, 5), pod_group(**spec), *members)
    used = racks(decision, "")
    assert sorted(map(used.count, set(used))) == [3, 3]
    assert used == sorted(used)


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": 1, "topology": {"slices": {"level": "rack", "size": 1}}},
        {"minSubGroups": 1, "subGroups": [{"name": "a"}, {"name": "b", "minMember": 2}]},
    ],
)
def test_eviction_of_elastic_pods_leaves_no_slice_and_no_subgroup_in_part(tmp_path, spec):
    bound = ("n0-0", "n0-1", "n0-2")
    members = [*pods(1, "a", bound[:1]), *pods(2, "b", bound[1:])]
    high = pod("high")
    high["spec"]["priority"] = 100
    high["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "8"
    decision = run(tmp_path, *nodes(1, 3), pod_group(disruptionMode="Elastic", **spec), *members, high)
    evicted = sorted(eviction.pod.rpartition("/")[2] for eviction in decision.evictions)
    assert evicted == ["a-0", "b-0", "b-1"]
