"""Preemption, pod by pod: who holds a node by nomination, and who has to leave for a pod that fits nowhere.

The PostFilters say where room can be made. What follows is the session's: the pod is nominated, pods of lower priority
that were nominated there no longer are, victims that run are evicted, and victims that wait at Permit are rejected.
What the objects promise holds whatever a plugin would like: PodGroups that are not preemptible, or that have not run
for their minimum, keep their pods, and a gang that is disrupted as one leaves as one.
"""

import math
from collections.abc import Iterable

import msgspec

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.metadata import seconds
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Eviction
from batchsched.api.gang_identity import identity_of
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.gang_counts import GangCount
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption.post_filter import Disruption, Handle, Nominations, make_room
from batchsched.framework.status import BoolArray, PostFilterAnswer
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.session.tables.session_tables import SessionTables

PREEMPTED = "Preempted"
"""Why a pod is evicted, as kube-scheduler's event has it."""
NEVER = "Never"


class PodPreemption:
    """The nominations and evictions of one session without the solver.

    Args:
      tables: the tables; held gangs have their places on them already.
      now: seconds since 1970.
    """

    def __init__(self, tables: SessionTables, now: float) -> None:
        self._tables = tables
        self._now = now
        self._priorities: dict[str, int] = {}
        self._budgets: tuple[PodDisruptionBudget, ...] = tables.snapshot.pod_disruption_budgets
        self._never = {
            one.metadata.name for one in tables.snapshot.priority_classes if one.preemption_policy == NEVER
        }
        self._nominated = {pod.key: (pod, node) for pod, node in _nominated(tables)}
        self._nominations: Nominations | None = None
        self.evictions: dict[str, Eviction] = {}
        """By namespace/name of the pod."""

    @property
    def nominations(self) -> Nominations:
        """The pods that wait for a node, as things stand."""
        if self._nominations is None:
            pods: dict[int, tuple[Pod, ...]] = {}
            for _, (pod, node) in sorted(self._nominated.items()):
                pods[node] = (*pods.get(node, ()), pod)
            self._nominations = Nominations(pods, self.priority_of)
        return self._nominations

    def standing(self) -> list[tuple[Pod, int]]:
        """Return the pods that hold a node by nomination now, without those that got a place."""
        there = self._tables.node_table.pods
        return [one for key, one in sorted(self._nominated.items()) if key not in there]

    def priority_of(self, pod: Pod) -> int:
        """Return a pod's priority: its gang's, of which all members share the fate."""
        identity = identity_of(pod)
        known = self._priorities.get(identity)
        if known is None:
            members = self._tables.gangs.get(identity)
            known = (
                self._tables.classes.priority_of(pod)
                if members is None
                else self._tables.classes.gang_priority(members, _all_pods(members))
            )
            self._priorities[identity] = known
        return known

    def presented(self, pod_class: PodClass, pod: Pod) -> PodClass:
        """Return a class showing one of its pods, with the nomination that it has now."""
        return pod_class.showing(self._with_nomination(pod))

    def _with_nomination(self, pod: Pod) -> Pod:
        _, node = self._nominated.get(pod.key, (pod, -1))
        name = self._tables.node_table.names[node] if node >= 0 else ""
        if name == pod.status.nominated_node_name:
            return pod
        return msgspec.structs.replace(
            pod, status=msgspec.structs.replace(pod.status, nominated_node_name=name)
        )

    def make_room(
        self, gang: PendingGang, pod_class: PodClass, pod: Pod, scan: FilterResult, allowed: BoolArray | None
    ) -> PostFilterAnswer:
        """Ask the PostFilters for a pod of a gang that needs one more, and do as they say.

        Args:
          gang: the pod's.
          pod_class: the pod's.
          pod: fits nowhere.
          scan: why.
          allowed: [N] the nodes inside the gang's domains, None for all.

        Raises:
          PluginError: a PostFilter broke.
        """
        tables = self._tables
        shown = self._with_policy(gang, self._with_nomination(pod))
        handle = Handle(
            tables.pipeline,
            pod_class.showing(shown),
            tables.node_table,
            scan if allowed is None else scan.only(allowed),
            self.nominations,
            Disruption(self._spared, self._budgets),
        )
        answer = make_room(handle)
        if answer.node is not None:
            self._nominate(pod, answer.node, pod_class.priority)
        if answer.status.ok:
            self._take_away(gang, answer)
        return answer

    def forget(self, gang: PendingGang) -> None:
        """Take the nominations of a gang back: what refused it is not room."""
        for part in gang.parts:
            for pod in part.pods:
                self._drop(pod.key)

    def _with_policy(self, gang: PendingGang, pod: Pod) -> Pod:
        """Return a pod that says of itself whether it preempts, where its gang or its class says so for it."""
        group = gang.members.group
        unstated = pod.spec.preemption_policy is None and pod.spec.priority_class_name in self._never
        if unstated or (group is not None and group.spec.preemption_policy == NEVER):
            return msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, preemption_policy=NEVER)
            )
        return pod

    def _nominate(self, pod: Pod, name: str, priority: int) -> None:
        """Nominate a pod for a node, "" for none; those of lower priority that waited for the node no longer do.

        Source: `getLowerPriorityNominatedPods` of kube-scheduler's framework/preemption.
        """
        self._drop(pod.key)
        if not name:
            return
        node = self._tables.node_table.index[name]
        outdone = [
            key
            for key, (other, at) in self._nominated.items()
            if at == node and self.priority_of(other) < priority
        ]
        for key in outdone:
            self._drop(key)
        self._nominated[pod.key] = (pod, node)
        self._nominations = None

    def _drop(self, key: str) -> None:
        if self._nominated.pop(key, None) is not None:
            self._nominations = None

    def _spared(self, pod: Pod) -> bool:
        """Tell whether a pod must stay: it has just got its place, or its PodGroup says so."""
        members = self._tables.gangs.get(identity_of(pod))
        if members is None:
            return False
        if pod.key in members.pending:
            return self._tables.node_table.waiting.get(pod.key) is None
        group = members.group
        if group is None:
            return False
        least = group.spec.min_runtime_seconds
        return not group.spec.preemptible or (least > 0 and self._now - started(members) < least)

    def _take_away(self, gang: PendingGang, answer: PostFilterAnswer) -> None:
        """Evict victims that run, and reject those that wait."""
        if not answer.node:
            return
        there = {
            pod.key: pod
            for pod in self._tables.node_table.pods.on(self._tables.node_table.index[answer.node])
        }
        victims = [there[key] for key in answer.victims]
        for pod in self._with_their_gangs(victims):
            waiting = self._tables.node_table.waiting.get(pod.key)
            if waiting is not None:
                waiting.reject(answer.status.plugin, "preempted")
            elif not pod.terminating and pod.key not in self.evictions:
                self._evict(pod, gang)

    def _with_their_gangs(self, victims: Iterable[Pod]) -> list[Pod]:
        """Return victims, and with them the pods of gangs that go as one, or that fall short of their minimum."""
        leaving = {pod.key: pod for pod in victims}
        for identity in dict.fromkeys(identity_of(pod) for pod in leaving.values()):
            members = self._tables.gangs.get(identity)
            if members is None or members.group is None:
                continue
            bound = [pod for pod, _ in members.bound.values()]
            if members.group.spec.disruption_mode == "Gang" or not _complete_without(members, leaving):
                leaving |= {pod.key: pod for pod in bound}
        return list(leaving.values())

    def _evict(self, pod: Pod, gang: PendingGang) -> None:
        members = self._tables.gangs.get(identity_of(pod))
        name = members.key.partition("/")[2] if members is not None else pod.name
        self.evictions[pod.key] = Eviction(
            namespace=pod.namespace, pod=pod.name, pod_group=name, for_=gang.key, reason=PREEMPTED
        )
        self._budgets = tuple(budget.without(pod) for budget in self._budgets)


def _nominated(tables: SessionTables) -> Iterable[tuple[Pod, int]]:
    """Name the pods that wait and were nominated for a node that exists; held ones have their place."""
    for members in tables.gangs.values():
        for pod in members.pending.values():
            node = tables.node_table.index.get(pod.status.nominated_node_name)
            if node is not None and pod.key not in tables.node_table.pods:
                yield pod, node


def _all_pods(members: PodGroupState) -> list[Pod]:
    return [*members.pending.values(), *(pod for pod, _ in members.bound.values())]


def started(members: PodGroupState) -> float:
    """Return when the gang began to run: the latest start of its first members; never is now."""
    return min(
        (seconds(pod.status.start_time, math.inf) for pod, _ in members.bound.values()), default=math.inf
    )


def _complete_without(members: PodGroupState, leaving: dict[str, Pod]) -> bool:
    count: GangCount = members.count()
    for key, (pod, _) in members.bound.items():
        if key in leaving:
            count.count(pod, -1)
    return count.complete
