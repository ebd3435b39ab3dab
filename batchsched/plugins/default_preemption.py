"""DefaultPreemption: for a pod that fits on no node, chooses the node where evictions do the least harm."""

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.api.crd.base import StrictModel
from batchsched.errors import PluginError
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint
from batchsched.framework.filter_result import FilterResult, fit_error_message
from batchsched.framework.interface import (
    CandidateNodesDryRun,
    EnqueueExtensionsPlugin,
    NodeDryRun,
    PostFilterHandle,
    PostFilterPlugin,
    SignaturePlugin,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption import may_preempt
from batchsched.framework.status import Code, PostFilterAnswer, Status

NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_CANDIDATE: Final = "no candidate node for preemption"
NOMINATED: Final = (
    "preemption: found a potential placement for pod on node {node}, preempting {victims} victims"
)
POLICY_NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
PREEMPTED: Final = "PreemptionByScheduler"
PRIORITY_OFFSET: Final = 2**31
"""Added to every priority before priorities are summed, so that each victim increases the sum."""


class DefaultPreemptionArgs(StrictModel):
    """Arguments of DefaultPreemption, as in kube-scheduler."""

    min_candidate_nodes_percentage: int = Field(
        default=10,
        ge=0,
        le=100,
        description="Minimum share of the nodes, in percent, on which the search looks for victims.",
    )
    min_candidate_nodes_absolute: int = Field(
        default=100, ge=0, description="Minimum number of nodes on which the search looks for victims."
    )

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError(
                "minCandidateNodesPercentage and minCandidateNodesAbsolute: both are 0; set one of them"
            )
        return self


class PreemptionCandidate(NamedTuple):
    """A node on which the pending pod would fit after evictions, and the victims of these evictions.

    Args:
      node: the node's name.
      victims: the pods to evict, the most important first.
      violations: number of victims protected by a disruption budget.
    """

    node: str
    victims: tuple[Pod, ...]
    violations: int


@dataclass(slots=True)
class PreemptionSearchResult:
    """The nodes on which a pod fits after evictions, and the reasons why other nodes are not suitable."""

    candidates: list[PreemptionCandidate] = field(default_factory=list)
    rejected: dict[str, Status] = field(default_factory=dict)

    def no_candidate_message(self, nodes: int) -> str:
        """Return the message that summarizes why preemption does not help on any node."""
        counts: dict[str, int] = {NOT_HELPFUL: nodes - len(self.rejected)}
        for status in self.rejected.values():
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return fit_error_message(nodes, [f"{count} {reason}" for reason, count in counts.items() if count])


class DefaultPreemption(SignaturePlugin, PostFilterPlugin, EnqueueExtensionsPlugin):
    """Finds the node on which the eviction of pods of lower priority does the least harm.

    The start of the search depends on the pod's name, where kube-scheduler draws a random one. Of equally good
    candidates the first in the order of the search wins.

    Source: kube-scheduler's plugins/defaultpreemption and framework/preemption, v1.36.3.
    """

    name: ClassVar[str] = "DefaultPreemption"
    Args: ClassVar[type[DefaultPreemptionArgs]] = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self.args = args or DefaultPreemptionArgs()

    @override
    def signature(self, pod: Pod) -> str:
        return pod.spec.preemption_policy or ""

    @override
    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        why_not = ineligibility_reason(pod, scan, handle)
        if why_not:
            return _no(why_not)
        search = self.find_candidates(pod, scan, handle)
        if not search.candidates:
            return _no(search.no_candidate_message(len(handle.node_table.nodes)), node="")
        agreed = handle.call_extenders({one.node: (one.victims, one.violations) for one in search.candidates})
        if not agreed:
            return _no(NO_CANDIDATE)
        best = choose_candidate(
            [PreemptionCandidate(node, *leaving) for node, leaving in agreed.items()], handle
        )
        victims = tuple(victim.key for victim in best.victims)
        if not handle.node_table.release.reports_nomination:
            return PostFilterAnswer(node=best.node, victims=victims)
        message = NOMINATED.format(node=best.node, victims=len(victims))
        return PostFilterAnswer(Status(reasons=(message,)), best.node, victims)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _victim_left),)

    def find_candidates(
        self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle
    ) -> PreemptionSearchResult:
        """Simulate evictions node by node, and return the nodes on which the pod would fit afterwards.

        The search ends when it has found as many nodes as the arguments of the plugin require, and the evictions on at
        least one of these nodes violate no disruption budget. The result also states why other nodes are not suitable.

        Raises:
          PluginError: the pod fits on a node without evictions; or a plugin failed on a node and there is no
            candidate.
        """
        names = handle.node_table.names
        places = scan.nodes_where_preemption_may_help()
        result = PreemptionSearchResult()
        if not places:
            return result
        enough = min(
            max(
                len(places) * self.args.min_candidate_nodes_percentage // 100,
                self.args.min_candidate_nodes_absolute,
            ),
            len(places),
        )
        start = zlib.crc32(pod.pod.key.encode()) % len(places)
        broken: PluginError | None = None
        unharmed = 0
        for node, room in _try_nodes((*places[start:], *places[:start]), enough, handle):
            if isinstance(room, Status):
                result.rejected[names[node]] = room
            elif isinstance(room, PluginError):
                broken = broken or room
            elif not room.victims:
                problem = f'expected at least one victim pod on node "{names[node]}"'
                broken = broken or PluginError(self.name, "PostFilter", problem)
            else:
                result.candidates.append(room)
                unharmed += not room.violations
                if unharmed and len(result.candidates) >= enough:
                    break
        if broken is not None and not result.candidates:
            raise broken
        result.candidates.sort(key=lambda candidate: candidate.violations > 0)
        return result


def _victim_left(pod: Pod, old: Pod, _new: None) -> Hint:
    """Return QUEUE if a pod was deleted from the node for which this pod is nominated."""
    return Hint.queue_if(
        bool(pod.status.nominated_node_name) and old.node_name == pod.status.nominated_node_name
    )


def ineligibility_reason(pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> str:
    """Return the reason why a pod must not preempt other pods, or "" if the pod may preempt.

    Source: `PodEligibleToPreemptOthers` of kube-scheduler.
    """
    if not may_preempt(pod.pod):
        return POLICY_NEVER
    node = handle.node_table.index.get(pod.pod.status.nominated_node_name)
    if node is None or scan.code_at(node) is Code.UNRESOLVABLE:
        return ""
    leaving = (
        handle.priority_of(existing) < pod.priority and is_terminating_by_preemption(existing)
        for existing in handle.node_table.pod_table.pods_on(node)
    )
    return TERMINATING if any(leaving) else ""


def is_terminating_by_preemption(pod: Pod) -> bool:
    """Return True if a pod is being deleted because it was preempted."""
    if not pod.terminating:
        return False
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == PREEMPTED
    return False


def _try_nodes(
    places: Sequence[int], together: int, handle: PostFilterHandle
) -> Iterator[tuple[int, PreemptionCandidate | Status | PluginError]]:
    """Yield for each node its candidate, or why it has none. Nodes are tried in batches where that is possible.

    If a plugin fails on one node, the other nodes are still tried.

    Source: `DryRunPreemption` of kube-scheduler's framework/preemption, which collects the errors.
    """
    step = max(1, together)
    for start in range(0, len(places), step):
        batch = places[start : start + step]
        try:
            rooms = _select_victims_together(handle.start_candidate_nodes_dry_run(batch), handle)
        except PluginError:  # The trial of each single node repeats the error.
            rooms = {}
        for node in batch:
            try:
                yield node, rooms[node] if node in rooms else _select_victims(node, handle)
            except PluginError as error:
                yield node, error


def _select_victims(node: int, handle: PostFilterHandle) -> PreemptionCandidate | Status:
    """Remove all pods of lower priority, then add back those that leave enough room, the most important first.

    Returns:
      The candidate, or the refusal if the pod does not fit even without these pods.

    Source: `SelectVictimsOnNode` of kube-scheduler.
    """
    lower = handle.potential_victims(node)
    if not lower:
        return Status(Code.UNRESOLVABLE, (NO_VICTIMS,))
    with handle.start_node_dry_run(node) as trial:
        return _reprieve_pods(handle.node_table.names[node], lower, trial, handle)


def _reprieve_pods(
    node: str, lower: Sequence[Pod], trial: NodeDryRun, handle: PostFilterHandle
) -> PreemptionCandidate | Status:
    for victim in lower:
        trial.remove_pod(victim)
    refusal = trial.run_filters()
    if not refusal.ok:
        return refusal
    leaving = NodeReprieve.from_removed_pods(lower, handle)
    for index, victim in enumerate(leaving.order):
        trial.add_pod(victim)
        if not trial.run_filters().ok:
            trial.remove_pod(victim)
            leaving.mark_as_victim(index)
    return leaving.to_candidate(node)


def _select_victims_together(
    trials: CandidateNodesDryRun, handle: PostFilterHandle
) -> dict[int, PreemptionCandidate | Status]:
    """Do what `_select_victims` does for all nodes of a dry run at once."""
    names = handle.node_table.names
    lower = [handle.potential_victims(node) for node in trials.node_indexes]
    rows = np.repeat(np.arange(len(lower), dtype=np.int32), [len(some) for some in lower])
    trials.remove_pods(rows, [pod for some in lower for pod in some])
    results: dict[int, PreemptionCandidate | Status] = {}
    reprieves: dict[int, NodeReprieve] = {}
    for row, (node, lower_pods, refusal) in enumerate(
        zip(trials.node_indexes, lower, trials.run_filters(), strict=True)
    ):
        if not lower_pods:
            results[node] = Status(Code.UNRESOLVABLE, (NO_VICTIMS,))
        elif not refusal.ok:
            results[node] = refusal
        else:
            reprieves[row] = NodeReprieve.from_removed_pods(lower_pods, handle)
    for index in range(max((len(one.order) for one in reprieves.values()), default=0)):
        rows_left = [row for row, one in reprieves.items() if index < len(one.order)]
        trials.add_pods(np.asarray(rows_left, np.int32), [reprieves[row].order[index] for row in rows_left])
        fits = trials.mask_where_pending_pod_still_fits(np.asarray(rows_left, np.int32))
        out = [row for row, fit in zip(rows_left, fits.tolist(), strict=True) if not fit]
        trials.remove_pods(np.asarray(out, np.int32), [reprieves[row].order[index] for row in out])
        for row in out:
            reprieves[row].mark_as_victim(index)
    return results | {
        trials.node_indexes[row]: reprieve.to_candidate(names[trials.node_indexes[row]])
        for row, reprieve in reprieves.items()
    }


@dataclass(slots=True)
class NodeReprieve:
    """The reprieve on one node: the pods that a dry run removed, and which of them cannot be added back.

    Args:
      by_importance: the pods, the most important first.
      order: the pods, beginning with those for which an eviction violates a disruption budget.
      violating: the number of pods at the beginning of `order` for which an eviction violates a budget.
      away: keys of the pods that cannot be added back.
      violations: the number of pods in `away` for which an eviction violates a budget.
    """

    by_importance: Sequence[Pod]
    order: tuple[Pod, ...]
    violating: int
    away: set[str] = field(default_factory=set)
    violations: int = 0

    @classmethod
    def from_removed_pods(cls, lower: Sequence[Pod], handle: PostFilterHandle) -> "NodeReprieve":
        """Create the reprieve from the removed pods, sorted in the order in which it adds them back."""
        ordered = (
            sorted(lower, key=lambda removed: importance_key(removed, handle)) if len(lower) > 1 else lower
        )
        violating, compliant = split_by_disruption_budget(ordered, handle.budgets)
        return cls(ordered, (*violating, *compliant), len(violating))

    def mark_as_victim(self, index: int) -> None:
        """Record that a removed pod, stated by its index in `order`, cannot be added back to the node."""
        self.away.add(self.order[index].key)
        self.violations += index < self.violating

    def to_candidate(self, node: str) -> PreemptionCandidate:
        """Return the node with its victims, which are the removed pods that cannot be added back."""
        victims = tuple(pod for pod in self.by_importance if pod.key in self.away)
        return PreemptionCandidate(node, victims, self.violations)


def importance_key(pod: Pod, handle: PostFilterHandle) -> tuple[int, float, str]:
    """Return a sort key that puts the most important pods first: by higher priority, then by earlier start.

    Source: `MoreImportantPod` of kube-scheduler's util; a pod that has not started counts as starting now.
    """
    return -handle.priority_of(pod), pod.start_time(unknown=math.inf), pod.key


def split_by_disruption_budget(
    pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]
) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Split pods into those for which an eviction would violate a PodDisruptionBudget, and all others.

    The evictions of the pods before a pod count against its budgets. Both parts keep the given order.

    Source: `filterPodsWithPDBViolation` of kube-scheduler.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    compliant: list[Pod] = []
    for pod in pods:
        violated = False
        for index, budget in enumerate(budgets):
            if budget.counts_eviction_of(pod):
                allowed[index] -= 1
                violated |= allowed[index] < 0
        (violating if violated else compliant).append(pod)
    return tuple(violating), tuple(compliant)


def choose_candidate(
    candidates: Sequence[PreemptionCandidate], handle: PostFilterHandle
) -> PreemptionCandidate:
    """Return the candidate node on which evictions do the least harm; the first one on a tie.

    Source: `pickOneNodeForPreemption` of kube-scheduler.
    """
    return min(candidates, key=lambda candidate: candidate_harm(candidate, handle))


def candidate_harm(
    candidate: PreemptionCandidate, handle: PostFilterHandle
) -> tuple[int, int, int, int, float]:
    """Return a sort key for the harm that evictions on a candidate node do; the best node has the smallest key.

    It consists of the violated budgets, the highest priority of a victim, the sum of priorities, the number of
    victims, and the longest run time among the victims of the highest priority.
    """
    priorities = [handle.priority_of(victim) for victim in candidate.victims]
    highest = max(priorities)
    earliest = min(
        victim.start_time(unknown=math.inf)
        for victim, priority in zip(candidate.victims, priorities, strict=True)
        if priority == highest
    )
    total = sum(priority + PRIORITY_OFFSET for priority in priorities)
    return candidate.violations, highest, total, len(candidate.victims), -earliest


def _no(reason: str, node: str | None = None) -> PostFilterAnswer:
    return PostFilterAnswer(Status(Code.UNSCHEDULABLE, (f"preemption: {reason}",)), node)
