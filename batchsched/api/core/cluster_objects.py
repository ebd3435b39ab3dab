"""Objects that affect pods from outside: PriorityClasses, PodDisruptionBudgets, Services and workloads."""

import msgspec

from batchsched.api.core.metadata import ClusterObject, Value
from batchsched.api.core.pod import Pod
from batchsched.api.core.selector import LabelSelector


class PriorityClass(ClusterObject, frozen=True, gc=False):
    """A named priority."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class DisruptionBudgetSpec(Value, frozen=True, gc=False):
    """The pods that a budget protects."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Value, frozen=True, gc=False):
    """The number of disruptions that a budget still allows."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(ClusterObject, frozen=True, gc=False):
    """A limit on voluntary disruptions."""

    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()

    def protects(self, pod: Pod) -> bool:
        """Return whether an eviction of the pod counts against the budget; not if its eviction was already granted.

        Source: `filterPodsWithPDBViolation` of kube-scheduler.
        """
        selector = self.spec.selector
        if not pod.labels or (self.metadata.namespace or "default") != pod.namespace:
            return False
        if selector is None or selector.matches_everything or not selector.matches(pod.labels):
            return False
        return pod.name not in (self.status.disrupted_pods or {})

    def after_eviction_of(self, pod: Pod) -> "PodDisruptionBudget":
        """Return the budget after an eviction of the pod; unchanged if the budget does not protect the pod."""
        if not self.protects(pod):
            return self
        disrupted = {**(self.status.disrupted_pods or {}), pod.name: ""}
        status = DisruptionBudgetStatus(
            disruptions_allowed=self.status.disruptions_allowed - 1, disrupted_pods=disrupted
        )
        return msgspec.structs.replace(self, status=status)


class Namespace(ClusterObject, frozen=True, gc=False):
    """A namespace, for its labels."""


class SelectingSpec(Value, frozen=True, gc=False):
    """The selector of a Service, which consists of plain labels."""

    selector: dict[str, str] | None = None


class Service(ClusterObject, frozen=True, gc=False):
    """A Service, for the pods it selects."""

    spec: SelectingSpec = SelectingSpec()


class ReplicationController(ClusterObject, frozen=True, gc=False):
    """A ReplicationController, for the pods it selects."""

    spec: SelectingSpec = SelectingSpec()


class WorkloadSpec(Value, frozen=True, gc=False):
    """The selector of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class ReplicaSet(ClusterObject, frozen=True, gc=False):
    """A ReplicaSet, for the pods it selects."""

    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(ClusterObject, frozen=True, gc=False):
    """A StatefulSet, for the pods it selects."""

    spec: WorkloadSpec = WorkloadSpec()
