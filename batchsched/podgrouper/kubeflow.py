"""Training jobs of Kubeflow: replica specs of several types. Their `schedulingPolicy` takes precedence."""

from typing import Any, Final

from batchsched.podgrouper.shape import (
    Manifest,
    OwnerPart,
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
    """Return master and workers; elastic workers count with their smallest number."""
    return _training_job(manifest, "pytorchReplicaSpecs")


def tf_job(manifest: Manifest) -> Shape | None:
    """Return chief, parameter servers, workers and evaluator."""
    return _training_job(manifest, "tfReplicaSpecs")


def mpi_job(manifest: Manifest) -> Shape | None:
    """Return launcher and workers, for the training operator and for the MPI operator."""
    return _training_job(manifest, "mpiReplicaSpecs")


def _training_job(manifest: Manifest, field: str) -> Shape | None:
    spec = spec_of(manifest)
    run = mapping(spec.get("runPolicy"))
    if run.get("suspend") is True:
        return None
    replicas = {text(name).lower(): mapping(replica) for name, replica in mapping(spec.get(field)).items()}
    done = {
        text(name).lower(): count(mapping(replica).get("succeeded"))
        for name, replica in mapping(status_of(manifest).get("replicaStatuses")).items()
    }
    parts: list[OwnerPart] = []
    for name in sorted(
        replicas, key=lambda role: (_ORDER.index(role) if role in _ORDER else len(_ORDER), role)
    ):
        pods = count(replicas[name].get("replicas"), 1)
        unfinished = max(0, pods - done.get(name, 0))
        needed = min(_needed(spec, name, pods), unfinished)
        parts.append(
            OwnerPart(name, pods, needed, mapping(replicas[name].get("template")), pods - unfinished)
        )
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
    for policy_field, spec_field in (("queue", "queue"), ("priorityClass", "priorityClassName")):
        if text(policy.get(policy_field)):
            wishes[spec_field] = policy[policy_field]
    return wishes
