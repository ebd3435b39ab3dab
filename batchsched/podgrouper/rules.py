"""The rules that derive the gangs of an owner: its shape, and the spec of the PodGroup.

The shape of an owner lists its parts that create pods, and how many of these pods are needed together. One function for
each kind of owner returns the shape: Job, JobSet, LeaderWorkerSet, StatefulSet, the training jobs of Kubeflow,
RayCluster and RayJob. Owners are read as JSON, because most are objects of other projects. A field with an unexpected
type counts as missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.core.selector import parse_whole_number
from batchsched.api.crd.base import LARGEST_INT32
from batchsched.api.crd.podgroup import MOST_SUBGROUPS, PodGroupSpec
from batchsched.api.crd.validation import field_errors
from batchsched.api.unsupported_fields import unsupported_owner_annotation

Manifest = Mapping[str, Any]
_MAX_SHOWN_CHARACTERS: Final = 40
"""Characters of an invalid value that a message quotes."""


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """A part of an owner, such as the workers of a PyTorchJob, that creates equal pods.

    Args:
      name: the name of the part in a label of its pods.
      pods: the number of its pods.
      minimum: the number of pods that are needed together; at most `pods`.
      template: the pod template.
      finished: the number of pods that have finished and are not created again.
      field: the path of the template in the owner.
    """

    name: str
    pods: int
    minimum: int
    template: Manifest = field(default_factory=dict)
    finished: int = 0
    field: str = "spec.template"

    @property
    def labels(self) -> Manifest:
        """The labels in the pod template of this part of the owner."""
        return mapping_or_empty(mapping_or_empty(self.template.get("metadata")).get("labels"))


@dataclass(frozen=True, slots=True)
class OwnerShape:
    """How the pods of an owner, such as a JobSet, form gangs: its parts, and the labels that name the part of a pod.

    Args:
      parts: at least one part.
      sub_group_labels: the first of these labels that a pod has names its part.
      gang_label: pods with different values of this label belong to different gangs; "": all pods are one gang.
      wishes: fields of PodGroupSpec that follow from fields of the owner.
    """

    parts: tuple[OwnerPart, ...]
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    wishes: Manifest = field(default_factory=dict)

    @property
    def pod_count(self) -> int:
        """The number of pods of one gang of the owner."""
        return sum(part.pods for part in self.parts)

    @property
    def unfinished_count(self) -> int:
        """The number of pods of one gang of the owner that run or are still to be created."""
        return sum(part.pods - part.finished for part in self.parts)


def mapping_or_empty(value: object) -> Manifest:
    """Return a value of a manifest if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, dict) else {}


def mappings_in(value: object) -> list[Manifest]:
    """Return the mappings in a list of a manifest, or an empty list if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def pod_count_or_default(value: object, default: int = 0) -> int:
    """Return a value of a manifest as a number of pods if it is an integer, otherwise the default.

    The API stores these numbers in 32 bits; a value out of range becomes the nearest one.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return min(max(0, value), LARGEST_INT32)


def text_or_empty(value: object) -> str:
    """Return a value of a manifest if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""


def spec_of(manifest: Manifest) -> Manifest:
    """Return the spec in a manifest, or an empty mapping if it has none."""
    return mapping_or_empty(manifest.get("spec"))


def status_of(manifest: Manifest) -> Manifest:
    """Return the status in a manifest, or an empty mapping if it has none."""
    return mapping_or_empty(manifest.get("status"))


REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def job_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of a Job form a gang; the pods that run at the same time are needed together.

    None if the Job is suspended. A Job without `completions` creates no new pods after the first success. From then on,
    one pod is enough.
    """
    spec, status = spec_of(manifest), status_of(manifest)
    if spec.get("suspend") is True:
        return None
    pods = _pods_of_job(spec)
    succeeded = pod_count_or_default(status.get("succeeded"))
    if isinstance(spec.get("completions"), int):
        unfinished = (
            pod_count_or_default(spec["completions"])
            - succeeded
            - _indexes(text_or_empty(status.get("failedIndexes")))
        )
    else:
        unfinished = pods if not succeeded else 1
    needed = max(0, min(pods, unfinished))
    return OwnerShape((OwnerPart("", pods, needed, mapping_or_empty(spec.get("template")), pods - needed),))


def _pods_of_job(spec: Manifest) -> int:
    parallelism = pod_count_or_default(spec.get("parallelism"), 1)
    return min(parallelism, pod_count_or_default(spec.get("completions"), parallelism))


def _indexes(intervals: str) -> int:
    """Return the number of indexes in a text such as `1,3-5`."""
    total = 0
    for part in intervals.split(","):
        first, _, last = part.partition("-")
        first_index, last_index = parse_whole_number(first), parse_whole_number(last)
        if first_index is not None:
            total += 1 if last_index is None else max(0, last_index - first_index + 1)
    return total


def jobset_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of a JobSet form a gang: the pod count, minimum and template of each replicated job.

    A replicated job that starts after others has minimum 0. None if the JobSet is suspended or has no replicated job.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True:
        return None
    in_order = mapping_or_empty(spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder"
    done = {
        text_or_empty(status.get("name")): pod_count_or_default(status.get("succeeded"))
        for status in mappings_in(status_of(manifest).get("replicatedJobsStatus"))
    }
    parts: list[OwnerPart] = []
    for index, replicated in enumerate(mappings_in(spec.get("replicatedJobs"))):
        name, jobs = (
            text_or_empty(replicated.get("name")),
            pod_count_or_default(replicated.get("replicas"), 1),
        )
        job_spec = spec_of(mapping_or_empty(replicated.get("template")))
        pods_per_job = _pods_of_job(job_spec)
        later = (in_order and index > 0) or bool(mappings_in(replicated.get("dependsOn")))
        pods = jobs * pods_per_job
        unfinished = max(0, jobs - done.get(name, 0)) * pods_per_job
        template = mapping_or_empty(job_spec.get("template"))
        path = f"spec.replicatedJobs[{index}].template.spec.template"
        parts.append(OwnerPart(name, pods, 0 if later else unfinished, template, pods - unfinished, path))
    return OwnerShape(tuple(parts), (REPLICATED_JOB,)) if parts else None


def leader_worker_set_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of a LeaderWorkerSet form gangs: each leader and its workers are one gang.

    If the workers are created after their leader, the minimum number of pods is 1, otherwise all of them.
    """
    spec = spec_of(manifest)
    template = mapping_or_empty(spec.get("leaderWorkerTemplate"))
    size = pod_count_or_default(template.get("size"), 1)
    annotations = mapping_or_empty(mapping_or_empty(manifest.get("metadata")).get("annotations"))
    leader_first = spec.get("startupPolicy") == "LeaderReady" or EXCLUSIVE in annotations
    name = "leaderTemplate" if mapping_or_empty(template.get("leaderTemplate")) else "workerTemplate"
    pods, path = mapping_or_empty(template.get(name)), f"spec.leaderWorkerTemplate.{name}"
    needed = min(size, 1) if leader_first else size
    return OwnerShape((OwnerPart("", size, needed, pods, field=path),), gang_label=GROUP_INDEX)


def stateful_set_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of a StatefulSet form a gang: all replicas, or None if they start one after the other."""
    spec = spec_of(manifest)
    if spec.get("podManagementPolicy") != "Parallel":
        return None
    replicas = pod_count_or_default(spec.get("replicas"), 1)
    return OwnerShape((OwnerPart("", replicas, replicas, mapping_or_empty(spec.get("template"))),))


ROLES: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_ORDER: Final = ("master", "chief", "launcher", "ps", "worker", "evaluator")
WORKER: Final = "worker"
LAUNCHER: Final = "launcher"


def training_job_shape(manifest: Manifest, field: str) -> OwnerShape | None:
    """Return how the pods of a Kubeflow training job form a gang: the pod count and minimum of each role.

    None if the job is suspended or has no replicas.

    Elastic workers count with their smallest number. The `schedulingPolicy` of the job takes precedence over all rules.

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
    return OwnerShape(tuple(parts), ROLES, wishes=_wishes(run)) if parts else None


def _needed(spec: Manifest, name: str, pods: int) -> int:
    if name == WORKER:
        return pod_count_or_default(mapping_or_empty(spec.get("elasticPolicy")).get("minReplicas"), pods)
    if name == LAUNCHER and spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        return 0
    return pods


def _wishes(run: Manifest) -> dict[str, Any]:
    policy = mapping_or_empty(run.get("schedulingPolicy"))
    wishes: dict[str, Any] = {}
    if pod_count_or_default(policy.get("minAvailable")):
        wishes["minMember"] = policy["minAvailable"]
    if pod_count_or_default(policy.get("scheduleTimeoutSeconds")):
        wishes["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    for policy_field, spec_field in (("queue", "queue"), ("priorityClass", "priorityClassName")):
        if text_or_empty(policy.get(policy_field)):
            wishes[spec_field] = policy[policy_field]
    return wishes


GROUP: Final = "ray.io/group"
HEAD: Final = "headgroup"


def ray_cluster_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of a RayCluster form a gang: the head, and of each worker group at least `minReplicas`.

    None if the RayCluster is suspended or has no head.
    """
    return _cluster(spec_of(manifest), "spec")


def ray_job_shape(manifest: Manifest) -> OwnerShape | None:
    """Return how the pods of the Ray cluster that a RayJob starts form a gang, without the submitter pod.

    The submitter pod is created when the cluster runs. None if the RayJob is suspended or uses an existing cluster.
    """
    spec = spec_of(manifest)
    if spec.get("suspend") is True or mapping_or_empty(spec.get("clusterSelector")):
        return None
    return _cluster(mapping_or_empty(spec.get("rayClusterSpec")), "spec.rayClusterSpec")


def _cluster(spec: Manifest, path: str) -> OwnerShape | None:
    """Return the gang of a Ray cluster, given its spec and the path of the spec in the owner."""
    if spec.get("suspend") is True or not mapping_or_empty(spec.get("headGroupSpec")):
        return None
    head = mapping_or_empty(mapping_or_empty(spec["headGroupSpec"]).get("template"))
    parts = [OwnerPart(HEAD, 1, 1, head, field=f"{path}.headGroupSpec.template")]
    for index, group in enumerate(mappings_in(spec.get("workerGroupSpecs"))):
        if group.get("suspend") is True:
            continue
        least = pod_count_or_default(group.get("minReplicas"))
        replicas = max(least, pod_count_or_default(group.get("replicas"), least))
        hosts = pod_count_or_default(group.get("numOfHosts"), 1)
        template, name = mapping_or_empty(group.get("template")), text_or_empty(group.get("groupName"))
        field_path = f"{path}.workerGroupSpecs[{index}].template"
        parts.append(OwnerPart(name, replicas * hosts, least * hosts, template, field=field_path))
    return OwnerShape(tuple(parts), (GROUP,))


MIN_MEMBER: Final = "scheduling.batchsched.dev/min-member"
PRIORITY_CLASS: Final = "scheduling.batchsched.dev/priority-class"
TOPOLOGY: Final = "scheduling.batchsched.dev/topology"
REQUIRED: Final = "scheduling.batchsched.dev/required-topology"
PREFERRED: Final = "scheduling.batchsched.dev/preferred-topology"
Rule = Callable[[Manifest], OwnerShape | None]


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owner, such as Job, with the rule that derives the gangs of its pods.

    Args:
      name, api_version: as in ownerReferences.
      rule: returns the shape of a gang.
    """

    name: str
    api_version: str
    rule: Rule

    @property
    def group(self) -> str:
        """The API group of the owner kind, such as `batch`."""
        return self.api_version.partition("/")[0]


_MPI_JOB: Final = partial(training_job_shape, field="mpiReplicaSpecs")
"""The training operator and the MPI operator use the same fields."""
OWNERS: Final = (
    OwnerKind("Job", "batch/v1", job_shape),
    OwnerKind("StatefulSet", "apps/v1", stateful_set_shape),
    OwnerKind("JobSet", "jobset.x-k8s.io/v1alpha2", jobset_shape),
    OwnerKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", leader_worker_set_shape),
    OwnerKind("PyTorchJob", "kubeflow.org/v1", partial(training_job_shape, field="pytorchReplicaSpecs")),
    OwnerKind("TFJob", "kubeflow.org/v1", partial(training_job_shape, field="tfReplicaSpecs")),
    OwnerKind("MPIJob", "kubeflow.org/v1", _MPI_JOB),
    OwnerKind("MPIJob", "kubeflow.org/v2beta1", _MPI_JOB),
    OwnerKind("RayCluster", "ray.io/v1", ray_cluster_shape),
    OwnerKind("RayJob", "ray.io/v1", ray_job_shape),
)
OWNER_BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in OWNERS}


@dataclass(frozen=True, slots=True)
class PodGroupTemplate:
    """The template of the PodGroups derived from one owner: their spec, and the labels that divide its pods into gangs.

    Args:
      spec: the spec of each PodGroup.
      pods: the number of pods of one gang.
      sub_group_labels: the first of these labels that a pod has names its subGroup.
      gang_label: pods with different values of this label belong to different gangs; "": all pods are one gang.
      problem: an invalid annotation of the owner, as a sentence; "" without one.
      unsupported_field: an annotation of the owner that batchsched does not support, as a sentence; "" without one.
    """

    spec: PodGroupSpec
    pods: int
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    problem: str = ""
    unsupported_field: str = ""


def derive_pod_group_template(rule: Rule, manifest: Manifest) -> PodGroupTemplate | None:
    """Return the template of the PodGroups that an owner needs, or None if its pods need no PodGroup."""
    shape = rule(manifest)
    if shape is None or shape.pod_count == 0:
        return None
    annotated, problem = _annotated_fields(manifest)
    wishes = {**_queue_of_pods(shape.parts), **shape.wishes, **annotated}
    if shape.pod_count == 1 and not wishes:
        return None
    minimum = sum(part.minimum for part in shape.parts)
    # A product of two numbers of 32 bits, such as replicas and parallelism, may exceed what minMember can be.
    minimum = min(max(1, min(wishes.pop("minMember", minimum), shape.unfinished_count)), LARGEST_INT32)
    fields = {"minMember": minimum, **wishes}
    subs = _sub_groups(shape, minimum)
    try:
        spec = PodGroupSpec.model_validate({**fields, **({"subGroups": subs} if subs else {})})
    except ValidationError as error:
        problem = "; ".join(
            f"{complaint.field}: {complaint.message}" for complaint in field_errors(error, PodGroupSpec)
        )
        spec, subs = PodGroupSpec(min_member=minimum), []
    annotations = mapping_or_empty(mapping_or_empty(manifest.get("metadata")).get("annotations"))
    return PodGroupTemplate(
        spec,
        shape.pod_count,
        shape.sub_group_labels if subs else (),
        shape.gang_label,
        problem,
        unsupported_owner_annotation(annotations, requires_level=spec.requires_level),
    )


def _sub_groups(shape: OwnerShape, minimum: int) -> list[dict[str, Any]]:
    """Return the parts as subGroups. If the gang needs fewer pods than they do, the last parts are reduced first."""
    if not shape.sub_group_labels or not 1 < len(shape.parts) <= MOST_SUBGROUPS:
        return []
    sub_groups: list[dict[str, Any]] = []
    remaining = minimum
    for part in shape.parts:
        needed = min(part.minimum, remaining)
        sub_groups.append({"name": part.name, "minMember": needed})
        remaining -= needed
    return sub_groups


def _annotated_fields(manifest: Manifest) -> tuple[dict[str, Any], str]:
    """Return the fields of PodGroupSpec from annotations and labels of an owner, and an invalid value as a sentence."""
    meta = mapping_or_empty(manifest.get("metadata"))
    marks = {**mapping_or_empty(meta.get("labels")), **mapping_or_empty(meta.get("annotations"))}
    fields: dict[str, Any] = {}
    problem = ""
    if text_or_empty(marks.get(QUEUE_LABEL)):
        fields["queue"] = marks[QUEUE_LABEL]
    if text_or_empty(marks.get(PRIORITY_CLASS)):
        fields["priorityClassName"] = marks[PRIORITY_CLASS]
    least = text_or_empty(marks.get(MIN_MEMBER))
    number = parse_whole_number(least)
    if number is not None and 1 <= number <= LARGEST_INT32:
        fields["minMember"] = number
    elif least:
        problem = (
            f"{MIN_MEMBER}: expected a whole number from 1 to {LARGEST_INT32}, "
            f"found {least[:_MAX_SHOWN_CHARACTERS]!r}"
        )
    levels = {
        "required": text_or_empty(marks.get(REQUIRED)),
        "preferred": text_or_empty(marks.get(PREFERRED)),
    }
    if any(levels.values()):
        name = text_or_empty(marks.get(TOPOLOGY))
        fields["topology"] = {key: value for key, value in (("name", name), *levels.items()) if value}
    return fields, problem


def _queue_of_pods(parts: Sequence[OwnerPart]) -> dict[str, str]:
    named = (text_or_empty(part.labels.get(QUEUE_LABEL)) for part in parts)
    queue = next((name for name in named if name), "")
    return {"queue": queue} if queue else {}
