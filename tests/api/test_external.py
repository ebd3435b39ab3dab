"""PodGroups of other schedulers are converted to PodGroups of batchsched."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.external.conversion import EXTERNAL_KINDS, convert_external_pod_group, with_gang_labels
from batchsched.api.external.pod_group import SOURCE, external_api_version_and_uid, is_converted_from_external

TYPES: dict[str, Any] = {kind.api_version: kind.type for kind in EXTERNAL_KINDS if kind.name == "PodGroup"}


def translated(api_version, **spec):
    raw = {"metadata": {"name": "bert", "namespace": "team-a", "uid": "of-another"}, "spec": spec}
    return convert_external_pod_group(msgspec.convert(raw, TYPES[api_version]))


def pod(labels=None, annotations=None, **spec):
    meta = {"name": "bert-0", "labels": labels or {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": {"schedulerName": "batchsched", **spec}}, Pod)


def marks(found):
    return found.labels.get(POD_GROUP_LABEL), found.labels.get(SUB_GROUP_LABEL)


def test_a_pod_group_of_coscheduling_keeps_its_minimum_its_resources_and_its_timeout():
    group = translated(
        "scheduling.x-k8s.io/v1alpha1", minMember=4, minResources={"cpu": 8}, scheduleTimeoutSeconds=30
    )
    assert (group.key, group.effective_min_member) == ("team-a/bert", 4)
    assert group.spec.min_resources == {"cpu": "8"}
    assert group.spec.schedule_timeout_seconds == 30


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_a_pod_group_of_kubernetes_keeps_its_policy_its_topology_and_its_disruption_mode(version):
    group = translated(
        f"scheduling.k8s.io/{version}",
        schedulingPolicy={"gang": {"minCount": 3}},
        schedulingConstraints={"topology": [{"key": "example.com/rack"}]},
        disruptionMode="PodGroup" if version == "v1alpha2" else {"all": {}},
        priorityClassName="high",
    )
    assert group.effective_min_member == 3
    assert group.spec.topology.required == "example.com/rack"
    assert group.spec.disruption_mode == "Gang"
    assert group.spec.priority_class_name == "high"
    single = "Pod" if version == "v1alpha2" else {"single": {}}
    elastic = translated(
        f"scheduling.k8s.io/{version}", schedulingPolicy={"basic": {}}, disruptionMode=single
    )
    assert (elastic.effective_min_member, elastic.spec.disruption_mode) == (1, "Elastic")


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_pods_of_a_kubernetes_pod_group_without_a_disruption_mode_are_evicted_one_by_one(version):
    group = translated(f"scheduling.k8s.io/{version}", schedulingPolicy={"gang": {"minCount": 3}})
    assert group.spec.disruption_mode == "Elastic"


def test_the_tasks_of_volcano_are_subgroups():
    group = translated(
        "scheduling.volcano.sh/v1beta1",
        minMember=2,
        minTaskMember={"worker": 2, "master": 1},
        queue="research",
    )
    assert group.effective_min_member == 3
    assert [(sub.name, sub.min_member) for sub in group.spec.sub_groups] == [("master", 1), ("worker", 2)]
    assert group.spec.queue == "research"


def test_the_innermost_subgroups_of_kai_are_subgroups():
    group = translated(
        "scheduling.run.ai/v2alpha2",
        minMember=5,
        queue="research",
        preemptibility="non-preemptible",
        topologyConstraint={"topology": "racks", "requiredTopologyLevel": "example.com/block"},
        subGroups=[
            {"name": "decode", "minMember": 4},
            {"name": "leader", "minMember": 1, "parent": "decode"},
            {
                "name": "workers",
                "minMember": 3,
                "parent": "decode",
                "topologyConstraint": {"requiredTopologyLevel": "example.com/rack"},
            },
        ],
    )
    assert [(sub.name, sub.min_member) for sub in group.spec.sub_groups] == [("leader", 1), ("workers", 3)]
    assert (group.effective_min_member, group.spec.queue, group.spec.preemptible) == (5, "research", False)
    assert (group.spec.topology.name, group.spec.topology.required) == ("racks", "example.com/block")
    assert group.spec.sub_groups[1].topology.required == "example.com/rack"


@pytest.mark.parametrize("version", TYPES)
def test_an_empty_spec_is_a_gang_of_one_pod_that_names_its_origin(version):
    group = translated(version)
    assert group.effective_min_member == 1
    assert is_converted_from_external(group)
    assert group.metadata.annotations[SOURCE] == version
    assert group.metadata.uid == ""


def test_invalid_fields_of_a_pod_group_are_refused():
    with pytest.raises(ValidationError):
        translated("scheduling.x-k8s.io/v1alpha1", minMember=2, minResources={"cpu": "much"})


@pytest.mark.parametrize(
    "found, expected",
    [
        (pod(schedulingGroup={"podGroupName": "up"}), ("up", None)),
        (pod({"scheduling.x-k8s.io/pod-group": "co"}), ("co", None)),
        (pod(annotations={"scheduling.k8s.io/group-name": "vol"}), ("vol", None)),
        (
            pod(annotations={"scheduling.volcano.sh/group-name": "vol", "volcano.sh/task-spec": "worker"}),
            ("vol", "worker"),
        ),
        (pod({"kai.scheduler/subgroup-name": "leader"}, {"pod-group-name": "kai"}), ("kai", "leader")),
        (pod({POD_GROUP_LABEL: "own", "scheduling.x-k8s.io/pod-group": "co"}), ("own", None)),
        (pod(), (None, None)),
    ],
    ids=["upstream", "coscheduling", "kube-batch", "volcano", "kai", "own-label-counts", "none"],
)
def test_pods_join_by_the_labels_of_other_schedulers(found, expected):
    assert marks(with_gang_labels(found)) == expected
    assert with_gang_labels(with_gang_labels(found)) == with_gang_labels(found)


def test_a_pod_alone_keeps_the_queue_that_it_names():
    assert with_gang_labels(pod({"kai.scheduler/queue": "a"})).labels[QUEUE_LABEL] == "a"
    assert (
        with_gang_labels(pod(annotations={"scheduling.volcano.sh/queue-name": "b"})).labels[QUEUE_LABEL]
        == "b"
    )
    assert (
        with_gang_labels(pod({QUEUE_LABEL: "own", "kai.scheduler/queue": "a"})).labels[QUEUE_LABEL] == "own"
    )


def test_a_kubernetes_pod_group_keeps_its_identity_and_conditions():
    condition = {
        "type": "PodGroupScheduled",
        "status": "True",
        "reason": "Scheduled",
        "lastTransitionTime": "x",
    }
    raw = {"metadata": {"name": "bert", "uid": "of-another"}, "status": {"conditions": [condition]}}
    group = convert_external_pod_group(msgspec.convert(raw, TYPES["scheduling.k8s.io/v1alpha2"]))
    assert external_api_version_and_uid(group) == ("scheduling.k8s.io/v1alpha2", "of-another")
    assert group.status is not None
    (found,) = group.status.conditions
    assert (found.type, found.status, found.reason) == ("PodGroupScheduled", "True", "Scheduled")
