"""The rules that derive the spec of a PodGroup from an owner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.crd.podgroup import MOST_SUBGROUPS, PodGroupSpec
from batchsched.api.crd.validation import complaints
from batchsched.podgrouper import shapes
from batchsched.podgrouper.shapes import Manifest, OwnerPart, Shape, mapping, text

MIN_MEMBER: Final = "scheduling.batchsched.dev/min-member"
PRIORITY_CLASS: Final = "scheduling.batchsched.dev/priority-class"
TOPOLOGY: Final = "scheduling.batchsched.dev/topology"
REQUIRED: Final = "scheduling.batchsched.dev/required-topology"
PREFERRED: Final = "scheduling.batchsched.dev/preferred-topology"
Rule = Callable[[Manifest], Shape | None]


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owner with pods that form gangs.

    Args:
      name, api_version: as in ownerReferences.
      rule: returns the shape of a gang.
    """

    name: str
    api_version: str
    rule: Rule

    @property
    def group(self) -> str:
        """The API group."""
        return self.api_version.partition("/")[0]


_MPI_JOB: Final = partial(shapes.training_job, field="mpiReplicaSpecs")
"""The training operator and the MPI operator use the same fields."""
OWNERS: Final = (
    OwnerKind("Job", "batch/v1", shapes.job),
    OwnerKind("StatefulSet", "apps/v1", shapes.stateful_set),
    OwnerKind("JobSet", "jobset.x-k8s.io/v1alpha2", shapes.jobset),
    OwnerKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", shapes.leader_worker_set),
    OwnerKind("PyTorchJob", "kubeflow.org/v1", partial(shapes.training_job, field="pytorchReplicaSpecs")),
    OwnerKind("TFJob", "kubeflow.org/v1", partial(shapes.training_job, field="tfReplicaSpecs")),
    OwnerKind("MPIJob", "kubeflow.org/v1", _MPI_JOB),
    OwnerKind("MPIJob", "kubeflow.org/v2beta1", _MPI_JOB),
    OwnerKind("RayCluster", "ray.io/v1", shapes.ray_cluster),
    OwnerKind("RayJob", "ray.io/v1", shapes.ray_job),
)
GROUPED: Final = frozenset((kind.group, kind.name) for kind in OWNERS)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The needs of the gangs of one owner.

    Args:
      spec: the spec of each PodGroup.
      pods: the number of pods of one gang.
      sub_group_labels: the first of these labels that a pod has names its subGroup.
      gang_label: pods with different values of this label belong to different gangs; "": all pods are one gang.
      problem: an invalid annotation of the owner, as a sentence; "" without one.
    """

    spec: PodGroupSpec
    pods: int
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    problem: str = ""


def grouping(rule: Rule, manifest: Manifest) -> Grouping | None:
    """Return the needs of an owner's gangs, or None if its pods need no PodGroup, such as a single plain pod."""
    shape = rule(manifest)
    if shape is None or shape.pods == 0:
        return None
    annotated, problem = _annotated_fields(manifest)
    wishes = {**_queue_of_pods(shape.parts), **shape.wishes, **annotated}
    if shape.pods == 1 and not wishes:
        return None
    minimum = sum(part.minimum for part in shape.parts)
    minimum = max(1, min(wishes.pop("minMember", minimum), shape.unfinished))
    fields = {"minMember": minimum, **wishes}
    subs = _sub_groups(shape, minimum)
    try:
        spec = PodGroupSpec.model_validate({**fields, **({"subGroups": subs} if subs else {})})
    except ValidationError as error:
        problem = "; ".join(
            f"{complaint.field}: {complaint.message}" for complaint in complaints(error, PodGroupSpec)
        )
        spec, subs = PodGroupSpec(min_member=minimum), []
    return Grouping(spec, shape.pods, shape.sub_group_labels if subs else (), shape.gang_label, problem)


def _sub_groups(shape: Shape, minimum: int) -> list[dict[str, Any]]:
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
    meta = mapping(manifest.get("metadata"))
    marks = {**mapping(meta.get("labels")), **mapping(meta.get("annotations"))}
    fields: dict[str, Any] = {}
    problem = ""
    if text(marks.get(QUEUE_LABEL)):
        fields["queue"] = marks[QUEUE_LABEL]
    if text(marks.get(PRIORITY_CLASS)):
        fields["priorityClassName"] = marks[PRIORITY_CLASS]
    least = text(marks.get(MIN_MEMBER))
    if least.isdecimal() and int(least) > 0:
        fields["minMember"] = int(least)
    elif least:
        problem = f"{MIN_MEMBER}: expected a whole number from 1 on, found {least!r}"
    levels = {"required": text(marks.get(REQUIRED)), "preferred": text(marks.get(PREFERRED))}
    if any(levels.values()):
        name = text(marks.get(TOPOLOGY))
        fields["topology"] = {key: value for key, value in (("name", name), *levels.items()) if value}
    return fields, problem


def _queue_of_pods(parts: Sequence[OwnerPart]) -> dict[str, str]:
    named = (text(part.labels.get(QUEUE_LABEL)) for part in parts)
    queue = next((name for name in named if name), "")
    return {"queue": queue} if queue else {}
