"""The rules for training jobs of Kubeflow: those of the training operator and the MPI operator, and TrainJob."""

import copy
from collections.abc import Sequence
from typing import Any, Final

from batchsched.errors import InvalidInput
from batchsched.podgrouper.shape import (
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_entries_of_list,
    mapping_or_empty,
    pod_count_or_default,
    spec_of,
    status_of,
    text_or_empty,
)

ROLES: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_ORDER: Final = ("master", "chief", "launcher", "ps", "worker", "evaluator")
WORKER: Final = "worker"
LAUNCHER: Final = "launcher"


def training_job_gang_shape(manifest: Manifest, field: str) -> OwnerGangShape | None:
    """Return how the pods of a Kubeflow training job form a gang: each role has a pod count and a minimum.

    The result is None if the job is suspended or has no replicas.

    The minimum of elastic workers is their smallest number. The `schedulingPolicy` of the job takes precedence.

    Args:
      manifest: the training job.
      field: the field of its spec that lists the replicas by role.
    """
    spec = spec_of(manifest)
    run = mapping_or_empty(spec.get("runPolicy"))
    if run.get("suspend") is True:
        return None
    replicas = {
        text_or_empty(name).lower(): mapping_or_empty(replica)
        for name, replica in mapping_or_empty(spec.get(field)).items()
    }
    paths = {
        text_or_empty(name).lower(): f"spec.{field}.{name}.template"
        for name in mapping_or_empty(spec.get(field))
    }
    done = {
        text_or_empty(name).lower(): pod_count_or_default(mapping_or_empty(replica).get("succeeded"))
        for name, replica in mapping_or_empty(status_of(manifest).get("replicaStatuses")).items()
    }
    parts: list[OwnerPart] = []
    for name in sorted(
        replicas, key=lambda role: (_ORDER.index(role) if role in _ORDER else len(_ORDER), role)
    ):
        pods = pod_count_or_default(replicas[name].get("replicas"), 1)
        unfinished = max(0, pods - done.get(name, 0))
        needed = min(_needed(spec, name, pods), unfinished)
        template = mapping_or_empty(replicas[name].get("template"))
        parts.append(OwnerPart(name, pods, needed, template, pods - unfinished, paths[name]))
    return OwnerGangShape(tuple(parts), ROLES, spec_fields=_spec_fields(run)) if parts else None


def _needed(spec: Manifest, name: str, pods: int) -> int:
    if name == WORKER:
        return pod_count_or_default(mapping_or_empty(spec.get("elasticPolicy")).get("minReplicas"), pods)
    if name == LAUNCHER and spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        return 0
    return pods


def _spec_fields(run: Manifest) -> dict[str, Any]:
    policy = mapping_or_empty(run.get("schedulingPolicy"))
    spec_fields: dict[str, Any] = {}
    if pod_count_or_default(policy.get("minAvailable")):
        spec_fields["minMember"] = policy["minAvailable"]
    if pod_count_or_default(policy.get("scheduleTimeoutSeconds")):
        spec_fields["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    for policy_field, spec_field in (("queue", "queue"), ("priorityClass", "priorityClassName")):
        if text_or_empty(policy.get(policy_field)):
            spec_fields[spec_field] = policy[policy_field]
    return spec_fields


TRAINING_RUNTIMES: Final = (
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"),
    ("trainer.kubeflow.org", "TrainingRuntime"),
)
"""The kinds that state the JobSet of a TrainJob."""
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of the replicated jobs of a runtime: the step that they carry out."""
_TRAINER_CONTAINER: Final = "node"


def train_job_child_manifests(manifest: Manifest, templates: Sequence[Manifest] = ()) -> list[dict[str, Any]]:
    """Return the JobSet that the controller of a TrainJob creates from its runtime.

    The PodGroup is that of the JobSet.
    Source: `TrainJobSpec` and `TrainingRuntimeSpec` of trainer.kubeflow.org/v1alpha1.

    Args:
      manifest: the TrainJob.
      templates: the runtimes that are known.

    Raises:
      InvalidInput: the runtime of the TrainJob is not among `templates`.
    """
    spec = spec_of(manifest)
    ref = mapping_or_empty(spec.get("runtimeRef"))
    kind, name = text_or_empty(ref.get("kind")) or TRAINING_RUNTIMES[0][1], text_or_empty(ref.get("name"))
    runtime = next(
        (
            template
            for template in templates
            if template.get("kind") == kind and mapping_or_empty(template.get("metadata")).get("name") == name
        ),
        None,
    )
    if runtime is None:
        raise InvalidInput(
            f"the {kind} {name!r}, which states the pods, is in no file; add it: "
            f"kubectl get {kind.lower()} {name} -o yaml",
            field="spec.runtimeRef",
        )
    runtime_spec = spec_of(runtime)
    template = mapping_or_empty(runtime_spec.get("template"))
    job_set: dict[str, Any] = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": text_or_empty(mapping_or_empty(manifest.get("metadata")).get("name"))},
        "spec": copy.deepcopy(dict(spec_of(template))),
    }
    for field in ("labels", "annotations"):
        merged = {
            **mapping_or_empty(mapping_or_empty(template.get("metadata")).get(field)),
            **mapping_or_empty(spec.get(field)),
        }
        if merged:
            job_set["metadata"][field] = merged
    for job in mapping_entries_of_list(job_set["spec"].get("replicatedJobs")):
        _apply_trainer(job, spec, mapping_or_empty(runtime_spec.get("mlPolicy")))
        _apply_patches(job, spec)
    return [job_set]


def _apply_trainer(job: Manifest, spec: Manifest, policy: Manifest) -> None:
    """Set the number of nodes, the image and the resources of the trainer in a replicated job of a runtime."""
    template = mapping_or_empty(job.get("template"))
    step = mapping_or_empty(mapping_or_empty(template.get("metadata")).get("labels")).get(_STEP)
    job_spec = spec_of(template)
    if not isinstance(job_spec, dict) or (step != "trainer" and job.get("name") != _TRAINER_CONTAINER):
        return
    trainer = mapping_or_empty(spec.get("trainer"))
    nodes = pod_count_or_default(trainer.get("numNodes"), pod_count_or_default(policy.get("numNodes"), 1))
    if job.get("name") == _TRAINER_CONTAINER:
        # With runLauncherAsNode, the launcher is the first of the nodes.
        launcher_is_node = mapping_or_empty(policy.get("mpi")).get("runLauncherAsNode") is True
        job_spec["parallelism"] = job_spec["completions"] = nodes - 1 if launcher_is_node else nodes
    for container in mapping_entries_of_list(
        spec_of(mapping_or_empty(job_spec.get("template"))).get("containers")
    ):
        if isinstance(container, dict) and container.get("name") == _TRAINER_CONTAINER:
            if text_or_empty(trainer.get("image")):
                container["image"] = trainer["image"]
            if mapping_or_empty(trainer.get("resourcesPerNode")):
                container["resources"] = trainer["resourcesPerNode"]


def _apply_patches(job: Manifest, spec: Manifest) -> None:
    """Apply to a replicated job those `runtimePatches` of a TrainJob that affect the placement of pods."""
    pod = spec_of(mapping_or_empty(spec_of(mapping_or_empty(job.get("template"))).get("template")))
    if not isinstance(pod, dict):
        return
    for patch in mapping_entries_of_list(spec.get("runtimePatches")):
        template = mapping_or_empty(mapping_or_empty(patch.get("trainingRuntimeSpec")).get("template"))
        for patched in mapping_entries_of_list(spec_of(template).get("replicatedJobs")):
            if patched.get("name") != job.get("name"):
                continue
            job_patch = spec_of(mapping_or_empty(patched.get("template")))
            change = spec_of(mapping_or_empty(job_patch.get("template")))
            if mapping_or_empty(change.get("nodeSelector")):
                pod["nodeSelector"] = {**mapping_or_empty(pod.get("nodeSelector")), **change["nodeSelector"]}
            if mapping_entries_of_list(change.get("tolerations")):
                pod["tolerations"] = [
                    *mapping_entries_of_list(pod.get("tolerations")),
                    *change["tolerations"],
                ]
            if mapping_or_empty(change.get("affinity")):
                pod["affinity"] = change["affinity"]
