"""Devices that a request may get: how many are free on each node, and how many an eviction would free."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.devices.allocator import SEARCH_STEPS_PER_DEVICE
from batchsched.devices.constraints import attribute_type_and_value
from batchsched.devices.inventory import DeviceInventory, PoolDevice
from batchsched.devices.ledger import DeviceKey, DeviceLedger, devices_used_by_allocation
from batchsched.devices.node_groups import GROUP_FACTOR
from batchsched.devices.requests import ResolvedDeviceRequest
from batchsched.framework.constrain import RowRelief
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.device_objects import device_objects, node_groups_by_devices
from batchsched.framework.status import IndexArray, IntArray
from batchsched.plugins.dynamic_resources.node_search import MAX_STEPS_OF_ALL_GROUPS

UNLIMITED_SHARES: Final = 2**20
"""Stands for the allocations of a device that may have several; its capacity limits them, and no row does."""
MAX_RELIEVED_NODES: Final = 100_000
"""Most pairs of a freed device and a node that reaches it. Beyond that, freed devices of several nodes are ignored."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchingDeviceValues:
    """The devices of each node that match one of several requests, with their values of one attribute.

    Args:
      values: number of a group of nodes with equal devices → the attribute value of each device of these nodes; None
        for a device that matches none of the requests.
      number: [N] the number of each node's group of nodes with equal devices, of which the same are in use.
    """

    values: dict[int, tuple[object, ...]]
    number: IntArray

    @classmethod
    def from_alternative_requests(
        cls, alternatives: Sequence[ResolvedDeviceRequest], table: NodeTable, attribute: str = ""
    ) -> Self | None:
        """Return the devices of each node that match at least one of several alternative requests.

        The result is None if the CEL expressions of the requests take too long to evaluate.

        Args:
          alternatives: the requests.
          table: the nodes.
          attribute: the fully qualified name; devices without it match no request. "": all devices have one value.

        Raises:
          AllocationError: an expression is invalid.
        """
        inventory = device_objects(table).allocator.inventory
        names: frozenset[str] | None = frozenset({attribute.rpartition("/")[2]} if attribute else ())
        for alternative in alternatives:
            read = alternative.attributes_and_capacities_read()
            names = None if names is None or read is None else names | read
        number = node_groups_by_devices(table).group_numbers(names)
        groups, first = np.unique(number // GROUP_FACTOR, return_index=True)
        examples = [table.nodes[int(node)] for node in first]
        devices = [inventory.usable_devices_of_node(node) for node in examples]
        count = sum(map(len, devices))
        work = sum(alternative.evaluation_work() for alternative in alternatives)
        if count * work > MAX_STEPS_OF_ALL_GROUPS + SEARCH_STEPS_PER_DEVICE * count:
            return None
        values = {
            group: tuple(_value(alternatives, device, node, attribute) for device in candidates)
            for group, node, candidates in zip(groups.tolist(), examples, devices, strict=True)
        }
        return cls(values, number)

    def attribute_values_on_node(self, node: int) -> tuple[object, ...]:
        """Return the attribute value of each usable device of a node; None for a device that matches no request."""
        return self.values[int(self.number[node]) // GROUP_FACTOR]

    def count_free_device_sets(self, table: NodeTable, size: int) -> IntArray:
        """Count on each node [N] the disjoint sets of `size` free devices that have the same attribute value.

        A device that several claims may share counts as `UNLIMITED_SHARES` devices.
        """
        inventory, ledger = device_objects(table).allocator.inventory, table.device_ledger
        _, first, inverse = np.unique(self.number, return_index=True, return_inverse=True)
        rooms = [self._count_sets_on(int(node), table, inventory, ledger, size) for node in first]
        result: IntArray = np.array(rooms, np.int64)[inverse]
        return result

    def _count_sets_on(
        self, node: int, table: NodeTable, inventory: DeviceInventory, ledger: DeviceLedger, size: int
    ) -> int:
        count = Counter[object]()
        devices = inventory.usable_devices_of_node(table.nodes[node])
        for device, value in zip(devices, self.attribute_values_on_node(node), strict=True):
            if value is not None and not ledger.use_of(device.key).exclusive:
                count[value] += UNLIMITED_SHARES if device.shareable else 1
        return sum(free // size for free in count.values())


def _value(
    alternatives: Sequence[ResolvedDeviceRequest], device: PoolDevice, node: Node, attribute: str
) -> object:
    matches = device.matches_per_device_node_selection(node) and any(
        request.tolerates(device) and request.selects(device) for request in alternatives
    )
    if not matches:
        return None
    return attribute_type_and_value(device, attribute) if attribute else ""


class FreedDevices:
    """The devices that the eviction of each eviction unit would free.

    Args:
      units: the pods of each eviction unit.
      table: the nodes.
    """

    def __init__(self, units: Sequence[Sequence[Pod]], table: NodeTable) -> None:
        self._table = table
        self._freed: list[tuple[int, DeviceKey]] = [
            (unit, device)
            for unit, allocation in table.device_ledger.allocations_freed_by_evictions(units)
            for device, _, _ in devices_used_by_allocation(allocation)
        ]

    @cached_property
    def _places(self) -> tuple[tuple[int, int, int], ...]:
        """The freed devices as (unit, index of a node that reaches the device, position in the node's list)."""
        table, groups = self._table, node_groups_by_devices(self._table)
        inventory = device_objects(table).allocator.inventory
        positions: dict[int, dict[DeviceKey, int]] = {}
        places, most = [], MAX_RELIEVED_NODES
        for unit, key in self._freed:
            alone = groups.index_of_only_node_with_device(key)
            nodes = range(len(table.nodes)) if alone is None else (alone,)
            if alone is None and (most := most - len(nodes)) < 0:
                continue
            for node in nodes:
                if node not in positions:
                    devices = inventory.usable_devices_of_node(table.nodes[node])
                    positions[node] = {device.key: place for place, device in enumerate(devices)}
                position = positions[node].get(key)
                if position is not None:
                    places.append((unit, node, position))
        return tuple(places)

    def relief_of_device_sets(self, matching: MatchingDeviceValues, size: int, factor: int = 1) -> RowRelief:
        """Return, for each eviction unit and node, how many more device sets are free if the unit is evicted.

        A set has `size` devices with the same attribute value, as in `count_free_device_sets`. The numbers are upper
        bounds.

        Args:
          matching: the devices that count, with their attribute values.
          size: the number of devices in a set.
          factor: the number by which the counts are multiplied.
        """
        counts: dict[tuple[int, int], Counter[object]] = {}
        for unit, node, position in self._places:
            value = matching.attribute_values_on_node(node)[position]
            if value is not None:
                counts.setdefault((unit, node), Counter())[value] += 1
        # Devices of several units may complete a set together, so the part of each unit is rounded up.
        return _relief(
            {
                pair: factor * sum(-(-count // size) for count in by_value.values())
                for pair, by_value in counts.items()
            }
        )

    def constant_relief_of_freed_devices(self, amount: int) -> RowRelief:
        """Return the relief `amount` for each eviction unit on each node where its eviction frees devices."""
        return _relief({(unit, node): amount for unit, node, _ in self._places})


def _relief(amounts: dict[tuple[int, int], int]) -> RowRelief:
    pairs: IndexArray = np.array(list(amounts), np.int32).reshape(-1, 2)
    return RowRelief(pairs[:, 0], pairs[:, 1], np.array(list(amounts.values()), np.int64))
