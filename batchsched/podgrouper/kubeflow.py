"""Kubeflow's training jobs: replica specs of several types, and a scheduling policy that has the last word."""

from typing import Any, Final

from batchsched.podgrouper.shape import (
    Manifest,
    PodsOf,
    Shape,
    count,
    mapping,
    spec_of,
    status_of,
    text,
)

ROLES: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_ORDER: Final = ("master", "chief", "launcher", "ps", "worker", "evaluator")
WORKER: Final = "worker"
LAUNCHER: Final = "launcher"


def pytorch_job(manifest: Manifest) -> Shape | None:
    """Master and workers; of elastic workers the least that it runs with."""
    return _training_job(manifest, "pytorchReplicaSpecs")


def tf_job(manifest: Manifest) -> Shape | None:
    """Chief, parameter servers, workers and evaluator."""
    return _training_job(manifest, "tfReplicaSpecs")


def mpi_job(manifest: Manifest) -> Shape | None:
    """Launcher and workers, of the training operator and of the MPI operator alike."""
    return _training_job(manifest, "mpiReplicaSpecs")


def _training_job(manifest: Manifest, field: str) -> Shape | None:
    spec = spec_of(manifest)
    run = mapping(spec.get("runPolicy"))
    if run.get("suspend") is True:
        return None
    replicas = {text(name).lower(): mapping(one) for name, one in mapping(spec.get(field)).items()}
    done = {
        text(name).lower(): count(mapping(one).get("succeeded"))
        for name, one in mapping(status_of(manifest).get("replicaStatuses")).items()
    }
    parts: list[PodsOf] = []
    for name in sorted(replicas, key=lambda one: (_ORDER.index(one) if one in _ORDER else len(_ORDER), one)):
        pods = count(replicas[name].get("replicas"), 1)
        left = max(0, pods - done.get(name, 0))
        needed = min(_needed(spec, name, pods), left)
        parts.append(PodsOf(name, pods, needed, mapping(replicas[name].get("template")), pods - left))
    return Shape(tuple(parts), ROLES, wishes=_wishes(run)) if parts else None


def _needed(spec: Manifest, name: str, pods: int) -> int:
    if name == WORKER:
        return count(mapping(spec.get("elasticPolicy")).get("minReplicas"), pods)
    if name == LAUNCHER and spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        return 0
    return pods


def _wishes(run: Manifest) -> dict[str, Any]:
    policy = mapping(run.get("schedulingPolicy"))
    wishes: dict[str, Any] = {}
    if count(policy.get("minAvailable")):
        wishes["minMember"] = policy["minAvailable"]
    if count(policy.get("scheduleTimeoutSeconds")):
        wishes["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    for theirs, ours in (("queue", "queue"), ("priorityClass", "priorityClassName")):
        if text(policy.get(theirs)):
            wishes[ours] = policy[theirs]
    return wishes
