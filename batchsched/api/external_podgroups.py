"""PodGroups of other projects, and their conversion to batchsched PodGroups. No other module converts them.

The module reads the PodGroups of coscheduling, Kubernetes, Volcano and KAI, and the labels and annotations by which
their pods join. A hard constraint without a counterpart, such as `networkTopology` of Volcano, is never dropped: the
converted PodGroup names its field in the annotation `UNSUPPORTED_FIELD`, and its gang is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace
from typing_extensions import override

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Amounts, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import ObjectKind, api_group
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD

SOURCE: Final = "scheduling.batchsched.dev/source"
"""Annotation of a converted PodGroup with the API version of its source. Such a PodGroup does not exist in the API."""
SOURCE_UID: Final = "scheduling.batchsched.dev/source-uid"
"""Annotation of a converted PodGroup with the uid of its source."""
UPSTREAM: Final = "scheduling.k8s.io"
UPSTREAM_CONDITIONS: Final = {
    f"{UPSTREAM}/v1alpha2": "PodGroupScheduled",
    f"{UPSTREAM}/v1alpha3": "PodGroupInitiallyScheduled",
    f"{UPSTREAM}/v1beta1": "PodGroupInitiallyScheduled",
}
"""Condition by which PodGroups of Kubernetes state whether they were scheduled, by API version."""
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
KAI_ANNOTATION: Final = "pod-group-name"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
KAI_QUEUE: Final = "kai.scheduler/queue"

Spec = dict[str, Any]


class ExternalPodGroup(KubernetesObject, frozen=True, gc=False):
    """The base class of the PodGroups of other projects, such as Volcano.

    To read another kind, add a subclass here, an entry in `EXTERNAL_KINDS`, and a reader of its labels in `_READERS`.
    """

    def batchsched_fields(self) -> Spec:
        """Return this PodGroup as fields of a batchsched PodGroup spec. None means an absent field."""
        raise NotImplementedError

    def unsupported_field(self) -> str:
        """Return a sentence about a hard constraint of this PodGroup that batchsched cannot keep; "" if none."""
        return ""


class CoschedulingSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a coscheduling PodGroup (`scheduling.x-k8s.io/v1alpha1`)."""

    min_member: int = 1
    min_resources: Amounts | None = None
    schedule_timeout_seconds: int | None = None


class CoschedulingPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of the coscheduling plugin."""

    spec: CoschedulingSpec = CoschedulingSpec()

    @override
    def batchsched_fields(self) -> Spec:
        """Return the coscheduling PodGroup as fields of a batchsched PodGroup spec."""
        spec = self.spec
        return {
            "minMember": max(1, spec.min_member),
            "minResources": spec.min_resources,
            "scheduleTimeoutSeconds": spec.schedule_timeout_seconds,
        }


class GangPolicy(KubernetesValue, frozen=True, gc=False):
    """The scheduling policy `gang` of a Kubernetes PodGroup, with the minimum number of pods."""

    min_count: int = 1


class SchedulingPolicy(KubernetesValue, frozen=True, gc=False):
    """The scheduling policy of a Kubernetes PodGroup: `gang`, or `basic`, which means that its pods are no gang."""

    gang: GangPolicy | None = None


class UpstreamTopologyConstraint(KubernetesValue, frozen=True, gc=False):
    """The constraint that all pods of a Kubernetes PodGroup run on nodes with the same value of a label."""

    key: str = ""


class UpstreamConstraints(KubernetesValue, frozen=True, gc=False):
    """The topology constraints of a Kubernetes PodGroup."""

    topology: tuple[UpstreamTopologyConstraint, ...] | None = None


class UpstreamSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a Kubernetes PodGroup (`scheduling.k8s.io`): v1alpha2 of 1.36, or v1alpha3 and v1beta1 of 1.37."""

    parent_composite_pod_group_name: str = ""
    resource_claims: tuple[dict[str, Any], ...] | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: UpstreamConstraints | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    disruption_mode: str | dict[str, Any] | None = None


class UpstreamStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a Kubernetes PodGroup (`scheduling.k8s.io`)."""

    conditions: tuple[dict[str, Any], ...] | None = None


class UpstreamPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes itself (`scheduling.k8s.io`)."""

    spec: UpstreamSpec = UpstreamSpec()
    status: UpstreamStatus = UpstreamStatus()

    @override
    def batchsched_fields(self) -> Spec:
        """Return the Kubernetes PodGroup as fields of a batchsched PodGroup spec.

        Topology keys (node labels) become level names. Without a disruption mode, pods are evicted one by one.

        Source: `PodGroupSpec` of k8s.io/api/scheduling/v1beta1, where the default of `disruptionMode` is `single`.
        """
        spec = self.spec
        gang = spec.scheduling_policy.gang
        keys = self._topology_keys()
        whole = spec.disruption_mode == "PodGroup" or (
            isinstance(spec.disruption_mode, dict) and "all" in spec.disruption_mode
        )
        return {
            "minMember": max(1, gang.min_count) if gang is not None else 1,
            "topology": {"required": keys[0].key} if keys and keys[0].key else None,
            "priorityClassName": spec.priority_class_name or None,
            "preemptionPolicy": spec.preemption_policy,
            "disruptionMode": "Gang" if whole else "Elastic",
        }

    def _topology_keys(self) -> tuple[UpstreamTopologyConstraint, ...]:
        return (self.spec.scheduling_constraints or UpstreamConstraints()).topology or ()

    @override
    def unsupported_field(self) -> str:
        """Return a sentence about the first field that is not supported, such as a resource claim; "" if none."""
        if self.spec.parent_composite_pod_group_name:
            return (
                "spec.parentCompositePodGroupName: batchsched does not read CompositePodGroups, and would place this "
                "part without the others; use one PodGroup with subGroups"
            )
        if self.spec.resource_claims:
            return "spec.resourceClaims: batchsched allocates no ResourceClaims; remove them"
        if len(self._topology_keys()) > 1:
            return "spec.schedulingConstraints.topology[1]: batchsched keeps one topology constraint; remove the others"
        return ""


class UpstreamAlphaPodGroup(UpstreamPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes in v1alpha3, which has the fields of v1beta1."""


class UpstreamBetaPodGroup(UpstreamPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes in v1beta1, which calls its condition `PodGroupInitiallyScheduled`."""


class VolcanoTopology(KubernetesValue, frozen=True, gc=False):
    """The network topology of a Volcano PodGroup, as tiers of HyperNodes: `hard` is required, `soft` preferred."""

    mode: str = "hard"


class VolcanoSubGroupPolicy(KubernetesValue, frozen=True, gc=False):
    """A subgroup policy of a Volcano PodGroup: pods that form subgroups, which may have a network topology."""

    network_topology: VolcanoTopology | None = None
    min_sub_groups: int | None = None


class VolcanoSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a Volcano PodGroup (`scheduling.volcano.sh/v1beta1`)."""

    min_member: int = 1
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Amounts | None = None
    network_topology: VolcanoTopology | None = None
    sub_group_policy: tuple[VolcanoSubGroupPolicy, ...] | None = None


class VolcanoPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of Volcano."""

    spec: VolcanoSpec = VolcanoSpec()

    @override
    def batchsched_fields(self) -> Spec:
        """Return the Volcano PodGroup as fields of a batchsched PodGroup spec. Tasks become subGroups."""
        spec = self.spec
        tasks = spec.min_task_member or {}
        return {
            **_minimum(spec.min_member, [{"name": name, "minMember": tasks[name]} for name in sorted(tasks)]),
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "minResources": spec.min_resources,
        }

    @override
    def unsupported_field(self) -> str:
        """Return a sentence about the first required network topology or `minSubGroups`; "" if there is none."""
        spec = self.spec
        if _is_hard(spec.network_topology):
            return f"spec.networkTopology: {_NO_HYPER_NODES}"
        for index, policy in enumerate(spec.sub_group_policy or ()):
            if _is_hard(policy.network_topology):
                return f"spec.subGroupPolicy[{index}].networkTopology: {_NO_HYPER_NODES}"
            if policy.min_sub_groups:
                return (
                    f"spec.subGroupPolicy[{index}].minSubGroups: batchsched does not read subgroups that labels of "
                    "pods define; use minTaskMember, or a PodGroup of batchsched with subGroups"
                )
        return ""


_NO_HYPER_NODES: Final = (
    "the mode is hard, and batchsched does not read HyperNodes; use a Topology, and spec.topology.required in a "
    "PodGroup of batchsched"
)


def _is_hard(topology: VolcanoTopology | None) -> bool:
    return topology is not None and topology.mode != "soft"


class KaiTopology(KubernetesValue, frozen=True, gc=False):
    """The topology constraint of a KAI PodGroup: the name of a topology, and its required and preferred levels."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(KubernetesValue, frozen=True, gc=False):
    """A subgroup of a KAI PodGroup. It may contain other subgroups."""

    name: str = ""
    min_member: int = 1
    min_sub_group: int | None = None
    parent: str | None = None
    topology_constraint: KaiTopology | None = None


class KaiSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a KAI PodGroup (`scheduling.run.ai/v2alpha2`)."""

    min_member: int = 1
    min_sub_group: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopology | None = None
    sub_groups: tuple[KaiSubGroup, ...] | None = None


class KaiPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of KAI-Scheduler."""

    spec: KaiSpec = KaiSpec()

    @override
    def batchsched_fields(self) -> Spec:
        """Return the KAI PodGroup as fields of a batchsched PodGroup spec.

        Only subgroups without children are kept, because only these have pods.
        """
        spec = self.spec
        parents = {sub_group.parent for sub_group in spec.sub_groups or ()}
        parts = [
            _without_none(
                name=sub_group.name,
                minMember=sub_group.min_member,
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in spec.sub_groups or ()
            if sub_group.name not in parents
        ]
        return {
            **_minimum(spec.min_member, parts),
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "preemptible": False if spec.preemptibility.lower() == "non-preemptible" else None,
            "topology": _kai_topology(spec.topology_constraint, {"name": "default"}),
        }

    @override
    def unsupported_field(self) -> str:
        """Return a sentence about the first constraint of a subgroup that contains other subgroups; "" if none.

        Without `minSubGroup`, all subgroups are required, as in the converted PodGroup.
        """
        sub_groups = self.spec.sub_groups or ()
        children = Counter(sub_group.parent or "" for sub_group in sub_groups)
        if self.spec.min_sub_group is not None and self.spec.min_sub_group < children[""]:
            return f"spec.minSubGroup: {_ALL_SUB_GROUPS}"
        for index, sub_group in enumerate(sub_groups):
            field, count = f"spec.subGroups[{index}]", children[sub_group.name]
            if sub_group.min_sub_group is not None and sub_group.min_sub_group < count:
                return f"{field}.minSubGroup: {_ALL_SUB_GROUPS}"
            constraint = sub_group.topology_constraint
            if count and constraint is not None and constraint.required_topology_level:
                return (
                    f"{field}.topologyConstraint.requiredTopologyLevel: batchsched keeps the levels of the whole gang "
                    "and of subgroups without children only; state the level there"
                )
        return ""


_ALL_SUB_GROUPS: Final = "batchsched starts a gang with all its subgroups only; remove the field"


def _kai_topology(constraint: KaiTopology | None, unnamed: Mapping[str, str]) -> Spec | None:
    if constraint is None or not (constraint.required_topology_level or constraint.preferred_topology_level):
        return None
    return _without_none(
        **({"name": constraint.topology} if constraint.topology else unnamed),
        required=constraint.required_topology_level or None,
        preferred=constraint.preferred_topology_level or None,
    )


def _minimum(min_member: int, parts: list[Spec]) -> Spec:
    """Return minMember and subGroups. Other projects allow a minMember below the sum of the parts."""
    minimum = max(1, min_member, sum(part["minMember"] for part in parts))
    return {"minMember": minimum, "subGroups": parts or None}


def _without_none(**fields: Any) -> Spec:
    return {name: value for name, value in fields.items() if value is not None}


EXTERNAL_KINDS: Final = (
    ObjectKind(
        "PodGroup", "scheduling.x-k8s.io/v1alpha1", CoschedulingPodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind("PodGroup", "scheduling.k8s.io/v1alpha2", UpstreamPodGroup, "pod_groups", namespaced=True),
    ObjectKind(
        "PodGroup", "scheduling.k8s.io/v1alpha3", UpstreamAlphaPodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind("PodGroup", "scheduling.k8s.io/v1beta1", UpstreamBetaPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.volcano.sh/v1beta1", VolcanoPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.run.ai/v2alpha2", KaiPodGroup, "pod_groups", namespaced=True),
)
"""External kinds in order of precedence. A batchsched PodGroup of the same name takes precedence over all of them."""
EXTERNAL_KIND_BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in EXTERNAL_KINDS}
_VERSIONS: Final = {kind.type: kind.api_version for kind in EXTERNAL_KINDS}


def convert_pod_group(external: ExternalPodGroup) -> PodGroup:
    """Return a PodGroup of another project as a batchsched PodGroup.

    The result has no uid, because it does not exist in the API.

    Raises:
      pydantic.ValidationError: the external PodGroup has values that a batchsched PodGroup does not allow.
    """
    meta = external.metadata
    unsupported = external.unsupported_field()
    if unsupported:
        unsupported = f"PodGroup of {api_group(_VERSIONS[type(external)])}: {unsupported}"
    annotations = _without_none(
        **{
            SOURCE: _VERSIONS[type(external)],
            SOURCE_UID: meta.uid or None,
            UNSUPPORTED_FIELD: unsupported or None,
        }
    )
    conditions = external.status.conditions if isinstance(external, UpstreamPodGroup) else None
    return PodGroup.model_validate(
        {
            "metadata": _without_none(
                name=meta.name,
                namespace=meta.namespace,
                labels=meta.labels,
                annotations={**(meta.annotations or {}), **annotations},
                creationTimestamp=meta.creation_timestamp,
                generation=meta.generation,
            ),
            "spec": _without_none(**external.batchsched_fields()),
            **({"status": {"conditions": conditions}} if conditions else {}),
        }
    )


def is_external(group: PodGroup) -> bool:
    """Return whether a batchsched PodGroup was converted from a PodGroup of another project."""
    return SOURCE in group.metadata.annotations


def external_source(group: PodGroup) -> tuple[str, str]:
    """Return the API version and the uid of the external PodGroup from which `group` was converted.

    Both are "" if the PodGroup was not converted.
    """
    marks = group.metadata.annotations
    return marks.get(SOURCE, ""), marks.get(SOURCE_UID, "")


Marks = tuple[str | None, str | None]
"""The PodGroup and the subgroup that a pod names."""


def _upstream(pod: Pod) -> Marks:
    group = pod.spec.scheduling_group
    return (group.pod_group_name if group else None), None


def _coscheduling(pod: Pod) -> Marks:
    return pod.metadata.label(COSCHEDULING_LABEL), None


def _volcano(pod: Pod) -> Marks:
    names = (pod.metadata.annotation(key) for key in VOLCANO_ANNOTATIONS)
    task = pod.metadata.annotation(VOLCANO_TASK) or pod.metadata.label(VOLCANO_TASK)
    return next((name for name in names if name), None), task


def _kai(pod: Pod) -> Marks:
    return pod.metadata.annotation(KAI_ANNOTATION), pod.metadata.label(KAI_SUB_GROUP)


_READERS: Final[tuple[Callable[[Pod], Marks], ...]] = (_upstream, _coscheduling, _volcano, _kai)


def with_gang_labels(pod: Pod) -> Pod:
    """Return a pod with its gang labels or annotations of another project, such as Volcano, as batchsched labels.

    Existing batchsched labels take precedence. Call it only for pods of a batchsched profile.
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


def with_labels(pod: Pod, labels: Mapping[str, str | None]) -> Pod:
    """Return a copy of a pod with these labels set. None leaves a label unchanged."""
    more: Iterable[tuple[str, str]] = ((key, text) for key, text in labels.items() if text is not None)
    return replace(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), **dict(more)}))
