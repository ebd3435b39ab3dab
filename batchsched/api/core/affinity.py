"""Affinity, tolerations and topology spread constraints of pods."""

from batchsched.api.core.metadata import Value
from batchsched.api.core.node import Taint
from batchsched.api.core.selector import LabelSelector, NodeSelector, NodeSelectorTerm


class PreferredSchedulingTerm(Value, frozen=True, gc=False):
    """A node selector term with a weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Value, frozen=True, gc=False):
    """Required and preferred nodes of a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None


class PodAffinityTerm(Value, frozen=True, gc=False):
    """Pods (by label and namespace) in the same domain of a topology key."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(Value, frozen=True, gc=False):
    """A pod affinity term with a weight."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Value, frozen=True, gc=False):
    """Required and preferred pod affinity terms; also used for anti-affinity."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None

    @property
    def required(self) -> tuple[PodAffinityTerm, ...]:
        """The terms that must hold, never None."""
        return self.required_during_scheduling_ignored_during_execution or ()

    @property
    def preferred(self) -> tuple[WeightedPodAffinityTerm, ...]:
        """The terms that add to the score, never None."""
        return self.preferred_during_scheduling_ignored_during_execution or ()


class Affinity(Value, frozen=True, gc=False):
    """The three kinds of affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Value, frozen=True, gc=False):
    """A toleration of taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint is tolerated.

        Source: `Toleration.ToleratesTaint` of k8s.io/api/core/v1; an empty key with Exists tolerates all keys.
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


class TopologySpreadConstraint(Value, frozen=True, gc=False):
    """A constraint on how evenly matching pods are distributed over the domains of a topology key."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None
