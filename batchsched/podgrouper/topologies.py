"""The Topologies of batchsched and other schedulers, and the node labels that HyperNodes of Volcano define.

If several Topologies have the same name, the Topology of batchsched counts, then that of Kueue, then that of KAI, then
that of HyperNodes.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from batchsched.api.core.node import Node
from batchsched.api.crd.topology import Topology
from batchsched.api.external.hyper_node import HYPER_NODE_KIND, HYPER_NODE_TOPOLOGY, HyperNode, HyperNodeTree
from batchsched.api.external.topology import EXTERNAL_TOPOLOGY_KINDS
from batchsched.api.snapshot import ObjectKind
from batchsched.state.cluster_state import ClusterState

_OWN: Final = 0
_HYPER_NODES: Final = 1 + len(EXTERNAL_TOPOLOGY_KINDS)


class TopologyIndex:
    """All Topologies by origin (batchsched, Kueue or KAI-Scheduler), and all HyperNodes of Volcano.

    If several origins have a Topology of one name, the cluster state receives the Topology of the first of them.

    Args:
      cache: receives the Topologies and the nodes.
    """

    def __init__(self, cache: ClusterState) -> None:
        self._cache = cache
        self._by_origin: tuple[dict[str, Topology], ...] = tuple({} for _ in range(_HYPER_NODES + 1))
        self._hyper_nodes: dict[str, HyperNode] = {}
        self._tree = HyperNodeTree(())

    def store_for(self, kind: ObjectKind) -> "TopologyStore | HyperNodeLabelingNodeStore | None":
        """Return a store for objects of a kind; None for kinds other than Node and batchsched's Topology."""
        if kind.type is Node:
            return HyperNodeLabelingNodeStore(self, self._cache)
        return TopologyStore(self) if kind.type is Topology else None

    def external_kinds_and_stores(self) -> "Iterator[tuple[ObjectKind, TopologyStore | HyperNodeStore]]":
        """Yield each kind of topology object of other schedulers, with the store for its objects."""
        for number, kind in enumerate(EXTERNAL_TOPOLOGY_KINDS):
            yield kind, TopologyStore(self, number)
        yield HYPER_NODE_KIND, HyperNodeStore(self)

    def put_topology_of_origin(self, origin: int, topology: Topology) -> None:
        """Add or update a Topology of one origin: batchsched itself, or another scheduler such as Kueue."""
        self._by_origin[origin][topology.name] = topology
        self._show(topology.name)

    def remove_topology_of_origin(self, origin: int, name: str) -> None:
        """Remove the Topology of this name that came from one origin, such as Kueue."""
        if self._by_origin[origin].pop(name, None) is not None:
            self._show(name)

    def replace_topologies_of_origin(self, origin: int, listed: Iterable[Topology]) -> None:
        """Replace all Topologies that come from one scheduler, such as Kueue, by a complete list."""
        topologies = self._by_origin[origin]
        names = set(topologies)
        topologies.clear()
        topologies.update((topology.name, topology) for topology in listed)
        for name in sorted(names | set(topologies)):
            self._show(name)

    def _show(self, name: str) -> None:
        counting = next((origin[name] for origin in self._by_origin if name in origin), None)
        if counting is not None:
            self._cache.put(counting, is_latest=True)
            return
        previous = self._cache.get("topologies", name)
        if previous is not None:  # without its uid, since another origin may add the same object again
            without_uid = previous.metadata.model_copy(update={"uid": ""})
            self._cache.remove(previous.model_copy(update={"metadata": without_uid}))

    def with_hyper_node_labels(self, node: Node) -> Node:
        """Return the node with labels that name the HyperNodes which contain it, one label for each tier."""
        return self._tree.node_with_tier_labels(node) if self._hyper_nodes else node

    def change_hyper_nodes(
        self, changed: Iterable[HyperNode], removed: Iterable[str] = (), *, complete: bool = False
    ) -> None:
        """Add, update and remove HyperNodes, and update the HyperNode labels of all nodes.

        Args:
          changed: HyperNodes that are new or have changed.
          removed: the names of deleted HyperNodes.
          complete: whether `changed` is a complete list.
        """
        before = _relevant(self._hyper_nodes)
        if complete:
            self._hyper_nodes.clear()
        self._hyper_nodes.update((hyper_node.metadata.name, hyper_node) for hyper_node in changed)
        for name in removed:
            self._hyper_nodes.pop(name, None)
        if _relevant(self._hyper_nodes) == before:
            return
        self._tree = HyperNodeTree.from_hyper_nodes(self._hyper_nodes.values())
        for node in self._cache.list_objects("nodes"):
            labelled = self._tree.node_with_tier_labels(node)
            if labelled is not node:
                # Without a version: the labels changed here, and not the object in the API.
                self._cache.put(labelled, version="")
        topology = self._tree.topology
        if topology is None:
            self.remove_topology_of_origin(_HYPER_NODES, HYPER_NODE_TOPOLOGY)
        else:
            self.put_topology_of_origin(_HYPER_NODES, topology)


def _relevant(hyper_nodes: dict[str, HyperNode]) -> dict[str, object]:
    """Return the parts of HyperNodes on which the labels of nodes and the Topology depend."""
    return {name: (hyper_node.spec, hyper_node.metadata.labels) for name, hyper_node in hyper_nodes.items()}


class TopologyStore:
    """The store for the Topologies of batchsched, or of one other scheduler.

    Args:
      index: all Topologies.
      external: the index of the other scheduler in `EXTERNAL_TOPOLOGY_KINDS`; None for batchsched.
    """

    def __init__(self, index: TopologyIndex, external: int | None = None) -> None:
        self._index = index
        self._origin = _OWN if external is None else 1 + external

    def put(self, topology: Topology) -> None:
        """Add or update a Topology."""
        self._index.put_topology_of_origin(self._origin, topology)

    def remove(self, topology: Any) -> None:
        """Remove a deleted Topology."""
        self._index.remove_topology_of_origin(self._origin, topology.metadata.name)

    def replace(self, kind: type, listed: Iterable[Topology]) -> None:
        """Replace all Topologies that come from the scheduler of this store by a complete list."""
        self._index.replace_topologies_of_origin(self._origin, listed)


class HyperNodeStore:
    """The store for the HyperNodes of Volcano.

    Args:
      index: the HyperNodes and all Topologies.
    """

    def __init__(self, index: TopologyIndex) -> None:
        self._index = index

    def put(self, hyper_node: HyperNode) -> None:
        """Add or update a HyperNode."""
        self._index.change_hyper_nodes([hyper_node])

    def remove(self, hyper_node: Any) -> None:
        """Remove a deleted HyperNode."""
        self._index.change_hyper_nodes([], [hyper_node.metadata.name])

    def replace(self, kind: type, listed: Iterable[HyperNode]) -> None:
        """Replace all HyperNodes by a complete list."""
        self._index.change_hyper_nodes(listed, complete=True)


class HyperNodeLabelingNodeStore:
    """The store that adds the labels of HyperNodes to nodes and passes the nodes to the cluster state.

    Args:
      index: the HyperNodes.
      cache: receives the nodes.
    """

    def __init__(self, index: TopologyIndex, cache: ClusterState) -> None:
        self._index = index
        self._cache = cache

    def put(self, node: Node) -> None:
        """Add or update a node."""
        self._cache.put(self._index.with_hyper_node_labels(node))

    def remove(self, node: Any) -> None:
        """Remove a deleted node."""
        self._cache.remove(node)

    def replace(self, kind: type, listed: Iterable[Node]) -> None:
        """Replace all nodes in the cluster state by a complete list, with the labels of their HyperNodes."""
        self._cache.replace(kind, [self._index.with_hyper_node_labels(node) for node in listed])
