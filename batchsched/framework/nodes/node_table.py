"""The node table: all nodes of a session as arrays, and the pods on them.

`NodeTable` is the one mutable thing below a decision: pods are added as the session places them and removed when
it rolls a gang back. Plugins never see it; they see `Nodes`, a read-only view over all nodes or some of them, so
that the same lines judge ten thousand nodes at once and one node again.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import nonzero_requests, requests
from batchsched.api.snapshot import Snapshot
from batchsched.framework.gang_counts import GangCount, WaitingPods
from batchsched.framework.nodes.assumed_volumes import AssumedVolumes
from batchsched.framework.nodes.change_log import NOBODY, NodeChangeLog
from batchsched.framework.nodes.memo import Memo, placed
from batchsched.framework.nodes.pod_table import PodTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray

PODS: Final = "pods"
LEADING: Final = (PODS, "cpu", "memory", "ephemeral-storage")
"""The first columns of every resource table."""

T = TypeVar("T")
NodeArray = TypeVar("NodeArray", bound=np.ndarray[Any, np.dtype[Any]])


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
        self._offer(range(len(self.nodes)))
        self.requested = np.zeros_like(self.allocatable)
        self.nonzero = np.zeros((len(self.nodes), 2), np.int64)
        self.pods = PodTable(len(self.nodes))
        self._counted: dict[str, tuple[IntArray, IntArray]] = {}
        self.changes = NodeChangeLog(len(self.nodes))
        """Nodes that joined, or whose objects changed."""
        self.moves = NodeChangeLog(len(self.nodes))
        """The same, and nodes to which pods came, or which they left."""
        self.gang_of: Callable[[Pod], GangCount | None] = no_gang
        """Finds a pod's gang; the session sets it."""
        self.waiting = WaitingPods()
        self.assumed = AssumedVolumes()
        self._labels: dict[str, tuple[IndexArray, tuple[str, ...]]] = {}
        self._memo = Memo(self.changes, len(self.nodes))
        self._beside: dict[Hashable, object] = {}

    def _offer(self, places: Sequence[int]) -> None:
        """Write down what the nodes at some places offer."""
        self.allocatable[np.asarray(places, np.int32)] = 0
        for at in places:
            for resource, amount in self.nodes[at].allocatable().items():
                if resource in self.column:
                    self.allocatable[at, self.column[resource]] = amount

    def lay_out(self, nodes: Sequence[Node]) -> IndexArray | None:
        """Take in the nodes as they are now, in their order; pods stay where they are.

        Args:
          nodes: N of them; every pod's must be among them. What they offer beyond the table's resources is left out.

        Returns:
          [N] where each node was before, -1 for those that joined; None where all are where they were.
        """
        before, self.nodes = self.nodes, tuple(nodes)
        self.snapshot = replace(self.snapshot, nodes=self.nodes)
        names = tuple(node.name for node in self.nodes)
        source = None if names == self.names else self._rearrange(names)
        was = range(len(names)) if source is None else source.tolist()
        changed = [at for at, old in enumerate(was) if old < 0 or before[old] is not self.nodes[at]]
        if source is None and changed:
            self.allocatable = self.allocatable.copy()  # problems that are kept may show it
            self._labels = {
                key: known
                for key, known in self._labels.items()
                if all(before[at].labels.get(key) == self.nodes[at].labels.get(key) for at in changed)
            }
        self._offer(changed)
        for at in changed:
            self.changes.note(at)
            self.moves.note(at)
        return source

    def _rearrange(self, names: tuple[str, ...]) -> IndexArray:
        """Give nodes other places."""
        source = np.fromiter((self.index.get(name, NOBODY) for name in names), np.int32, len(names))
        numbers = np.full(len(self.names) + 1, NOBODY, np.int32)  # the last for nobody, who stays so
        numbers[source[source >= 0]] = np.flatnonzero(source >= 0)
        self.names = names
        self.index = {name: at for at, name in enumerate(names)}
        self.allocatable = placed(self.allocatable, source)
        self.requested, self.nonzero = placed(self.requested, source), placed(self.nonzero, source)
        self._labels.clear()
        self.pods.renumber(numbers.tolist(), len(names))
        self.changes.renumber(numbers.tolist(), len(names))
        self.moves.renumber(numbers.tolist(), len(names))
        self._memo.lay_out(source)
        return source

    def memo(self, key: Hashable, build: "Callable[[NodeTable], T]") -> T:
        """Return what `build` makes of the Node objects, made once, and again when one of them changed.

        Whoever asks owns the key, and says in it what the value depends on; pods on nodes must not be read.
        """
        return self.amended(key, build, lambda _value, _changed: build(self))

    def amended(
        self, key: Hashable, build: "Callable[[NodeTable], T]", amend: Callable[[T, IndexArray], T]
    ) -> T:
        """As `memo`; `amend` makes the new value of the old one and the [k] nodes that changed since."""
        return cast(T, self._memo.value(key, lambda: build(self), amend))

    def each(self, key: Hashable, ask: "Callable[[Nodes], NodeArray]") -> NodeArray:
        """[N] Return what `ask` says of every node by itself, asked once, and again of nodes whose objects changed.

        The key is owned as in `memo`; what other nodes say must not be read. The array is read only.
        """
        return cast(
            NodeArray,
            self._memo.array(key, lambda some: ask(self.all() if some is None else self.these(some))),
        )

    def beside(self, key: Hashable, build: Callable[[Snapshot], T]) -> T:
        """Return what `build` makes of what the snapshot has beside nodes and pods, made once."""
        if key not in self._beside:
            self._beside[key] = build(self.snapshot)
        return cast(T, self._beside[key])

    def read_requests(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return ([R] requests with the pod count, [2] requests for scoring) of a pod."""
        vector = np.zeros(len(self.resources), np.int64)
        vector[0] = 1
        for resource, amount in requests(pod).items():
            vector[self.column[resource]] += amount
        return vector, np.asarray(nonzero_requests(pod), np.int64)

    def add(self, placements: Sequence[tuple[Pod, int]], requested: IntArray, nonzero: IntArray) -> None:
        """Put pods with equal requests on nodes.

        Args:
          placements: each pod with the index of its node.
          requested: [R] requests of one pod, the pod count included.
          nonzero: [2] requests of one pod for scoring.
        """
        counted = (requested, nonzero)
        self._counted.update(dict.fromkeys(self.pods.add(placements), counted))
        pods_on: dict[int, int] = {}
        for _, node in placements:
            pods_on[node] = pods_on.get(node, 0) + 1
        for node, count in pods_on.items():
            self._count(node, counted, count)
            self.moves.note(node)

    def remove(self, pods: Sequence[Pod]) -> None:
        """Take pods off their nodes, each with the requests that it was added with.

        Raises:
          KeyError: a pod is on no node.
        """
        keys = [pod.key for pod in pods]
        nodes = self.pods.remove(keys)
        for key, node in zip(keys, nodes, strict=True):
            self._count(node, self._counted.pop(key), -1)
        for node in dict.fromkeys(nodes):
            self.moves.note(node)

    def _count(self, node: int, counted: tuple[IntArray, IntArray], count: int) -> None:
        """Add the requests of `count` equal pods to a node; a negative count subtracts them."""
        requested, nonzero = counted
        # The rows are views: `self.requested[node] += requested` would write the result back a second time.
        requested_row, nonzero_row = self.requested[node], self.nonzero[node]
        if count == 1:
            requested_row += requested
            nonzero_row += nonzero
        elif count == -1:
            requested_row -= requested
            nonzero_row -= nonzero
        else:
            requested_row += requested * count
            nonzero_row += nonzero * count

    def counted(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return ([R], [2]) what a pod that is on a node was counted with.

        Raises:
          KeyError: the pod is on no node.
        """
        return self._counted[pod.key]

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
