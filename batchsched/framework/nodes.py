"""The node table: all nodes of a session as arrays, and the pods on them.

`NodeTable` is the one mutable thing below a decision: pods are added as the session places them and removed when
it rolls a gang back. Plugins never see it; they see `Nodes`, a read-only view over all nodes or some of them, so
that the same lines judge ten thousand nodes at once and one node again.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar, cast

import msgspec
import numpy as np

from batchsched.framework.assumed_volumes import AssumedVolumes
from batchsched.framework.gangs import GangCount, WaitingPods
from batchsched.framework.host_ports import HostPort, host_ports
from batchsched.framework.label_index import Selection
from batchsched.framework.pod_groups import AffinityGroup, LabelGroup, LabelGroups
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.model.node import Node
from batchsched.model.pod import Pod
from batchsched.model.requests import nonzero_requests, requests
from batchsched.model.snapshot import Snapshot

PODS: Final = "pods"
LEADING: Final = (PODS, "cpu", "memory", "ephemeral-storage")
"""The first columns of every resource table."""

SHORT: Final = 64
"""A log of so many moves is no burden."""

T = TypeVar("T")


class PodTable:
    """The pods on nodes: added, removed, and counted by what their labels say."""

    def __init__(self, nodes: int) -> None:
        self._count = nodes
        self._pods: dict[str, tuple[Pod, int]] = {}
        self._groups = LabelGroups()
        # Pod by pod in any order: a pod that leaves is replaced by the last, so that counting never rebuilds.
        self._slot: dict[str, int] = {}
        self._keys: list[str] = []
        self._node_at = np.zeros(64, np.int32)
        self._group_at = np.zeros(64, np.int32)
        self._on: dict[int, dict[str, Pod]] = {}
        self._stated: dict[tuple[str, bytes], AffinityGroup] = {}
        self.with_affinity: dict[str, tuple[Pod, int]] = {}
        """Pods that state pod affinity or anti-affinity, with their nodes."""
        self.ports_on: dict[int, dict[str, tuple[HostPort, ...]]] = {}
        """The host ports that are taken, by node and pod; a node may have none."""
        self.disks_on: dict[int, dict[str, Pod]] = {}
        """Pods that mount a disk by its own name (GCE, EBS, iSCSI, RBD), by node."""
        self.attaching_on: dict[int, dict[str, Pod]] = {}
        """Pods with volumes that may count against what a node can attach, by node."""
        self.claim_users: dict[str, dict[str, Pod]] = {}
        """Pods on any node by the claim, `namespace/name`, that they use."""

    def add(self, pod: Pod, node: int) -> None:
        """Put a pod on a node."""
        key = pod.key
        self._pods[key] = (pod, node)
        self._on.setdefault(node, {})[key] = pod
        slot = self._slot[key] = len(self._keys)
        self._keys.append(key)
        if slot == len(self._node_at):
            self._node_at = np.resize(self._node_at, 2 * slot)
            self._group_at = np.resize(self._group_at, 2 * slot)
        self._node_at[slot] = node
        self._group_at[slot] = self._groups.enter(pod)
        self._state(pod, node, 1)
        ports = host_ports(pod)
        if ports:
            self.ports_on.setdefault(node, {})[key] = ports
        if pod.spec.volumes:
            self._mount(pod, node)

    def _mount(self, pod: Pod, node: int) -> None:
        for volume in pod.spec.volumes or ():
            if volume.restricted:
                self.disks_on.setdefault(node, {})[pod.key] = pod
            if volume.attachable:
                self.attaching_on.setdefault(node, {})[pod.key] = pod
            if volume.persistent_volume_claim:
                claim = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                self.claim_users.setdefault(claim, {})[pod.key] = pod

    def _unmount(self, pod: Pod, node: int) -> None:
        for volume in pod.spec.volumes or ():
            if volume.restricted:
                self.disks_on[node].pop(pod.key, None)
            if volume.attachable:
                self.attaching_on[node].pop(pod.key, None)
            if volume.persistent_volume_claim:
                claim = f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
                self.claim_users[claim].pop(pod.key, None)

    def remove(self, pod: Pod) -> int:
        """Take a pod away; returns the node on which it was.

        Raises:
          KeyError: the pod is not there.
        """
        key = pod.key
        there, node = self._pods.pop(key)
        del self._on[node][key]
        self._leave_group(key)
        self._state(there, node, -1)
        if node in self.ports_on:
            self.ports_on[node].pop(key, None)
        if there.spec.volumes:
            self._unmount(there, node)
        return node

    def _leave_group(self, key: str) -> None:
        slot = self._slot.pop(key)
        self._groups.leave(int(self._group_at[slot]))
        last = self._keys.pop()
        size = len(self._keys)
        if last != key:
            self._keys[slot] = last
            self._slot[last] = slot
            self._node_at[slot] = self._node_at[size]
            self._group_at[slot] = self._group_at[size]
        numbers = self._groups.renumber()
        if numbers is not None:
            self._group_at[:size] = numbers[self._group_at[:size]]

    def _state(self, pod: Pod, node: int, by: int) -> None:
        """Count what a pod that comes (by 1) or leaves (by -1) states of others."""
        affinity = pod.spec.affinity
        if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
            return
        key = (pod.namespace, msgspec.msgpack.encode((affinity.pod_affinity, affinity.pod_anti_affinity)))
        if by > 0:
            self.with_affinity[pod.key] = (pod, node)
            self._stated.setdefault(key, AffinityGroup(pod.namespace, affinity)).change(node, by)
            return
        del self.with_affinity[pod.key]
        self._stated[key].change(node, by)
        if not self._stated[key].on:
            del self._stated[key]

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
        return iter(self._pods.values())

    def affinity_groups(self) -> Iterable[AffinityGroup]:
        """The pods that state pod affinity or anti-affinity, equal ones together."""
        return self._stated.values()

    def count(self, matches: Callable[[LabelGroup], bool]) -> IntArray:
        """[N] how many pods on each node belong to a label group that `matches`."""
        return self._count_in(self._groups.matching(matches))

    def count_selected(self, selection: Selection, *, terminating: bool = True) -> IntArray:
        """[N] how many pods on each node are selected; `terminating`: those being deleted count as well."""
        return self._count_in(self._groups.selected(selection, terminating=terminating))

    def _count_in(self, chosen: BoolArray) -> IntArray:
        if not chosen.any():
            return np.zeros(self._count, np.int64)
        size = len(self._keys)
        nodes = self._node_at[:size][chosen[self._group_at[:size]]]
        return np.bincount(nodes, minlength=self._count).astype(np.int64)


def no_gang(_pod: Pod) -> GangCount | None:
    """Where nobody counts gangs, no pod has one."""
    return None


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
        self._counted: dict[str, tuple[IntArray, IntArray]] = {}
        self.generation = 0
        """Counts the pods that came and left."""
        self._log: list[int] = []
        self._logged_from = 0
        self.gang_of: Callable[[Pod], GangCount | None] = no_gang
        """Finds a pod's gang; the session sets it."""
        self.waiting = WaitingPods()
        self.assumed = AssumedVolumes()
        self._labels: dict[str, tuple[IndexArray, tuple[str, ...]]] = {}
        self._memo: dict[Hashable, object] = {}

    def memo(self, key: Hashable, build: "Callable[[NodeTable], T]") -> T:
        """Return what `build` makes of the Node objects, made once: labels, taints and images do not move.

        Whoever asks owns the key, and says in it what the value depends on; pods on nodes must not be read.
        """
        if key not in self._memo:
            self._memo[key] = build(self)
        return cast(T, self._memo[key])

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
        self._counted[pod.key] = (requested, nonzero)
        self._moved(node)

    def remove(self, pod: Pod, requested: IntArray, nonzero: IntArray) -> None:
        """Take a pod away again."""
        node = self.pods.remove(pod)
        del self._counted[pod.key]
        self.requested[node] -= requested
        self.nonzero[node] -= nonzero
        self._moved(node)

    def counted(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return ([R], [2]) what a pod that is on a node was counted with.

        Raises:
          KeyError: the pod is on no node.
        """
        return self._counted[pod.key]

    def _moved(self, node: int) -> None:
        self.generation += 1
        self._log.append(node)
        # Whoever asks from so far back is told that every node moved; asking about all is no dearer then.
        if len(self._log) > 2 * (len(self.nodes) + SHORT):
            half = len(self._log) // 2
            del self._log[:half]
            self._logged_from += half

    def moved_since(self, generation: int) -> IndexArray:
        """[k] the nodes to which a pod came, or which one left, after a generation; ascending, each once."""
        if generation < self._logged_from:
            return np.arange(len(self.nodes), dtype=np.int32)
        return np.asarray(sorted(set(self._log[generation - self._logged_from :])), np.int32)

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

    def these(self, nodes: IndexArray) -> "Nodes":
        """The view over some nodes, by index, each once and ascending; all or one of them without a copy."""
        if len(nodes) == len(self.nodes):
            return self.all()
        return self.one(int(nodes[0])) if len(nodes) == 1 else self.some(nodes)


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
    def first(self) -> int:
        """The first node's place in the table: the node itself in a view of one.

        Raises:
          IndexError: the view is empty.
        """
        if isinstance(self.where, slice):
            return self.where.start or 0
        return int(self.where[0])

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
