"""Preemption: PostFilter for a pod without a feasible node, dry runs, and nominated pods in the Filters.

A nominated pod waits for capacity on a node, usually until victims have left it. Pods of lower priority must not
use this capacity: for such a node the Filters are called with the nominated pods on it and without them.

If Node objects and requests alone decide, `PipelineCandidateNodesDryRun` tries many nodes at once: one array for all
nodes replaces a dry run on each, because the free resources of a node follow from the requests of the pods that are
removed and added. If a Filter reads more than that, `PipelineNodeDryRun` tries the nodes one after the other.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.interface import NodeVictims
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.nodes.pod_table import HostPort, host_ports
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.framework.runtime.sampling import NodeSampler
from batchsched.framework.status import (
    SUCCESS,
    BoolArray,
    Code,
    IndexArray,
    IntArray,
    PostFilterAnswer,
    Status,
    Verdict,
)


class DryRunNodes(Nodes):
    """A view of n nodes that shows the requested resources of a dry run, not of the node table."""

    __slots__ = ("_nonzero", "_requested")

    def __init__(self, table: NodeTable, nodes: IndexArray, requested: IntArray, nonzero: IntArray) -> None:
        super().__init__(table, nodes, len(nodes))
        self._requested = requested
        self._nonzero = nonzero

    @property
    @override
    def requested(self) -> IntArray:
        """The resources [n, R] that the pods on each node would request after the dry run."""
        return self._requested

    @property
    @override
    def nonzero_requested(self) -> IntArray:
        """The milli-CPU and bytes of memory [n, 2] requested on each node after the dry run, with scoring defaults."""
        return self._nonzero


class PipelineCandidateNodesDryRun:
    """A dry run of preemption on several nodes at once, on copies of the nodes' requested resources.

    Args:
      pipeline: the Filters to call.
      pod: the class of the pending pod.
      table: the nodes.
      state: the cycle state of the class.
      nodes: [n] the nodes, one for each row.
    """

    def __init__(
        self, pipeline: Pipeline, pod: PodClass, table: NodeTable, state: CycleState, nodes: Sequence[int]
    ) -> None:
        self.node_indexes = tuple(nodes)
        self._pod = pod
        self._table = table
        self._state = state
        self._filters = [one for one in pipeline.filters if plugin_name(one) not in state.skip_filter]
        self._counting = [one for one in self._filters if one in pipeline.moving]
        self._nodes_of_rows = np.asarray(self.node_indexes, np.int32)
        self._requested = table.requested[self._nodes_of_rows]
        self._nonzero = table.nonzero_requested[self._nodes_of_rows]

    def add_pods(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Add each pod `pods[i]` to the node `node_indexes[rows[i]]` of this dry run.

        A node may get several pods. The pods are on nodes of the table.
        """
        self._change(rows, pods, 1)

    def remove_pods(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Remove each pod `pods[i]` from the node `node_indexes[rows[i]]` of this dry run."""
        self._change(rows, pods, -1)

    def _change(self, rows: IndexArray, pods: Sequence[Pod], sign: int) -> None:
        if not len(rows):
            return
        counted = [self._table.request_vectors_of_added_pod(pod) for pod in pods]
        requested = np.concatenate([one for one, _ in counted]).reshape(len(rows), -1)
        nonzero = np.concatenate([one for _, one in counted]).reshape(len(rows), -1)
        np.add.at(self._requested, rows, sign * requested)
        np.add.at(self._nonzero, rows, sign * nonzero)

    def run_filters(self) -> list[Status]:
        """Call all Filters for the pending pod on each node of this dry run.

        Return the first refusal for each node, or Success.

        Raises:
          PluginError: a plugin failed.
        """
        statuses = [SUCCESS] * len(self.node_indexes)
        everyone = np.arange(len(self.node_indexes), dtype=np.int32)
        view = self._view(everyone)
        fits = np.ones(len(self.node_indexes), np.bool_)
        for plugin in self._filters:
            answer = call_plugin(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            verdict = answers.checked_verdict(plugin, answer, len(view))
            for row in np.flatnonzero(fits & ~verdict.feasible_mask).tolist():
                statuses[row] = verdict.refusal_status_at(row, plugin_name(plugin))
            fits &= verdict.feasible_mask
        return statuses

    def mask_where_pending_pod_still_fits(self, rows: IndexArray) -> BoolArray:
        """Return an array [k]: True for each given node of this dry run on which the pending pod still fits.

        The pod passed all Filters on these nodes before the last pods were added or removed.

        Raises:
          PluginError: a plugin failed.
        """
        view = self._view(rows)
        fits = np.ones(len(rows), np.bool_)
        for plugin in self._counting:
            answer = call_plugin(plugin, "Filter", plugin.filter, self._pod, view, self._state)
            fits &= answers.checked_verdict(plugin, answer, len(view)).feasible_mask
        return fits

    def _view(self, rows: IndexArray) -> DryRunNodes:
        return DryRunNodes(self._table, self._nodes_of_rows[rows], self._requested[rows], self._nonzero[rows])


PREEMPT_NEVER: Final = "Never"
"""The preemptionPolicy of pods, PriorityClasses and PodGroups that never preempt."""


def may_preempt(pod: Pod, never_preempting: Container[str] = ()) -> bool:
    """Return whether a pod may preempt others: its preemptionPolicy is not Never.

    If the pod's spec has no preemptionPolicy, that of its PriorityClass counts.

    Args:
      pod: the pending pod.
      never_preempting: names of the PriorityClasses with preemptionPolicy Never.
    """
    policy = pod.spec.preemption_policy
    return policy != PREEMPT_NEVER and not (
        policy is None and pod.spec.priority_class_name in never_preempting
    )


def spec_priority(pod: Pod) -> int:
    """Return the priority in a pod's spec, which the API server sets; 0 if the spec has none."""
    return pod.spec.priority or 0


@dataclass(frozen=True, slots=True)
class Nominations:
    """For each node, the pods that are nominated for it.

    Args:
      pods: node index → nominated pods.
      priority_of: resolves a pod's priority.
    """

    pods: dict[int, tuple[Pod, ...]]
    priority_of: Callable[[Pod], int] = spec_priority

    @classmethod
    def from_pods(
        cls, pods: Iterable[Pod], table: NodeTable, priority_of: Callable[[Pod], int] = spec_priority
    ) -> "Nominations":
        """Create nominations from the pods' `status.nominatedNodeName`; unknown nodes are ignored."""
        pods_on: dict[int, tuple[Pod, ...]] = {}
        for pod in pods:
            node = table.index.get(pod.status.nominated_node_name)
            if node is not None:
                pods_on[node] = (*pods_on.get(node, ()), pod)
        return cls(pods_on, priority_of)

    def competing_pods(self, pod: PodClass, node: int) -> tuple[Pod, ...]:
        """Return the pods nominated for a node that have the priority of the given pod or a higher one."""
        return tuple(
            nominated
            for nominated in self.pods.get(node, ())
            if nominated.key != pod.pod.key and self.priority_of(nominated) >= pod.priority
        )


class PipelineNodeDryRun:
    """A dry run of preemption on one node, which removes pods from the node table and adds pods to it.

    The exit restores the table; the cycle state is a copy.

    Used host ports are a set, as in kube-scheduler: if two pods use one port, the port is free after one of them is
    removed.

    Source: `HostPortInfo` of kube-scheduler's framework.
    """

    def __init__(self, handle: "PreemptionHandle", node: int) -> None:
        self._handle = handle
        self._node = node
        self._state = handle.scan.state.clone()
        self._undo: list[tuple[Pod, bool]] = []
        self._counted: dict[str, tuple[IntArray, IntArray]] = {}
        self._ports = self._held_ports()

    def __enter__(self) -> "PipelineNodeDryRun":
        """Begin the dry run."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the node table as it was before the dry run."""
        self._take_back(0, self._ports)

    def add_pod(self, pod: Pod) -> None:
        """Add a pod to the node of this dry run."""
        self._change(pod, self._state, come=True)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod from the node of this dry run."""
        self._change(pod, self._state, come=False)

    def run_filters(self) -> Status:
        """Call the Filters for the pending pod on the node, with and without the node's nominated pods.

        Return the first refusal, or Success.
        """
        crowded = self.run_filters_with_nominated_pods()
        return crowded if not crowded.ok else self._ask(self._state)

    def run_filters_with_nominated_pods(self) -> Status:
        """Call the Filters for the pending pod while the nominated pods that compete with it are on the node.

        Return the first refusal, or Success. Return Success also if no nominated pod competes with the pod.
        """
        handle = self._handle
        # A nominated pod that is already assumed or bound, on this or another node, is in the table and counts there.
        rivals = [
            rival
            for rival in handle.nominations.competing_pods(handle.pod, self._node)
            if rival.key not in handle.node_table.pod_table
        ]
        if not rivals:
            return SUCCESS
        state = self._state.clone()
        mark, ports = len(self._undo), self._held_ports()
        try:
            for rival in rivals:
                self._change(rival, state, come=True)
            return self._ask(state)
        finally:
            self._take_back(mark, ports)

    def _take_back(self, mark: int, ports: dict[str, tuple[HostPort, ...]]) -> None:
        """Undo all changes after the first `mark`, the last one first."""
        while len(self._undo) > mark:
            pod, added = self._undo.pop()
            self._move(pod, come=not added)
        self._handle.node_table.pod_table.ports_on[self._node] = ports

    def _held_ports(self) -> dict[str, tuple[HostPort, ...]]:
        return dict(self._handle.node_table.pod_table.ports_on.get(self._node, {}))

    def _change(self, pod: Pod, state: CycleState, *, come: bool) -> None:
        self._move(pod, come=come)
        self._undo.append((pod, come))
        handle = self._handle
        for plugin in handle.pipeline.prefilter_extensions:
            if plugin_name(plugin) not in state.skip_filter:
                point, call = ("AddPod", plugin.add_pod) if come else ("RemovePod", plugin.remove_pod)
                call_plugin(plugin, point, call, handle.pod, pod, self._node, handle.node_table, state)

    def _move(self, pod: Pod, *, come: bool) -> None:
        table = self._handle.node_table
        if come:
            table.add_pods(
                [(pod, self._node)], *(self._counted.pop(pod.key, None) or table.request_vectors(pod))
            )
            return
        self._counted[pod.key] = table.request_vectors_of_added_pod(pod)
        table.remove_pods([pod])
        freed = host_ports(pod)
        used = table.pod_table.ports_on.get(self._node)
        if freed and used:
            for key, held in used.items():
                used[key] = tuple(port for port in held if port not in freed)

    def _ask(self, state: CycleState) -> Status:
        """Call every Filter in order and return the first refusal, or Success."""
        view = self._handle.node_table.node_view(self._node)
        for plugin in self._handle.pipeline.filters:
            if plugin_name(plugin) in state.skip_filter:
                continue
            answer = call_plugin(plugin, "Filter", plugin.filter, self._handle.pod, view, state)
            verdict = answers.checked_verdict(plugin, answer, len(view))
            if verdict.refused.any():
                return verdict.refusal_status_at(0, plugin_name(plugin))
        return SUCCESS


def no_pod_is_protected(_pod: Pod) -> bool:
    """Return False for every pod, so that no pod is protected from eviction. This is the default."""
    return False


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """Limits for evictions: the pods that must not be evicted, and the disruption budgets.

    Args:
      spares: returns True for pods that must not be evicted, whatever their priority.
      budgets: the current disruption budgets; None for those of the snapshot.
    """

    spares: Callable[[Pod], bool] = no_pod_is_protected
    budgets: tuple[PodDisruptionBudget, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionHandle:
    """The data and dry runs that a PostFilter plugin may use for one pod without a feasible node."""

    pipeline: Pipeline
    pod: PodClass
    node_table: NodeTable
    scan: FilterResult
    nominations: Nominations
    disruption: EvictionLimits = EvictionLimits()

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """The PodDisruptionBudgets as they are after the evictions that this session has decided so far."""
        current = self.disruption.budgets
        return self.node_table.cluster_objects.pod_disruption_budgets if current is None else current

    def priority_of(self, pod: Pod) -> int:
        """Return the priority with which preemption compares a pod with other pods."""
        return self.nominations.priority_of(pod)

    def potential_victims(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that have lower priority than the pending pod and may be evicted."""
        return [
            pod
            for pod in self.node_table.pod_table.pods_on(node)
            if self.priority_of(pod) < self.pod.priority and not self.disruption.spares(pod)
        ]

    def start_node_dry_run(self, node: int) -> PipelineNodeDryRun:
        """Start a dry run of evictions on one node."""
        return PipelineNodeDryRun(self, node)

    def start_candidate_nodes_dry_run(self, nodes: Sequence[int]) -> PipelineCandidateNodesDryRun:
        """Start a dry run of evictions on several nodes at once.

        It omits nodes with nominated pods of equal or higher priority. It has no nodes if a Filter reads more than Node
        objects and requests.
        """
        together: Sequence[int] = ()
        if self.pipeline.filters_need_only_nodes_and_requests(self.scan.state):
            waited_for = {
                node for node in self.nominations.pods if self.nominations.competing_pods(self.pod, node)
            }
            together = [node for node in nodes if node not in waited_for]
        return PipelineCandidateNodesDryRun(
            self.pipeline, self.pod, self.node_table, self.scan.state, together
        )

    def call_extenders(self, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Send the proposed victims on each node to the extenders; return the victims that they choose.

        The extenders may replace victims, and may drop nodes.

        Raises:
          ExtenderError: an extender that may not be ignored failed.
        """
        return self.pipeline.extenders.preempt(self.pod.pod, victims, self._lower_on)

    def _lower_on(self, name: str) -> Sequence[Pod] | None:
        node = self.node_table.index.get(name)
        return None if node is None else self.potential_victims(node)


def restrict_by_nominations_and_extenders(
    handle: PreemptionHandle,
    extend: Callable[[FilterResult], FilterResult],
    allowed: BoolArray | None = None,
    sampling: NodeSampler | None = None,
) -> FilterResult:
    """Exclude feasible nodes because of nominated pods, sampling and extenders; return the new filter result.

    Nodes keep capacity for nominated pods of equal or higher priority. If the pod itself is nominated for a node and
    fits there, no other node is considered, and the sampling position for the next pod does not move.

    Args:
      handle: the pod with its current nomination, and the result of the Filters.
      extend: calls the extenders about the feasible nodes of a result.
      allowed: [N] nodes that the pod's domains permit; None for all.
      sampling: limits the number of feasible nodes; None for no limit.

    Raises:
      PluginError: a plugin failed.
      ExtenderError: an extender that may not be ignored failed.
    """
    result = refuse_nodes_needed_by_nominated_pods(handle)
    own = restrict_to_nominated_node(result, handle.pod, handle.node_table)
    if own is not None:
        own = extend(own)
        if (own.fits if allowed is None else own.fits & allowed).any():
            return own
    if sampling is not None:
        result = sampling.limit_to_sample(result, allowed)
    return extend(result)


def restrict_to_nominated_node(scan: FilterResult, pod: PodClass, table: NodeTable) -> FilterResult | None:
    """Return the filter result limited to the pod's nominated node; None if that node is not feasible.

    Source: `evaluateNominatedNode` of kube-scheduler.
    """
    own = table.index.get(pod.pod.status.nominated_node_name)
    if own is None or not scan.fits[own]:
        return None
    return replace(scan, fits=np.arange(len(table.nodes)) == own)


def refuse_nodes_needed_by_nominated_pods(handle: PreemptionHandle) -> FilterResult:
    """Refuse each node on which the pod does not fit in addition to the nominated pods; return the new filter result.

    Only nominated pods of equal or higher priority count.

    For the pod's own nominated node, only the Filters count, even if PreFilter excludes the node.

    Source: `RunFilterPluginsWithNominatedPods` and `evaluateNominatedNode` of kube-scheduler.

    Raises:
      PluginError: a plugin failed.
    """
    scan, nominations, pod, table = handle.scan, handle.nominations, handle.pod, handle.node_table
    if not scan.status.ok:
        return scan
    own = table.index.get(pod.pod.status.nominated_node_name)
    if own is not None:
        scan = scan.without_prefilter_exclusion(own)
    for node in sorted(nominations.pods):
        if (scan.outside is not None and scan.outside[node]) or not nominations.competing_pods(pod, node):
            continue
        with handle.start_node_dry_run(node) as trial:
            refusal = trial.run_filters_with_nominated_pods()
        if not refusal.ok:
            scan = _refused(scan, node, refusal)
    return scan


def _refused(scan: FilterResult, node: int, refusal: Status) -> FilterResult:
    """Return a result in which a node is refused with a status, which replaces earlier reasons of that plugin."""
    by = scan.plugins.index(refusal.plugin)
    verdict = scan.verdicts[by]
    reasons = tuple(dict.fromkeys((*verdict.reasons, *refusal.reasons)))
    refused = np.zeros((len(reasons), len(scan.fits)), np.bool_)
    refused[: len(verdict.reasons)] = verdict.refused
    refused[:, node] = [reason in refusal.reasons for reason in reasons]
    unresolvable = verdict.unresolvable.copy()
    unresolvable[node] = refusal.code is Code.UNRESOLVABLE
    verdicts = list(scan.verdicts)
    verdicts[by] = Verdict(reasons, refused, unresolvable)
    fits, refused_by = scan.fits.copy(), scan.refused_by.copy()
    fits[node] = False
    refused_by[node] = by
    return replace(scan, fits=fits, refused_by=refused_by, verdicts=tuple(verdicts))


def run_postfilters(handle: PreemptionHandle) -> PostFilterAnswer:
    """Call the PostFilter plugins for a pod without a feasible node, and return their combined answer.

    The first Success is the answer. UnschedulableAndUnresolvable and Error end the chain. Otherwise the reasons of
    all plugins are joined, and the last plugin that sets or clears the nomination decides about it.

    Source: `RunPostFilterPlugins` of kube-scheduler.

    Raises:
      PluginError: a plugin failed, or returned an invalid answer.
    """
    reasons: list[str] = []
    first = ""
    node: str | None = None
    for plugin in handle.pipeline.postfilters:
        answer_of_plugin = call_plugin(
            plugin, "PostFilter", plugin.postfilter, handle.pod, handle.scan, handle
        )
        answer = answers.checked_postfilter_answer(plugin, answer_of_plugin, handle.node_table.index)
        if answer.status.code is Code.SUCCESS:
            _check_victims(plugin, answer, handle)
            return answer
        if answer.status.code in (Code.UNRESOLVABLE, Code.ERROR):
            return answer
        node = node if answer.node is None else answer.node
        reasons += answer.status.reasons
        first = first or answer.status.plugin
    return PostFilterAnswer(Status(Code.UNSCHEDULABLE, tuple(reasons), first), node)


def _check_victims(plugin: object, answer: PostFilterAnswer, handle: PreemptionHandle) -> None:
    """Raise `PluginError` if a victim is not on the node of the answer."""
    keys = (
        {pod.key for pod in handle.node_table.pod_table.pods_on(handle.node_table.index[answer.node])}
        if answer.node
        else ()
    )
    strangers = [key for key in answer.victims if key not in keys]
    if strangers:
        problem = f"expected victims on node {answer.node!r}; not there: {', '.join(strangers)}"
        raise PluginError(plugin_name(plugin), "PostFilter", problem)


def joined_reasons(status: Status) -> str:
    """Return the reasons of a status as one text, joined as kube-scheduler joins them; "" if there are none."""
    return ", ".join(status.reasons)
