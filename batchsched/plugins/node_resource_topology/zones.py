"""The NUMA zones of all nodes as arrays, read from NodeResourceTopologies, and the pods that these do not count yet.

An agent on the node writes the object some time after a pod has started. A pod that is not Running therefore counts as
not contained in the amounts of the object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from batchsched.api.core.node_resource_topology import NodeResourceTopology, TopologyZone
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.quantity import parse_quantity_in_base_units
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray, IntArray
from batchsched.plugins.node_resource_topology.demands import AlignedDemand, Requests, aligned_demand

ABSENT: Final = -1
"""The available amount of a resource in a zone that does not list it, and of all resources in a missing zone."""
MAX_ZONE_NUMBER: Final = 63
RUNNING: Final = "Running"
_ZONE_TYPE: Final = "Node"
_ZONE_PREFIX: Final = "node-"
_POLICY: Final = "topologyManagerPolicy"
_SCOPE: Final = "topologyManagerScope"
_SINGLE: Final = "single-numa-node"
_POLICIES: Final = ("none", "best-effort", "restricted", _SINGLE)
_POD: Final = "pod"
_SCOPES: Final = ("container", _POD)
_DEPRECATED: Final = {
    "SingleNUMANodePodLevel": (_SINGLE, _POD),
    "SingleNUMANodeContainerLevel": (_SINGLE, "container"),
    "BestEffortPodLevel": ("best-effort", _POD),
    "RestrictedPodLevel": ("restricted", _POD),
}
_MAX_DEMANDS: Final = 16_384


@dataclass(frozen=True, slots=True)
class NumaZone:
    """A NUMA zone of a node, with its available resources and its distances to the zones of the node.

    Args:
      number: the number of the zone on its node.
      available: the available amounts by resource.
      costs: the distances to zones by zone number.
    """

    number: int
    available: Requests
    costs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class NodeNumaZones:
    """The NUMA zones of a node and the settings of its Topology Manager, read from a NodeResourceTopology.

    Args:
      single_zone: the policy of the Topology Manager is `single-numa-node`.
      pod_scope: the scope of the Topology Manager is `pod`, not `container`.
      zones: the NUMA zones, sorted by number. The kubelet prefers the zone with the lowest number.
    """

    single_zone: bool
    pod_scope: bool
    zones: tuple[NumaZone, ...]

    def listed_resources(self) -> frozenset[str]:
        """Return the resources that at least one zone of the node lists; the kubelet aligns no other resources."""
        return frozenset(name for zone in self.zones for name in zone.available)


def read_node_numa_zones(topology: NodeResourceTopology) -> NodeNumaZones:
    """Return the NUMA zones that a NodeResourceTopology lists, and the policy and scope of the Topology Manager.

    Zones of a type other than `Node`, and zones without a valid number, are ignored.
    """
    policy, scope = _DEPRECATED.get(next(iter(topology.topology_policies or ()), ""), ("none", "container"))
    for attribute in topology.attributes or ():
        if attribute.name == _POLICY and attribute.value in _POLICIES:
            policy = attribute.value
        elif attribute.name == _SCOPE and attribute.value in _SCOPES:
            scope = attribute.value
    zones = {
        number: _zone(number, zone)
        for zone in topology.zones
        if zone.type == _ZONE_TYPE and (number := _zone_number(zone.name)) is not None
    }
    return NodeNumaZones(policy == _SINGLE, scope == _POD, tuple(zones[number] for number in sorted(zones)))


def _zone(number: int, zone: TopologyZone) -> NumaZone:
    available = {
        resource.name: parse_quantity_in_base_units(resource.name, resource.available)
        for resource in zone.resources or ()
    }
    costs = {_zone_number(cost.name): cost.value for cost in zone.costs or ()}
    return NumaZone(number, available, {other: cost for other, cost in costs.items() if other is not None})


def _zone_number(name: str) -> int | None:
    digits = name.removeprefix(_ZONE_PREFIX)
    if digits == name or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits[:4])
    return number if number <= MAX_ZONE_NUMBER else None


@dataclass(slots=True, eq=False)
class ZoneTable:
    """The NUMA zones of N nodes as arrays, with the available amounts of K resources in each zone.

    Each node has at most Z zones. The K resources are those that at least one zone lists.

    Args:
      columns: resource → its index among the K resources.
      nodes: [N] what the NodeResourceTopology of each node states; None for nodes without one.
      available: [N, Z, K] available amounts, which the constructor fills in; ABSENT if a zone does not list a resource.
    """

    columns: Mapping[str, int]
    nodes: list[NodeNumaZones | None]
    available: IntArray
    single_zone: BoolArray = field(init=False)
    """[N] nodes with the policy `single-numa-node`."""
    pod_scope: BoolArray = field(init=False)
    """[N] nodes with the scope `pod`."""
    has_topology: BoolArray = field(init=False)
    """[N] nodes with a NodeResourceTopology."""
    listed: BoolArray = field(init=False)
    """[N, K] resources that some zone of the node lists."""
    _since: int = -1
    _uncounted: dict[int, tuple[AlignedDemand, ...]] = field(default_factory=dict)
    _demands: dict[int, tuple[PodSpec, AlignedDemand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            self._write_amounts(index, node)
        self.single_zone = np.array([node is not None and node.single_zone for node in self.nodes], np.bool_)
        self.pod_scope = np.array([node is not None and node.pod_scope for node in self.nodes], np.bool_)
        self.has_topology = np.array([node is not None for node in self.nodes], np.bool_)
        self.listed = (self.available != ABSENT).any(axis=1)

    def _write_amounts(self, index: int, node: NodeNumaZones | None) -> None:
        for position, zone in enumerate(node.zones if node is not None else ()):
            for name, amount in zone.available.items():
                self.available[index, position, self.columns[name]] = amount

    @classmethod
    def from_nodes(cls, nodes: list[NodeNumaZones | None]) -> Self:
        """Create the `ZoneTable` of the given nodes, with the smallest arrays that can hold their zones."""
        names = sorted({name for node in nodes if node is not None for name in node.listed_resources()})
        columns = {name: column for column, name in enumerate(names)}
        widest = max((len(node.zones) for node in nodes if node is not None), default=0)
        return cls(columns, nodes, np.full((len(nodes), max(1, widest), len(names)), ABSENT, np.int64))

    def can_store_zones_of(self, node: NodeNumaZones | None) -> bool:
        """Return whether this table's arrays are large enough for all NUMA zones and resources of a node."""
        return node is None or (
            len(node.zones) <= self.available.shape[1] and self.columns.keys() >= node.listed_resources()
        )

    @property
    def has_minimal_size(self) -> bool:
        """True if this table's arrays could not be smaller: each resource and each zone index is in use."""
        widest = max((len(node.zones) for node in self.nodes if node is not None), default=0)
        return max(1, widest) == self.available.shape[1] and bool(self.listed.any(axis=0).all())

    def replace_zones_of_node(self, index: int, node: NodeNumaZones | None) -> None:
        """Store the zones that the NodeResourceTopology of a node lists; the arrays must be large enough for them."""
        self.nodes[index] = node
        self.available[index] = ABSENT
        self._write_amounts(index, node)
        self.single_zone[index] = node is not None and node.single_zone
        self.pod_scope[index] = node is not None and node.pod_scope
        self.has_topology[index] = node is not None
        self.listed[index] = (self.available[index] != ABSENT).any(axis=0)

    def cached_aligned_demand(self, pod: Pod) -> AlignedDemand:
        """Return the aligned demand of a pod, which is computed once for each pod spec and then cached."""
        entry = self._demands.get(id(pod.spec))
        if entry is None:
            if len(self._demands) >= _MAX_DEMANDS:
                self._demands.clear()
            # The entry holds the spec, so that no other spec can get its id.
            entry = self._demands[id(pod.spec)] = (pod.spec, aligned_demand(pod))
        return entry[1]

    def demands_of_uncounted_pods(self, node: int, table: NodeTable) -> tuple[AlignedDemand, ...]:
        """Return the aligned demands of a node's pods that its NodeResourceTopology does not count yet.

        These are the pods that are not Running yet. Pods without aligned requests are left out.
        """
        generation = table.moves.generation
        if generation != self._since:
            for moved in table.moves.nodes_changed_since(self._since).tolist():
                self._uncounted.pop(moved, None)
            self._since = generation
        demands = self._uncounted.get(node)
        if demands is None:
            waiting = [
                self.cached_aligned_demand(pod)
                for pod in table.pod_table.pods_on(node)
                if pod.status.phase != RUNNING
            ]
            demands = tuple(one for one in waiting if one.total or one.init or one.running)
            self._uncounted[node] = demands
        return demands

    def request_vector(self, requests: Requests) -> IntArray:
        """Return resource requests as an array [K], with an entry for each resource listed by a NUMA zone."""
        amounts = np.zeros(len(self.columns), np.int64)
        for name, amount in requests.items():
            if name in self.columns:
                amounts[self.columns[name]] = amount
        return amounts


def zone_table(table: NodeTable) -> ZoneTable:
    """Return the `ZoneTable` of all nodes, according to the NodeResourceTopologies in the snapshot."""
    return table.cached_value_of_cluster_objects(
        "NUMA zones", lambda _snapshot: _ZoneReader()
    ).current_zone_table(table)


def has_node_resource_topologies(table: NodeTable) -> bool:
    """Return whether the cluster has at least one NodeResourceTopology."""
    return bool(table.cluster_objects.node_resource_topologies)


class _ZoneReader:
    """Reads the NUMA zones of all nodes once, and then those of nodes with a changed NodeResourceTopology."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[NodeResourceTopology, NodeNumaZones]] = {}
        """Name of the node → its object, and what it states."""
        self._topologies: Sequence[NodeResourceTopology] = ()
        self._names: Sequence[str] = ()
        self._zones: ZoneTable | None = None

    def current_zone_table(self, table: NodeTable) -> ZoneTable:
        """Return the `ZoneTable` of all nodes, after reading the NodeResourceTopologies that have changed."""
        topologies, zones = table.cluster_objects.node_resource_topologies, self._zones
        if zones is not None and topologies is self._topologies and table.names is self._names:
            return zones
        changed_names = self._read_topologies(topologies) if topologies is not self._topologies else []
        if zones is None or table.names is not self._names or not self._amend(zones, changed_names, table):
            zones = self._zones = ZoneTable.from_nodes(
                [self._find_node_numa_zones(name) for name in table.names]
            )
        self._topologies, self._names = topologies, table.names
        return zones

    def _read_topologies(self, topologies: Sequence[NodeResourceTopology]) -> list[str]:
        """Read the NodeResourceTopologies that changed, and return the names of their nodes."""
        before, self._read = self._read, {}
        changed_names = []
        for topology in topologies:
            numa_entry = before.pop(topology.name, None)
            if numa_entry is None or numa_entry[0] is not topology:
                numa_entry = topology, read_node_numa_zones(topology)
                changed_names.append(topology.name)
            self._read[topology.name] = numa_entry
        return [*changed_names, *before]

    def _find_node_numa_zones(self, name: str) -> NodeNumaZones | None:
        numa_entry = self._read.get(name)
        return None if numa_entry is None else numa_entry[1]

    def _amend(self, zones: ZoneTable, names: Sequence[str], table: NodeTable) -> bool:
        """Update the zones of some nodes; return False if the arrays need another size."""
        changed = {
            table.index[name]: self._find_node_numa_zones(name) for name in names if name in table.index
        }
        if not all(zones.can_store_zones_of(node) for node in changed.values()):
            return False
        for index, node in changed.items():
            zones.replace_zones_of_node(index, node)
        return zones.has_minimal_size
