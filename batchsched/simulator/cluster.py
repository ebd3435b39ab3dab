"""The simulated cluster, in which gangs arrive and finish, nodes fail, and decisions are carried out.

Every change is passed to the scheduler immediately, object by object.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec, PodStatus
from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, HeldGangPod
from batchsched.api.template_claims import create_claims_from_templates
from batchsched.ports.cluster import ClusterChanges, SchedulerFactory
from batchsched.simulator.recorder import UsageRecorder
from batchsched.simulator.result import GangRecord
from batchsched.simulator.workload import GangArrival, Workload

RUNNING: Final = "Running"


class SimulatedPodBuilder:
    """A factory for pods of the simulated cluster: running pods, and pending pods that replace killed pods.

    Equal pods on one node share a spec; its requests are computed once.
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}
        self._bare: dict[int, tuple[PodSpec, PodSpec]] = {}
        self._status: tuple[int, PodStatus] = (-1, PodStatus())

    def running_pod(self, pod: Pod, node: str, now: int) -> Pod:
        """Return a running copy of a pod, bound to a node and started at `now` (seconds since 1970)."""
        key = (id(pod.spec), node)
        cached = self._specs.get(key)
        if cached is None:
            cached = self._specs[key] = (pod.spec, msgspec.structs.replace(pod.spec, node_name=node))
            self._bare[id(cached[1])] = (cached[1], pod.spec)
        if self._status[0] != now:
            self._status = (now, PodStatus(phase=RUNNING, start_time=format_timestamp(now)))
        status = self._status[1]
        if pod.status.resource_claim_statuses:
            statuses = pod.status.resource_claim_statuses
            status = msgspec.structs.replace(status, resource_claim_statuses=statuses)
        return Pod(metadata=pod.metadata, spec=cached[1], status=status)

    def recreated_pod(self, pod: Pod) -> Pod:
        """Return the pending pod with which its owner, such as a Job, replaces a killed pod."""
        spec = self._bare.get(id(pod.spec))
        if spec is None:
            spec = (pod.spec, msgspec.structs.replace(pod.spec, node_name=""))
            self._bare[id(pod.spec)] = spec
        status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
        return Pod(metadata=pod.metadata, spec=spec[1], status=status)


@dataclass(slots=True)
class SimulatedGang:
    """The state of one gang in the simulated cluster since its arrival.

    The gang is pending, running, finished, or killed and pending again.

    Args:
      number: the gang's index in the order of arrival.
      arrival: the arrival that created the gang.
      gpus: the number of GPUs that the gang's pods request together.
      pending, bound: the pending and the bound pods of the gang by `namespace/name`.
      started: seconds since 1970 at which the gang's minimum was bound; None while it is pending.
      ended: seconds since 1970 at which the gang finished.
      restarts: number of kills; a completion that was scheduled before the last kill is ignored.
      lost: seconds of run time that kills discarded, including those that elapsed before the arrival.
      evicted: number of the gang's pods that decisions evicted.
      placements: (node, number of GPUs, or of pods if the gang has no GPUs) of the gang's last run.
    """

    number: int
    arrival: GangArrival
    gpus: int
    pending: dict[str, Pod] = field(default_factory=dict)
    bound: dict[str, Pod] = field(default_factory=dict)
    started: int | None = None
    ended: int | None = None
    restarts: int = 0
    lost: int = 0
    evicted: int = 0
    placements: tuple[tuple[str, int], ...] = ()

    @property
    def remaining(self) -> int:
        """Seconds that the gang still has to run when it starts; after a kill, its whole run time again."""
        return self.arrival.runtime if self.restarts else self.arrival.remaining

    def record_kill(self, now: int) -> None:
        """Record that the gang was killed, and add its run time since it began to the lost time."""
        if self.started is not None:
            self.lost += now - self.started + (0 if self.restarts else self.arrival.elapsed)
            self.started = None
            self.restarts += 1

    def to_record(self) -> GangRecord:
        """Return the times, the size and the placement of the gang for the result of the run."""
        arrival = self.arrival
        return GangRecord(
            key=arrival.key,
            queue=arrival.queue,
            size=len(arrival.pods),
            gpus=self.gpus,
            submitted=arrival.time,
            started=self.started,
            ended=self.ended,
            runtime=arrival.runtime,
            estimate=arrival.group.spec.expected_runtime_seconds if arrival.group is not None else None,
            placements=self.placements,
            restarts=self.restarts,
            lost=self.lost,
            evicted=self.evicted,
        )


def workload_with_claims(workload: Workload) -> Workload:
    """Create the ResourceClaims that a workload's pods get from templates, and return the workload with them.

    The claims exist from the start of the simulation. They use no devices before their pods are placed.
    """
    pods = (pod for arrival in workload.arrivals for pod in arrival.pods)
    if not any(pod.spec.resource_claims for pod in pods):
        return workload
    cluster = workload.cluster
    claims: list[ResourceClaim] = list(cluster.resource_claims)
    arrivals = []
    for arrival in workload.arrivals:
        arriving, created = create_claims_from_templates(
            arrival.pods, cluster.resource_claim_templates, (claim.key for claim in claims)
        )
        claims.extend(created)
        arrivals.append(replace(arrival, pods=arriving))
    return replace(
        workload, cluster=replace(cluster, resource_claims=tuple(claims)), arrivals=tuple(arrivals)
    )


class SimulatedCluster:
    """A cluster in virtual time, in which gangs arrive and finish, and nodes fail.

    Args:
      workload: the nodes and queues, and the gangs that arrive.
      scheduler: creates the scheduler from the state of the cluster before the first arrival.
    """

    def __init__(self, workload: Workload, scheduler: SchedulerFactory) -> None:
        workload = workload_with_claims(workload)
        self._nodes = workload.cluster.nodes
        self.scheduler = scheduler(workload.cluster)
        self.recorder = UsageRecorder(self._nodes)
        self._permanent_pods = [pod for pod in workload.cluster.pods if pod.node_name]
        self.recorder.add_cluster_usage(self._permanent_pods)
        self.gangs = tuple(
            SimulatedGang(number, arrival, self.recorder.count_gpus(arrival.pods))
            for number, arrival in enumerate(workload.arrivals)
        )
        self.waiting = self.running = self.finished = self.failures = 0
        self._present: dict[int, SimulatedGang] = {}
        self._gang_of_pending: dict[str, SimulatedGang] = {}
        self._down: set[str] = set()
        self._kubelet = SimulatedPodBuilder()
        self._held: tuple[HeldGang, ...] = ()
        self._nominated: set[str] = set()

    @property
    def has_pending_pods(self) -> bool:
        """True if at least one pod in the simulated cluster is pending."""
        return bool(self._gang_of_pending)

    def add_gang(self, gang: SimulatedGang, now: int) -> bool:
        """Add an arriving gang to the cluster; return True if it runs already (its minimum is bound)."""
        arrival = gang.arrival
        gang.bound = {pod.key: pod for pod in arrival.pods if pod.node_name}
        gang.pending = {pod.key: pod for pod in arrival.pods if not pod.node_name}
        self._present[gang.number] = gang
        self._gang_of_pending |= dict.fromkeys(gang.pending, gang)
        groups = () if arrival.group is None else (arrival.group,)
        self.scheduler.apply_changes(ClusterChanges(pod_groups=groups, added_pods=arrival.pods))
        self.recorder.add_queue_and_cluster_usage(arrival.queue, gang.bound.values())
        self.recorder.add_queue_requests(arrival.queue, arrival.pods)
        self.waiting += 1
        return self._starts(gang, now)

    def finish_gang(self, gang: SimulatedGang, now: int) -> None:
        """Record that a gang has finished, and remove its pods and its PodGroup from the cluster."""
        queue, group = gang.arrival.queue, gang.arrival.group
        ended_pods = (*gang.bound.values(), *gang.pending.values())
        self.recorder.add_queue_and_cluster_usage(queue, gang.bound.values(), -1)
        self.recorder.add_queue_requests(queue, ended_pods, -1)
        for key in gang.pending:
            del self._gang_of_pending[key]
        gang.ended = now
        gang.bound, gang.pending = {}, {}
        removed_groups = () if group is None else (group.key,)
        self.scheduler.apply_changes(
            ClusterChanges(removed_pods=ended_pods, removed_pod_groups=removed_groups, ended_pods=ended_pods)
        )
        del self._present[gang.number]
        self.running -= 1
        self.finished += 1

    def apply_decision(self, decision: Decision, now: int) -> list[SimulatedGang]:
        """Carry out a decision of the scheduler, and return the gangs that start as a result."""
        self._evict(decision, now)
        if decision.waiting or self._held:
            self._hold(decision)
        if decision.nominations or self._nominated:
            self._nominate(decision)
        changed: dict[int, tuple[SimulatedGang, list[Pod]]] = {}
        for assignment in decision.assignments:
            key = assignment.pod_key
            gang = self._gang_of_pending.pop(key)
            pod = self._kubelet.running_pod(gang.pending.pop(key), assignment.node, now)
            gang.bound[key] = pod
            changed.setdefault(gang.number, (gang, []))[1].append(pod)
        for gang, pods in changed.values():
            self.recorder.add_queue_and_cluster_usage(gang.arrival.queue, pods)
            self.scheduler.apply_changes(ClusterChanges(bound_pods=pods))
        return [gang for gang, _ in changed.values() if self._starts(gang, now)]

    def _starts(self, gang: SimulatedGang, now: int) -> bool:
        """Start a gang if its minimum is bound, and return whether it started."""
        starts = gang.started is None and len(gang.bound) >= gang.arrival.min_member
        if starts:
            gang.started = now
            self.waiting -= 1
            self.running += 1
        if gang.started is not None:
            gang.placements = self.recorder.gpus_or_pods_by_node(gang.bound.values())
        return starts

    def _evict(self, decision: Decision, now: int) -> None:
        """Evict the pods that a decision names; kill the whole gang if it would fall below its minimum."""
        keys = {eviction.pod_key for eviction in decision.evictions}
        for gang in self._present.values() if keys else ():
            evicted_keys = keys & gang.bound.keys()
            if evicted_keys:
                gang.evicted += self._lose(gang, evicted_keys, now)

    def _lose(self, gang: SimulatedGang, keys: Collection[str], now: int) -> int:
        """Kill some pods of a gang, or all if fewer than its minimum would remain; return their number."""
        if len(gang.bound) - len(keys) < gang.arrival.min_member:
            keys = set(gang.bound)
            if gang.started is not None:
                self.running -= 1
                self.waiting += 1
            gang.record_kill(now)
        removed = [gang.bound.pop(key) for key in list(gang.bound) if key in keys]
        self.recorder.add_queue_and_cluster_usage(gang.arrival.queue, removed, -1)
        recreated = [self._kubelet.recreated_pod(pod) for pod in removed]
        for pod in recreated:
            gang.pending[pod.key] = pod
            self._gang_of_pending[pod.key] = gang
        self.scheduler.apply_changes(
            ClusterChanges(removed_pods=removed, added_pods=recreated, ended_pods=removed)
        )
        return len(removed)

    def _hold(self, decision: Decision) -> None:
        """Record which gangs wait at Permit after a decision, and the nodes that are kept for them."""
        places: dict[str, list[HeldGangPod]] = {}
        for nomination in decision.nominations:
            key = nomination.pod_key
            gang = self._gang_of_pending.get(key)
            if gang is not None:
                places.setdefault(gang.arrival.key, []).append(HeldGangPod(key, nomination.node))
        self._held = tuple(
            HeldGang(
                gang.pod_group,
                gang.plugin,
                gang.deadline,
                tuple(places.get(gang.pod_group, ())),
            )
            for gang in decision.waiting
        )
        self.scheduler.set_waiting_gangs(self._held)

    def _nominate(self, decision: Decision) -> None:
        """Write nominated nodes into the status of pending pods. Pods that wait at Permit are excluded."""
        held = {held_pod.pod for gang in self._held for held_pod in gang.pods}
        nodes = {one.pod_key: one.node for one in decision.nominations}
        before_pods, after_pods = [], []
        for key in sorted((nodes.keys() | self._nominated) - held):
            gang, node = self._gang_of_pending.get(key), nodes.get(key, "")
            if gang is not None and gang.pending[key].status.nominated_node_name != node:
                before = gang.pending[key]
                status = msgspec.structs.replace(before.status, nominated_node_name=node)
                gang.pending[key] = msgspec.structs.replace(before, status=status)
                before_pods.append(before)
                after_pods.append(gang.pending[key])
        self._nominated = nodes.keys() - held
        if before_pods:
            self.scheduler.apply_changes(ClusterChanges(removed_pods=before_pods, added_pods=after_pods))

    # Nodes

    def fail_node(self, node: str, now: int) -> None:
        """Simulate the failure of a node: kill the gangs on it, and remove its pods that belong to no gang.

        The killed gangs become pending again.
        """
        if node in self._down:
            return
        self._down.add(node)
        self.failures += 1
        for gang in self._present.values():
            if any(pod.node_name == node for pod in gang.bound.values()):
                self._lose(gang, gang.bound.keys(), now)
        lost = [pod for pod in self._permanent_pods if pod.node_name == node]
        self.recorder.add_cluster_usage(lost, -1)
        self._permanent_pods = [pod for pod in self._permanent_pods if pod.node_name != node]
        self._set_nodes(lost)

    def repair_node(self, node: str) -> None:
        """Bring a failed node back into the cluster."""
        self._down.discard(node)
        self._set_nodes()

    def _set_nodes(self, removed_pods: Sequence[Pod] = ()) -> None:
        """Pass the nodes that are up to the scheduler, with the pods that were lost with a failed node."""
        nodes: tuple[Node, ...] = tuple(node for node in self._nodes if node.name not in self._down)
        self.recorder.set_nodes(nodes)
        self.scheduler.apply_changes(
            ClusterChanges(nodes=nodes, removed_pods=removed_pods, ended_pods=removed_pods)
        )
