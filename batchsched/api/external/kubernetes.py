"""The PodGroup of Kubernetes itself (`scheduling.k8s.io`)."""

from typing import Any, Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Pod
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec

UPSTREAM: Final = "scheduling.k8s.io"
UPSTREAM_CONDITIONS: Final = {
    f"{UPSTREAM}/v1alpha2": "PodGroupScheduled",
    f"{UPSTREAM}/v1alpha3": "PodGroupInitiallyScheduled",
    f"{UPSTREAM}/v1beta1": "PodGroupInitiallyScheduled",
}
"""Condition by which PodGroups of Kubernetes state whether they were scheduled, by API version."""


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


def read_marks(pod: Pod) -> Marks:
    """Return the PodGroup of Kubernetes that a pod names in `spec.schedulingGroup`, and no subgroup."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name if group else None), None
