"""The PodGroup of the coscheduling plugin (`scheduling.x-k8s.io`)."""

from typing import Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Amounts, Pod
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec

COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"


class CoschedulingPodGroupSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a coscheduling PodGroup (`scheduling.x-k8s.io/v1alpha1`)."""

    min_member: int = 1
    min_resources: Amounts | None = None
    schedule_timeout_seconds: int | None = None


class CoschedulingPodGroup(ExternalPodGroup, frozen=True, gc=False):
    """The PodGroup of the coscheduling plugin."""

    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()

    @override
    def to_batchsched_spec_fields(self) -> Spec:
        """Return the coscheduling PodGroup as fields of a batchsched PodGroup spec."""
        spec = self.spec
        return {
            "minMember": max(1, spec.min_member),
            "minResources": spec.min_resources,
            "scheduleTimeoutSeconds": spec.schedule_timeout_seconds,
        }


def pod_group_and_subgroup_names(pod: Pod) -> Marks:
    """Return the name of the coscheduling PodGroup in a pod's label, and None as the name of the subgroup."""
    return pod.metadata.label(COSCHEDULING_LABEL), None
