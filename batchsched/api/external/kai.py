"""The PodGroup of KAI-Scheduler (`scheduling.run.ai`)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Pod
from batchsched.api.external.pod_group import (
    ExternalPodGroup,
    Marks,
    Spec,
    min_member_and_subgroup_fields,
    without_none,
)

KAI_ANNOTATION: Final = "pod-group-name"
KAI_SUB_GROUP: Final = "kai.scheduler/subgroup-name"
KAI_QUEUE: Final = "kai.scheduler/queue"


class KaiTopologyConstraint(KubernetesValue, frozen=True, gc=False):
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
    topology_constraint: KaiTopologyConstraint | None = None


class KaiSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a KAI PodGroup (`scheduling.run.ai/v2alpha2`)."""

    min_member: int = 1
    min_sub_group: int | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None
    sub_groups: tuple[KaiSubGroup, ...] | None = None


class KaiPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of KAI-Scheduler."""

    spec: KaiSpec = KaiSpec()

    @override
    def to_batchsched_spec_fields(self) -> Spec:
        """Return the KAI PodGroup as fields of a batchsched PodGroup spec.

        Only subgroups without children have pods. The others are kept if one of them states a constraint or a minimum.
        """
        spec = self.spec
        least = self._stated_minimum(spec.min_sub_group, "")
        parts = self._tree() if self._has_constrained_parents() else self._leaves()
        return {
            # Without all subgroups, the minimum number of pods follows from the tree.
            **(
                min_member_and_subgroup_fields(spec.min_member, parts)
                if least is None
                else {"subGroups": parts}
            ),
            "minSubGroups": least,
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "preemptible": False if spec.preemptibility.lower() == "non-preemptible" else None,
            "topology": _kai_topology(spec.topology_constraint, {"name": "default"}),
        }

    @property
    def _children(self) -> Counter[str]:
        """The number of subgroups below each subgroup, and below the PodGroup itself, which is ""."""
        return Counter(sub_group.parent or "" for sub_group in self.spec.sub_groups or ())

    def _stated_minimum(self, min_sub_group: int | None, name: str) -> int | None:
        """Return a minimum number of subgroups if it is less than all that `name` contains; else None."""
        return min_sub_group if min_sub_group is not None and min_sub_group < self._children[name] else None

    def _has_constrained_parents(self) -> bool:
        """Return whether a subgroup that contains others states a minimum or a topology."""
        children = self._children
        return any(
            sub_group.name in children
            and (
                self._stated_minimum(sub_group.min_sub_group, sub_group.name) is not None
                or _kai_topology(sub_group.topology_constraint, {}) is not None
            )
            for sub_group in self.spec.sub_groups or ()
        ) or (
            self._stated_minimum(self.spec.min_sub_group, "") is not None
            and children[""] < sum(children.values())
        )

    @override
    def describe_unsupported_field(self) -> str:
        """Return a sentence about a subgroup that has a larger minMember than its leaf subgroups together.

        The leaf subgroups are those below the subgroup that contain no others. The result is "" if there is no such
        subgroup.
        """
        sub_groups = {sub_group.name: sub_group for sub_group in self.spec.sub_groups or ()}
        for index, sub_group in enumerate(self.spec.sub_groups or ()):
            if sub_group.name in self._children and sub_group.min_member > _pods_below(sub_group, sub_groups):
                return f"spec.subGroups[{index}].minMember: exceeds what the subgroups below ensure; lower it"
        return ""

    def _leaves(self) -> list[Spec]:
        parents = self._children
        return [
            without_none(
                name=sub_group.name,
                minMember=sub_group.min_member,
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in self.spec.sub_groups or ()
            if sub_group.name not in parents
        ]

    def _tree(self) -> list[Spec]:
        parents = self._children
        return [
            without_none(
                name=sub_group.name,
                parent=sub_group.parent or None,
                minMember=None if sub_group.name in parents else sub_group.min_member,
                minSubGroups=self._stated_minimum(sub_group.min_sub_group, sub_group.name),
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in self.spec.sub_groups or ()
        ]


def _pods_below(outer: KaiSubGroup, sub_groups: Mapping[str, KaiSubGroup]) -> int:
    """Return the sum of the minimums of the subgroups without children that are below a subgroup."""
    parents = {sub_group.parent for sub_group in sub_groups.values()}
    total = 0
    for sub_group in sub_groups.values():
        if sub_group.name in parents:
            continue
        name, seen = sub_group.parent, {sub_group.name}
        while name is not None and name not in seen and name != outer.name:
            seen.add(name)
            name = sub_groups[name].parent if name in sub_groups else None
        total += sub_group.min_member if name == outer.name else 0
    return total


def _kai_topology(constraint: KaiTopologyConstraint | None, unnamed: Mapping[str, str]) -> Spec | None:
    if constraint is None or not (constraint.required_topology_level or constraint.preferred_topology_level):
        return None
    return without_none(
        **({"name": constraint.topology} if constraint.topology else unnamed),
        required=constraint.required_topology_level or None,
        preferred=constraint.preferred_topology_level or None,
    )


def pod_group_and_subgroup_names(pod: Pod) -> Marks:
    """Return the names of the KAI PodGroup and subgroup to which a pod belongs."""
    return pod.metadata.annotation(KAI_ANNOTATION), pod.metadata.label(KAI_SUB_GROUP)
