"""From an owner to what its gang needs: a PodGroup's spec, or None where each pod is for itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.crd.podgroup import MOST_SUBGROUPS, PodGroupSpec
from batchsched.api.crd.validation import complaints
from batchsched.podgrouper import kubeflow, ray, workloads
from batchsched.podgrouper.shape import Manifest, PodsOf, Shape, mapping, text

MIN_MEMBER: Final = "scheduling.batchsched.dev/min-member"
PRIORITY_CLASS: Final = "scheduling.batchsched.dev/priority-class"
TOPOLOGY: Final = "scheduling.batchsched.dev/topology"
REQUIRED: Final = "scheduling.batchsched.dev/required-topology"
PREFERRED: Final = "scheduling.batchsched.dev/preferred-topology"
Rule = Callable[[Manifest], Shape | None]


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owner whose pods are gangs.

    Args:
      name, api_version: as ownerReferences state them.
      rule: tells the shape of a gang.
    """

    name: str
    api_version: str
    rule: Rule

    @property
    def group(self) -> str:
        """The API group."""
        return self.api_version.partition("/")[0]


OWNERS: Final = (
    OwnerKind("Job", "batch/v1", workloads.job),
    OwnerKind("StatefulSet", "apps/v1", workloads.stateful_set),
    OwnerKind("JobSet", "jobset.x-k8s.io/v1alpha2", workloads.jobset),
    OwnerKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", workloads.leader_worker_set),
    OwnerKind("PyTorchJob", "kubeflow.org/v1", kubeflow.pytorch_job),
    OwnerKind("TFJob", "kubeflow.org/v1", kubeflow.tf_job),
    OwnerKind("MPIJob", "kubeflow.org/v1", kubeflow.mpi_job),
    OwnerKind("MPIJob", "kubeflow.org/v2beta1", kubeflow.mpi_job),
    OwnerKind("RayCluster", "ray.io/v1", ray.ray_cluster),
    OwnerKind("RayJob", "ray.io/v1", ray.ray_job),
)
GROUPED: Final = frozenset((kind.group, kind.name) for kind in OWNERS)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What the gangs of an owner need.

    Args:
      spec: of each PodGroup.
      pods: that the owner makes for one gang.
      sub_group_labels: labels of pods, the first that is there names the subGroup.
      gang_label: pods with different values of this label are different gangs; "": all are one.
      problem: what its owner states and cannot mean, "" for nothing.
    """

    spec: PodGroupSpec
    pods: int
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    problem: str = ""


def grouping(rule: Rule, manifest: Manifest) -> Grouping | None:
    """Return what an owner's gangs need; None for a gang of one that asks for nothing: it needs no PodGroup."""
    shape = rule(manifest)
    if shape is None or shape.pods == 0:
        return None
    stated, problem = _stated(manifest)
    wishes = {**_queue_of_pods(shape.parts), **shape.wishes, **stated}
    if shape.pods == 1 and not wishes:
        return None
    minimum = sum(part.minimum for part in shape.parts)
    minimum = max(1, min(wishes.pop("minMember", minimum), shape.left))
    fields = {"minMember": minimum, **wishes}
    subs = _sub_groups(shape, minimum)
    try:
        spec = PodGroupSpec.model_validate({**fields, **({"subGroups": subs} if subs else {})})
    except ValidationError as error:
        problem = "; ".join(f"{one.field}: {one.message}" for one in complaints(error, PodGroupSpec))
        spec, subs = PodGroupSpec(min_member=minimum), []
    return Grouping(spec, shape.pods, shape.sub_group_labels if subs else (), shape.gang_label, problem)


def _sub_groups(shape: Shape, minimum: int) -> list[dict[str, Any]]:
    """Return the parts as subGroups that need no more than the gang: the last parts give way first."""
    if not shape.sub_group_labels or not 1 < len(shape.parts) <= MOST_SUBGROUPS:
        return []
    found: list[dict[str, Any]] = []
    left = minimum
    for part in shape.parts:
        needed = min(part.minimum, left)
        found.append({"name": part.name, "minMember": needed})
        left -= needed
    return found


def _stated(manifest: Manifest) -> tuple[dict[str, Any], str]:
    """Return what an owner states for us in annotations or labels, and what of it means nothing."""
    meta = mapping(manifest.get("metadata"))
    marks = {**mapping(meta.get("labels")), **mapping(meta.get("annotations"))}
    found: dict[str, Any] = {}
    problem = ""
    if text(marks.get(QUEUE_LABEL)):
        found["queue"] = marks[QUEUE_LABEL]
    if text(marks.get(PRIORITY_CLASS)):
        found["priorityClassName"] = marks[PRIORITY_CLASS]
    least = text(marks.get(MIN_MEMBER))
    if least.isdecimal() and int(least) > 0:
        found["minMember"] = int(least)
    elif least:
        problem = f"{MIN_MEMBER}: expected a whole number from 1 on, found {least!r}"
    levels = {"required": text(marks.get(REQUIRED)), "preferred": text(marks.get(PREFERRED))}
    if any(levels.values()):
        name = text(marks.get(TOPOLOGY))
        found["topology"] = {key: one for key, one in (("name", name), *levels.items()) if one}
    return found, problem


def _queue_of_pods(parts: Sequence[PodsOf]) -> dict[str, str]:
    named = (text(part.labels.get(QUEUE_LABEL)) for part in parts)
    queue = next((one for one in named if one), "")
    return {"queue": queue} if queue else {}
