"""Stripping keeps what the rules read of an owner of pods and nothing else."""

import copy

import msgspec
import pytest

from batchsched.podgrouper.owners import decode_owner
from batchsched.podgrouper.rules import OWNERS
from batchsched.podgrouper.stripping import strip_unread_owner_fields
from tests.podgrouper.owners import (
    TEMPLATE,
    app_wrapper,
    clique,
    job,
    jobset,
    owner,
    pod_clique_set,
    pytorch,
    ray_spec,
    replicas,
    replicated,
    workers,
)

KINDS = {kind.name: kind for kind in OWNERS}
SECRET = "s3cret"
POLICY = {"minAvailable": 2, "queue": "q", "priorityClass": "high", "scheduleTimeoutSeconds": 9}
QUEUE = {"scheduling.batchsched.dev/queue": "q"}
RACK = {"kueue.x-k8s.io/podset-required-topology": "rack", "example.com/note": SECRET}
WRITTEN = {
    "job": job(3, 5, status={"succeeded": 1, "failedIndexes": "1,3-4"}),
    "suspended job": job(3, suspend=True),
    "annotated job": job(3, annotations={"scheduling.batchsched.dev/min-member": "2"}),
    "jobset": jobset(
        replicated("a", 2, parallelism=2, completions=2),
        replicated("b", dependsOn=[{"name": "a", "status": "Ready"}]),
        status={"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]},
    ),
    "ordered jobset": jobset(
        replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"}
    ),
    "pytorch": pytorch(
        pytorchReplicaSpecs=replicas(Master=1, Worker=4),
        elasticPolicy={"minReplicas": 2},
        runPolicy={"schedulingPolicy": POLICY},
        status={"replicaStatuses": {"Worker": {"succeeded": 1}}},
    ),
    "tensorflow": owner("TFJob", tfReplicaSpecs=replicas(Chief=1, PS=2, Worker=3)),
    "mpi": owner(
        "MPIJob",
        launcherCreationPolicy="WaitForWorkersReady",
        mpiReplicaSpecs=replicas(Launcher=1, Worker=2),
    ),
    "ray cluster": owner(
        "RayCluster",
        **ray_spec(workers(replicas=2, minReplicas=1, numOfHosts=2), workers("cpu", suspend=True)),
    ),
    "ray job": owner("RayJob", rayClusterSpec=ray_spec(workers(replicas=2, minReplicas=2))),
    "ray job of a cluster": owner(
        "RayJob", clusterSelector={"ray.io/cluster": "x"}, rayClusterSpec=ray_spec()
    ),
    "leader and workers": owner(
        "LeaderWorkerSet",
        replicas=2,
        startupPolicy="LeaderReady",
        leaderWorkerTemplate={"size": 3, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE},
    ),
    "spark": owner(
        "SparkApplication",
        batchSchedulerOptions={"queue": "q", "priorityClassName": "high"},
        driver={"cores": 1, "labels": {"scheduling.batchsched.dev/queue": "r"}, "template": TEMPLATE},
        executor={"instances": 3},
        dynamicAllocation={"enabled": True, "minExecutors": 2},
    ),
    "spark with topologies": owner(
        "SparkApplication",
        driver={"coreRequest": "1", "labels": QUEUE, "annotations": RACK},
        executor={"instances": 3, "annotations": RACK},
    ),
    "app wrapper": app_wrapper(pytorch(), {**job(2), "metadata": {"name": "j"}}),
    "app wrapper of a pod": app_wrapper(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **TEMPLATE}, job(2)
    ),
    "grove": pod_clique_set(
        clique("front", topologyConstraint={"pack": {"required": "rack"}}),
        clique("leader"),
        clique("worker", 4, minAvailable=2),
        groups=[{"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 3, "minAvailable": 2}],
        topologyConstraint={"topologyName": "t", "pack": {"preferred": "block"}},
        priorityClassName="high",
    ),
    "grove with topologies": pod_clique_set(
        {**clique("front", 2), "annotations": RACK, "labels": QUEUE},
        {**clique("worker", 4), "annotations": RACK},
    ),
    "deployment": owner(
        "Deployment", replicas=3, template=TEMPLATE, annotations={"scheduling.batchsched.dev/min-member": "2"}
    ),
    "stateful set": owner("StatefulSet", podManagementPolicy="Parallel", replicas=2, template=TEMPLATE),
}


def with_secrets(value):
    """Add a field that no rule reads to every mapping of a spec, and an environment to every container."""
    if isinstance(value, list):
        return [with_secrets(part) for part in value]
    if not isinstance(value, dict):
        return value
    # The keys of these mappings are names of the user.
    kept = {name for name in value if name == "metadata" or name.endswith("ReplicaSpecs")}
    changed = {name: part if name in kept else with_secrets(part) for name, part in value.items()}
    changed |= {
        name: {role: with_secrets(part) for role, part in value[name].items()} for name in kept - {"metadata"}
    }
    if "image" in value:
        return {**changed, "env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET]}
    return {**changed, "entrypoint": SECRET, "rayStartParams": {"redis-password": SECRET}}


def grouped(kind, manifest):
    read = decode_owner(kind, msgspec.json.encode(manifest))
    shape = kind.rule(manifest)
    sizes = (
        [
            (part.name, part.pods, part.minimum, part.finished, dict(part.template_labels))
            for part in shape.parts
        ]
        if shape
        else []
    )
    return read.grouping, sizes


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_owner_without_its_unread_fields_has_the_same_gangs(written):
    kind = next(
        kind for kind in OWNERS if (kind.api_version, kind.name) == (written["apiVersion"], written["kind"])
    )
    assert grouped(kind, strip_unread_owner_fields(written, kind)) == grouped(kind, written)


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_environment_and_unread_fields_are_left_out(written):
    if "clusterSelector" in written["spec"]:
        pytest.skip("its selector is a mapping with names of the user")
    manifest = copy.deepcopy(written)
    manifest["spec"] = with_secrets(manifest["spec"])
    assert SECRET in str(manifest)
    assert SECRET not in str(strip_unread_owner_fields(manifest, KINDS[manifest["kind"]]))
