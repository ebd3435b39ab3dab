"""The PodGroup of Volcano (`scheduling.volcano.sh`)."""

from typing import Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Amounts, Pod
from batchsched.api.external.hyper_node import HYPER_NODE_TOPOLOGY, TIER_LABEL
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec, min_member_and_subgroup_fields

VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"


class VolcanoNetworkTopology(KubernetesValue, frozen=True, gc=False):
    """The network topology of a Volcano PodGroup, as tiers of HyperNodes: `hard` is required, `soft` preferred."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""

    @property
    def highest_allowed_level(self) -> str:
        """The topology level that `highestTierAllowed` or `highestTierName` names; "" if both are missing."""
        if self.highest_tier_allowed is not None:
            return f"{TIER_LABEL}{self.highest_tier_allowed}"
        return self.highest_tier_name


class VolcanoSubGroupPolicy(KubernetesValue, frozen=True, gc=False):
    """A subgroup policy of a Volcano PodGroup: how many subgroups must run, and their network topology."""

    network_topology: VolcanoNetworkTopology | None = None
    min_sub_groups: int | None = None


class VolcanoPodGroupSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a Volcano PodGroup (`scheduling.volcano.sh/v1beta1`)."""

    min_member: int = 1
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Amounts | None = None
    network_topology: VolcanoNetworkTopology | None = None
    sub_group_policy: tuple[VolcanoSubGroupPolicy, ...] | None = None


class VolcanoPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of Volcano."""

    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()

    @override
    def to_batchsched_spec_fields(self) -> Spec:
        """Return the Volcano PodGroup as fields of a batchsched PodGroup spec. Tasks become subGroups."""
        spec = self.spec
        tasks = spec.min_task_member or {}
        return {
            **min_member_and_subgroup_fields(
                spec.min_member, [{"name": name, "minMember": tasks[name]} for name in sorted(tasks)]
            ),
            "queue": spec.queue or None,
            "priorityClassName": spec.priority_class_name or None,
            "minResources": spec.min_resources,
            "topology": _topology(spec.network_topology),
        }

    @override
    def describe_unsupported_field(self) -> str:
        """Return a sentence about the first unsupported constraint, such as `minSubGroups`; "" if there is none."""
        spec = self.spec
        if (
            _is_hard(spec.network_topology)
            and spec.network_topology
            and not spec.network_topology.highest_allowed_level
        ):
            return (
                "spec.networkTopology.highestTierAllowed: the mode is hard, and no tier is stated; state one"
            )
        for index, policy in enumerate(spec.sub_group_policy or ()):
            if _is_hard(policy.network_topology):
                return f"spec.subGroupPolicy[{index}].networkTopology: the mode is hard, and {_NO_SUB_GROUPS}"
            if policy.min_sub_groups:
                return f"spec.subGroupPolicy[{index}].minSubGroups: {_NO_SUB_GROUPS}"
        return ""


_NO_SUB_GROUPS: Final = (
    "batchsched does not read subgroups that labels of pods define; use minTaskMember, or a PodGroup of batchsched "
    "with subGroups"
)


def _topology(constraint: VolcanoNetworkTopology | None) -> Spec | None:
    """Convert a network topology to the topology of a batchsched PodGroup: the mode `soft` prefers tier 1."""
    if constraint is None or (_is_hard(constraint) and not constraint.highest_allowed_level):
        return None
    if _is_hard(constraint):
        return {"name": HYPER_NODE_TOPOLOGY, "required": constraint.highest_allowed_level}
    return {"name": HYPER_NODE_TOPOLOGY, "preferred": f"{TIER_LABEL}1"}


def _is_hard(topology: VolcanoNetworkTopology | None) -> bool:
    return topology is not None and topology.mode != "soft"


def pod_group_and_subgroup_names(pod: Pod) -> Marks:
    """Return the names of the Volcano PodGroup and subgroup to which a pod belongs."""
    names = (pod.metadata.annotation(key) for key in VOLCANO_ANNOTATIONS)
    task = pod.metadata.annotation(VOLCANO_TASK) or pod.metadata.label(VOLCANO_TASK)
    return next((name for name in names if name), None), task
