"""Gangs that are stated in the words of other schedulers, and what they are in ours: the one place that translates.

Read are the PodGroups of coscheduling, of Kubernetes itself, of Volcano and of KAI, and the marks by which their pods
join. What has no counterpart here (Volcano's networkTopology, KAI's nested subgroups as such) is left out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace
from typing_extensions import override

from batchsched.api.core.metadata import ObjectMeta, Value
from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Amounts, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.kinds import ObjectKind

SOURCE: Final = "scheduling.batchsched.dev/source"
"""The annotation of a PodGroup that was read as something else: its API version. It is not in the API as ours."""
SOURCE_UID: Final = "scheduling.batchsched.dev/source-uid"
"""The annotation that says which object it was read from."""
UPSTREAM: Final = "scheduling.k8s.io"
UPSTREAM_CONDITIONS: Final = {
    f"{UPSTREAM}/v1alpha2": "PodGroupScheduled",
    f"{UPSTREAM}/v1beta1": "PodGroupInitiallyScheduled",
}
"""By version: the condition by which Kubernetes' own PodGroups say whether they were scheduled."""
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
KAI_ANNOTATION: Final = "pod-group-name"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
KAI_QUEUE: Final = "kai.scheduler/queue"

Spec = dict[str, Any]


class ForeignPodGroup(Value, frozen=True, gc=False):
    """The base of PodGroups that others define."""

    metadata: ObjectMeta = ObjectMeta()

    def stated(self) -> Spec:
        """Return the spec in our words, as a manifest has it; a field that is None is not stated."""
        raise NotImplementedError


class CoschedulingSpec(Value, frozen=True, gc=False):
    """Of `scheduling.x-k8s.io/v1alpha1`."""

    min_member: int = 1
    min_resources: Amounts | None = None
    schedule_timeout_seconds: int | None = None


class CoschedulingPodGroup(ForeignPodGroup, frozen=True, gc=False):
    """The PodGroup of the coscheduling plugin."""

    spec: CoschedulingSpec = CoschedulingSpec()

    @override
    def stated(self) -> Spec:
        """Return the spec in our words."""
        spec = self.spec
        return {
            "minMember": max(1, spec.min_member),
            "minResources": spec.min_resources,
            "scheduleTimeoutSeconds": spec.schedule_timeout_seconds,
        }


class GangPolicy(Value, frozen=True, gc=False):
    """All or nothing, from so many pods on."""

    min_count: int = 1


class SchedulingPolicy(Value, frozen=True, gc=False):
    """`basic`, which is no gang, or `gang`."""

    gang: GangPolicy | None = None


class TopologyKey(Value, frozen=True, gc=False):
    """All pods on nodes that have one value of this label."""

    key: str = ""


class UpstreamConstraints(Value, frozen=True, gc=False):
    """Where a group may be."""

    topology: tuple[TopologyKey, ...] | None = None


class UpstreamSpec(Value, frozen=True, gc=False):
    """Of `scheduling.k8s.io`: v1alpha2 (1.36) and v1beta1 (1.37)."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: UpstreamConstraints | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    disruption_mode: str | dict[str, Any] | None = None


class UpstreamCondition(Value, frozen=True, gc=False):
    """One thing that is true of a group, or is not."""

    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class UpstreamStatus(Value, frozen=True, gc=False):
    """What the API says became of a group."""

    conditions: tuple[UpstreamCondition, ...] | None = None


class UpstreamPodGroup(ForeignPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes itself."""

    spec: UpstreamSpec = UpstreamSpec()
    status: UpstreamStatus = UpstreamStatus()

    @override
    def stated(self) -> Spec:
        """Return the spec in our words; its topology keys are node labels, which name our levels as well."""
        spec = self.spec
        gang = spec.scheduling_policy.gang
        keys = (spec.scheduling_constraints or UpstreamConstraints()).topology or ()
        whole = spec.disruption_mode == "PodGroup" or (
            isinstance(spec.disruption_mode, dict) and "all" in spec.disruption_mode
        )
        return {
            "minMember": max(1, gang.min_count) if gang is not None else 1,
            "topology": {"required": keys[0].key} if keys and keys[0].key else None,
            "priorityClassName": spec.priority_class_name or None,
            "preemptionPolicy": spec.preemption_policy,
            "disruptionMode": "Gang" if whole or spec.disruption_mode is None else "Elastic",
        }


class UpstreamBetaPodGroup(UpstreamPodGroup, frozen=True, gc=False):
    """The same in its beta version, which names its condition otherwise."""


class VolcanoSpec(Value, frozen=True, gc=False):
    """Of `scheduling.volcano.sh/v1beta1`."""

    min_member: int = 1
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Amounts | None = None


class VolcanoPodGroup(ForeignPodGroup, frozen=True, gc=False):
    """The PodGroup of Volcano."""

    spec: VolcanoSpec = VolcanoSpec()

    @override
    def stated(self) -> Spec:
        """Return the spec in our words; its tasks are our subGroups."""
        spec = self.spec
        tasks = spec.min_task_member or {}
        return {
            **_minimum(spec.min_member, [{"name": name, "minMember": tasks[name]} for name in sorted(tasks)]),
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "minResources": spec.min_resources,
        }


class KaiTopology(Value, frozen=True, gc=False):
    """A topology by name, and its levels by node label."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(Value, frozen=True, gc=False):
    """A part of a gang; parts may have parts."""

    name: str = ""
    min_member: int = 1
    parent: str | None = None
    topology_constraint: KaiTopology | None = None


class KaiSpec(Value, frozen=True, gc=False):
    """Of `scheduling.run.ai/v2alpha2`."""

    min_member: int = 1
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopology | None = None
    sub_groups: tuple[KaiSubGroup, ...] | None = None


class KaiPodGroup(ForeignPodGroup, frozen=True, gc=False):
    """The PodGroup of the KAI scheduler."""

    spec: KaiSpec = KaiSpec()

    @override
    def stated(self) -> Spec:
        """Return the spec in our words. Of nested subgroups those without parts of their own count: pods join these."""
        spec = self.spec
        parents = {one.parent for one in spec.sub_groups or ()}
        parts = [
            _stated(
                name=one.name, minMember=one.min_member, topology=_kai_topology(one.topology_constraint, {})
            )
            for one in spec.sub_groups or ()
            if one.name not in parents
        ]
        return {
            **_minimum(spec.min_member, parts),
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "preemptible": False if spec.preemptibility.lower() == "non-preemptible" else None,
            "topology": _kai_topology(spec.topology_constraint, {"name": "default"}),
        }


def _kai_topology(found: KaiTopology | None, unnamed: Mapping[str, str]) -> Spec | None:
    if found is None or not (found.required_topology_level or found.preferred_topology_level):
        return None
    return _stated(
        **({"name": found.topology} if found.topology else unnamed),
        required=found.required_topology_level or None,
        preferred=found.preferred_topology_level or None,
    )


def _minimum(stated: int, parts: list[Spec]) -> Spec:
    """Return minMember and subGroups; others allow a minMember below the sum of the parts."""
    least = max(1, stated, sum(part["minMember"] for part in parts))
    return {"minMember": least, "subGroups": parts or None}


def _stated(**fields: Any) -> Spec:
    return {name: value for name, value in fields.items() if value is not None}


FOREIGN: Final = (
    ObjectKind(
        "PodGroup", "scheduling.x-k8s.io/v1alpha1", CoschedulingPodGroup, "pod_groups", namespaced=True
    ),
    ObjectKind("PodGroup", "scheduling.k8s.io/v1alpha2", UpstreamPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.k8s.io/v1beta1", UpstreamBetaPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.volcano.sh/v1beta1", VolcanoPodGroup, "pod_groups", namespaced=True),
    ObjectKind("PodGroup", "scheduling.run.ai/v2alpha2", KaiPodGroup, "pod_groups", namespaced=True),
)
"""Kinds of others that are read. Where two state a gang of one name, ours counts, then the first of these."""
BY_GROUP_AND_NAME: Final = {(kind.group, kind.name): kind for kind in FOREIGN}
_VERSIONS: Final = {kind.type: kind.api_version for kind in FOREIGN}


def pod_group(found: ForeignPodGroup) -> PodGroup:
    """Return a PodGroup of ours that says what a foreign one says. It has no uid: in the API it is another object.

    Raises:
      pydantic.ValidationError: it says what no PodGroup of ours may.
    """
    meta = found.metadata
    marks = _stated(**{SOURCE: _VERSIONS[type(found)], SOURCE_UID: meta.uid or None})
    conditions = found.status.conditions if isinstance(found, UpstreamPodGroup) else None
    return PodGroup.model_validate(
        {
            "metadata": _stated(
                name=meta.name,
                namespace=meta.namespace,
                labels=meta.labels,
                annotations={**(meta.annotations or {}), **marks},
                creationTimestamp=meta.creation_timestamp,
                generation=meta.generation,
            ),
            "spec": _stated(**found.stated()),
            **({"status": {"conditions": to_builtins(conditions)}} if conditions else {}),
        }
    )


def is_foreign(group: PodGroup) -> bool:
    """Tell whether a PodGroup was read as something else: there is none of ours whose status could be written."""
    return SOURCE in group.metadata.annotations


def source_of(group: PodGroup) -> tuple[str, str]:
    """Return the API version and the uid of what a PodGroup was read from, "" for one of ours."""
    marks = group.metadata.annotations
    return marks.get(SOURCE, ""), marks.get(SOURCE_UID, "")


Marks = tuple[str | None, str | None]
"""The PodGroup that a pod names, and the subGroup."""


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


def joined(pod: Pod) -> Pod:
    """Return a pod with our labels for what it says in the words of others; our own labels count before these.

    For pods of our scheduler only: what other schedulers do with their gangs is none of our business.
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
    """Return a pod with labels set, or, where None, as they are."""
    more: Iterable[tuple[str, str]] = ((key, text) for key, text in labels.items() if text is not None)
    return replace(pod, metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), **dict(more)}))
