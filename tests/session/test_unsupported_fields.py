"""A gang that asks for something that batchsched does not support is refused, and the refusal names the field."""

import json
import time
from typing import Any

import msgspec
import pytest

from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.config.schema import Profile
from batchsched.manifests.reader import read_manifests
from batchsched.session.session import decide
from tests.session.scenario import NOW, placed, reasons

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0", "labels": {"example.com/rack": "r0"}},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}},
}
TOPOLOGY = {
    "apiVersion": "scheduling.batchsched.dev/v1alpha1",
    "kind": "Topology",
    "metadata": {"name": "default"},
    "spec": {"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]},
}
OWN_LABEL = {"scheduling.batchsched.dev/pod-group": "bert"}


def pod(
    name: str = "bert-0",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"schedulerName": "batchsched", "containers": [container], **spec},
    }


def pod_group(api_version: str = "scheduling.batchsched.dev/v1alpha1", **spec: Any) -> dict[str, Any]:
    metadata = {"name": "bert", "namespace": "team"}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def decide_manifests(tmp_path, *objects: dict[str, Any], profile: Profile | None = None) -> Any:
    path = tmp_path / "input.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, TOPOLOGY, *objects]}))
    read = read_manifests([path])
    assert read.snapshot.set_aside == ()
    return decide(read.snapshot, profile or Profile(), NOW, 0)


VOLCANO, KAI = "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2alpha2"
KUBERNETES = ("scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1beta1")
IN_VOLCANO = {"annotations": {"scheduling.k8s.io/group-name": "bert"}}
IN_KAI = {"annotations": {"pod-group-name": "bert"}}
IN_KUBERNETES = {"schedulingGroup": {"podGroupName": "bert"}}
HARD, SOFT = {"mode": "hard", "highestTierAllowed": 1}, {"mode": "soft"}
RACK = {"topology": "default", "requiredTopologyLevel": "rack"}
UNSUPPORTED_POD_GROUPS = [
    pytest.param(
        pod_group(VOLCANO, networkTopology={"mode": "hard"}),
        IN_VOLCANO,
        "spec.networkTopology.highestTierAllowed",
        id="volcano hard without a tier",
    ),
    pytest.param(
        pod_group(
            VOLCANO, subGroupPolicy=[{"name": "a"}, {"name": "b", "subGroupSize": 2, "networkTopology": HARD}]
        ),
        IN_VOLCANO,
        "spec.subGroupPolicy[1].networkTopology",
        id="volcano topology of subgroups",
    ),
    pytest.param(
        pod_group(VOLCANO, subGroupPolicy=[{"name": "a", "subGroupSize": 2, "minSubGroups": 2}]),
        IN_VOLCANO,
        "spec.subGroupPolicy[0].minSubGroups",
        id="volcano gangs of subgroups",
    ),
    pytest.param(
        pod_group(KAI, subGroups=[{"name": "all", "minMember": 3}, {"name": "a", "parent": "all"}]),
        IN_KAI,
        "spec.subGroups[0].minMember",
        id="kai minimum of an outer subgroup",
    ),
    *(
        pytest.param(
            pod_group(version, **{field: value}), IN_KUBERNETES, f"spec.{path}", id=f"{version} {path}"
        )
        for version in KUBERNETES
        for field, value, path in (
            (
                "schedulingConstraints",
                {"topology": [{"key": "rack"}, {"key": "zone"}]},
                "schedulingConstraints.topology[1]",
            ),
        )
    ),
]


@pytest.mark.parametrize("group, joined, field", UNSUPPORTED_POD_GROUPS)
def test_gang_with_an_unsupported_field_in_its_pod_group_is_refused(tmp_path, group, joined, field):
    decision = decide_manifests(tmp_path, group, pod(**joined))
    assert placed(decision) == {}
    assert reasons(decision) == {"team/bert": "UnsupportedField"}
    (refusal,) = decision.refusals
    assert refusal.message.startswith(f"PodGroup of {group['apiVersion'].partition('/')[0]}: {field}: ")


@pytest.mark.parametrize(
    "group, joined",
    [
        pytest.param(pod_group(VOLCANO, networkTopology=SOFT), IN_VOLCANO, id="volcano soft"),
        pytest.param(
            pod_group(VOLCANO, subGroupPolicy=[{"name": "a", "networkTopology": SOFT}]),
            IN_VOLCANO,
            id="volcano soft subgroups",
        ),
        pytest.param(
            pod_group(
                KAI, minSubGroup=1, subGroups=[{"name": "decode"}, {"name": "leader", "parent": "decode"}]
            ),
            {
                "annotations": {"pod-group-name": "bert"},
                "labels": {"kai.scheduler/subgroup-name": "leader"},
            },
            id="kai all subgroups",
        ),
        pytest.param(
            pod_group(KAI, topologyConstraint=RACK),
            {
                "annotations": {
                    "pod-group-name": "bert",
                    "kai.scheduler/topology-required-placement": "rack",
                }
            },
            id="kai topology of the whole gang",
        ),
        pytest.param(
            pod_group(KUBERNETES[2], schedulingConstraints={"topology": [{"key": "rack"}]}),
            IN_KUBERNETES,
            id="kubernetes topology",
        ),
    ],
)
def test_preferences_and_constraints_that_are_kept_do_not_refuse_a_gang(tmp_path, group, joined):
    assert placed(decide_manifests(tmp_path, group, pod(**joined))) == {"bert-0": "n0"}


def test_conversion_of_a_deep_kai_pod_group_takes_no_time_that_other_gangs_need():
    chain = [{"name": "c0"}, *({"name": f"c{n}", "parent": f"c{n - 1}"} for n in range(1, 600))]
    leaves = [{"name": f"l{n}", "parent": "c599"} for n in range(600)]
    cycle = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}, {"name": "leaf", "parent": "a"}]
    kind = next(kind for kind in EXTERNAL_KINDS if kind.api_version == KAI)
    started = time.process_time()
    for sub_groups in ([*chain, *leaves], [*leaves, *chain], [*cycle, *chain, *leaves]):
        converted = json.dumps(pod_group(KAI, minSubGroup=1, subGroups=sub_groups)).encode()
        source: Any = msgspec.json.decode(converted, type=kind.type)
        assert (source.describe_unsupported_field() == "") == (sub_groups[0] != cycle[0])
        source.to_batchsched_spec_fields()
    assert time.process_time() - started < 1


KUEUE = "kueue.x-k8s.io/podset-required-topology"
SLICES = "kueue.x-k8s.io/podset-slice-required-topology"
UNSUPPORTED_PODS = [
    pytest.param(
        {"workloadRef": {"name": "llm", "podGroup": "workers"}}, "spec.workloadRef", id="workload reference"
    ),
    *(
        pytest.param({"annotations": {key: "rack"}}, f"metadata.annotations[{key}]", id=key)
        for key in (
            KUEUE,
            SLICES,
            f"{SLICES}-constraints",
            "kai.scheduler/topology-required-placement",
            "kai.scheduler/segment-topology-required-placement",
            "gpu-fraction",
            "gpu-memory",
            "gang.scheduling.koordinator.sh/name",
            "yunikorn.apache.org/task-groups",
        )
    ),
]


@pytest.mark.parametrize("stated, field", UNSUPPORTED_PODS)
def test_pod_with_an_unsupported_field_is_refused(tmp_path, stated, field):
    decision = decide_manifests(tmp_path, pod("solo", **stated), pod("other"))
    assert placed(decision) == {"other": "n0"}
    assert reasons(decision) == {"team/solo": "UnsupportedField"}
    (refusal,) = decision.refusals
    assert refusal.message.startswith(f"pod team/solo: {field}: ")


def test_one_pod_with_an_unsupported_field_refuses_its_gang(tmp_path):
    reference = {"name": "llm", "podGroup": "workers"}
    decision = decide_manifests(
        tmp_path,
        pod_group(minMember=1),
        pod("bert-0", labels=OWN_LABEL),
        pod("bert-1", labels=OWN_LABEL, workloadRef=reference),
    )
    assert placed(decision) == {}
    assert reasons(decision) == {"team/bert": "UnsupportedField"}


@pytest.mark.parametrize("key", [KUEUE, "kai.scheduler/topology-required-placement"])
def test_required_level_of_the_pod_group_replaces_that_of_another_scheduler(tmp_path, key):
    group = pod_group(minMember=1, topology={"required": "rack"})
    assert placed(decide_manifests(tmp_path, group, pod(labels=OWN_LABEL, annotations={key: "rack"})))


@pytest.mark.parametrize("key", [KUEUE, SLICES])
def test_pods_that_kueue_assigns_to_domains_are_placed(tmp_path, key):
    assigned = pod(
        labels={"kueue.x-k8s.io/tas": "true"},
        annotations={key: "rack"},
        nodeSelector={"example.com/rack": "r0"},
    )
    assert placed(decide_manifests(tmp_path, assigned)) == {"bert-0": "n0"}


@pytest.mark.parametrize("key", ["gang.scheduling.koordinator.sh/name", "yunikorn.apache.org/task-groups"])
def test_gang_of_another_scheduler_with_a_pod_group_of_batchsched_is_placed(tmp_path, key):
    found = decide_manifests(tmp_path, pod_group(minMember=1), pod(labels=OWN_LABEL, annotations={key: "x"}))
    assert placed(found) == {"bert-0": "n0"}


def test_running_pod_with_a_claim_counts_and_does_not_refuse_its_gang(tmp_path):
    claim = [{"name": "gpu", "resourceClaimName": "shared"}]
    decision = decide_manifests(
        tmp_path,
        pod_group(minMember=1),
        pod("bert-0", labels=OWN_LABEL, nodeName="n0", resourceClaims=claim),
        pod("bert-1", labels=OWN_LABEL),
    )
    assert placed(decision) == {"bert-1": "n0"}


@pytest.mark.parametrize(
    "spec, field",
    [
        ({"topology": {"slices": {"level": "rack", "size": 1}}}, "spec.topology.slices"),
        (
            {"subGroups": [{"name": "a", "topology": {"slices": {"level": "rack", "count": 1}}}]},
            "spec.subGroups[0].topology.slices",
        ),
    ],
)
def test_without_the_solver_a_gang_with_slices_is_refused_with_the_field(tmp_path, spec, field):
    labels = OWN_LABEL | {"scheduling.batchsched.dev/sub-group": "a"}
    pod_by_pod = Profile.model_validate({"solver": {"enabled": False}})
    decision = decide_manifests(tmp_path, pod_group(**spec), pod(labels=labels), profile=pod_by_pod)
    assert placed(decision) == {}
    assert [refusal.reason for refusal in decision.refusals] == ["UnsupportedField"]
    assert decision.refusals[0].message.startswith(f"{field}: ")
