"""Groups of nodes with equal devices for some claims, so that one search for devices is enough for each group.

A cluster has thousands of nodes and few kinds of them. Two nodes are in one group if their pools list devices with
equal content in the same order, and the same of these devices are in use.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.api.core.device import Device, DeviceAttribute, DeviceCapacity
from batchsched.api.core.node import Node
from batchsched.devices.inventory import DeviceInventory, DevicePool, PoolDevice
from batchsched.devices.ledger import DeviceKey, DeviceLedger

IndexArray = NDArray[np.int64]
AttributeReader = tuple[tuple[str, ...], Callable[[Mapping[str, DeviceAttribute]], Hashable]]
"""The names of attributes, and a function that returns their values."""
NO_ATTRIBUTES: Final[Mapping[str, DeviceAttribute]] = {}
NOTHING_READ: Final[AttributeReader] = (), lambda _attributes: ()
GROUP_FACTOR: Final = 2**32


class NodeGroupsByDevices:
    """Groups of nodes with equal devices, in which a search for devices has the same result on all nodes.

    Args:
      inventory: the devices.
      ledger: their use; the groups follow its changes.
      nodes: the nodes, in the order of their indexes.
    """

    def __init__(self, inventory: DeviceInventory, ledger: DeviceLedger, nodes: Sequence[Node]) -> None:
        self._inventory, self._ledger, self._nodes = inventory, ledger, nodes
        self._contents: dict[Hashable, int] = {}
        self._readers: dict[frozenset[str] | None, dict[tuple[str, ...], AttributeReader]] = {}
        """By the names that claims read and the names of all attributes of a device, in their order."""
        self._capacity_numbers: dict[Hashable, int] = {(): 0}
        self._by_names: dict[frozenset[str] | None, IndexArray] = {}
        self._use_numbers: dict[Hashable, int] = {(): 0}
        self._uses = np.zeros(len(nodes), np.int64)
        self._local_keys: dict[int, list[DeviceKey]] = {}
        """Index of a node → the devices that it alone reaches."""
        self._change_count = 0
        """The number of changes of the ledger that are read."""
        self._index_of = {node.name: index for index, node in enumerate(nodes)}
        self._node_of_pool: dict[tuple[str, str], int] = {
            key: self._index_of[name]
            for key, name in inventory.pools_reached_by_one_node()
            if name in self._index_of
        }
        """Driver and name of a pool that one node alone reaches → index of the node."""
        self._shared_generation = 0
        self._read_all_uses()

    def _read_all_uses(self) -> None:
        self._uses[:] = 0
        used_pools = {key[:2] for key in self._ledger.uses}
        for index in {self._node_of_pool[key] for key in used_pools if key in self._node_of_pool}:
            self._uses[index] = self._use_number(index)
        self._change_count = self._ledger.change_count

    @property
    def shared_device_generation(self) -> int:
        """A number that changes each time a device that several nodes can reach is allocated or released."""
        self._follow_ledger()
        return self._shared_generation

    def group_numbers(self, names: frozenset[str] | None) -> IndexArray:
        """Return an array with the group number of each node; all nodes of a group have equal devices.

        Args:
          names: names of the attributes and capacities that the claims read; None for all.
        """
        self._follow_ledger()
        contents = self._by_names.get(names)
        if contents is None:
            contents = np.fromiter(
                (self._content_number(node, names) for node in self._nodes), np.int64, len(self._nodes)
            )
            self._by_names[names] = contents
        result: IndexArray = contents * GROUP_FACTOR + self._uses
        return result

    def index_of_only_node_with_device(self, device: DeviceKey) -> int | None:
        """Return the index of the only node that can access a device; None if several nodes may access it."""
        return self._node_of_pool.get(device[:2])

    def group_number(self, node: int, names: frozenset[str] | None) -> int:
        """Return the number of a node's group; all nodes of a group have equal devices."""
        self._follow_ledger()
        if names not in self._by_names:
            self.group_numbers(names)
        return int(self._by_names[names][node]) * GROUP_FACTOR + int(self._uses[node])

    def _follow_ledger(self) -> None:
        if self._change_count == self._ledger.change_count:
            return
        changed = self._ledger.devices_changed_since(self._change_count)
        if changed is None:
            self._shared_generation += 1
            self._read_all_uses()
            return
        touched: set[int] = set()
        for key in changed:
            index = self._node_of_pool.get(key[:2])  # driver and pool, without a new object for each change
            if index is None:
                self._shared_generation += 1
            else:
                touched.add(index)
        self._change_count = self._ledger.change_count
        for index in touched:
            self._uses[index] = self._use_number(index)

    def _use_number(self, index: int) -> int:
        """Return a number for what is in use of the devices that a node alone reaches; 0 for nothing."""
        local_keys = self._local_keys.get(index)
        if local_keys is None:
            local_keys = self._local_keys[index] = [
                device.key for device in self._local_devices(self._nodes[index])
            ]
        uses = self._ledger.uses
        key = tuple(
            [
                (place, bool(use.exclusive), bool(use.shares), tuple(sorted(use.consumed.items())))
                for place, device in enumerate(local_keys)
                if (use := uses.get(device)) is not None
            ]
        )
        return self._use_numbers.setdefault(key, len(self._use_numbers))

    def _local_devices(self, node: Node) -> Iterable[PoolDevice]:
        """Yield the devices of the pools that a node alone reaches."""
        for pool in self._inventory.pools_of_node(node):
            if self._is_local(pool, node):
                for devices in pool.slices:
                    yield from devices

    def _is_local(self, pool: DevicePool, node: Node) -> bool:
        index = self._node_of_pool.get(pool.key)
        return index is not None and self._nodes[index] is node

    def _content_number(self, node: Node, names: frozenset[str] | None) -> int:
        simple = self._inventory.slices_if_complete_pools_without_counters(node)
        if simple is not None:
            key: Hashable = tuple(
                [
                    (
                        resource_slice.spec.driver,
                        self._device_contents(resource_slice.spec.devices or (), names),
                    )
                    for resource_slice in simple
                ]
            )
        else:
            key = tuple(self._pool_content(pool, node, names) for pool in self._inventory.pools_of_node(node))
        return self._contents.setdefault((names, key), len(self._contents))

    def _pool_content(self, pool: DevicePool, node: Node, names: frozenset[str] | None) -> Hashable:
        """Return a key that is equal for pools in which the same search finds the same."""
        local = self._is_local(pool, node)
        return (
            pool.key.driver if local else pool.key,
            pool.incomplete,
            pool.invalid,
            tuple(
                (counter_set, tuple(sorted(counters.items())))
                for counter_set, counters in pool.counters.items()
            ),
            tuple(
                tuple(
                    (
                        content,
                        device.counters,
                        "" if local else device.name,
                        device.matches_per_device_node_selection(node),
                    )
                    for device, content in zip(
                        devices, self._device_contents([one.device for one in devices], names), strict=True
                    )
                )
                for devices in pool.slices
            ),
        )

    def _device_contents(
        self, devices: Iterable[Device], names: frozenset[str] | None
    ) -> tuple[Hashable, ...]:
        """Return a key for each device.

        The keys of two devices are equal if the devices serve the same claims, provided that claims read only the given
        names.
        """
        readers = self._readers.setdefault(names, {})
        contents: list[Hashable] = []
        published_names: tuple[str, ...] = ()
        read, read_values = NOTHING_READ
        capacity_before: dict[str, DeviceCapacity] | None = None
        capacity_number = 0
        # This loop runs for each device of the cluster. Most devices of a ResourceSlice publish the same names and have
        # the same capacity, and a comparison is faster than a hash value.
        for device in devices:
            attributes, capacity = device.attributes or NO_ATTRIBUTES, device.capacity
            if (published := tuple(attributes)) != published_names:
                published_names = published
                reader = readers.get(published)
                if reader is None:
                    reader = readers[published] = _attribute_reader(published, names)
                read, read_values = reader
            if capacity != capacity_before:
                items = tuple(capacity.items()) if capacity else ()
                capacity_number = self._capacity_numbers.setdefault(items, len(self._capacity_numbers))
                capacity_before = capacity
            contents.append(
                (
                    read,
                    read_values(attributes),
                    capacity_number,
                    device.taints,
                    device.allow_multiple_allocations,
                    device.binding_conditions is None,
                )
            )
        return tuple(contents)


def _attribute_reader(published_names: Sequence[str], names: frozenset[str] | None) -> AttributeReader:
    """Return the published attributes that have one of the given names, and a function that reads them."""
    read = tuple(name for name in published_names if names is None or name.rpartition("/")[2] in names)
    return (read, itemgetter(*read)) if read else NOTHING_READ
