"""Node table: all nodes of a session as arrays, and the requests of the pods on them.

The session adds placed pods to `NodeTable`, and removes them when it rolls a gang back. A plugin gets `Nodes`, a
read-only view of all nodes or some of them. The same code therefore judges ten thousand nodes or one.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar, cast

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import nonzero_requests, pod_requests
from batchsched.api.snapshot import Snapshot
from batchsched.config.kubernetes_release import DEFAULT_RELEASE, KubernetesRelease
from batchsched.devices.ledger import DeviceLedger, PodTest, no_pod_is_bound
from batchsched.framework.gang_counts import GangPodCounts
from batchsched.framework.nodes.change_log import NO_NODE, NodeChangeLog, NodeValueCache, reordered_array
from batchsched.framework.nodes.pod_table import PodTable
from batchsched.framework.nodes.reserved_volumes import ReservedVolumes
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.framework.waiting_pods import WaitingPods


@dataclass(frozen=True, slots=True)
class ReservedVolumesAndDevices:
    """The volumes and devices that are reserved for pods which sessions have placed on nodes."""

    volumes: ReservedVolumes = field(default_factory=ReservedVolumes)
    devices: DeviceLedger = field(default_factory=lambda: DeviceLedger({}))

    def copy_for_pods(self, pods: Sequence[Pod]) -> "ReservedVolumesAndDevices":
        """Copy the volumes and devices reserved for the given pods; sessions do not change the copy.

        The result is to be read only. Pods without volumes and devices, which are most, share an empty one.
        """
        if not (
            self.volumes.has_reservation_for_any_pod(pods)
            or self.devices.has_reserved_devices_for_any_pod(pods)
        ):
            return NOTHING_RESERVED
        return ReservedVolumesAndDevices(self.volumes.copy_for_pods(pods), self.devices.copy_for_pods(pods))

    def copy_reservations_of_pods_being_bound(
        self, before: Self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Add the volumes and devices that `before` has reserved for pods which are still being bound.

        Args:
          before: the volumes and devices of an earlier node table.
          is_reserved: as of `DeviceLedger.copy_reservations_of_pods_being_bound`.
          is_bound: as of `DeviceLedger.copy_reservations_of_pods_being_bound`.
        """
        self.volumes.copy_reservations_of_pods_being_bound(before.volumes, is_reserved, is_bound)
        self.devices.copy_reservations_of_pods_being_bound(before.devices, is_reserved, is_bound)

    def release_reservations_of_pods_not_being_bound(
        self, is_reserved: PodTest, is_bound: PodTest = no_pod_is_bound
    ) -> None:
        """Release the reserved volumes and devices of all pods that are no longer being bound.

        A bound pod keeps its volumes and devices until the cluster objects show them as bound or allocated.

        Args:
          is_reserved: as of `DeviceLedger.copy_reservations_of_pods_being_bound`.
          is_bound: as of `DeviceLedger.copy_reservations_of_pods_being_bound`.
        """
        self.volumes.release_reservations_of_pods_not_being_bound(is_reserved, is_bound)
        self.devices.release_reservations_of_pods_not_being_bound(is_reserved, is_bound)

    def release_volumes_and_devices(self, pod: Pod) -> None:
        """Release the volumes and devices that are reserved for a pod."""
        self.volumes.release(pod)
        self.devices.release_reserved_devices(pod.key, pod.metadata.uid)


NOTHING_RESERVED: Final = ReservedVolumesAndDevices()
"""The empty result of `ReservedVolumesAndDevices.copy_for_pods`, which many binding cycles share."""
PODS: Final = "pods"
LEADING: Final = (PODS, "cpu", "memory", "ephemeral-storage")
"""The first columns of every resource array."""
NO_FIELDS: Final[frozenset[str]] = frozenset()

T = TypeVar("T")
NodeArray = TypeVar("NodeArray", bound=np.ndarray[Any, np.dtype[Any]])


def no_gang_pod_counts(_pod: Pod) -> GangPodCounts | None:
    """Return None for every pod: the default function of `NodeTable.gang_of`.

    A session replaces it by a function that returns the pod counts of a pod's gang.
    """
    return None


class NodeTable:
    """All N nodes of a session, with the allocatable and requested amounts of R resources as arrays [N, R].

    The node table also has the pods on the nodes and cached values that are computed from the nodes.

    Args:
      snapshot: the cluster; the order of its nodes defines their indexes.
      resources: the names of the R resources, beginning with `LEADING`.
      release: the release of Kubernetes with the behavior that plugins follow on these nodes.
    """

    def __init__(
        self, snapshot: Snapshot, resources: Sequence[str], release: KubernetesRelease = DEFAULT_RELEASE
    ) -> None:
        self.cluster_objects = snapshot
        self.release = release
        self.nodes: tuple[Node, ...] = snapshot.nodes
        self.names = tuple(node.name for node in self.nodes)
        self.index = {name: at for at, name in enumerate(self.names)}
        self.resources = tuple(resources)
        self.column = {resource: at for at, resource in enumerate(self.resources)}
        self.allocatable = np.zeros((len(self.nodes), len(self.resources)), np.int64)
        self._offer(range(len(self.nodes)))
        self.requested = np.zeros_like(self.allocatable)
        self.nonzero_requested = np.zeros((len(self.nodes), 2), np.int64)
        self.pod_table = PodTable(len(self.nodes))
        self._counted: dict[str, tuple[IntArray, IntArray]] = {}
        self.changes = NodeChangeLog(len(self.nodes))
        """Log of added nodes and of changed Node objects."""
        self.moves = NodeChangeLog(len(self.nodes))
        """Log of what `changes` has, and of nodes to which pods were added or from which they were removed."""
        self.gang_of: Callable[[Pod], GangPodCounts | None] = no_gang_pod_counts
        """Returns the counts of a pod's gang; the session sets it."""
        self.waiting = WaitingPods()
        self.reserved_volumes = ReservedVolumes(snapshot)
        self.now = 0.0
        """Time of the session in seconds since 1970; the session sets it."""
        self._labels: dict[str, tuple[IndexArray, tuple[str, ...]]] = {}
        self._node_values = NodeValueCache(self.changes, len(self.nodes))
        self._values_of_cluster_objects: dict[Hashable, object] = {}
        self._fields_of_value: dict[Hashable, frozenset[str]] = {}
        """The fields of Snapshot from which a value was computed and may change, by the key of the value."""

    def _offer(self, places: Sequence[int]) -> None:
        """Write the allocatable amounts of the nodes with some indexes."""
        self.allocatable[np.asarray(places, np.int32)] = 0
        for index in places:
            for resource, amount in self.nodes[index].parse_allocatable_in_base_units().items():
                if resource in self.column:
                    self.allocatable[index, self.column[resource]] = amount

    def replace_all_nodes(self, nodes: Sequence[Node]) -> IndexArray | None:
        """Replace the complete list of Node objects of the node table. Pods stay on their nodes.

        Args:
          nodes: all N nodes, including each node with pods. Resources that are not in the table are ignored.

        Returns:
          [N] the former index of each node, -1 for new nodes; None if no index changed.
        """
        before, self.nodes = self.nodes, tuple(nodes)
        self.cluster_objects = replace(self.cluster_objects, nodes=self.nodes)
        names = tuple(node.name for node in self.nodes)
        source = None if names == self.names else self._rearrange(names)
        was = range(len(names)) if source is None else source.tolist()
        changed = [at for at, old in enumerate(was) if old < 0 or before[old] is not self.nodes[at]]
        if source is None and changed:
            self.allocatable = self.allocatable.copy()  # problems that are kept may show it
            self._labels = {
                key: column
                for key, column in self._labels.items()
                if all(before[at].labels.get(key) == self.nodes[at].labels.get(key) for at in changed)
            }
        self._offer(changed)
        for index in changed:
            self.changes.record_node_change(index)
            self.moves.record_node_change(index)
        return source

    def _rearrange(self, names: tuple[str, ...]) -> IndexArray:
        """Reorder all arrays for a new order of the nodes; return the former index of each node."""
        source = np.fromiter((self.index.get(name, NO_NODE) for name in names), np.int32, len(names))
        numbers = np.full(len(self.names) + 1, NO_NODE, np.int32)
        numbers[source[source >= 0]] = np.flatnonzero(source >= 0)
        self.names = names
        self.index = {name: at for at, name in enumerate(names)}
        self.allocatable = reordered_array(self.allocatable, source)
        self.requested, self.nonzero_requested = (
            reordered_array(self.requested, source),
            reordered_array(self.nonzero_requested, source),
        )
        self._labels.clear()
        self.pod_table.renumber_nodes(numbers.tolist(), len(names))
        self.changes.renumber_nodes(numbers.tolist(), len(names))
        self.moves.renumber_nodes(numbers.tolist(), len(names))
        self._node_values.adapt_to_new_node_indexes(source)
        return source

    def replace_cluster_objects(self, objects: Mapping[str, tuple[Any, ...]]) -> None:
        """Replace all cluster objects of the given kinds, and drop cached values computed from them.

        Args:
          objects: the objects by field of Snapshot, sorted by key.
        """
        fields: dict[str, Any] = dict(objects)
        self.cluster_objects = replace(self.cluster_objects, **fields)
        for key, fields_of_value in list(self._fields_of_value.items()):
            if not fields_of_value.isdisjoint(objects):
                self._values_of_cluster_objects.pop(key, None)
                self._node_values.forget_value(key)
                del self._fields_of_value[key]

    def cached_value_of_nodes(
        self, key: Hashable, build: "Callable[[NodeTable], T]", fields: frozenset[str] = NO_FIELDS
    ) -> T:
        """Return a cached value that `build` computes on first use, and again after a Node object has changed.

        The caller owns the key, which must include all parameters of the value. `build` must not read pods on nodes.
        `fields` names the kinds of objects as in `cached_value_of_cluster_objects`.
        """
        if fields:
            self._fields_of_value[key] = fields
        return self.incrementally_updated_value(key, build, lambda _value, _changed: build(self))

    def incrementally_updated_value(
        self, key: Hashable, build: "Callable[[NodeTable], T]", amend: Callable[[T, IndexArray], T]
    ) -> T:
        """Return a cached value that `build` computes on first use, and that `amend` updates for changed nodes."""
        return cast(T, self._node_values.cached_value(key, lambda: build(self), amend))

    def cached_array(self, key: Hashable, ask: "Callable[[Nodes], NodeArray]") -> NodeArray:
        """Return a cached array [N]; `ask` computes its entries, at first for all nodes, later for changed nodes only.

        The caller owns the key as in `cached_value_of_nodes`. `ask` must not read other nodes. The array is read-only.
        """
        return cast(
            NodeArray,
            self._node_values.cached_array(
                key,
                lambda nodes: ask(
                    self.all_nodes_view() if nodes is None else self.ascending_nodes_view(nodes)
                ),
            ),
        )

    def cached_value_of_cluster_objects(
        self, key: Hashable, build: Callable[[Snapshot], T], fields: frozenset[str] = NO_FIELDS
    ) -> T:
        """Return a cached value that `build` computes from the cluster's objects other than nodes and pods.

        Args:
          key: the key of the value.
          build: computes the value.
          fields: those of `FOLLOWED_FIELDS` that `build` reads; after a change of these objects it is called again.
            The objects of other kinds do not change.
        """
        if key not in self._values_of_cluster_objects:
            self._values_of_cluster_objects[key] = build(self.cluster_objects)
            if fields:
                self._fields_of_value[key] = fields
        return cast(T, self._values_of_cluster_objects[key])

    @property
    def device_ledger(self) -> DeviceLedger:
        """The record of the devices in use: allocated to ResourceClaims, or reserved for pods that sessions placed."""
        return self.cached_value_of_cluster_objects(
            "device ledger",
            lambda snapshot: DeviceLedger(
                {claim.key: claim for claim in snapshot.resource_claims}, snapshot.pod_devices
            ),
        )

    @property
    def reserved_volumes_and_devices(self) -> ReservedVolumesAndDevices:
        """The volumes and devices that are reserved for pods which sessions have placed."""
        return ReservedVolumesAndDevices(self.reserved_volumes, self.device_ledger)

    def request_vectors(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return a pod's requests for all R resources, and its CPU and memory requests for scoring.

        The request for the resource `pods` is 1. The requests for scoring [2] are milli-CPU and bytes of memory, with
        defaults for containers without requests.
        """
        vector = np.zeros(len(self.resources), np.int64)
        vector[0] = 1
        for resource, amount in pod_requests(pod, self.release.resized_request_rule).items():
            if resource in self.column:
                vector[self.column[resource]] += amount
        return vector, np.asarray(nonzero_requests(pod, self.release.resized_request_rule), np.int64)

    def add_pods(self, placements: Sequence[tuple[Pod, int]], requested: IntArray, nonzero: IntArray) -> None:
        """Add pods with equal requests to their nodes in the node table.

        Args:
          placements: each pod with the index of its node.
          requested: [R] requests of one pod, with 1 for the resource `pods`.
          nonzero: [2] requests of one pod for scoring.
        """
        counted = (requested, nonzero)
        self._counted.update(dict.fromkeys(self.pod_table.add_pods(placements), counted))
        pods_on: dict[int, int] = {}
        for _, node in placements:
            pods_on[node] = pods_on.get(node, 0) + 1
        for node, count in pods_on.items():
            self._count(node, counted, count)
            self.moves.record_node_change(node)

    def remove_pods(self, pods: Sequence[Pod]) -> None:
        """Remove pods from the node table. Each pod is subtracted with the requests that it was added with.

        Raises:
          KeyError: a pod is on no node.
        """
        keys = [pod.key for pod in pods]
        nodes = self.pod_table.remove_pods(keys)
        # Pods that were added together were counted with the same vectors.
        nodes_by_vectors: dict[int, tuple[tuple[IntArray, IntArray], list[int]]] = {}
        for key, node in zip(keys, nodes, strict=True):
            counted = self._counted.pop(key)
            nodes_by_vectors.setdefault(id(counted), (counted, []))[1].append(node)
        for counted, nodes_of_pods in nodes_by_vectors.values():
            if len(nodes_of_pods) == 1:
                self._count(nodes_of_pods[0], counted, -1)
                continue
            for amounts, vector in zip((self.requested, self.nonzero_requested), counted, strict=True):
                np.subtract.at(amounts, nodes_of_pods, vector)
        for node in dict.fromkeys(nodes):
            self.moves.record_node_change(node)

    def _count(self, node: int, counted: tuple[IntArray, IntArray], count: int) -> None:
        """Add the requests of `count` equal pods to a node; a negative count subtracts them."""
        requested, nonzero = counted
        # The rows are views: `self.requested[node] += requested` would write the result back a second time.
        requested_row, nonzero_row = self.requested[node], self.nonzero_requested[node]
        if count == 1:
            requested_row += requested
            nonzero_row += nonzero
        elif count == -1:
            requested_row -= requested
            nonzero_row -= nonzero
        else:
            requested_row += requested * count
            nonzero_row += nonzero * count

    def request_vectors_of_added_pod(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return the two arrays of requests with which a pod was added to the node table.

        The arrays are `requested` [R] and `nonzero` [2], as in `add_pods`.

        Raises:
          KeyError: the pod is on no node.
        """
        return self._counted[pod.key]

    def label_indexes_and_values(self, key: str) -> tuple[IndexArray, tuple[str, ...]]:
        """Return for each node the index of its value of a label, and the distinct values by index.

        The index is -1 if the node does not have the label. The indexes are an array [N].
        """
        label = self._labels.get(key)
        if label is None:
            values: dict[str, int] = {}
            codes = np.full(len(self.nodes), -1, np.int32)
            for index, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    codes[index] = values.setdefault(value, len(values))
            label = self._labels[key] = (codes, tuple(values))
        return label

    def all_nodes_view(self) -> "Nodes":
        """Return a read-only view of all nodes of the node table."""
        return Nodes(self, slice(None), len(self.nodes))

    def node_view(self, node: int) -> "Nodes":
        """Return a read-only view of one node of the node table."""
        return Nodes(self, slice(node, node + 1), 1)

    def selected_nodes_view(self, nodes: IndexArray) -> "Nodes":
        """Return a read-only view of the nodes with the given indexes."""
        return Nodes(self, nodes, len(nodes))

    def ascending_nodes_view(self, nodes: IndexArray) -> "Nodes":
        """Return a read-only view of the nodes with these indexes, which are ascending and distinct.

        For all nodes or one node, arrays are not copied.
        """
        if len(nodes) == len(self.nodes):
            return self.all_nodes_view()
        return self.node_view(int(nodes[0])) if len(nodes) == 1 else self.selected_nodes_view(nodes)


class Nodes:
    """A read-only view of n nodes of the node table, which is passed to plugins.

    Narrow an array over all N nodes to the view with `array[nodes.where]`.
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
        """The allocatable amounts [n, R] of R resources on the n nodes of this view."""
        return self.table.allocatable[self.where]

    @property
    def requested(self) -> IntArray:
        """The amounts [n, R] of R resources that the pods on each of the n nodes request.

        Pods that this session has placed are included.
        """
        return self.table.requested[self.where]

    @property
    def nonzero_requested(self) -> IntArray:
        """The milli-CPU and bytes of memory [n, 2] requested on each node, with scoring defaults for unset requests."""
        return self.table.nonzero_requested[self.where]

    @property
    def node_objects(self) -> Sequence[Node]:
        """The Node objects of the nodes in this view, in the order of the view."""
        if isinstance(self.where, slice):
            return self.table.nodes[self.where]
        return [self.table.nodes[at] for at in self.where]

    @property
    def node_indexes(self) -> IndexArray:
        """The nodes of this view, as indexes [n] into the node table."""
        return np.arange(len(self.table.nodes), dtype=np.int32)[self.where]

    @property
    def first_node_index(self) -> int:
        """The first node of this view, as an index into the node table.

        Raises:
          IndexError: the view is empty.
        """
        if isinstance(self.where, slice):
            return self.where.start or 0
        return int(self.where[0])

    @property
    def cluster_objects(self) -> Snapshot:
        """The Snapshot from which plugins read objects other than nodes and pods, such as Services."""
        return self.table.cluster_objects

    @property
    def pod_table(self) -> PodTable:
        """The pods on all nodes of the node table, including nodes outside of this view."""
        return self.table.pod_table

    def label_indexes_and_values(self, key: str) -> tuple[IndexArray, tuple[str, ...]]:
        """Return for each node the index of its value of a label, and the distinct values by index.

        The index is -1 if the node does not have the label. The indexes are an array [n].
        """
        codes, values = self.table.label_indexes_and_values(key)
        return codes[self.where], values

    def mask_where(self, test: Callable[[Node], bool]) -> BoolArray:
        """Call `test` for each Node object of this view, and return the answers as a mask [n]."""
        return np.fromiter((test(node) for node in self.node_objects), np.bool_, self._size)
