"""Conversion of the PodGroups of other projects to batchsched PodGroups, and of the labels of their pods."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external import coscheduling, kai, kubernetes, volcano
from batchsched.api.external.coscheduling import CoschedulingPodGroup
from batchsched.api.external.group_tree import TreeGroup
from batchsched.api.external.kai import KAI_QUEUE, KaiPodGroup
from batchsched.api.external.kubernetes import (
    CompositePodGroup,
    UpstreamPodGroup,
    UpstreamV1Alpha3PodGroup,
    UpstreamV1Beta1PodGroup,
)
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, build_pod_group
from batchsched.api.external.volcano import VOLCANO_QUEUE, VolcanoPodGroup
from batchsched.api.snapshot import ObjectKind, api_group

EXTERNAL_KINDS: Final = (
    ObjectKind(
        "PodGroup", "scheduling.x-k8s.io/v1alpha1", CoschedulingPodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind(
        "PodGroup", "scheduling.k8s.io/v1beta1", UpstreamV1Beta1PodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind(
        "PodGroup", "scheduling.k8s.io/v1alpha3", UpstreamV1Alpha3PodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind("PodGroup", "scheduling.k8s.io/v1alpha2", UpstreamPodGroup, "pod_groups", namespaced=True),
    ObjectKind(
        "CompositePodGroup", "scheduling.k8s.io/v1alpha3", CompositePodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind("PodGroup", "scheduling.volcano.sh/v1beta1", VolcanoPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.run.ai/v2alpha2", KaiPodGroup, "pod_groups", namespaced=True),
)
"""External kinds in order of precedence. A batchsched PodGroup of the same name takes precedence over all of them."""
EXTERNAL_KIND_BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in reversed(EXTERNAL_KINDS)}
_VERSIONS: Final = {kind.type: kind.api_version for kind in EXTERNAL_KINDS}


def convert_to_pod_group_or_tree_group(external: ExternalPodGroup) -> PodGroup | TreeGroup:
    """Convert an external PodGroup to a batchsched PodGroup, or to a `TreeGroup` if it is part of a tree.

    A CompositePodGroup of Kubernetes, and a PodGroup that names one as its parent, are parts of a tree. `group_tree`
    converts all groups of a tree to one PodGroup.

    Raises:
      pydantic.ValidationError: the external PodGroup has values that a batchsched PodGroup does not allow.
    """
    if isinstance(external, CompositePodGroup) or (
        isinstance(external, UpstreamPodGroup) and external.spec.parent_composite_pod_group_name
    ):
        return TreeGroup(external, _VERSIONS[type(external)])
    return convert_external_pod_group(external)


def convert_external_pod_group(external: ExternalPodGroup) -> PodGroup:
    """Convert a PodGroup of another project to a batchsched PodGroup.

    Raises:
      pydantic.ValidationError: the external PodGroup has values that a batchsched PodGroup does not allow.
    """
    api_version = _VERSIONS[type(external)]
    unsupported = external.describe_unsupported_field()
    problem = f"PodGroup of {api_group(api_version)}: {unsupported}" if unsupported else ""
    return build_pod_group(external, api_version, external.to_batchsched_spec_fields(), problem=problem)


_READERS: Final[tuple[Callable[[Pod], Marks], ...]] = (
    kubernetes.pod_group_and_subgroup_names,
    coscheduling.pod_group_and_subgroup_names,
    volcano.pod_group_and_subgroup_names,
    kai.pod_group_and_subgroup_names,
)


def with_gang_labels(pod: Pod) -> Pod:
    """Return a pod with batchsched labels for the PodGroup or queue that it names for another scheduler.

    The pod may name them as kube-scheduler, coscheduling, Volcano or KAI-Scheduler expects. A batchsched label that
    names a PodGroup or queue takes precedence. Call this function only for pods of a batchsched profile.
    """
    meta = pod.metadata
    if meta.label(POD_GROUP_LABEL):
        return pod
    for read in _READERS:
        group, sub_group = read(pod)
        if group:
            return with_labels(pod, {POD_GROUP_LABEL: group, SUB_GROUP_LABEL: sub_group or None})
    queue = meta.label(KAI_QUEUE) or meta.annotation(VOLCANO_QUEUE)
    return with_labels(pod, {QUEUE_LABEL: queue}) if queue and not meta.label(QUEUE_LABEL) else pod


def scheduling_group_key(pod: Pod) -> str:
    """Return the `namespace/name` of the PodGroup of Kubernetes that a pod names; "" if it names none."""
    name = pod.scheduling_group_name
    return f"{pod.namespace}/{name}" if name else ""


def with_gang_labels_of_tree(pod: Pod, places: Mapping[str, tuple[str, str]]) -> Pod:
    """Return a pod with the labels of its gang and subgroup if its PodGroup is below a CompositePodGroup.

    Any other pod is returned unchanged.

    Args:
      pod: a pod of a batchsched profile.
      places: the gang and the subgroup of each PodGroup, as in `ConvertedTrees`.
    """
    key = scheduling_group_key(pod)
    own = pod.metadata.label(POD_GROUP_LABEL)
    if key not in places or own not in (None, key.rpartition("/")[2]):
        return pod
    gang, subgroup = places[key]
    return with_labels(pod, {POD_GROUP_LABEL: gang, SUB_GROUP_LABEL: subgroup})


def with_labels(pod: Pod, labels: Mapping[str, str | None]) -> Pod:
    """Return a copy of a pod with these labels set. None leaves a label unchanged."""
    more: Iterable[tuple[str, str]] = ((key, text) for key, text in labels.items() if text is not None)
    return replace(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), **dict(more)}))
