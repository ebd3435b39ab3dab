"""Searches nodes for devices for the claims of a pod class: once for each group of nodes with equal devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from batchsched.api.core.device import MAX_SUB_REQUESTS, AllocationResult, ResourceClaim
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.pod_devices import ReservedClaimDevices
from batchsched.devices.allocation import ClaimConfiguration, build_allocations, configurations_of_claims
from batchsched.devices.allocator import (
    SEARCH_ENDED,
    SEARCH_STEPS_PER_DEVICE,
    ChosenDevice,
    PodDeviceAllocation,
)
from batchsched.devices.inventory import PoolDevice
from batchsched.devices.node_groups import NodeGroupsByDevices
from batchsched.devices.requests import ClaimRequests, NodeRefused, claim_requests
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_objects import (
    DEVICE_KINDS,
    DeviceObjects,
    device_objects,
    node_groups_by_devices,
)
from batchsched.framework.status import BoolArray, IntArray
from batchsched.plugins.dynamic_resources.claims import PodClassClaims
from batchsched.plugins.dynamic_resources.extended_resources import build_extended_resource_claim

NOT_ENOUGH = "cannot allocate all claims"
MAX_STEPS_OF_ALL_GROUPS: Final = 100_000
"""Steps after which no further group of nodes is searched for the claims of a pod, in addition to those for devices."""


@dataclass(frozen=True, slots=True)
class NodeGroupSearchResult:
    """The result of a search for devices for one pod, valid for all nodes of a group with equal devices.

    Args:
      reason: why devices cannot be allocated; "" if they can.
      score: the sum of the preferences of the alternatives in requests that are used.
      steps: the steps that the search took.
    """

    reason: str = ""
    score: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSearchResults:
    """The results of the search for devices for one pod on each of n nodes.

    Args:
      reasons: the distinct reasons for which nodes are refused.
      refused: [n] the index of each node's reason in `reasons`; -1 for nodes with devices for all claims.
      scores: [n] the score of each node.
    """

    reasons: tuple[str, ...]
    refused: IntArray
    scores: IntArray

    @property
    def feasible_mask(self) -> BoolArray:
        """A mask of the n nodes: True for each node that has devices for all ResourceClaims of the pod."""
        return self.refused < 0


@dataclass(frozen=True, slots=True, eq=False)
class DevicePositions:
    """The devices that a search found on a node, as positions in the node's list of devices.

    The positions are valid on all nodes with equal devices.

    Args:
      solution: the solution on one node.
      positions: for each claim the position of each chosen device.
    """

    solution: PodDeviceAllocation
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def from_pod_device_allocation(
        cls, solution: PodDeviceAllocation, candidates: Sequence[PoolDevice]
    ) -> "DevicePositions":
        """Convert the devices that a search found on a node to positions in the device list of that node."""
        place_of = {device.number: place for place, device in enumerate(candidates)}
        return cls(
            solution,
            tuple(
                tuple(place_of[chosen_device.device.number] for chosen_device in chosen)
                for chosen in solution.devices
            ),
        )

    def to_pod_device_allocation(self, candidates: Sequence[PoolDevice]) -> PodDeviceAllocation:
        """Return the devices at these positions in `candidates`, the device list of a node."""
        return PodDeviceAllocation(
            tuple(
                tuple(
                    ChosenDevice(chosen_device.request, candidates[place], chosen_device.consumed)
                    for chosen_device, place in zip(chosen, places, strict=True)
                )
                for chosen, places in zip(self.solution.devices, self.positions, strict=True)
            ),
            self.solution.alternatives,
        )


class DeviceSearch:
    """A search on many nodes for the devices of a pod's claims; nodes with equal devices are searched once.

    Args:
      objects: the devices.
      claims: the claims without allocation.

    Raises:
      AllocationError: a claim is invalid.
    """

    def __init__(self, objects: DeviceObjects, claims: Sequence[ResourceClaim]) -> None:
        self._objects = objects
        self.claims: tuple[ClaimRequests, ...] = tuple(
            claim_requests(claim, objects.classes) for claim in claims
        )
        self.names = _read_names(self.claims)
        self._outcomes: dict[int, NodeGroupSearchResult] = {}
        self._places: dict[int, DevicePositions] = {}
        """Group of nodes → the solution on them."""
        self._configurations: dict[
            frozenset[tuple[tuple[int, int], int]], tuple[ClaimConfiguration, ...]
        ] = {}
        """The alternatives that are used → the configuration of each claim."""
        self._pods_by_group: dict[int, tuple[int, bool]] = {}
        """Group of nodes → the pods that get devices on one of them, and whether no further pod does."""
        self._groups: NodeGroupsByDevices | None = None
        self._generation = 0

    def search_nodes(self, nodes: Nodes) -> DeviceSearchResults:
        """Search the given nodes for devices, and return the results.

        Raises:
          AllocationError: a claim, a class or a slice is invalid.
        """
        if len(nodes) == 1:
            outcome = self.search_node(nodes.first_node_index, nodes.table)
            refusal = np.array([0 if outcome.reason else -1], np.int64)
            return DeviceSearchResults(
                (outcome.reason,) * bool(outcome.reason), refusal, np.array([outcome.score], np.int64)
            )
        groups = node_groups_by_devices(nodes.table)
        self._forget_outdated(groups)
        numbers = groups.group_numbers(self.names)[nodes.where]
        distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        objects = nodes.node_objects
        outcomes = [NodeGroupSearchResult()] * len(distinct)
        inventory = self._objects.allocator.inventory
        steps, max_steps = 0, MAX_STEPS_OF_ALL_GROUPS
        for position in np.argsort(first):  # in the order of the nodes
            node = objects[int(first[position])]
            max_steps += SEARCH_STEPS_PER_DEVICE * len(inventory.usable_devices_of_node(node))
            if steps <= max_steps:
                outcomes[position] = self._outcome(int(distinct[position]), node)
                steps += outcomes[position].steps
            else:
                outcomes[position] = NodeGroupSearchResult(f"node {node.name}: {SEARCH_ENDED}")
        reasons = tuple(dict.fromkeys(item.reason for item in outcomes if item.reason))
        refused = np.array([reasons.index(item.reason) if item.reason else -1 for item in outcomes], np.int64)
        scores = np.array([item.score for item in outcomes], np.int64)
        return DeviceSearchResults(reasons, refused[inverse], scores[inverse])

    def search_node(self, node: int, table: NodeTable) -> NodeGroupSearchResult:
        """Search the node with this index in the node table for devices, and return the result.

        Raises:
          AllocationError: a claim, a class or a slice is invalid.
        """
        groups = node_groups_by_devices(table)
        self._forget_outdated(groups)
        return self._outcome(groups.group_number(node, self.names), table.nodes[node])

    def find_allocations_on_node(
        self, claims: Sequence[ResourceClaim], node: int, table: NodeTable
    ) -> tuple[AllocationResult, ...] | None:
        """Allocate free devices of one node to each ResourceClaim; return None if too few devices are free.

        Args:
          claims: claims with the same specs as the claims of this search.
          node: the index of the node.
          table: the nodes.

        Raises:
          AllocationError: a claim, a class or a slice is invalid.
          NodeRefused: the node cannot be judged.
        """
        solution = self._find_devices(node, table)
        if solution is None:
            return None
        used = frozenset(solution.alternatives.items())
        configurations = self._configurations.get(used)
        if configurations is None:
            configurations = self._configurations[used] = configurations_of_claims(
                self.claims, solution.alternatives, table.release.devices
            )
        return build_allocations(solution, claims, table.names[node], configurations)

    def _find_devices(self, node: int, table: NodeTable) -> PodDeviceAllocation | None:
        """Return devices of one node (given by its index) for the ResourceClaims; None if too few are free.

        On all nodes of a group, the search finds devices at the same positions in their device lists.
        """
        groups, allocator = node_groups_by_devices(table), self._objects.allocator
        group, place = groups.group_number(node, self.names), table.nodes[node]
        self._forget_outdated(groups)
        places = self._places.get(group)
        if places is None:
            solution = allocator.find_devices(place, self.claims)
            if solution is None:
                return None
            places = self._places[group] = DevicePositions.from_pod_device_allocation(
                solution, allocator.inventory.usable_devices_of_node(place)
            )
            return solution
        return places.to_pod_device_allocation(allocator.inventory.usable_devices_of_node(place))

    def count_pods_that_find_devices(self, node: int, most: int, table: NodeTable) -> int:
        """Count how many pods with equal ResourceClaims can get their devices on one node together.

        The search places the pods one after the other and stops at `most` pods. The result may be higher if an earlier
        call with a higher `most` counted more pods. All devices that the node can access must be accessible from this
        node only.

        Raises:
          AllocationError, NodeRefused: as of the search.
        """
        groups = node_groups_by_devices(table)
        self._forget_outdated(groups)
        group = groups.group_number(node, self.names)
        pods, is_last = self._pods_by_group.get(group, (0, False))
        if pods < most and not is_last:
            pods = self._try_pods(node, most, table)
            self._pods_by_group[group] = pods, pods < most
        return pods

    def _try_pods(self, node: int, most: int, table: NodeTable) -> int:
        ledger, held = table.device_ledger, list[str]()
        claims = [entry.claim for entry in self.claims]
        try:
            while len(held) < most:
                allocations = self.find_allocations_on_node(claims, node, table)
                if allocations is None:
                    break
                pod = f"<{len(held)}>"
                held.append(pod)
                # The ledger holds devices for an invented pod as for a nominated one.
                ledger.hold_for_nominated_pod(
                    pod,
                    [
                        ReservedClaimDevices(f"{pod}/{index}", allocation)
                        for index, allocation in enumerate(allocations)
                    ],
                )
        finally:
            for pod in held:
                ledger.stop_holding_for_nominated_pod(pod)
        return len(held)

    def _forget_outdated(self, groups: NodeGroupsByDevices) -> None:
        """Drop all results if groups have new numbers, or if the use of a device of several nodes has changed."""
        if self._groups is not groups or self._generation != groups.shared_device_generation:
            self._outcomes.clear()
            self._places.clear()
            self._pods_by_group.clear()
            self._groups, self._generation = groups, groups.shared_device_generation

    def _outcome(self, group: int, node: Node) -> NodeGroupSearchResult:
        outcome = self._outcomes.get(group)
        if outcome is None:
            outcome = self._outcomes[group] = self._search(node)
        return outcome

    def _search(self, node: Node) -> NodeGroupSearchResult:
        allocator = self._objects.allocator
        budget = allocator.new_budget(node)
        try:
            solution = allocator.find_devices(node, self.claims, budget)
        except NodeRefused as refused:
            return NodeGroupSearchResult(str(refused), steps=budget.spent)
        if solution is None:
            return NodeGroupSearchResult(NOT_ENOUGH, steps=budget.spent)
        score = sum(MAX_SUB_REQUESTS - used for used in solution.alternatives.values())
        return NodeGroupSearchResult(score=score, steps=budget.spent)


def device_search_of_claim_specs(table: NodeTable, claims: Sequence[ResourceClaim]) -> DeviceSearch:
    """Return the `DeviceSearch` for a list of ResourceClaims; lists with equal specs share one search.

    Raises:
      AllocationError: a claim is invalid.
    """
    searches = table.cached_value_of_cluster_objects(
        "DynamicResources/searches", lambda _snapshot: dict[bytes, DeviceSearch](), DEVICE_KINDS
    )
    key = msgspec.json.encode([claim.spec for claim in claims])
    search = searches.get(key)
    if search is None:
        search = searches[key] = DeviceSearch(device_objects(table), claims)
    return search


def _read_names(claims: Sequence[ClaimRequests]) -> frozenset[str] | None:
    """Return the names of the attributes and capacities that claims read; None if they are not known."""
    names: frozenset[str] = frozenset()
    for item in claims:
        for constraint in item.claim.spec.devices.constraints or ():
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            names |= {attribute.rpartition("/")[2]}
        for alternatives in item.requests:
            for request in alternatives:
                read = request.attributes_and_capacities_read()
                if read is None:
                    return None
                names |= read
    return names


def search_devices_for_pod_class(
    pod: Pod, class_claims: PodClassClaims, nodes: Nodes
) -> list[tuple[DeviceSearchResults, BoolArray]]:
    """Search nodes for the devices of a pod class, group by group; return the results and the mask of each group.

    The nodes of a group lack the same extended resources. One search covers them and includes a ResourceClaim for these
    resources. The shape of a mask is [n], with one entry for each of the given nodes; the search results are for the
    nodes with the entry True.

    Raises:
      AllocationError: a claim, a class or a slice is invalid.
    """
    table, objects = nodes.table, device_objects(nodes.table)
    searched = []
    for resources, where in nodes_by_missing_resources(class_claims.resources, nodes):
        claims = class_claims.unallocated_claims
        if resources:
            claims = (*claims, build_extended_resource_claim(pod, resources, objects.class_of_resource))
        if claims:
            view = nodes if where.all() else table.selected_nodes_view(nodes.node_indexes[where])
            searched.append((device_search_of_claim_specs(table, claims).search_nodes(view), where))
    return searched


def nodes_by_missing_resources(
    resources: Sequence[str], nodes: Nodes
) -> list[tuple[tuple[str, ...], BoolArray]]:
    """Group nodes by the extended resources that they lack; return these resources and a mask for each group.

    The shape of a mask is [n], with one entry for each of the given nodes.
    """
    if not resources:
        return [((), np.ones(len(nodes), np.bool_))]
    table = nodes.table
    lacking = np.stack(
        [
            nodes.allocatable[:, table.column[name]] == 0
            if name in table.column
            else np.ones(len(nodes), np.bool_)
            for name in resources
        ]
    )
    patterns, numbers = np.unique(lacking, axis=1, return_inverse=True)
    return [
        (
            tuple(name for name, lacks in zip(resources, patterns[:, number], strict=True) if lacks),
            numbers.reshape(-1) == number,
        )
        for number in range(patterns.shape[1])
    ]
