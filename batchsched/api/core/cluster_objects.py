"""Objects that affect pods from outside: PriorityClasses, PodDisruptionBudgets, Services and workloads."""

import msgspec

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.pod import Pod
from batchsched.api.core.selector import LabelSelector


class PriorityClass(KubernetesObject, frozen=True, gc=False):
    """A PriorityClass: a named priority value for pods."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodDisruptionBudgetSpec(KubernetesValue, frozen=True, gc=False):
    """The selector of the pods that a PodDisruptionBudget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(KubernetesValue, frozen=True, gc=False):
    """The number of disruptions that a PodDisruptionBudget still allows, and the pods already disrupted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(KubernetesObject, frozen=True, gc=False):
    """A PodDisruptionBudget: a limit on the voluntary disruptions of the pods that it selects."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

    def counts_eviction_of(self, pod: Pod) -> bool:
        """Return whether an eviction of the pod counts against this PodDisruptionBudget.

        A pod in `status.disruptedPods` does not count again: its eviction was already granted.

        Source: `filterPodsWithPDBViolation` of kube-scheduler.
        """
        selector = self.spec.selector
        if not pod.labels or (self.metadata.namespace or "default") != pod.namespace:
            return False
        if selector is None or selector.matches_everything or not selector.matches(pod.labels):
            return False
        return pod.name not in (self.status.disrupted_pods or {})

    def with_eviction_counted(self, pod: Pod) -> "PodDisruptionBudget":
        """Return this PodDisruptionBudget after an eviction of the pod, which uses up one allowed disruption.

        The result is unchanged if an eviction of the pod does not count against this PodDisruptionBudget.
        """
        if not self.counts_eviction_of(pod):
            return self
        disrupted = {**(self.status.disrupted_pods or {}), pod.name: ""}
        status = PodDisruptionBudgetStatus(
            disruptions_allowed=self.status.disruptions_allowed - 1, disrupted_pods=disrupted
        )
        return msgspec.structs.replace(self, status=status)


class Namespace(KubernetesObject, frozen=True, gc=False):
    """A Namespace, reduced to its metadata. Scheduling reads only its labels."""


class SpecWithEqualitySelector(KubernetesValue, frozen=True, gc=False):
    """The spec of a Service or a ReplicationController, reduced to the labels of the pods that it selects."""

    selector: dict[str, str] | None = None


class Service(KubernetesObject, frozen=True, gc=False):
    """A Service, reduced to its pod selector, which is all that scheduling reads."""

    spec: SpecWithEqualitySelector = SpecWithEqualitySelector()


class ReplicationController(KubernetesObject, frozen=True, gc=False):
    """A ReplicationController, reduced to its pod selector, which is all that scheduling reads."""

    spec: SpecWithEqualitySelector = SpecWithEqualitySelector()


class SpecWithLabelSelector(KubernetesValue, frozen=True, gc=False):
    """The spec of a ReplicaSet or a StatefulSet, reduced to the selector of its pods."""

    selector: LabelSelector | None = None


class ReplicaSet(KubernetesObject, frozen=True, gc=False):
    """A ReplicaSet, reduced to its pod selector, which is all that scheduling reads."""

    spec: SpecWithLabelSelector = SpecWithLabelSelector()


class StatefulSet(KubernetesObject, frozen=True, gc=False):
    """A StatefulSet, reduced to its pod selector, which is all that scheduling reads."""

    spec: SpecWithLabelSelector = SpecWithLabelSelector()
