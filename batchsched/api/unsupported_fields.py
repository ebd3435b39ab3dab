"""Fields of pods and owners that ask for something that batchsched does not support.

If such a field were ignored, pods would start without a device, or a gang outside the topology domain that it requires.
So a pending gang with such a field is refused with the reason UnsupportedField, and the message names the field.
`api.external` finds the unsupported fields of PodGroups of other schedulers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod, PodSpec
from batchsched.api.crd.podgroup import PodGroup, SubGroupTopology, TopologyRequest

UNSUPPORTED_FIELD: Final = "scheduling.batchsched.dev/unsupported-field"
"""Annotation of a PodGroup that was derived from another object: an unsupported field of that object, as a sentence."""
KUEUE_PLACED: Final = "kueue.x-k8s.io/tas"
"""Label by which Kueue marks pods that it assigns to topology domains itself, by node selectors."""


def describe_unsupported_pod_spec_field(spec: PodSpec, *, allocates_devices: bool = False) -> str:
    """Return a sentence about a field of a pod's spec that batchsched does not support; "" if there is none.

    Args:
      spec: the spec of a pending pod.
      allocates_devices: whether batchsched allocates ResourceClaims; otherwise `resourceClaims` is not supported.
    """
    if spec.resource_claims and not allocates_devices:
        return (
            "spec.resourceClaims: the ResourceClaims of the cluster are unknown, because the API server does not serve "
            "resource.k8s.io/v1 or does not permit to list resourceclaims"
        )
    if spec.workload_ref is not None:
        return (
            "spec.workloadRef: the Workload API of Kubernetes 1.35 is not supported; name a PodGroup in "
            "spec.schedulingGroup, or in the label scheduling.batchsched.dev/pod-group"
        )
    return ""


@dataclass(frozen=True, slots=True)
class UnsupportedAnnotation:
    """A pod annotation of another scheduler that states a constraint which batchsched does not support.

    Args:
      key: the annotation.
      meaning: what it asks for.
      remedy: what the user can do.
      met_by_kueue: Kueue keeps the constraint if it assigns the pod to a topology domain.
      met_by_level: the constraint is kept if the PodGroup of the gang, or the subGroup of the pod, requires a level.
      met_by_slices: the constraint is kept if the PodGroup of the gang, or the subGroup of the pod, has slices.
      met_by_gang: the constraint is kept if the pod has a PodGroup.
    """

    key: str
    meaning: str
    remedy: str
    met_by_kueue: bool = False
    met_by_level: bool = False
    met_by_slices: bool = False
    met_by_gang: bool = False

    def is_met_by_other_means(self, pod: Pod, pod_group: PodGroup | None) -> bool:
        """Return whether Kueue or the pod's PodGroup ensures the constraint that the annotation states."""
        return (
            # Until Kueue has set the node selector of such a pod, a scheduling gate holds the pod.
            (self.met_by_kueue and KUEUE_PLACED in pod.labels)
            or (self.met_by_level and any(topology.required for topology in _topologies(pod, pod_group)))
            or (self.met_by_slices and any(topology.slices for topology in _topologies(pod, pod_group)))
            or (self.met_by_gang and pod_group is not None)
        )


def _topologies(pod: Pod, pod_group: PodGroup | None) -> Iterator[TopologyRequest | SubGroupTopology]:
    """Yield the topologies that apply to a pod: of its PodGroup, its subGroup and the subGroups above that one."""
    if pod_group is None:
        return
    if pod_group.spec.topology is not None:
        yield pod_group.spec.topology
    sub_groups = {sub.name: sub for sub in pod_group.spec.sub_groups}
    name = pod.labels.get(SUB_GROUP_LABEL)
    # Each name is followed once, so that a cycle ends.
    while name is not None and (sub := sub_groups.pop(name, None)) is not None:
        if sub.topology is not None:
            yield sub.topology
        name = sub.parent


def describe_unsupported_pod_annotation(pod: Pod, pod_group: PodGroup | None) -> str:
    """Return a sentence about an annotation of a pod that batchsched does not support; "" if there is none.

    Args:
      pod: a pending pod.
      pod_group: the PodGroup of its gang; None for a pod without a gang.
    """
    annotations = pod.metadata.annotations
    if not annotations or UNSUPPORTED_ANNOTATIONS.keys().isdisjoint(annotations):
        return ""
    for key, annotation in UNSUPPORTED_ANNOTATIONS.items():
        if key in annotations and not annotation.is_met_by_other_means(pod, pod_group):
            return f"metadata.annotations[{key}]: {annotation.meaning}; {annotation.remedy}"
    return ""


def describe_unsupported_owner_annotation(annotations: Mapping[str, object], *, requires_level: bool) -> str:
    """Return a sentence about an unsupported annotation of an owner, such as a Job; "" if there is none.

    KAI reads these annotations from owners as well as from pods.

    Args:
      annotations: the annotations of the owner.
      requires_level: whether the PodGroup of the owner requires a topology level.
    """
    for key in OWNER_ANNOTATIONS:
        if key in annotations and not (key == _KAI_TOPOLOGY and requires_level):
            annotation = UNSUPPORTED_ANNOTATIONS[key]
            return f"metadata.annotations[{key}] of the owner: {annotation.meaning}; {annotation.remedy}"
    return ""


_STATE_TOPOLOGY: Final = (
    "state spec.topology.required in a PodGroup, or the annotation scheduling.batchsched.dev/required-topology on the "
    "owner of the pod"
)
_SLICES: Final = (
    "parts of the gang are each to be in one topology domain, and batchsched does not read such parts"
)
_STATE_SUB_GROUPS: Final = "remove the annotation, and state subGroups with a topology in a PodGroup"
_KAI_TOPOLOGY: Final = "kai.scheduler/topology-required-placement"
_KAI_SEGMENT_TOPOLOGY: Final = "kai.scheduler/segment-topology-required-placement"
OWNER_ANNOTATIONS: Final = (_KAI_TOPOLOGY, _KAI_SEGMENT_TOPOLOGY)
"""Annotations that KAI reads from owners, such as Jobs, as well as from pods."""
_FRACTION: Final = "the pod asks for a part of a GPU, and batchsched assigns whole devices only"
_WHOLE_DEVICE: Final = "remove the annotation, and request nvidia.com/gpu"
_ANNOTATIONS: Final = (
    UnsupportedAnnotation(
        "kueue.x-k8s.io/podset-required-topology",
        "the pods are to be in one topology domain, and Kueue has not assigned them to one",
        _STATE_TOPOLOGY,
        met_by_kueue=True,
        met_by_level=True,
    ),
    UnsupportedAnnotation(
        "kueue.x-k8s.io/podset-slice-required-topology",
        "parts of the gang are each to be in one topology domain, and no number of pods in a part is known",
        "state the annotation kueue.x-k8s.io/podset-slice-size, a whole number above 0, in the pod template of the "
        "owner, or topology.slices in a PodGroup",
        met_by_kueue=True,
        met_by_slices=True,
    ),
    UnsupportedAnnotation(
        "kueue.x-k8s.io/podset-slice-required-topology-constraints",
        _SLICES,
        _STATE_SUB_GROUPS,
        met_by_kueue=True,
    ),
    UnsupportedAnnotation(
        _KAI_TOPOLOGY,
        "the pods are to be in one topology domain, and no PodGroup says so",
        _STATE_TOPOLOGY,
        met_by_level=True,
    ),
    UnsupportedAnnotation(_KAI_SEGMENT_TOPOLOGY, _SLICES, _STATE_SUB_GROUPS),
    UnsupportedAnnotation("gpu-fraction", _FRACTION, _WHOLE_DEVICE),
    UnsupportedAnnotation("gpu-memory", _FRACTION, _WHOLE_DEVICE),
    UnsupportedAnnotation(
        "gang.scheduling.koordinator.sh/name",
        "batchsched does not read gangs of Koordinator, and the pod has no PodGroup",
        "create a PodGroup, and name it in the label scheduling.batchsched.dev/pod-group",
        met_by_gang=True,
    ),
    UnsupportedAnnotation(
        "yunikorn.apache.org/task-groups",
        "batchsched does not read gangs of YuniKorn, and the pod has no PodGroup",
        "create a PodGroup, and name it in the label scheduling.batchsched.dev/pod-group",
        met_by_gang=True,
    ),
)
UNSUPPORTED_ANNOTATIONS: Final = {annotation.key: annotation for annotation in _ANNOTATIONS}
"""The unsupported annotations of pods by key, in the order in which they are reported."""
