"""The kinds of owners of pods with their rules, and the PodGroup that follows from the shape of an owner.

The modules of rules return the shape of an owner. `OwnerGangSettings` combines the shape with the labels and
annotations of the owner, and with those of the owners above it that form no gang themselves, such as a
TrainJob above its JobSet.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from batchsched.api.core.pod import QUEUE_LABEL
from batchsched.api.core.selector import parse_go_integer
from batchsched.api.crd.base import LARGEST_INT32
from batchsched.api.crd.podgroup import MOST_SUBGROUPS, PodGroupSpec
from batchsched.api.crd.validation import field_errors
from batchsched.api.external.annotations import KUEUE_GROUP, topology_from_annotations
from batchsched.api.owner_keys import (
    MIN_MEMBER,
    PREFERRED,
    PRIORITY_CLASS,
    REQUIRED,
    TOPOLOGY,
    unknown_owner_metadata_key_warnings,
)
from batchsched.api.unsupported_fields import OWNER_ANNOTATIONS, describe_unsupported_owner_annotation
from batchsched.podgrouper.grove_rules import (
    grove_variant_and_subgroup,
    pod_clique_set_child_manifests,
    pod_clique_set_gang_shape,
)
from batchsched.podgrouper.ray_rules import (
    ray_cluster_gang_shape,
    ray_job_gang_shape,
    ray_service_child_manifests,
)
from batchsched.podgrouper.shape import (
    MAX_SHOWN_CHARACTERS,
    ColocatedParts,
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_or_empty,
    text_or_empty,
)
from batchsched.podgrouper.spark_rules import spark_application_gang_shape
from batchsched.podgrouper.training_rules import (
    TRAINING_RUNTIMES,
    train_job_child_manifests,
    training_job_gang_shape,
)
from batchsched.podgrouper.workload_rules import (
    deployment_gang_shape,
    job_gang_shape,
    jobset_gang_shape,
    leader_worker_set_gang_shape,
    stateful_set_gang_shape,
)
from batchsched.podgrouper.wrapper_rules import (
    app_wrapper_child_manifests,
    app_wrapper_gang_shape,
    wrapped_pod_gang_shape,
)

Rule = Callable[[Manifest], OwnerGangShape | None]
ChildRule = Callable[[Manifest, Sequence[Manifest]], list[dict[str, Any]]]
"""Returns the objects that the controller of an owner creates, given the owner and the templates that are known."""


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind of owner, such as Job, with the rule that derives the gangs of its pods.

    Args:
      name, api_version: as in ownerReferences.
      rule: returns the shape of a gang.
      children: returns the objects that the controller of an owner creates; None if it creates pods by the shape.
      read_membership: returns the gang variant and the subgroup of a pod from the labels of the pod; None if
        `OwnerGangShape.sub_group_labels` names the subgroup.
      resource: the plural in paths of the API; "" if it is the regular one.
      read_paths: the fields that the rule reads, if it is a rule of the configuration.
    """

    name: str
    api_version: str
    rule: Rule
    children: ChildRule | None = None
    read_membership: Callable[[Mapping[str, str]], tuple[str, str]] | None = None
    resource: str = ""
    read_paths: tuple[tuple[str | int, ...], ...] = ()

    @property
    def group(self) -> str:
        """The API group of the owner kind, such as `batch`."""
        return self.api_version.rpartition("/")[0]


def no_gang_shape(_: Manifest) -> None:
    """Return None: an owner of this kind forms no gang; its labels and annotations apply to owners below it."""


def _shape_of_component(template: Manifest) -> OwnerGangShape | None:
    """Return the shape of a component of an AppWrapper, or None if its kind has no rule."""
    name = (text_or_empty(template.get("apiVersion")).rpartition("/")[0], text_or_empty(template.get("kind")))
    if name == ("", "Pod"):
        return wrapped_pod_gang_shape(template)
    kind = _WRAPPED.get(name)
    return kind.rule(template) if kind is not None else None


_MPI_JOB: Final = partial(training_job_gang_shape, field="mpiReplicaSpecs")
"""The training operator and the MPI operator use the same fields."""
_UNWRAPPED: Final = (
    OwnerKind("Job", "batch/v1", job_gang_shape),
    OwnerKind("StatefulSet", "apps/v1", stateful_set_gang_shape),
    OwnerKind("Deployment", "apps/v1", deployment_gang_shape),
    OwnerKind("ReplicaSet", "apps/v1", deployment_gang_shape),
    OwnerKind("JobSet", "jobset.x-k8s.io/v1alpha2", jobset_gang_shape),
    OwnerKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", leader_worker_set_gang_shape),
    OwnerKind("TrainJob", "trainer.kubeflow.org/v1alpha1", no_gang_shape, train_job_child_manifests),
    OwnerKind("PyTorchJob", "kubeflow.org/v1", partial(training_job_gang_shape, field="pytorchReplicaSpecs")),
    OwnerKind("TFJob", "kubeflow.org/v1", partial(training_job_gang_shape, field="tfReplicaSpecs")),
    OwnerKind("JAXJob", "kubeflow.org/v1", partial(training_job_gang_shape, field="jaxReplicaSpecs")),
    OwnerKind("XGBoostJob", "kubeflow.org/v1", partial(training_job_gang_shape, field="xgbReplicaSpecs")),
    OwnerKind("PaddleJob", "kubeflow.org/v1", partial(training_job_gang_shape, field="paddleReplicaSpecs")),
    OwnerKind("MPIJob", "kubeflow.org/v1", _MPI_JOB),
    OwnerKind("MPIJob", "kubeflow.org/v2beta1", _MPI_JOB),
    OwnerKind("RayCluster", "ray.io/v1", ray_cluster_gang_shape),
    OwnerKind("RayJob", "ray.io/v1", ray_job_gang_shape),
    OwnerKind("RayService", "ray.io/v1", no_gang_shape, ray_service_child_manifests),
    OwnerKind("SparkApplication", "sparkoperator.k8s.io/v1beta2", spark_application_gang_shape),
    OwnerKind("Workflow", "argoproj.io/v1alpha1", no_gang_shape),
    OwnerKind(
        "PodCliqueSet",
        "grove.io/v1alpha1",
        pod_clique_set_gang_shape,
        pod_clique_set_child_manifests,
        grove_variant_and_subgroup,
    ),
)
_WRAPPED: Final = {(kind.group, kind.name): kind for kind in _UNWRAPPED}
OWNERS: Final = (
    *_UNWRAPPED,
    OwnerKind(
        "AppWrapper",
        "workload.codeflare.dev/v1beta2",
        partial(app_wrapper_gang_shape, rule_of=_shape_of_component),
        app_wrapper_child_manifests,
    ),
)


@dataclass(frozen=True, slots=True)
class OwnerKinds:
    """The kinds of owners that form gangs: the built-in kinds and the kinds of the configuration.

    Args:
      configured: the kinds of the configuration. They replace kinds of the same group and name.
    """

    configured: tuple[OwnerKind, ...] = ()
    all: tuple[OwnerKind, ...] = field(init=False)
    by_group_and_name: Mapping[tuple[str, str], OwnerKind] = field(init=False)

    def __post_init__(self) -> None:
        replaced = {(kind.group, kind.name) for kind in self.configured}
        built_in = [kind for kind in OWNERS if (kind.group, kind.name) not in replaced]
        object.__setattr__(self, "all", (*built_in, *self.configured))
        # Of several versions, the last one counts.
        object.__setattr__(self, "by_group_and_name", {(kind.group, kind.name): kind for kind in self.all})

    @property
    def names(self) -> frozenset[str]:
        """The names of the owner kinds, without their API groups."""
        return frozenset(kind.name for kind in self.all)

    @property
    def kinds_read_from_files(self) -> tuple[tuple[str, str], ...]:
        """The API group and name of each kind that is read from files: owners, and runtimes of TrainJobs."""
        return (*self.by_group_and_name, *TRAINING_RUNTIMES)


KNOWN_OWNER_KINDS: Final = OwnerKinds()
"""The kinds of owners without a configuration."""


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
      variants: the specs of the PodGroups of other gangs of the owner, by the name of the variant.
    """

    spec: PodGroupSpec
    pods: int
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    problem: str = ""
    unsupported_field: str = ""
    variants: Mapping[str, PodGroupSpec] = field(default_factory=dict)

    def pod_group_spec_of_variant(self, variant: str) -> PodGroupSpec:
        """Return the PodGroup spec for a gang variant of the owner; variant "" is the first gang."""
        return self.variants.get(variant, self.spec)


@dataclass(frozen=True, slots=True)
class OwnerGangSettings:
    """The properties of an owner, such as a Job, that determine the PodGroups of its pods.

    Args:
      shape: the shape of its gangs, without pod templates; None if its pods form no gang.
      pod_queue: the queue that a pod template names, "" without one.
      stated_fields: fields of PodGroupSpec from labels and annotations of the owner.
      annotations: annotations of other schedulers that batchsched does not support, with their values.
      problem: an invalid label or annotation of the owner, as a sentence; "" without one.
      warnings: labels and annotations of the owner that have no effect as written, as sentences.
    """

    shape: OwnerGangShape | None
    pod_queue: str
    stated_fields: Manifest
    annotations: Mapping[str, object]
    problem: str
    warnings: tuple[str, ...] = ()

    def build_pod_group_template(self, inherited: Manifest) -> PodGroupTemplate | None:
        """Return the template of the PodGroups of the owner, or None if its pods need no PodGroup.

        Args:
          inherited: fields of PodGroupSpec from owners above. The owner's own fields take precedence.
        """
        shape = self.shape
        if shape is None or shape.pod_count_per_gang == 0:
            return None
        metadata_fields = {**inherited, **self.stated_fields}
        queue = {"queue": self.pod_queue} if self.pod_queue else {}
        fields = {**queue, **shape.spec_fields, **metadata_fields}
        levels = {**shape.spec_fields.get("topology", {}), **metadata_fields.get("topology", {})}
        fields |= {"topology": levels} if levels else {}
        if not (metadata_fields if shape.is_optional else shape.pod_count_per_gang > 1 or fields):
            return None
        spec, problem = _spec_of(shape, fields)
        # A stated minimum is one of the first gang.
        without_minimum = {name: value for name, value in metadata_fields.items() if name != "minMember"}
        variants = {
            name: _spec_of(
                OwnerGangShape(variant.parts, shape.sub_group_labels),
                {**queue, **variant.spec_fields, **without_minimum},
            )
            for name, variant in shape.variants.items()
        }
        problems = (self.problem, shape.problem, problem, *(problem for _, problem in variants.values()))
        return PodGroupTemplate(
            spec,
            shape.pod_count_per_gang,
            shape.sub_group_labels if spec.sub_groups else (),
            shape.gang_label,
            next(filter(None, problems), ""),
            # Without the topology that they require, the pods would start in the wrong domain.
            f"the topology of its owner is invalid: {problem}"
            if problem and (levels or any(part.topology for part in shape.parts))
            else describe_unsupported_owner_annotation(
                self.annotations, requires_level=spec.requires_topology_level
            ),
            {name: variant_spec for name, (variant_spec, _) in variants.items()},
        )


def read_owner_gang_settings(rule: Rule, manifest: Manifest) -> OwnerGangSettings:
    """Read from an owner, such as a Job, the properties that determine the PodGroups of its pods."""
    shape = rule(manifest)
    metadata = mapping_or_empty(manifest.get("metadata"))
    annotations = mapping_or_empty(metadata.get("annotations"))
    annotated, problem = _annotated_fields(manifest)
    return OwnerGangSettings(
        with_topology_of_annotations(shape, annotations).without_pod_templates()
        if shape is not None
        else None,
        _queue_of_pods(shape.parts) if shape is not None else "",
        annotated,
        {key: annotations[key] for key in OWNER_ANNOTATIONS if key in annotations},
        problem,
        (*unknown_owner_metadata_key_warnings(metadata), *_excessive_minimum(shape, annotated)),
    )


def _excessive_minimum(shape: OwnerGangShape | None, stated_fields: Manifest) -> Iterator[str]:
    """Yield a sentence if an owner states a larger minimum than a gang has pods, finished ones included."""
    minimum = stated_fields.get("minMember", 0)
    if shape is not None and 0 < shape.pod_count_per_gang < minimum:
        yield (
            f"{MIN_MEMBER}: found {minimum}, but a gang of the owner has {shape.pod_count_per_gang} pods; "
            f"expected {shape.pod_count_per_gang} or less"
        )


def with_topology_of_annotations(shape: OwnerGangShape, annotations: Manifest) -> OwnerGangShape:
    """Return a copy of an owner's gang shape, with the topology that annotations of Kueue or KAI request.

    The annotations are those of the owner and of its pod templates. Fields that the shape already states have
    precedence.

    Parts that state one group of Kueue are in one domain together.
    """
    spec_fields = dict(shape.spec_fields)
    of_owner = topology_from_annotations(annotations)
    if of_owner:
        spec_fields["topology"] = {**of_owner, **spec_fields.get("topology", {})}
    parts, groups = [], {group.name: group for group in shape.groups}
    for part in shape.parts:
        stated_topology = topology_from_annotations(part.template_annotations)
        group = text_or_empty(part.template_annotations.get(KUEUE_GROUP))
        if group and stated_topology and not part.parent:
            groups[group] = ColocatedParts(group, stated_topology)
            part = replace(part, parent=group)
        elif stated_topology:
            part = replace(part, topology={**stated_topology, **part.topology})
        parts.append(part)
    if len(parts) == 1:  # a single part is no subGroup, so its topology is that of the gang
        (part,) = parts
        of_group = groups[part.parent].topology if part.parent in groups else {}
        levels = {**spec_fields.get("topology", {}), **of_group, **part.topology}
        spec_fields |= {"topology": levels} if levels else {}
    return replace(shape, parts=tuple(parts), groups=tuple(groups.values()), spec_fields=spec_fields)


def _spec_of(shape: OwnerGangShape, spec_fields: Manifest) -> tuple[PodGroupSpec, str]:
    """Return the spec of a PodGroup, and a sentence about a value that the spec does not allow."""
    fields = dict(spec_fields)
    minimum = sum(part.minimum for part in shape.parts)
    most = shape.unfinished_pod_count_per_gang if shape.most_member is None else shape.most_member
    # A product of two numbers of 32 bits, such as replicas and parallelism, may exceed what minMember can be.
    minimum = min(max(1, min(fields.pop("minMember", minimum), most)), LARGEST_INT32)
    sub_groups = _sub_groups(shape, minimum)
    spec = {"minMember": minimum, **fields, **({"subGroups": sub_groups} if sub_groups else {})}
    try:
        return PodGroupSpec.model_validate(spec), ""
    except ValidationError as error:
        complaints = field_errors(error, PodGroupSpec)
        problem = "; ".join(map(str, complaints))
        return PodGroupSpec(min_member=minimum), problem


def _sub_groups(shape: OwnerGangShape, minimum: int) -> list[dict[str, Any]]:
    """Return the parts as subGroups, with lower minimums of the last ones if the gang needs fewer pods."""
    if not shape.sub_group_labels or not 1 < len(shape.parts) <= MOST_SUBGROUPS:
        return []
    sub_groups: list[dict[str, Any]] = [
        {"name": group.name, "topology": dict(group.topology)} for group in shape.groups
    ]
    remaining = minimum
    for part in shape.parts:
        needed = min(part.minimum, remaining)
        sub_group: dict[str, Any] = {"name": part.name, "minMember": needed}
        if part.parent:
            sub_group["parent"] = part.parent
        if part.topology:
            sub_group["topology"] = dict(part.topology)
        sub_groups.append(sub_group)
        remaining -= needed
    return sub_groups


def _annotated_fields(manifest: Manifest) -> tuple[dict[str, Any], str]:
    """Return the fields of PodGroupSpec from the keys of an owner, and a sentence about an invalid value."""
    meta = mapping_or_empty(manifest.get("metadata"))
    marks = {**mapping_or_empty(meta.get("labels")), **mapping_or_empty(meta.get("annotations"))}
    fields: dict[str, Any] = {}
    problem = ""
    if text_or_empty(marks.get(QUEUE_LABEL)):
        fields["queue"] = marks[QUEUE_LABEL]
    if text_or_empty(marks.get(PRIORITY_CLASS)):
        fields["priorityClassName"] = marks[PRIORITY_CLASS]
    least = text_or_empty(marks.get(MIN_MEMBER))
    number = parse_go_integer(least)
    if number is not None and 1 <= number <= LARGEST_INT32:
        fields["minMember"] = number
    elif least:
        problem = (
            f"{MIN_MEMBER}: expected a whole number from 1 to {LARGEST_INT32}, "
            f"found {least[:MAX_SHOWN_CHARACTERS]!r}; the default minimum applies"
        )
    levels = {
        "required": text_or_empty(marks.get(REQUIRED)),
        "preferred": text_or_empty(marks.get(PREFERRED)),
    }
    name = text_or_empty(marks.get(TOPOLOGY))
    if name or any(levels.values()):
        fields["topology"] = {key: value for key, value in (("name", name), *levels.items()) if value}
    return fields, problem


def _queue_of_pods(parts: Iterable[OwnerPart]) -> str:
    named = (text_or_empty(part.template_labels.get(QUEUE_LABEL)) for part in parts)
    return next((name for name in named if name), "")
