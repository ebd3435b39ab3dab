"""Preemption pod by pod: PostFilter plugins propose victims for a pod that fits on no node.

The session carries the proposal out. It nominates the pod, drops nominations of lower priority for the same node,
evicts victims that run, and rejects victims that wait at Permit. PodGroups restrict what a plugin can do: pods of a
PodGroup that is not preemptible, or has not run for minRuntime, stay, and a gang that is disrupted as a whole is
evicted as a whole.
"""

from collections.abc import Iterable
from functools import partial

import msgspec

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Eviction
from batchsched.api.gang import gang_identity
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.gang_counts import GangPodCounts
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption import (
    PREEMPT_NEVER,
    EvictionLimits,
    Nominations,
    PreemptionHandle,
    run_postfilters,
)
from batchsched.framework.status import BoolArray, PostFilterAnswer
from batchsched.session.preemption.eligibility import (
    PREEMPTED,
    build_eviction,
    is_too_critical_to_evict,
    list_non_preempting_priority_classes,
    preemption_policy_lets_pod_preempt,
)
from batchsched.session.preemption.protection import is_gang_protected
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.session_tables import SessionTables


class GangPriorities:
    """The priorities of gangs and of their pods in a session, computed on first use.

    Nominations refer to it. It refers to no nomination: a reference cycle would keep the tables of a session until a
    garbage collection.

    Args:
      tables: the tables of the session.
    """

    def __init__(self, tables: SessionTables) -> None:
        self._tables = tables
        self._priorities: dict[str, int] = {}
        """Priority of each gang, by identity."""
        self._highest: dict[str, int] = {}
        """Highest priority of the pods of each gang, by identity."""

    def gang_priority_of_pod(self, pod: Pod) -> int:
        """Return the priority of a pod's gang, which counts instead of the priority of the pod itself."""
        identity = gang_identity(pod)
        priority = self._priorities.get(identity)
        if priority is None:
            members = self._tables.gangs.get(identity)
            priorities = self._tables.classes.priorities
            priority = (
                priorities.pod_priority(pod)
                if members is None
                else priorities.priority_capped_by_pod_group(
                    members.group, self.highest_pod_priority_of_gang(members)
                )
            )
            self._priorities[identity] = priority
        return priority

    def highest_pod_priority_of_gang(self, members: GangState) -> int:
        """Return the highest priority among all pending and bound pods of a gang."""
        highest = self._highest.get(members.identity)
        if highest is None:
            highest = self._tables.classes.priorities.highest_pod_priority(_all_pods(members))
            self._highest[members.identity] = highest
        return highest


class PodPreemption:
    """The nominations and evictions of a session that places gangs without the solver.

    Args:
      tables: the tables; the pods of gangs that wait at Permit are on their nodes already.
      now: seconds since 1970.
    """

    def __init__(self, tables: SessionTables, now: float) -> None:
        self._tables = tables
        self._now = now
        self._priorities = GangPriorities(tables)
        self._budgets: tuple[PodDisruptionBudget, ...] = tables.snapshot.pod_disruption_budgets
        """Disruption budgets, less the evictions of this session."""
        self._never_preempting = list_non_preempting_priority_classes(tables.snapshot)
        self._nominated = {pod.key: (pod, node) for pod, node in _nominated_pods(tables)}
        """By pod key, the nominated pod and its node index; every change resets `_nominations`."""
        self._nominations: Nominations | None = None
        self.evictions: dict[str, Eviction] = {}
        """Evictions by `namespace/name` of the pod."""

    @property
    def nominations(self) -> Nominations:
        """The current nominations of pods for nodes, which Filter plugins take into account."""
        if self._nominations is None:
            pods: dict[int, tuple[Pod, ...]] = {}
            for _, (pod, node) in sorted(self._nominated.items()):
                pods[node] = (*pods.get(node, ()), pod)
            self._nominations = Nominations(pods, self._priorities.gang_priority_of_pod)
        return self._nominations

    def list_unplaced_nominations(self) -> list[tuple[Pod, int]]:
        """Return the nominated pods that the session has not placed, with their node indexes."""
        placed = self._tables.node_table.pod_table
        return [nominee for key, nominee in sorted(self._nominated.items()) if key not in placed]

    def pod_class_with_nomination(self, pod_class: PodClass, pod: Pod) -> PodClass:
        """Return a pod's class with the pod as example, including this session's nomination of the pod."""
        return pod_class.with_example_pod(self._with_nomination(pod))

    def _with_nomination(self, pod: Pod) -> Pod:
        _, node = self._nominated.get(pod.key, (pod, -1))
        name = self._tables.node_table.names[node] if node >= 0 else ""
        if name == pod.status.nominated_node_name:
            return pod
        return msgspec.structs.replace(
            pod, status=msgspec.structs.replace(pod.status, nominated_node_name=name)
        )

    def run_postfilters(
        self, gang: PendingGang, pod_class: PodClass, pod: Pod, scan: FilterResult, allowed: BoolArray | None
    ) -> PostFilterAnswer:
        """Call the PostFilter plugins for a pod that fits on no node, and record their nomination and victims.

        Args:
          gang: the pod's gang.
          pod_class: the pod's class.
          pod: the pod, which fits on no node.
          scan: the reasons of the Filter plugins.
          allowed: [N] the nodes inside the gang's topology domain, None for all nodes.

        Raises:
          PluginError: a PostFilter plugin failed.
        """
        tables = self._tables
        shown = self._with_policy(gang, self._with_nomination(pod))
        handle = PreemptionHandle(
            tables.pipeline,
            pod_class.with_example_pod(shown),
            tables.node_table,
            scan if allowed is None else scan.restricted_to(allowed),
            self.nominations,
            EvictionLimits(partial(self._is_protected, pod_class.priority), self._budgets),
        )
        answer = run_postfilters(handle)
        # An empty name is an answer too: the plugin clears the pod's nomination. None leaves it as it is.
        if answer.node is not None:
            self._nominate(pod, answer.node, pod_class.priority)
        if answer.status.ok:
            self._remove_victims(gang, answer)
        return answer

    def drop_nominations_of_gang(self, gang: PendingGang) -> None:
        """Drop the nominations of a gang that was refused for another reason than too few free resources.

        The nominations would keep resources on nodes, although they do not help the gang.
        """
        for part in gang.parts:
            for pod in part.pods:
                self._drop(pod.key)

    def _with_policy(self, gang: PendingGang, pod: Pod) -> Pod:
        """Return the pod with preemptionPolicy Never in its spec if its PodGroup or its PriorityClass states it."""
        # PostFilter plugins read the policy from the pod's spec, as kube-scheduler's do.
        if preemption_policy_lets_pod_preempt(gang, pod, self._never_preempting):
            return pod
        return msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, preemption_policy=PREEMPT_NEVER)
        )

    def _nominate(self, pod: Pod, name: str, priority: int) -> None:
        """Nominate a pod for a node, "" for none, and drop nominations of lower priority for that node.

        Source: `getLowerPriorityNominatedPods` of kube-scheduler's framework/preemption.
        """
        self._drop(pod.key)
        if not name:
            return
        node = self._tables.node_table.index[name]
        outranked = [
            key
            for key, (nominee, nominated_node) in self._nominated.items()
            if nominated_node == node and self._priorities.gang_priority_of_pod(nominee) < priority
        ]
        for key in outranked:
            self._drop(key)
        self._nominated[pod.key] = (pod, node)
        self._nominations = None

    def _drop(self, key: str) -> None:
        if self._nominated.pop(key, None) is not None:
            self._nominations = None

    def _is_protected(self, priority: int, pod: Pod) -> bool:
        """Return True for a pod that no plugin may evict for a pod of a priority.

        This session placed it, its PodGroup protects it, its gang has system-critical pods of a higher priority, or
        the API server refused to evict it.
        """
        if pod.key in self._tables.refused_evictions:
            return True
        members = self._tables.gangs.get(gang_identity(pod))
        if members is None:
            return False
        # A pending pod on a node either waits at Permit, and may be rejected, or was placed by this session. An
        # eviction would contradict the binding that the decision contains.
        if pod.key in members.pending:
            return self._tables.node_table.waiting.get(pod.key) is None
        if is_gang_protected(members, self._tables.queues, self._now):
            return True
        return is_too_critical_to_evict(self._priorities.highest_pod_priority_of_gang(members), priority)

    def _remove_victims(self, gang: PendingGang, answer: PostFilterAnswer) -> None:
        """Evict the victims that run, and reject those that wait at Permit."""
        if not answer.node:
            return
        table = self._tables.node_table
        pods_on_node = {pod.key: pod for pod in table.pod_table.pods_on(table.index[answer.node])}
        for pod in self._with_gangs([pods_on_node[key] for key in answer.victims]):
            waiting = table.waiting.get(pod.key)
            if waiting is not None:
                waiting.reject(answer.status.plugin, "preempted")
            elif not pod.terminating and pod.key not in self.evictions:
                self._evict(pod, gang)

    def _with_gangs(self, victims: Iterable[Pod]) -> list[Pod]:
        """Return the victims, and all pods of gangs that are disrupted as a whole or fall below their minimum."""
        leaving = {pod.key: pod for pod in victims}
        for identity in dict.fromkeys(gang_identity(pod) for pod in leaving.values()):
            members = self._tables.gangs.get(identity)
            if members is None or members.group is None:
                continue
            bound = [pod for pod, _ in members.bound.values()]
            # Below its minimum a gang does no work: its other pods would hold their nodes for nothing.
            if members.group.spec.disruption_mode == "Gang" or not _is_complete_without(members, leaving):
                leaving |= {pod.key: pod for pod in bound}
        return list(leaving.values())

    def _evict(self, pod: Pod, gang: PendingGang) -> None:
        members = self._tables.gangs.get(gang_identity(pod))
        self.evictions[pod.key] = build_eviction(pod, members, gang, PREEMPTED)
        self._budgets = tuple(budget.with_eviction_counted(pod) for budget in self._budgets)


def _nominated_pods(tables: SessionTables) -> Iterable[tuple[Pod, int]]:
    """Yield the pending pods that are nominated for a known node, without those on a node (waiting at Permit)."""
    for members in tables.gangs.values():
        for pod in members.pending.values():
            node = tables.node_table.index.get(pod.status.nominated_node_name)
            if node is not None and pod.key not in tables.node_table.pod_table:
                yield pod, node


def _all_pods(members: GangState) -> list[Pod]:
    return [*members.pending.values(), *(pod for pod, _ in members.bound.values())]


def _is_complete_without(members: GangState, leaving: dict[str, Pod]) -> bool:
    """Return True if the gang and its subGroups reach their minimums without the leaving pods."""
    count: GangPodCounts = members.to_pod_counts()
    for key, (pod, _) in members.bound.items():
        if key in leaving:
            count.change_placed_counts(pod, -1)
    return count.has_minimum_placed and all(
        members.are_subgroups_complete_without_pod(pod, count)
        for key, (pod, _) in members.bound.items()
        if key in leaving
    )
