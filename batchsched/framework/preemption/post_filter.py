"""What is asked when a pod fits nowhere, and what nominated pods do to the answer of the filters.

A nominated pod waits for room on a node that was, or is being, made for it. Others of lower priority must not take
it: the filters are asked about such a node twice, with the nominated pods on it and without.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.interface import Leaving, PreFilterExtensionsPlugin
from batchsched.framework.nodes.host_ports import HostPort, host_ports
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption.dry_run import PreemptionDryRun
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.framework.runtime.sampling import Sampling
from batchsched.framework.status import SUCCESS, BoolArray, Code, IntArray, PostFilterAnswer, Status, Verdict


def stated_priority(pod: Pod) -> int:
    """Return the priority that stands in a pod's spec, as an API server resolves it; 0 where none does."""
    return pod.spec.priority or 0


@dataclass(frozen=True, slots=True)
class Nominations:
    """The pods that wait for a node.

    Args:
      pods: by the node's place in the table.
      priority_of: resolves a pod's priority.
    """

    pods: dict[int, tuple[Pod, ...]]
    priority_of: Callable[[Pod], int] = stated_priority

    @classmethod
    def of(
        cls, pods: Iterable[Pod], table: NodeTable, priority_of: Callable[[Pod], int] = stated_priority
    ) -> "Nominations":
        """Gather the pods that name a node of the table in `status.nominatedNodeName`."""
        found: dict[int, tuple[Pod, ...]] = {}
        for pod in pods:
            node = table.index.get(pod.status.nominated_node_name)
            if node is not None:
                found[node] = (*found.get(node, ()), pod)
        return cls(found, priority_of)

    def rivals(self, pod: PodClass, node: int) -> tuple[Pod, ...]:
        """Return the other pods that wait for a node and whose priority is equal or higher."""
        return tuple(
            one
            for one in self.pods.get(node, ())
            if one.key != pod.pod.key and self.priority_of(one) >= pod.priority
        )


class NodeTrial:
    """One node as it would be with other pods on it. Table and cycle state are as before once it is left.

    As in kube-scheduler the host ports that are taken are a set: where two pods hold one port, it is free once
    one of them has left.

    Source: `HostPortInfo` of kube-scheduler's framework.
    """

    def __init__(self, handle: "Handle", node: int) -> None:
        self._handle = handle
        self._node = node
        self._state = handle.scan.state.clone()
        self._undo: list[tuple[Pod, bool]] = []
        self._counted: dict[str, tuple[IntArray, IntArray]] = {}
        self._ports = self._held_ports()

    def __enter__(self) -> "NodeTrial":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Put the table back."""
        self._take_back(0, self._ports)

    def add(self, pod: Pod) -> None:
        """Put a pod on the node."""
        self._change(pod, self._state, come=True)

    def remove(self, pod: Pod) -> None:
        """Take a pod off the node."""
        self._change(pod, self._state, come=False)

    def refusal(self) -> Status:
        """Ask all Filters, with nominated pods and without; Success when both fit."""
        crowded = self.refusal_beside_nominated()
        return crowded if not crowded.ok else self._ask(self._state)

    def refusal_beside_nominated(self) -> Status:
        """Ask all Filters with the nominated pods on the node; Success when there are none."""
        handle = self._handle
        # A nominated pod that has got its place already, here or elsewhere, is counted there.
        rivals = [
            one
            for one in handle.nominations.rivals(handle.pod, self._node)
            if one.key not in handle.table.pods
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
        """Undo all changes but the first `mark`, the last one first."""
        while len(self._undo) > mark:
            pod, came = self._undo.pop()
            self._move(pod, come=not came)
        self._handle.table.pods.ports_on[self._node] = ports

    def _held_ports(self) -> dict[str, tuple[HostPort, ...]]:
        return dict(self._handle.table.pods.ports_on.get(self._node, {}))

    def _change(self, pod: Pod, state: CycleState, *, come: bool) -> None:
        self._move(pod, come=come)
        self._undo.append((pod, come))
        handle = self._handle
        for plugin in handle.following:
            if name_of(plugin) not in state.skip_filter:
                point, call = ("AddPod", plugin.add_pod) if come else ("RemovePod", plugin.remove_pod)
                ask(plugin, point, call, handle.pod, pod, self._node, handle.table, state)

    def _move(self, pod: Pod, *, come: bool) -> None:
        table = self._handle.table
        if come:
            table.add([(pod, self._node)], *(self._counted.pop(pod.key, None) or table.read_requests(pod)))
            return
        self._counted[pod.key] = table.counted(pod)
        table.remove([pod])
        freed = host_ports(pod)
        there = table.pods.ports_on.get(self._node)
        if freed and there:
            for key, held in there.items():
                there[key] = tuple(port for port in held if port not in freed)

    def _ask(self, state: CycleState) -> Status:
        """Ask every Filter in order; the first refusal stands."""
        view = self._handle.table.one(self._node)
        for plugin in self._handle.pipeline.filters:
            if name_of(plugin) in state.skip_filter:
                continue
            verdict = ask(plugin, "Filter", plugin.filter, self._handle.pod, view, state)
            if verdict.refused.any():
                code = Code.UNRESOLVABLE if verdict.unresolvable[0] else Code.UNSCHEDULABLE
                return Status(code, verdict.reasons_at(0), name_of(plugin))
        return SUCCESS


def nobody_spared(_pod: Pod) -> bool:
    """Where nobody says otherwise, every pod of lower priority may be made to leave."""
    return False


@dataclass(frozen=True, slots=True)
class Disruption:
    """What is allowed when pods are made to leave.

    Args:
      spares: tells which pods must stay whatever their priority.
      budgets: the disruption budgets as they stand; None for those of the snapshot.
    """

    spares: Callable[[Pod], bool] = nobody_spared
    budgets: tuple[PodDisruptionBudget, ...] | None = None


@dataclass(frozen=True, slots=True)
class Handle:
    """What a PostFilter may look at and try, for one pod that fits nowhere."""

    pipeline: Pipeline
    pod: PodClass
    table: NodeTable
    scan: FilterResult
    nominations: Nominations
    disruption: Disruption = Disruption()
    following: tuple[PreFilterExtensionsPlugin, ...] = field(init=False)
    """The plugins that are told who comes and goes in a trial; to ask each of them each time would be slow."""

    def __post_init__(self) -> None:
        told = (one for one in self.pipeline.prefilters if isinstance(one, PreFilterExtensionsPlugin))
        object.__setattr__(self, "following", tuple(told))

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """The disruption budgets, what was evicted in this session taken off."""
        stated = self.disruption.budgets
        return self.table.snapshot.pod_disruption_budgets if stated is None else stated

    def priority_of(self, pod: Pod) -> int:
        """Return a pod's resolved priority."""
        return self.nominations.priority_of(pod)

    def lower_on(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that may be made to leave: of lower priority, and not spared."""
        return [
            one
            for one in self.table.pods.on(node)
            if self.priority_of(one) < self.pod.priority and not self.disruption.spares(one)
        ]

    def trial(self, node: int) -> NodeTrial:
        """Begin a trial of one node."""
        return NodeTrial(self, node)

    def trials(self, nodes: Sequence[int]) -> PreemptionDryRun:
        """Begin trials of those of some nodes that can be tried together: nobody else waits for them."""
        together: Sequence[int] = ()
        if self.pipeline.foresees(self.scan.state):
            waited_for = {node for node in self.nominations.pods if self.nominations.rivals(self.pod, node)}
            together = [node for node in nodes if node not in waited_for]
        return PreemptionDryRun(self.pipeline, self.pod, self.table, self.scan.state, together)

    def agreed(self, victims: Mapping[str, Leaving]) -> Mapping[str, Leaving]:
        """Return the nodes where room may be made, by name, after the extenders were asked; in their order.

        Raises:
          ExtenderError: one failed that may not be ignored.
        """
        return self.pipeline.extenders.preempt(self.pod.pod, victims, self._lower_on)

    def _lower_on(self, name: str) -> Sequence[Pod] | None:
        node = self.table.index.get(name)
        return None if node is None else self.lower_on(node)


def filter_with_nominations(
    handle: Handle,
    extend: Callable[[FilterResult], FilterResult],
    allowed: BoolArray | None = None,
    sampling: Sampling | None = None,
) -> FilterResult:
    """Complete the filter result of one pod when pods are nominated for nodes.

    Nominated pods of equal or higher priority keep their room. If the pod fits on the node that it is nominated for
    itself, no other node is considered, and the sampling position for the next pod does not move.

    Args:
      handle: the pod with its current nomination, and the result of the Filters.
      extend: calls the extenders about the feasible nodes of a result.
      allowed: [N] nodes that the pod's domains permit; None for all.
      sampling: limits the number of feasible nodes; None for no limit.

    Raises:
      PluginError: a plugin failed.
      ExtenderError: an extender failed that may not be ignored.
    """
    result = beside_nominated(handle)
    own = on_own_node(result, handle.pod, handle.table)
    if own is not None:
        own = extend(own)
        if (own.fits if allowed is None else own.fits & allowed).any():
            return own
    if sampling is not None:
        result = sampling.narrowed(result, allowed)
    return extend(result)


def on_own_node(scan: FilterResult, pod: PodClass, table: NodeTable) -> FilterResult | None:
    """Return a scan in which only the node fits that the pod itself is nominated for; None where that one does not.

    Source: `evaluateNominatedNode` of kube-scheduler.
    """
    own = table.index.get(pod.pod.status.nominated_node_name)
    if own is None or not scan.fits[own]:
        return None
    return replace(scan, fits=np.arange(len(table.nodes)) == own)


def beside_nominated(handle: Handle) -> FilterResult:
    """Return a handle's scan with nodes that others wait for refused where the pod does not fit beside them.

    Whether the node fits that the pod itself is nominated for the Filters say alone, whatever PreFilter narrowed.

    Source: `RunFilterPluginsWithNominatedPods` and `evaluateNominatedNode` of kube-scheduler.

    Raises:
      PluginError: a plugin broke.
    """
    scan, nominations, pod, table = handle.scan, handle.nominations, handle.pod, handle.table
    if not scan.status.ok:
        return scan
    own = table.index.get(pod.pod.status.nominated_node_name)
    if own is not None:
        scan = scan.asking_at(own)
    for node in sorted(nominations.pods):
        if (scan.outside is not None and scan.outside[node]) or not nominations.rivals(pod, node):
            continue
        with handle.trial(node) as trial:
            refusal = trial.refusal_beside_nominated()
        if not refusal.ok:
            scan = _refused(scan, node, refusal)
    return scan


def _refused(scan: FilterResult, node: int, refusal: Status) -> FilterResult:
    """Return a scan in which a node is refused as stated, whatever was said of it before."""
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


def make_room(handle: Handle) -> PostFilterAnswer:
    """Ask the PostFilters for a pod that fits nowhere.

    The first success wins, UnschedulableAndUnresolvable and Error end the chain, the reasons of the others are put
    together. The last of these that says something of the pod's nomination is heard.

    Source: `RunPostFilterPlugins` of kube-scheduler.

    Raises:
      PluginError: a plugin broke, or answered anything else.
    """
    reasons: list[str] = []
    first = ""
    node: str | None = None
    for plugin in handle.pipeline.postfilters:
        stated = ask(plugin, "PostFilter", plugin.postfilter, handle.pod, handle.scan, handle)
        answer = answers.postfiltered(plugin, stated, handle.table.index)
        if answer.status.code is Code.SUCCESS:
            _check_victims(plugin, answer, handle)
            return answer
        if answer.status.code in (Code.UNRESOLVABLE, Code.ERROR):
            return answer
        node = node if answer.node is None else answer.node
        reasons += answer.status.reasons
        first = first or answer.status.plugin
    return PostFilterAnswer(Status(Code.UNSCHEDULABLE, tuple(reasons), first), node)


def _check_victims(plugin: object, answer: PostFilterAnswer, handle: Handle) -> None:
    """Hold a PostFilter to victims that are on the node that it names."""
    there = {pod.key for pod in handle.table.pods.on(handle.table.index[answer.node])} if answer.node else ()
    strangers = [key for key in answer.victims if key not in there]
    if strangers:
        problem = f"expected victims on node {answer.node!r}; not there: {', '.join(strangers)}"
        raise PluginError(name_of(plugin), "PostFilter", problem)


def message(status: Status) -> str:
    """Return a status's reasons as kube-scheduler joins them: nothing of a success."""
    return ", ".join(status.reasons)
