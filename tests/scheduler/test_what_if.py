"""What-if questions: an owner adds the pods that its controller would create, in gangs."""

from typing import Any

import msgspec
import pytest

from batchsched.api.owner_keys import MIN_MEMBER
from batchsched.config.schema import Profile
from batchsched.errors import CommandError, InvalidInput
from batchsched.scheduler import what_if_cluster
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.what_if_cluster import WhatIfCluster
from tests.podgrouper.owners import (
    TEMPLATE,
    clique,
    job,
    jobset,
    owner,
    pytorch,
    ray_spec,
    replicas,
    replicated,
    workers,
)
from tests.service.town import Clock

NOW = 1_767_603_600.0


@pytest.fixture
def suppose(tmp_path):
    """Suppose that some objects were made in an empty cluster."""

    def put(*manifests: dict[str, Any]) -> WhatIfCluster:
        nowhere: Any = None
        supposed = WhatIfCluster(SchedulerApp(nowhere, Clock(), [Profile()]), "batchsched", NOW)
        file = tmp_path / "objects.json"
        file.write_bytes(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": manifests}))
        supposed.add_objects_from_files([file])
        return supposed

    return put


SET = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
OWNERS = {
    "job": (job(3), [3]),
    "jobset": (jobset(replicated("a", 2, parallelism=2), replicated("b")), [5]),
    "pytorch": (pytorch(pytorchReplicaSpecs=replicas(Master=1, Worker=3)), [4]),
    "ray": (owner("RayCluster", **ray_spec(workers(replicas=2, minReplicas=2))), [3]),
    "leader and workers": (owner("LeaderWorkerSet", **SET), [3, 3]),
    "stateful set": (
        owner("StatefulSet", podManagementPolicy="Parallel", replicas=2, template=TEMPLATE),
        [2],
    ),
}


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_misspelt_key_of_an_owner_causes_a_warning_with_file_object_and_suggestion(suppose, place):
    supposed = suppose(job(2, **{place: {"scheduling.batchsched.dev/required-toplogy": "rack"}}))
    (warning,) = supposed.warnings
    assert "objects.json: Job " in warning
    assert warning.endswith(
        f"metadata.{place}: unknown {place[:-1]} 'scheduling.batchsched.dev/required-toplogy' has no effect; "
        "did you mean scheduling.batchsched.dev/required-topology?"
    )


@pytest.mark.parametrize("number, warned", [("2", False), ("3", True)])
def test_minimum_above_the_number_of_pods_of_a_gang_causes_a_warning(suppose, number, warned):
    supposed = suppose(job(2, annotations={MIN_MEMBER: number}))
    ending = f"{MIN_MEMBER}: found {number}, but a gang of the owner has 2 pods; expected 2 or less"
    assert [line.endswith(ending) for line in supposed.warnings] == [True] * warned


def test_invalid_minimum_of_an_owner_is_ignored_with_a_warning_as_in_a_live_cluster(suppose, caplog):
    supposed = suppose(job(2, annotations={MIN_MEMBER: "two"}))
    (warning,) = supposed.warnings
    assert "objects.json: Job " in warning
    assert warning.endswith(
        f"{MIN_MEMBER}: expected a whole number from 1 to 2147483647, found 'two'; the default minimum applies"
    )
    (group,) = supposed.service.cache.snapshot().pod_groups
    assert group.spec.min_member == 2
    assert caplog.text == ""


@pytest.mark.parametrize("made, sizes", OWNERS.values(), ids=OWNERS)
def test_owner_adds_its_pods_in_gangs(suppose, made, sizes):
    supposed = suppose(made)
    groups = {one.key: one for one in supposed.service.cache.snapshot().pod_groups}
    assert sorted(groups) == supposed.added_gang_keys()
    assert (
        sorted(
            one.spec.min_member or sum(sub.min_member for sub in one.spec.sub_groups)
            for one in groups.values()
        )
        == sizes
    )
    assert len(supposed.pods) == sum(sizes)
    assert not supposed.warnings


def test_pods_of_an_owner_have_the_labels_and_annotations_of_its_template(suppose):
    meta = {"labels": {"app": "train"}, "annotations": {"gpu-fraction": "0.5"}}
    supposed = suppose(owner("Job", parallelism=1, template={**TEMPLATE, "metadata": meta}))
    (pod,) = supposed.service.cache.snapshot().pods
    assert (pod.metadata.label("app"), pod.metadata.annotation("gpu-fraction")) == ("train", "0.5")


def test_single_pod_is_a_gang_of_one(suppose):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "x-"}, **TEMPLATE}
    assert suppose(made, made).added_gang_keys() == ["default/x-0", "default/x-1"]


def test_bound_pod_is_added_as_pending(suppose):
    spec = {**TEMPLATE["spec"], "nodeName": "n1"}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": spec,
        "status": {"phase": "Running"},
    }
    supposed = suppose(made)
    (pod,) = supposed.service.cache.snapshot().pods
    assert not pod.node_name
    assert not pod.finished


def test_suspended_owner_adds_no_pods_and_causes_a_warning(suppose):
    with pytest.raises(CommandError, match="no pod, PodGroup or owner"):
        suppose(job(2, suspend=True))


def test_invalid_object_is_named(suppose):
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": 5}}
    with pytest.raises(InvalidInput, match="Pod default/x"):
        suppose(made)


def test_unrelated_kinds_are_ignored_with_a_warning(suppose):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    (warning,) = suppose(job(2), config).warnings
    assert "ConfigMap is passed over" in warning


@pytest.mark.parametrize(
    "made",
    [
        job(2147483647),
        jobset(replicated("a", 100_000, parallelism=2)),
        owner("LeaderWorkerSet", **SET | {"replicas": 2147483647}),
        owner("PodCliqueSet", replicas=2147483647, template={"cliques": [clique("front")]}),
    ],
    ids=["job", "jobset", "leader and workers", "grove"],
)
def test_an_owner_with_more_pods_than_a_large_cluster_has_is_refused_by_name(suppose, made):
    with pytest.raises(
        InvalidInput, match=f"{made['kind']} team/.*: spec: makes [0-9,]* pods; expected at most 100,000"
    ):
        suppose(made)


def test_owners_of_files_add_at_most_100000_pods_together(suppose, monkeypatch):
    monkeypatch.setattr(what_if_cluster, "MOST_ADDED_PODS", 5)
    assert len(suppose(job(3), job(2, name="second")).pods) == 5
    with pytest.raises(InvalidInput, match=r"Job team/second: spec: makes 3 pods; expected at most 2 more"):
        suppose(job(3), job(3, name="second"))
