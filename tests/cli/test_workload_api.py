"""Objects of the Workload API in files: Jobs with `spec.scheduling`, shared claims, and references that are wrong."""

import json
from typing import Any

import pytest

from tests.cli.conftest import NOW

RACK = {"schedulingPolicy": {"gang": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
CLUSTER_SCOPED = ("Node", "DeviceClass", "ResourceSlice")
CLAIM = {"name": "gpus", "resourceClaimTemplateName": "gpu"}


def manifest(kind: str, name: str, api: str = "v1", **parts: Any) -> dict[str, Any]:
    namespace = {} if kind in CLUSTER_SCOPED else {"namespace": "default"}
    metadata = {"name": name} | namespace | parts.pop("metadata", {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def node(name: str, rack: str = "r0") -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    return manifest(
        "Node", name, metadata={"labels": {"rack": rack, "kubernetes.io/hostname": name}}, status=status
    )


def pod_spec(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {"schedulerName": "batchsched", "restartPolicy": "Never", "containers": [container], **spec}


def job(parallelism: int, scheduling: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"spec": pod_spec(**spec)}
    parts = {"parallelism": parallelism, "completions": parallelism, "scheduling": scheduling}
    return manifest("Job", "train", "batch/v1", spec={**parts, "template": template})


def group(kind: str, name: str, version: str = "v1beta1", **spec: Any) -> dict[str, Any]:
    return manifest(kind, name, f"scheduling.k8s.io/{version}", spec=spec)


def member(name: str, pod_group: str, **spec: Any) -> dict[str, Any]:
    return manifest("Pod", name, spec=pod_spec(schedulingGroup={"podGroupName": pod_group}, **spec))


def tree(min_groups: int, min_pods: int, parent: str = "root", **leaf: Any) -> tuple[dict[str, Any], ...]:
    """A CompositePodGroup `root`, and a PodGroup `leaf` with this parent."""
    composite = {"gang": {"minGroupCount": min_groups}}
    spec = {
        "parentCompositePodGroupName": parent,
        "schedulingPolicy": {"gang": {"minCount": min_pods}},
        **leaf,
    }
    return (
        group("CompositePodGroup", "root", "v1alpha3", schedulingPolicy=composite),
        group("PodGroup", "leaf", "v1alpha3", **spec),
    )


DEVICES = (
    manifest("DeviceClass", "gpu", "resource.k8s.io/v1", spec={}),
    manifest(
        "ResourceSlice",
        "n0",
        "resource.k8s.io/v1",
        spec={
            "driver": "gpu.example.com",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    ),
    manifest(
        "ResourceClaimTemplate",
        "gpu",
        "resource.k8s.io/v1",
        spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
    ),
)


@pytest.fixture
def decided(command, tmp_path):
    def decide(*objects: dict[str, Any]) -> tuple[list[str], dict[str, str], str]:
        """The nodes of the placed pods, the message of each refused gang, and the warnings."""
        file = tmp_path / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        result = command("decide", file, "--now", NOW, "-o", "json")
        placed = [entry["node"] for entry in result.data["assignments"]]
        refused = {entry["podGroup"]: entry["message"] for entry in result.data["refusals"]}
        return placed, refused, result.err

    return decide


NODES = (node("n0"), node("n1", "r1"))


def test_job_that_requires_a_rack_is_refused_if_no_rack_holds_it(decided):
    placed, refused, _ = decided(*NODES, job(6, RACK))
    assert placed == []
    assert "4 of the 6 pods it needs fit in rack r0" in refused["default/train-pgt-0"]
    placed, _, _ = decided(*NODES, job(4, RACK))
    assert len(placed) == 4
    assert len(set(placed)) == 1


@pytest.mark.parametrize(
    "policy", [{"basic": {}}, {"gang": {"minCount": 2}}, None], ids=["basic", "minCount", "default"]
)
def test_job_with_a_smaller_minimum_starts_with_the_pods_that_fit(decided, policy):
    scheduling = {"schedulingPolicy": policy} if policy else {"disruptionMode": {"single": {}}}
    placed, _, _ = decided(*NODES, job(20, scheduling))
    assert len(placed) == 8


def test_pods_of_a_group_share_the_claim_of_the_group(decided):
    shared = group("PodGroup", "g", schedulingPolicy={"gang": {"minCount": 2}}, resourceClaims=[CLAIM])
    pods = [member(f"p{number}", "g", resourceClaims=[CLAIM]) for number in range(2)]
    placed, _, _ = decided(*NODES, *DEVICES, shared, *pods)
    assert placed == ["n0", "n0"]
    own = group("PodGroup", "g", schedulingPolicy={"gang": {"minCount": 2}})
    placed, _, _ = decided(*NODES, *DEVICES, own, *pods)
    assert placed == []


def test_job_passes_its_claims_to_its_group(decided):
    scheduling = {"schedulingPolicy": {"gang": {}}, "resourceClaims": [CLAIM]}
    placed, _, _ = decided(*NODES, *DEVICES, job(2, scheduling, resourceClaims=[CLAIM]))
    assert placed == ["n0", "n0"]


def test_pods_below_a_tree_share_the_claim_of_their_group(decided):
    pods = [member(f"p{number}", "leaf", resourceClaims=[CLAIM]) for number in range(2)]
    placed, _, _ = decided(*NODES, *DEVICES, *tree(1, 2, resourceClaims=[CLAIM]), *pods)
    assert placed == ["n0", "n0"]


def test_misspelt_template_and_class_are_named_and_the_gang_may_still_start(decided):
    misspelt = {"name": "gpus", "resourceClaimTemplateName": "gpus"}
    _, refused, warnings = decided(
        *NODES, *DEVICES, manifest("Pod", "lone", spec=pod_spec(resourceClaims=[misspelt]))
    )
    assert (
        "pod default/lone: spec.resourceClaims[0].resourceClaimTemplateName: there is no ResourceClaimTemplate 'gpus' "
        "in namespace default (did you mean gpu?)"
    ) in warnings
    assert "never" not in refused["default/lone"]
    devices = json.loads(json.dumps(DEVICES).replace('"deviceClassName": "gpu"', '"deviceClassName": "gpux"'))
    _, refused, warnings = decided(
        *NODES, *devices, manifest("Pod", "lone", spec=pod_spec(resourceClaims=[CLAIM]))
    )
    assert "there is no DeviceClass 'gpux' (did you mean gpu?)" in warnings
    assert "never" not in refused["default/lone"]


def test_missing_group_of_a_tree_is_described_by_the_fields_of_kubernetes(decided):
    _, refused, _ = decided(*NODES, *tree(2, 1), member("p0", "leaf"))
    assert refused == {
        "default/root": "CompositePodGroup root: 1 group is missing for spec.schedulingPolicy.gang.minGroupCount; "
        "create groups with spec.parentCompositePodGroupName: root, or lower minGroupCount"
    }


def test_misspelt_parent_is_named_with_its_field(decided):
    _, refused, warnings = decided(*NODES, *tree(1, 1, parent="rooot"), member("p0", "leaf"))
    assert refused["default/rooot"] == (
        "no CompositePodGroup default/rooot exists; create it, or correct spec.parentCompositePodGroupName of "
        "PodGroup leaf, or of a group above it"
    )
    assert "there is no CompositePodGroup 'rooot' in namespace default (did you mean root?)" in warnings


def test_missing_pods_are_described_by_the_fields_of_kubernetes(decided):
    small = group("PodGroup", "g", schedulingPolicy={"gang": {"minCount": 3}})
    _, refused, _ = decided(*NODES, small, member("p0", "g"), member("p1", "g"))
    assert refused["default/g"].startswith("2 of the 3 pods that minCount asks for exist")
