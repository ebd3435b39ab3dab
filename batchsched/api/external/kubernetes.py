"""The PodGroup of Kubernetes itself (`scheduling.k8s.io`).

A PodGroup without a parent is a gang. A CompositePodGroup and all groups below it are one gang, which
`external.group_tree` assembles.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from batchsched.api.core.metadata import KubernetesValue
from batchsched.api.core.pod import Pod, PodResourceClaim
from batchsched.api.crd.podgroup import NO_TOPOLOGY
from batchsched.api.external.pod_group import ExternalPodGroup, Marks, Spec

UPSTREAM: Final = "scheduling.k8s.io"
UPSTREAM_CONDITIONS: Final = {
    f"{UPSTREAM}/v1alpha2": "PodGroupScheduled",
    f"{UPSTREAM}/v1alpha3": "PodGroupInitiallyScheduled",
    f"{UPSTREAM}/v1beta1": "PodGroupInitiallyScheduled",
}
"""Condition by which PodGroups of Kubernetes state whether they were scheduled, by API version."""
COMPOSITE_CONDITION: Final = "CompositePodGroupInitiallyScheduled"
"""The same of CompositePodGroups."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Condition of a group of Kubernetes that loses its pods by evictions."""
MOST_TREE_LEVELS: Final = 4
"""Maximum depth of a tree of groups, the PodGroups included.

Source: `WorkloadMaxTreeDepth` of k8s.io/api/scheduling/v1alpha3.
"""


class GangSchedulingPolicy(KubernetesValue, frozen=True, gc=False):
    """The scheduling policy `gang` of a Kubernetes PodGroup, with the minimum number of pods."""

    min_count: int = 1


class PodGroupSchedulingPolicy(KubernetesValue, frozen=True, gc=False):
    """The policy of a Kubernetes PodGroup: `gang`, or `basic` if its pods need not run together."""

    gang: GangSchedulingPolicy | None = None


class CompositeGangSchedulingPolicy(KubernetesValue, frozen=True, gc=False):
    """The scheduling policy `gang` of a CompositePodGroup, with the minimum number of groups directly below it."""

    min_group_count: int = 1


class CompositeSchedulingPolicy(KubernetesValue, frozen=True, gc=False):
    """The scheduling policy of a CompositePodGroup: `gang` or `basic`.

    With `basic`, it is enough that one group below the CompositePodGroup runs.
    """

    gang: CompositeGangSchedulingPolicy | None = None


class GroupWorkloadReference(KubernetesValue, frozen=True, gc=False):
    """The reference from a PodGroup or CompositePodGroup to the Workload from which it was created."""

    workload_name: str = ""


class UpstreamTopologyConstraint(KubernetesValue, frozen=True, gc=False):
    """The constraint that all pods of a Kubernetes PodGroup run on nodes with the same value of a label."""

    key: str = ""


class UpstreamSchedulingConstraints(KubernetesValue, frozen=True, gc=False):
    """The topology constraints of a Kubernetes PodGroup."""

    topology: tuple[UpstreamTopologyConstraint, ...] | None = None


class _GroupSpec(KubernetesValue, frozen=True, gc=False):
    """The fields that the specs of a PodGroup and of a CompositePodGroup of Kubernetes have in common."""

    parent_composite_pod_group_name: str = ""
    workload_ref: GroupWorkloadReference | None = None
    scheduling_constraints: UpstreamSchedulingConstraints | None = None
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None

    @property
    def topology_constraint_keys(self) -> tuple[str, ...]:
        """The node label key in each topology constraint of the PodGroup or CompositePodGroup."""
        return topology_constraint_keys(self.scheduling_constraints)


class UpstreamPodGroupSpec(_GroupSpec, frozen=True, gc=False):
    """The spec of a Kubernetes PodGroup (`scheduling.k8s.io`) in any of the supported API versions.

    These are v1alpha2 of Kubernetes 1.36, and v1alpha3 and v1beta1 of Kubernetes 1.37.
    """

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    disruption_mode: str | dict[str, Any] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None

    @property
    def is_evicted_as_whole(self) -> bool:
        """Whether an eviction must evict all pods of the PodGroup together."""
        return requires_eviction_as_whole(self.disruption_mode)


class CompositePodGroupSpec(_GroupSpec, frozen=True, gc=False):
    """The spec of a CompositePodGroup (`scheduling.k8s.io/v1alpha3`)."""

    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()
    disruption_mode: dict[str, Any] | None = None

    @property
    def is_evicted_as_whole(self) -> bool:
        """Whether an eviction must evict all groups directly below the CompositePodGroup together."""
        return requires_eviction_as_whole(self.disruption_mode)


def requires_eviction_as_whole(disruption_mode: str | Mapping[str, Any] | None) -> bool:
    """Return whether a disruption mode requires that a PodGroup or CompositePodGroup is evicted as a whole.

    The mode is then `all`, or `PodGroup` in v1alpha2. The default is `single`.

    Source: `DisruptionMode` of k8s.io/api/scheduling/v1beta1.
    """
    return disruption_mode == "PodGroup" or (
        isinstance(disruption_mode, Mapping) and "all" in disruption_mode
    )


def convert_topology_constraints(keys: Sequence[str]) -> Spec | None:
    """Return the PodGroup `topology` that requires nodes with equal values of the label `keys[0]`.

    The result is None if `keys` is empty, or if the first key is "".
    """
    return {"name": NO_TOPOLOGY, "required": keys[0]} if keys and keys[0] else None


def topology_constraint_keys(constraints: UpstreamSchedulingConstraints | None) -> tuple[str, ...]:
    """Return the node label key in each topology constraint, in the order of the constraints."""
    return tuple(
        constraint.key for constraint in (constraints or UpstreamSchedulingConstraints()).topology or ()
    )


class UpstreamGroupStatus(KubernetesValue, frozen=True, gc=False):
    """The status of a Kubernetes PodGroup (`scheduling.k8s.io`)."""

    conditions: tuple[dict[str, Any], ...] | None = None


class _UpstreamGroup(ExternalPodGroup, frozen=True, gc=False):
    """What a PodGroup and a CompositePodGroup of Kubernetes have in common."""

    spec: _GroupSpec = _GroupSpec()
    status: UpstreamGroupStatus = UpstreamGroupStatus()

    @override
    def describe_unsupported_field(self) -> str:
        """Return a sentence if several topology constraints are stated, which is unsupported; else ""."""
        return describe_unsupported_topology(self.spec.topology_constraint_keys)

    @property
    @override
    def stated_priority(self) -> int | None:
        """The priority that the spec states as a number; None if it states none."""
        return self.spec.priority

    @property
    @override
    def stated_conditions(self) -> Sequence[dict[str, Any]]:
        """The conditions in the status of the PodGroup or CompositePodGroup, unchanged."""
        return self.status.conditions or ()


class UpstreamPodGroup(_UpstreamGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes itself (`scheduling.k8s.io`), with the fields of v1alpha2 and later versions.

    A PodGroup without a parent is a gang. A CompositePodGroup and all groups below it are one gang, which
    `external.group_tree` assembles.
    """

    spec: UpstreamPodGroupSpec = UpstreamPodGroupSpec()

    @property
    @override
    def claim_template_names(self) -> Mapping[str, str]:
        """The ResourceClaimTemplates in `spec.resourceClaims`, by the name of the claim."""
        return {
            claim.name: claim.resource_claim_template_name
            for claim in self.spec.resource_claims or ()
            if claim.resource_claim_template_name
        }

    @override
    def to_batchsched_spec_fields(self) -> Spec:
        """Return the Kubernetes PodGroup as fields of a batchsched PodGroup spec.

        A topology key is a node label, and becomes a level. Without a disruption mode, pods are evicted one by one.

        Source: `PodGroupSpec` of k8s.io/api/scheduling/v1beta1, where the default of `disruptionMode` is `single`.
        """
        spec = self.spec
        gang = spec.scheduling_policy.gang
        return {
            "minMember": max(1, gang.min_count) if gang is not None else 1,
            "topology": convert_topology_constraints(spec.topology_constraint_keys),
            "priorityClassName": spec.priority_class_name or None,
            "preemptionPolicy": spec.preemption_policy,
            "disruptionMode": "Gang" if spec.is_evicted_as_whole else "Elastic",
        }


class CompositePodGroup(_UpstreamGroup, frozen=True, gc=False):
    """A CompositePodGroup of Kubernetes: a group of PodGroups and of other CompositePodGroups.

    The PodGroups and CompositePodGroups name this group as their parent. A CompositePodGroup is a part of a gang:
    `external.group_tree` assembles the gang of a whole tree.
    """

    spec: CompositePodGroupSpec = CompositePodGroupSpec()


def describe_unsupported_topology(keys: Sequence[str]) -> str:
    """Return a sentence if a group has several topology constraints, which is not supported; otherwise ""."""
    if len(keys) <= 1:
        return ""
    return (
        "spec.schedulingConstraints.topology[1]: batchsched keeps one topology constraint; remove the others"
    )


class UpstreamV1Alpha3PodGroup(UpstreamPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes in v1alpha3, with the same fields as in v1beta1."""


class UpstreamV1Beta1PodGroup(UpstreamPodGroup, frozen=True, gc=False):
    """The PodGroup of Kubernetes in v1beta1, with the same fields as in v1alpha3.

    As in v1alpha3, its condition `PodGroupInitiallyScheduled` states whether it was scheduled.
    """


def pod_group_and_subgroup_names(pod: Pod) -> Marks:
    """Return the name of the PodGroup in a pod's `spec.schedulingGroup`, and None as the name of the subgroup."""
    return pod.scheduling_group_name or None, None
