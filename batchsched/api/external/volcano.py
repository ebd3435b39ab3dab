"""The PodGroup of Volcano (`scheduling.volcano.sh`)."""

from typing import Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Amounts, Pod
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec, required_pods

VOLCANO_ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_TASK: Final = "volcano.sh/task-spec"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"


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
            **required_pods(
                spec.min_member, [{"name": name, "minMember": tasks[name]} for name in sorted(tasks)]
            ),
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


def read_marks(pod: Pod) -> Marks:
    """Return the PodGroup and the subgroup of Volcano that a pod names."""
    names = (pod.metadata.annotation(key) for key in VOLCANO_ANNOTATIONS)
    task = pod.metadata.annotation(VOLCANO_TASK) or pod.metadata.label(VOLCANO_TASK)
    return next((name for name in names if name), None), task
