"""The simulated cluster: gangs that come and go, nodes that fail, pods that are bound as a decision says.

Whatever changes is told to the scheduler at once, object by object; only a change of nodes makes a new scheduler
from the cluster as it stands then.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from batchsched.api.core.metadata import seconds
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Reservation
from batchsched.api.snapshot import HeldGang, HeldPod, Snapshot
from batchsched.ports.scheduler import ClusterChanges, SchedulerFactory
from batchsched.simulator.gang_record import GangRun
from batchsched.simulator.kubelet import Kubelet
from batchsched.simulator.queue_series import QueueSeriesRecorder
from batchsched.simulator.utilization import UtilizationRecorder
from batchsched.simulator.workload import Workload


class SimulatedCluster:
    """A cluster in virtual time.

    Args:
      workload: what it is made of, and which gangs will come.
      scheduler: makes the scheduler from a cluster as it stands.
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
        self._there: dict[int, None] = {}
        self._gang_of: dict[str, GangRun] = {}
        self._down: set[str] = set()
        self._lasting = list(workload.cluster.pods)
        self._kubelet = Kubelet()
        self._held: tuple[HeldGang, ...] = ()
        self._nominated: set[str] = set()
        self._reservations: tuple[Reservation, ...] = ()

    @property
    def anybody_waits(self) -> bool:
        """True while some pod waits."""
        return bool(self._gang_of)

    def arrive(self, life: GangRun, now: int) -> bool:
        """Let a gang come; True when it runs already."""
        life.arrive()
        arrival = life.arrival
        self._there[life.number] = None
        groups = () if arrival.group is None else (arrival.group,)
        self.scheduler.apply(ClusterChanges(pod_groups=groups, added_pods=arrival.pods))
        for key in life.pending:
            self._gang_of[key] = life
        self._count(life, life.bound.values())
        self.ledger.want(life.arrival.queue, map(self.meter.requests, arrival.pods))
        self.waiting += 1
        return self._starts(life, now)

    def end(self, life: GangRun, now: int) -> None:
        """Let a gang finish: its pods and its PodGroup are gone."""
        gone = life.end(now)
        self._count(life, [pod for pod in gone if pod.node], -1)
        self.ledger.want(life.arrival.queue, map(self.meter.requests, gone), -1)
        for pod in gone:
            self._gang_of.pop(pod.key, None)
        group = life.arrival.group
        self.scheduler.apply(
            ClusterChanges(removed_pods=gone, removed_pod_groups=() if group is None else (group.key,))
        )
        del self._there[life.number]
        self.running -= 1
        self.finished += 1

    def bind(self, decision: Decision, now: int) -> list[GangRun]:
        """Do what a decision says; returns the gangs that begin to run."""
        self._evict(decision, now)
        self._reservations = decision.reservations
        if decision.waiting or self._held:
            self._hold(decision)
        if decision.nominations or self._nominated:
            self._nominate(decision)
        touched: dict[int, tuple[GangRun, list[Pod]]] = {}
        for one in decision.assignments:
            key = f"{one.namespace}/{one.pod}"
            life = self._gang_of.pop(key)
            pod = self._kubelet.start(life.pending[key], one.node, now)
            life.bind(pod, key)
            touched.setdefault(life.number, (life, []))[1].append(pod)
        for life, pods in touched.values():
            self._count(life, pods)
            self.scheduler.apply(ClusterChanges(bound_pods=pods))
        return [life for life, _ in touched.values() if self._starts(life, now)]

    def _starts(self, life: GangRun, now: int) -> bool:
        started = life.start(now)
        if started:
            self.waiting -= 1
            self.running += 1
        if started or life.started is not None:
            life.placements = self.meter.units(life.bound.values())
        return started

    def _count(self, life: GangRun, pods: Collection[Pod], sign: int = 1) -> None:
        """Count pods of a gang that were bound, or, with sign -1, that are gone."""
        self.meter.add(pods, sign)
        self.ledger.hold(life.arrival.queue, map(self.meter.requests, pods), sign)

    def _evict(self, decision: Decision, now: int) -> None:
        """Kill the gangs that lose a pod; one that keeps its minimum loses that pod only."""
        lost: dict[int, tuple[GangRun, list[str]]] = {}
        keys = {f"{one.namespace}/{one.pod}" for one in decision.evictions}
        for number in self._there if keys else ():
            mine = [key for key in self.lives[number].bound if key in keys]
            if mine:
                lost[number] = (self.lives[number], mine)
        for life, mine in lost.values():
            life.evicted += self._lose(life, mine, now)

    def _lose(self, life: GangRun, keys: Iterable[str], now: int) -> int:
        """Kill pods of a gang, all of them where too few would stay; returns how many."""
        gone = set(keys)
        if len(life.bound) - len(gone) < life.arrival.minimum:
            gone = set(life.bound)
            if life.started is not None:
                self.running -= 1
                self.waiting += 1
            life.kill(now)
        removed = [life.bound.pop(key) for key in list(life.bound) if key in gone]
        self._count(life, removed, -1)
        fresh = [self._kubelet.anew(pod) for pod in removed]
        for pod in fresh:
            life.pending[pod.key] = pod
            self._gang_of[pod.key] = life
        self.scheduler.apply(ClusterChanges(removed_pods=removed, added_pods=fresh))
        return len(removed)

    def _hold(self, decision: Decision) -> None:
        """Remember who waits at Permit, on which nodes."""
        places: dict[str, list[HeldPod]] = {}
        for one in decision.nominations:
            key = f"{one.namespace}/{one.pod}"
            life = self._gang_of.get(key)
            if life is not None:
                places.setdefault(life.arrival.key, []).append(HeldPod(key, one.node))
        self._held = tuple(
            HeldGang(one.pod_group, one.plugin, seconds(one.until), tuple(places.get(one.pod_group, ())))
            for one in decision.waiting
        )
        self.scheduler.hold(self._held)

    def _nominate(self, decision: Decision) -> None:
        """Write on the pods that wait which nodes are kept for them; those that are held need no more."""
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
        """Take a node down: the gangs on it are killed whole and wait again, pods that stayed for good are gone."""
        if node in self._down:
            return
        self._down.add(node)
        self.failures += 1
        for number in list(self._there):
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
        """Make a new scheduler from the nodes that are up and everything on them."""
        nodes = tuple(node for node in self._start.nodes if node.name not in self._down)
        self.meter.offer(nodes)
        self.scheduler = self._make(self._snapshot(nodes))
        self.scheduler.hold(self._held)

    def _snapshot(self, nodes: tuple[Node, ...]) -> Snapshot:
        there = [self.lives[number] for number in self._there]
        groups = tuple(life.arrival.group for life in there if life.arrival.group is not None)
        pods = tuple(pod for life in there for pod in (*life.bound.values(), *life.pending.values()))
        return replace(
            self._start,
            nodes=nodes,
            pod_groups=groups,
            pods=(*self._lasting, *pods),
            reservations=self._reservations,
        )
