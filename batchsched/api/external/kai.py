"""The PodGroup of KAI-Scheduler (`scheduling.run.ai`)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Pod
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec, required_pods, without_none

KAI_ANNOTATION: Final = "pod-group-name"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
KAI_QUEUE: Final = "kai.scheduler/queue"


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
            without_none(
                name=sub_group.name,
                minMember=sub_group.min_member,
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in spec.sub_groups or ()
            if sub_group.name not in parents
        ]
        return {
            **required_pods(spec.min_member, parts),
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
    return without_none(
        **({"name": constraint.topology} if constraint.topology else unnamed),
        required=constraint.required_topology_level or None,
        preferred=constraint.preferred_topology_level or None,
    )


def read_marks(pod: Pod) -> Marks:
    """Return the PodGroup and the subgroup of KAI-Scheduler that a pod names."""
    return pod.metadata.annotation(KAI_ANNOTATION), pod.metadata.label(KAI_SUB_GROUP)
