"""The node table: all nodes of a session as arrays, and the pods on them.

`NodeTable` is the one mutable thing below a decision: pods are added as the session places them and removed when
it rolls a gang back. Plugins never see it; they see `Nodes`, a read-only view over all nodes or some of them, so
that the same lines judge ten thousand nodes at once and one node again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.framework.gangs import GangCount, WaitingPods
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.model.node import Node
from batchsched.model.pod import Pod
from batchsched.model.requests import nonzero_requests, requests
from batchsched.model.snapshot import Snapshot

PODS: Final = "pods"
LEADING: Final = (PODS, "cpu", "memory", "ephemeral-storage")
"""The first columns of every resource table."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelGroup:
    """Existing pods with one namespace and equal labels, terminating or not."""

    namespace: str
    labels: dict[str, str]
    terminating: bool


class PodTable:
    """The pods on nodes: added, removed, and counted by what their labels say."""

    def __init__(self, nodes: int) -> None:
        self._count = nodes
        self._pods: dict[str, tuple[Pod, int, int]] = {}
        self._groups: list[LabelGroup] = []
        self._group_of: dict[tuple[str, tuple[tuple[str, str], ...], bool], int] = {}
        self._columns: tuple[IndexArray, IndexArray] | None = None
        self._on: dict[int, dict[str, Pod]] = {}
        self.with_affinity: dict[str, tuple[Pod, int]] = {}
        """Pods that state pod affinity or anti-affinity, with their nodes."""
        self.with_ports: dict[str, tuple[Pod, int]] = {}
        """Pods that take host ports, with their nodes."""

    def add(self, pod: Pod, node: int) -> None:
        """Put a pod on a node."""
        labels = tuple(sorted(pod.labels.items()))
        group = self._group_of.setdefault((pod.namespace, labels, pod.terminating), len(self._groups))
        if group == len(self._groups):
            self._groups.append(LabelGroup(pod.namespace, dict(labels), pod.terminating))
        key = pod.key
        self._pods[key] = (pod, node, group)
        self._on.setdefault(node, {})[key] = pod
        self._columns = None
        affinity = pod.spec.affinity
        if affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity):
            self.with_affinity[key] = (pod, node)
        if takes_host_port(pod):
            self.with_ports[key] = (pod, node)

    def remove(self, pod: Pod) -> int:
        """Take a pod away; returns the node on which it was.

        Raises:
          KeyError: the pod is not there.
        """
        key = pod.key
        _, node, _ = self._pods.pop(key)
        del self._on[node][key]
        self._columns = None
        self.with_affinity.pop(key, None)
        self.with_ports.pop(key, None)
        return node

    def on(self, node: int) -> Iterable[Pod]:
        """The pods on a node, in the order in which they came."""
        return self._on.get(node, {}).values()

    def __len__(self) -> int:
        """The number of pods on nodes."""
        return len(self._pods)

    def __contains__(self, key: str) -> bool:
        """Tell whether `namespace/name` is on a node."""
        return key in self._pods

    def everyone(self) -> Iterable[tuple[Pod, int]]:
        """All pods with their nodes, in the order in which they came."""
        return ((pod, node) for pod, node, _ in self._pods.values())

    def count(self, matches: Callable[[LabelGroup], bool]) -> IntArray:
        """[N] how many pods on each node belong to a label group that `matches`."""
        chosen = np.fromiter((matches(group) for group in self._groups), np.bool_, len(self._groups))
        if not chosen.any():
            return np.zeros(self._count, np.int64)
        nodes, groups = self._arrays()
        return np.bincount(nodes[chosen[groups]], minlength=self._count).astype(np.int64)

    def _arrays(self) -> tuple[IndexArray, IndexArray]:
        if self._columns is None:
            size = len(self._pods)
            nodes = np.fromiter((node for _, node, _ in self._pods.values()), np.int32, size)
            groups = np.fromiter((group for _, _, group in self._pods.values()), np.int32, size)
            self._columns = (nodes, groups)
        return self._columns


def no_gang(_pod: Pod) -> GangCount | None:
    """Where nobody counts gangs, no pod has one."""
    return None


def takes_host_port(pod: Pod) -> bool:
    """Tell whether a container of the pod takes a port of its host."""
    for containers in (pod.spec.containers, pod.spec.init_containers or ()):
        for container in containers:
            if container.ports and any(port.host_port for port in container.ports):
                return True
    return False


class NodeTable:
    """All nodes as arrays, and what the pods on them have taken. N nodes, R resources."""

    def __init__(self, snapshot: Snapshot, resources: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.nodes: tuple[Node, ...] = snapshot.nodes
        self.names = tuple(node.name for node in self.nodes)
        self.index = {name: at for at, name in enumerate(self.names)}
        self.resources = tuple(resources)
        self.column = {resource: at for at, resource in enumerate(self.resources)}
        self.allocatable = np.zeros((len(self.nodes), len(self.resources)), np.int64)
        for at, node in enumerate(self.nodes):
            for resource, amount in node.allocatable().items():
                if resource in self.column:
                    self.allocatable[at, self.column[resource]] = amount
        self.requested = np.zeros_like(self.allocatable)
        self.nonzero = np.zeros((len(self.nodes), 2), np.int64)
        self.pods = PodTable(len(self.nodes))
        self.gang_of: Callable[[Pod], GangCount | None] = no_gang
        """Finds a pod's gang; the session sets it."""
        self.waiting = WaitingPods()
        self._labels: dict[str, tuple[IndexArray, tuple[str, ...]]] = {}

    def read_requests(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return ([R] requests with the pod count, [2] requests for scoring) of a pod."""
        vector = np.zeros(len(self.resources), np.int64)
        vector[0] = 1
        for resource, amount in requests(pod).items():
            vector[self.column[resource]] += amount
        return vector, np.asarray(nonzero_requests(pod), np.int64)

    def add(self, pod: Pod, node: int, requested: IntArray, nonzero: IntArray) -> None:
        """Put a pod on a node; it counts from now on."""
        self.requested[node] += requested
        self.nonzero[node] += nonzero
        self.pods.add(pod, node)

    def remove(self, pod: Pod, requested: IntArray, nonzero: IntArray) -> None:
        """Take a pod away again."""
        node = self.pods.remove(pod)
        self.requested[node] -= requested
        self.nonzero[node] -= nonzero

    def label(self, key: str) -> tuple[IndexArray, tuple[str, ...]]:
        """Return ([N] index of each node's value, -1 where the label is missing; the values, first seen first)."""
        known = self._labels.get(key)
        if known is None:
            values: dict[str, int] = {}
            codes = np.full(len(self.nodes), -1, np.int32)
            for at, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    codes[at] = values.setdefault(value, len(values))
            known = self._labels[key] = (codes, tuple(values))
        return known

    def all(self) -> "Nodes":
        """The view over all nodes."""
        return Nodes(self, slice(None), len(self.nodes))

    def one(self, node: int) -> "Nodes":
        """The view over one node."""
        return Nodes(self, slice(node, node + 1), 1)

    def some(self, nodes: IndexArray) -> "Nodes":
        """The view over some nodes, by index."""
        return Nodes(self, nodes, len(nodes))


class Nodes:
    """What a plugin sees: n of the session's nodes, read only.

    Arrays that a plugin keeps over all N nodes are narrowed with `picked[nodes.where]`.
    """

    __slots__ = ("_size", "table", "where")

    def __init__(self, table: NodeTable, where: "slice | IndexArray", size: int) -> None:
        self.table = table
        self.where = where
        self._size = size

    def __len__(self) -> int:
        """The number of nodes in the view."""
        return self._size

    @property
    def allocatable(self) -> IntArray:
        """[n, R] what pods may use."""
        return self.table.allocatable[self.where]

    @property
    def requested(self) -> IntArray:
        """[n, R] what pods have taken, those of this session included."""
        return self.table.requested[self.where]

    @property
    def nonzero(self) -> IntArray:
        """[n, 2] milli-CPU and bytes taken, with the defaults that scoring uses."""
        return self.table.nonzero[self.where]

    @property
    def objects(self) -> Sequence[Node]:
        """The Node objects of the view."""
        if isinstance(self.where, slice):
            return self.table.nodes[self.where]
        return [self.table.nodes[at] for at in self.where]

    @property
    def indexes(self) -> IndexArray:
        """[n] the nodes' places in the table."""
        return np.arange(len(self.table.nodes), dtype=np.int32)[self.where]

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the session, for objects beside nodes and pods."""
        return self.table.snapshot

    @property
    def pods(self) -> PodTable:
        """The pods on all nodes of the table, not only of the view."""
        return self.table.pods

    def label(self, key: str) -> tuple[IndexArray, tuple[str, ...]]:
        """Return ([n] index of each node's value of a label, -1 where missing; the values)."""
        codes, values = self.table.label(key)
        return codes[self.where], values

    def where_true(self, test: Callable[[Node], bool]) -> BoolArray:
        """[n] the nodes that pass a test, asked node by node."""
        return np.fromiter((test(node) for node in self.objects), np.bool_, self._size)
