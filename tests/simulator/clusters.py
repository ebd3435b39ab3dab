"""Small workloads for tests, and schedulers that are simple or suspicious."""

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.decision import Assignment, Decision
from batchsched.api.snapshot import Snapshot
from batchsched.ports.cluster import ClusterChanges
from batchsched.simulator.workload import (
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
)

CPU = {"cpu": "1"}


def gangs_of(rows, slots=4, name="small", outages=()):
    """A workload of (submit, runtime, size) on one-slot nodes; the estimate is the run time."""
    spec = create_pod_spec(CPU)
    width = len(str(max(0, len(rows) - 1)))  # names decide between gangs of one second
    arrivals = [
        create_rigid_arrival(TraceGang(f"g{number:0{width}d}", ((spec, size),), runtime), submit, runtime)
        for number, (submit, runtime, size) in enumerate(rows)
    ]
    arrivals.sort(key=lambda arrival: arrival.time)
    return Workload(name, Snapshot(nodes=create_nodes(slots, CPU)), tuple(arrivals), tuple(outages))


def _age(pod):
    return pod.metadata.creation_timestamp, pod.labels[POD_GROUP_LABEL]


class FirstComeScheduler:
    """Binds whole gangs to one-slot nodes in the order in which they came, and stops at the first that does not fit."""

    def __init__(self, snapshot):
        self.free = {node.name: 1 for node in snapshot.nodes}
        self.groups = {}
        self.waiting = {}
        self.asked = []
        self.held = ()
        self.apply_changes(ClusterChanges(pod_groups=snapshot.pod_groups, added_pods=snapshot.pods))

    def apply_changes(self, changes):
        if changes.nodes is not None:
            used = {name for name, free in self.free.items() if not free}
            self.free = {node.name: int(node.name not in used) for node in changes.nodes}
        self.groups |= {group.key: group for group in changes.pod_groups}
        self.remove_pods(changes.removed_pods)
        self.bind_pods(changes.bound_pods)
        self.add_pods(changes.added_pods)
        for key in changes.removed_pod_groups:
            del self.groups[key]

    def add_pods(self, pods):
        for pod in pods:
            if pod.node_name:
                self.free[pod.node_name] -= 1
            else:
                self.waiting[pod.key] = pod

    def bind_pods(self, pods):
        for pod in pods:
            del self.waiting[pod.key]
            self.free[pod.node_name] -= 1

    def remove_pods(self, pods):
        for pod in pods:
            if pod.node_name:
                self.free[pod.node_name] += 1
            else:
                del self.waiting[pod.key]

    def set_waiting_gangs(self, held):
        self.held = held

    def decide(self, now, seed):
        self.asked.append((now, seed))
        free = [name for name, left in self.free.items() if left > 0]
        gangs: dict[str, list[Pod]] = {}
        for pod in sorted(self.waiting.values(), key=_age):
            gangs.setdefault(pod.labels[POD_GROUP_LABEL], []).append(pod)
        assignments = []
        for pods in gangs.values():
            if len(pods) > len(free):
                break
            assignments += [
                Assignment(namespace=pod.namespace, pod=pod.name, node=free.pop(0)) for pod in pods
            ]
        return Decision(assignments=tuple(assignments))
