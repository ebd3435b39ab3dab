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


class KaiPodGroupSpec(KubernetesValue, frozen=True, gc=False):
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

    spec: KaiPodGroupSpec = KaiPodGroupSpec()

    @override
    def to_batchsched_spec_fields(self) -> Spec:
        """Return the KAI PodGroup as fields of a batchsched PodGroup spec.

        Only subgroups without children have pods. The others are kept if one of them states a constraint or a minimum.
        """
        spec = self.spec
        children = self._count_children()
        least = _stated_minimum(spec.min_sub_group, children[""])
        parts = self._tree(children) if self._has_constrained_parents(children) else self._leaves(children)
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

    @override
    def describe_unsupported_field(self) -> str:
        """Return a sentence about a subgroup that has a larger minMember than its leaf subgroups together.

        The leaf subgroups are those below the subgroup that contain no others. The result is "" if there is no such
        subgroup.
        """
        children, ensured = self._count_children(), self._pods_below()
        for index, sub_group in enumerate(self.spec.sub_groups or ()):
            if sub_group.name in children and sub_group.min_member > ensured[sub_group.name]:
                return f"spec.subGroups[{index}].minMember: exceeds what the subgroups below ensure; lower it"
        return ""

    def _count_children(self) -> Counter[str]:
        """Return the number of subgroups below each subgroup, and below the PodGroup itself, which is ""."""
        return Counter(sub_group.parent or "" for sub_group in self.spec.sub_groups or ())

    def _pods_below(self) -> Counter[str]:
        """Return for each subgroup with children the sum of the minimums of the leaf subgroups below it.

        Each sum is passed to the parent once, when the sums of all its children are known, so that a deep tree of a
        user cannot stop the scheduler. In a cycle, which KAI-Scheduler refuses, this never is so: its sums are too low.
        """
        parents = {sub_group.name: sub_group.parent or "" for sub_group in self.spec.sub_groups or ()}
        missing = Counter(parents.values())
        pods = Counter(
            {sub.name: sub.min_member for sub in self.spec.sub_groups or () if sub.name not in missing}
        )
        complete = list(pods)
        while complete:
            name = complete.pop()
            parent = parents.get(name, "")
            pods[parent] += pods[name]
            missing[parent] -= 1
            if not missing[parent] and parent:
                complete.append(parent)
        return pods

    def _has_constrained_parents(self, children: Counter[str]) -> bool:
        """Return whether a subgroup that contains others states a minimum or a topology."""
        return any(
            sub_group.name in children
            and (
                _stated_minimum(sub_group.min_sub_group, children[sub_group.name]) is not None
                or _kai_topology(sub_group.topology_constraint, {}) is not None
            )
            for sub_group in self.spec.sub_groups or ()
        ) or (
            _stated_minimum(self.spec.min_sub_group, children[""]) is not None
            and children[""] < sum(children.values())
        )

    def _leaves(self, children: Counter[str]) -> list[Spec]:
        return [
            without_none(
                name=sub_group.name,
                minMember=sub_group.min_member,
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in self.spec.sub_groups or ()
            if sub_group.name not in children
        ]

    def _tree(self, children: Counter[str]) -> list[Spec]:
        return [
            without_none(
                name=sub_group.name,
                parent=sub_group.parent or None,
                minMember=None if sub_group.name in children else sub_group.min_member,
                minSubGroups=_stated_minimum(sub_group.min_sub_group, children[sub_group.name]),
                topology=_kai_topology(sub_group.topology_constraint, {}),
            )
            for sub_group in self.spec.sub_groups or ()
        ]


def _stated_minimum(min_sub_group: int | None, children: int) -> int | None:
    """Return a minimum number of subgroups if it is less than all `children`; else None."""
    return min_sub_group if min_sub_group is not None and min_sub_group < children else None


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
