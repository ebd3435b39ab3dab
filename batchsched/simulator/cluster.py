"""The simulated cluster: gangs arrive and finish, nodes fail, and pods are bound as decided.

Every change is passed to the scheduler immediately, object by object. Only a change of nodes creates a new scheduler
from the present state of the cluster.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from batchsched.api.core.metadata import seconds
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Reservation
from batchsched.api.snapshot import HeldGang, HeldPod, Snapshot
from batchsched.ports.cluster import ClusterChanges, SchedulerFactory
from batchsched.simulator.gang_record import GangRun
from batchsched.simulator.kubelet import Kubelet
from batchsched.simulator.queue_series import QueueSeriesRecorder
from batchsched.simulator.utilization import UtilizationRecorder
from batchsched.simulator.workload import Workload


class SimulatedCluster:
    """A cluster in virtual time.

    Args:
      workload: the nodes and queues, and the gangs that arrive.
      scheduler: creates a scheduler from the present state of the cluster.
    """

    def __init__(self, workload: Workload, scheduler: SchedulerFactory) -> None:
        self._start = workload.cluster
        self._make = scheduler
        self.scheduler = scheduler(workload.cluster)
        self.meter = UtilizationRecorder(workload.cluster.nodes)
        self.meter.add(pod for pod in workload.cluster.pods if pod.node)
        self.ledger = QueueSeriesRecorder(self.meter.resources)
        self.lives = tuple(
            GangRun(number, arrival, self.meter.gpus(arrival.pods))
            for number, arrival in enumerate(workload.arrivals)
        )
        self.waiting = self.running = self.finished = self.failures = 0
        self._present: dict[int, None] = {}
        self._gang_of: dict[str, GangRun] = {}
        self._down: set[str] = set()
        self._lasting = list(workload.cluster.pods)
        self._kubelet = Kubelet()
        self._held: tuple[HeldGang, ...] = ()
        self._nominated: set[str] = set()
        self._reservations: tuple[Reservation, ...] = ()

    @property
    def has_pending_pods(self) -> bool:
        """True if a pod is pending."""
        return bool(self._gang_of)

    def arrive(self, gang: GangRun, now: int) -> bool:
        """Add a gang; return True if it is running already."""
        gang.arrive()
        arrival = gang.arrival
        self._present[gang.number] = None
        groups = () if arrival.group is None else (arrival.group,)
        self.scheduler.apply(ClusterChanges(pod_groups=groups, added_pods=arrival.pods))
        for key in gang.pending:
            self._gang_of[key] = gang
        self._count(gang, gang.bound.values())
        self.ledger.want(gang.arrival.queue, map(self.meter.requests, arrival.pods))
        self.waiting += 1
        return self._starts(gang, now)

    def end(self, gang: GangRun, now: int) -> None:
        """Finish a gang: remove its pods and its PodGroup."""
        ended_pods = gang.end(now)
        self._count(gang, [pod for pod in ended_pods if pod.node], -1)
        self.ledger.want(gang.arrival.queue, map(self.meter.requests, ended_pods), -1)
        for pod in ended_pods:
            self._gang_of.pop(pod.key, None)
        group = gang.arrival.group
        self.scheduler.apply(
            ClusterChanges(removed_pods=ended_pods, removed_pod_groups=() if group is None else (group.key,))
        )
        del self._present[gang.number]
        self.running -= 1
        self.finished += 1

    def bind(self, decision: Decision, now: int) -> list[GangRun]:
        """Carry out a decision, and return the gangs that start."""
        self._evict(decision, now)
        self._reservations = decision.reservations
        if decision.waiting or self._held:
            self._hold(decision)
        if decision.nominations or self._nominated:
            self._nominate(decision)
        touched: dict[int, tuple[GangRun, list[Pod]]] = {}
        for assignment in decision.assignments:
            key = f"{assignment.namespace}/{assignment.pod}"
            gang = self._gang_of.pop(key)
            pod = self._kubelet.start(gang.pending[key], assignment.node, now)
            gang.bind(pod, key)
            touched.setdefault(gang.number, (gang, []))[1].append(pod)
        for gang, pods in touched.values():
            self._count(gang, pods)
            self.scheduler.apply(ClusterChanges(bound_pods=pods))
        return [gang for gang, _ in touched.values() if self._starts(gang, now)]

    def _starts(self, life: GangRun, now: int) -> bool:
        started = life.start(now)
        if started:
            self.waiting -= 1
            self.running += 1
        if started or life.started is not None:
            life.placements = self.meter.units(life.bound.values())
        return started

    def _count(self, life: GangRun, pods: Collection[Pod], sign: int = 1) -> None:
        """Count bound pods of a gang; with sign -1, removed pods."""
        self.meter.add(pods, sign)
        self.ledger.hold(life.arrival.queue, map(self.meter.requests, pods), sign)

    def _evict(self, decision: Decision, now: int) -> None:
        """Evict pods. A gang that keeps its minimum loses only these pods; any other gang is killed."""
        lost: dict[int, tuple[GangRun, list[str]]] = {}
        keys = {f"{eviction.namespace}/{eviction.pod}" for eviction in decision.evictions}
        for number in self._present if keys else ():
            evicted_keys = [key for key in self.lives[number].bound if key in keys]
            if evicted_keys:
                lost[number] = (self.lives[number], evicted_keys)
        for gang, evicted_keys in lost.values():
            gang.evicted += self._lose(gang, evicted_keys, now)

    def _lose(self, gang: GangRun, keys: Iterable[str], now: int) -> int:
        """Kill pods of a gang, or all of its pods if too few would remain, and return their number."""
        killed_keys = set(keys)
        if len(gang.bound) - len(killed_keys) < gang.arrival.minimum:
            killed_keys = set(gang.bound)
            if gang.started is not None:
                self.running -= 1
                self.waiting += 1
            gang.kill(now)
        removed = [gang.bound.pop(key) for key in list(gang.bound) if key in killed_keys]
        self._count(gang, removed, -1)
        fresh = [self._kubelet.recreate(pod) for pod in removed]
        for pod in fresh:
            gang.pending[pod.key] = pod
            self._gang_of[pod.key] = gang
        self.scheduler.apply(ClusterChanges(removed_pods=removed, added_pods=fresh))
        return len(removed)

    def _hold(self, decision: Decision) -> None:
        """Record the gangs that wait at Permit, with their nodes."""
        places: dict[str, list[HeldPod]] = {}
        for one in decision.nominations:
            key = f"{one.namespace}/{one.pod}"
            gang = self._gang_of.get(key)
            if gang is not None:
                places.setdefault(gang.arrival.key, []).append(HeldPod(key, one.node))
        self._held = tuple(
            HeldGang(one.pod_group, one.plugin, seconds(one.until), tuple(places.get(one.pod_group, ())))
            for one in decision.waiting
        )
        self.scheduler.hold(self._held)

    def _nominate(self, decision: Decision) -> None:
        """Write nominated nodes into the status of pending pods. Pods that wait at Permit are excluded."""
        held = {one.pod for gang in self._held for one in gang.pods}
        nodes = {f"{one.namespace}/{one.pod}": one.node for one in decision.nominations}
        changed: list[tuple[Pod, Pod]] = []
        for key in sorted((nodes.keys() | self._nominated) - held):
            life, node = self._gang_of.get(key), nodes.get(key, "")
            if life is not None and life.pending[key].status.nominated_node_name != node:
                before = life.pending[key]
                status = msgspec.structs.replace(before.status, nominated_node_name=node)
                life.pending[key] = msgspec.structs.replace(before, status=status)
                changed.append((before, life.pending[key]))
        self._nominated = nodes.keys() - held
        if changed:
            before_pods, after_pods = zip(*changed, strict=True)
            self.scheduler.apply(ClusterChanges(removed_pods=before_pods, added_pods=after_pods))

    # Nodes

    def fail(self, node: str, now: int) -> None:
        """Take a node down: kill the gangs on it, which become pending again, and remove permanent pods."""
        if node in self._down:
            return
        self._down.add(node)
        self.failures += 1
        for number in list(self._present):
            life = self.lives[number]
            if any(pod.node == node for pod in life.bound.values()):
                self._lose(life, tuple(life.bound), now)
        lost = [pod for pod in self._lasting if pod.node == node]
        self.meter.add(lost, -1)
        self._lasting = [pod for pod in self._lasting if pod.node != node]

    def repair(self, node: str) -> None:
        """Bring a node back."""
        self._down.discard(node)

    def lay_out(self) -> None:
        """Create a new scheduler from the nodes that are up and all pods."""
        nodes = tuple(node for node in self._start.nodes if node.name not in self._down)
        self.meter.offer(nodes)
        self.scheduler = self._make(self._snapshot(nodes))
        self.scheduler.hold(self._held)

    def _snapshot(self, nodes: tuple[Node, ...]) -> Snapshot:
        present = [self.lives[number] for number in self._present]
        groups = tuple(gang.arrival.group for gang in present if gang.arrival.group is not None)
        pods = tuple(pod for gang in present for pod in (*gang.bound.values(), *gang.pending.values()))
        return replace(
            self._start,
            nodes=nodes,
            pod_groups=groups,
            pods=(*self._lasting, *pods),
            reservations=self._reservations,
        )
