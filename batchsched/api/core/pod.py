"""Pods: containers, requests, affinity, tolerations, topology spread constraints and status."""

import math
import sys
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue, parse_timestamp
from batchsched.api.core.node import Taint
from batchsched.api.core.selector import LabelSelector, NodeSelector, NodeSelectorTerm
from batchsched.api.core.volume import Volume


class PreferredSchedulingTerm(KubernetesValue, frozen=True, gc=False):
    """A preferred node selector term, with the weight that a matching node adds to its score."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(KubernetesValue, frozen=True, gc=False):
    """The node affinity of a pod: required and preferred nodes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None


class PodAffinityTerm(KubernetesValue, frozen=True, gc=False):
    """A pod affinity term: a selector of pods by label and namespace, and a topology key."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(KubernetesValue, frozen=True, gc=False):
    """A preferred pod affinity term, with its weight in the score of a node."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(KubernetesValue, frozen=True, gc=False):
    """The required and preferred terms of a pod's affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None

    @property
    def required_terms(self) -> tuple[PodAffinityTerm, ...]:
        """The required pod affinity terms, empty if there are none."""
        return self.required_during_scheduling_ignored_during_execution or ()

    @property
    def preferred_terms(self) -> tuple[WeightedPodAffinityTerm, ...]:
        """The preferred pod affinity terms, which only affect scores; empty if there are none."""
        return self.preferred_during_scheduling_ignored_during_execution or ()


class Affinity(KubernetesValue, frozen=True, gc=False):
    """The node affinity, pod affinity and pod anti-affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(KubernetesValue, frozen=True, gc=False):
    """A toleration of a pod: a taint that matches the toleration does not exclude the pod from a node."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether this toleration tolerates a taint.

        Source: `Toleration.ToleratesTaint` of k8s.io/api/core/v1; an empty key with Exists tolerates all keys.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


class TopologySpreadConstraint(KubernetesValue, frozen=True, gc=False):
    """A topology spread constraint: how evenly matching pods must be distributed over topology domains."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


SCHEDULER_NAME: Final = "batchsched"
POD_GROUP_LABEL: Final = "scheduling.batchsched.dev/pod-group"
SUB_GROUP_LABEL: Final = "scheduling.batchsched.dev/sub-group"
QUEUE_LABEL: Final = "scheduling.batchsched.dev/queue"
USER_LABEL: Final = "scheduling.batchsched.dev/user"
LAST_CHECKPOINT: Final = "scheduling.batchsched.dev/last-checkpoint"

Amounts = dict[str, str | int | float]


class ResourceRequirements(KubernetesValue, frozen=True, gc=False):
    """The resource requests and limits of a container or a pod."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class ContainerPort(KubernetesValue, frozen=True, gc=False):
    """A port of a container, and the host port to which it is mapped."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class ContainerRestartRule(KubernetesValue, frozen=True, gc=False):
    """A restart rule of a container: the action after certain exit codes."""

    action: str = ""


class Container(KubernetesValue, frozen=True, gc=False):
    """The fields of a container that scheduling reads."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] | None = None


class PodSchedulingGate(KubernetesValue, frozen=True, gc=False):
    """A scheduling gate of a pod. The pod is not scheduled until its gates are removed."""

    name: str = ""


class PodSchedulingGroup(KubernetesValue, frozen=True, gc=False):
    """The membership of a pod in a PodGroup of Kubernetes (`scheduling.k8s.io`)."""

    pod_group_name: str = ""


class PodResourceClaim(KubernetesValue, frozen=True, gc=False):
    """A ResourceClaim that a pod uses: an existing one, or one that is created from a template for this pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(KubernetesValue, frozen=True, gc=False):
    """The claim that was created for a pod from a template; no name if the pod needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(KubernetesValue, frozen=True, gc=False):
    """The fields of a pod's spec that scheduling reads.

    `exceeded_limit` is not a field of Kubernetes: a large spec above a limit of `pod_field_limits` is kept without its
    containers and constraints, and this sentence states the limit.
    """

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: Amounts | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] | None = None
    host_network: bool = False
    host_users: bool | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    workload_ref: dict[str, object] | None = None
    exceeded_limit: str = ""


class ContainerStatus(KubernetesValue, frozen=True, gc=False):
    """The resources in the status of a container, which differ from its spec during an in-place resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts | None = None


class PodCondition(KubernetesValue, frozen=True, gc=False):
    """A condition in the status of a pod, such as PodScheduled."""

    type: str = ""
    status: str = ""
    reason: str = ""


class PodStatus(KubernetesValue, frozen=True, gc=False):
    """The fields of a pod's status that scheduling reads."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


MAX_CLAIM_NAME_PREFIX: Final = 200
"""Characters of a pod's name in the name of its claim for extended resources; names have at most 253."""


class Pod(KubernetesObject, frozen=True, gc=False):
    """A pod of the cluster, reduced to the fields that scheduling reads."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def namespace(self) -> str:
        """The namespace of the pod, `default` if missing."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """The `namespace/name` of the pod."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def node_name(self) -> str:
        """The name of the node to which the pod is bound, "" if the pod is pending."""
        return self.spec.node_name

    @property
    def scheduling_group_name(self) -> str:
        """The name of the PodGroup of Kubernetes to which the pod belongs, "" without one."""
        return self.spec.scheduling_group.pod_group_name if self.spec.scheduling_group else ""

    @property
    def resource_claim_keys(self) -> tuple[str, ...]:
        """The `namespace/name` of each ResourceClaim that the spec or the status of the pod names.

        A claim from a template is missing until the status names it.
        """
        names = [entry.resource_claim_name for entry in self.spec.resource_claims or ()]
        names += [status.resource_claim_name for status in self.status.resource_claim_statuses or ()]
        return tuple(f"{self.namespace}/{name}" for name in names if name)

    def with_node(self, node: str) -> "Pod":
        """Return a copy of the pod with the given node in `spec.nodeName`; "" for a pending pod."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, node_name=node))

    @property
    def terminating(self) -> bool:
        """True if the deletion of the pod was requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def finished(self) -> bool:
        """True if the pod has succeeded or failed: it no longer uses resources."""
        return self.status.phase in ("Succeeded", "Failed")

    def start_time(self, unknown: float = 0.0) -> float:
        """Return the time at which the kubelet accepted the pod, or infinity if it has not done so yet.

        The time is in seconds since 1970. The kubelet sets `status.startTime` before it changes the phase from Pending.
        A pod without this field and in another phase comes from a manifest without it: the time of its creation counts
        instead.

        Args:
          unknown: the result if the creation time is missing too. By default, the pod counts as started in 1970.
        """
        if self.status.start_time:
            return parse_timestamp(self.status.start_time, unknown)
        if self.status.phase == "Pending":
            return math.inf
        return parse_timestamp(self.metadata.creation_timestamp, unknown)

    def is_relevant_to_schedulers(self, scheduler_names: Collection[str]) -> bool:
        """Return whether the pod is unfinished, and either is bound or names one of these schedulers.

        Sessions ignore all other pods.

        Args:
          scheduler_names: the scheduler names of the profiles; an unbound pod must have one of these names.
        """
        return not self.finished and (bool(self.node_name) or self.spec.scheduler_name in scheduler_names)

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """The tolerations of the pod, empty if it has none."""
        return self.spec.tolerations or ()


def extended_resource_claim_name(pod: Pod) -> str:
    """Return the name of the ResourceClaim that batchsched creates for the extended resources of a pod.

    batchsched creates it if DeviceClasses serve these resources. If the API server created the claim and its answer was
    lost, the next attempt finds the claim by this name.
    """
    prefix = pod.name[:MAX_CLAIM_NAME_PREFIX].rstrip("-.")
    return f"{prefix}-extended-resources-{pod.metadata.uid[:8]}".rstrip("-")


_Key = TypeVar("_Key")
_UNUSED_REFERENCE_COUNT: Final = 2
"""Reference count of a value that only one mapping has: that reference, and the one of the counting call."""


def keys_of_unreferenced_pod_specs(
    specs: Mapping[_Key, PodSpec], ignored_references: Mapping[int, int] = MappingProxyType({})
) -> list[_Key]:
    """Return the keys of the cached pod specs that no pod uses anymore.

    Only the cache still refers to these specs.

    Weak references would serve as well, but objects that support them are tracked by the garbage collector.

    Args:
      specs: the pod specs in the cache, by key.
      ignored_references: `id()` of a spec → the number of further references to the spec from the same cache.
    """
    return [
        key
        for key in specs
        if sys.getrefcount(specs[key]) <= _UNUSED_REFERENCE_COUNT + ignored_references.get(id(specs[key]), 0)
    ]
