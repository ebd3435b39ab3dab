"""Groups of nodes with equal devices for some claims, so that devices are searched once for each group.

A cluster has thousands of nodes and few kinds of them. Two nodes are in one group if their pools list devices with
equal content in the same order, and the same of these devices are in use.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from batchsched.api.core.node import Node
from batchsched.devices.inventory import DeviceInventory, Pool, PoolDevice
from batchsched.devices.ledger import DeviceKey, DeviceLedger
from batchsched.devices.selectors import device_content

IndexArray = NDArray[np.int64]
GROUP_FACTOR: Final = 2**32


class NodeGroups:
    """Groups of nodes with equal devices, so that a search for devices is done once for each group.

    Args:
      inventory: the devices.
      ledger: their use; the groups follow its changes.
      nodes: the nodes, in the order of their indexes.
    """

    def __init__(self, inventory: DeviceInventory, ledger: DeviceLedger, nodes: Sequence[Node]) -> None:
        self._inventory, self._ledger, self._nodes = inventory, ledger, nodes
        self._contents: dict[Hashable, int] = {}
        self._by_names: dict[frozenset[str] | None, IndexArray] = {}
        self._use_numbers: dict[Hashable, int] = {(): 0}
        self._uses = np.zeros(len(nodes), np.int64)
        self._position = 0
        """Up to here the changes of the ledger are read."""
        self._places: dict[DeviceKey, tuple[int, int]] = {}
        """Device that one node alone reaches → index of the node, and the position among the devices of the node."""
        self._local: list[tuple[PoolDevice, ...]] = []
        for index, node in enumerate(nodes):
            devices = tuple(
                device for pool in inventory.pools_of(node) for device in _local_devices(pool, node)
            )
            self._local.append(devices)
            self._places.update({device.key: (index, place) for place, device in enumerate(devices)})
        self.shared_generation = 0
        """Changes whenever the use of a device changes that several nodes reach."""
        for index in {self._places[key][0] for key in ledger.uses if key in self._places}:
            self._uses[index] = self._use_number(index)
        self._position = len(ledger.changed)

    def groups(self, names: frozenset[str] | None) -> IndexArray:
        """Return for each node [N] the number of its group of nodes with equal devices.

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

    def _follow_ledger(self) -> None:
        changed = self._ledger.changed
        if self._position == len(changed):
            return
        touched: set[int] = set()
        for key in changed[self._position :]:
            place = self._places.get(key)
            if place is None:
                self.shared_generation += 1
            else:
                touched.add(place[0])
        self._position = len(changed)
        for index in touched:
            self._uses[index] = self._use_number(index)

    def _use_number(self, index: int) -> int:
        """Return a number for what is in use of the devices that a node alone reaches; 0 for nothing."""
        key = tuple(
            (place, bool(use.exclusive), bool(use.shares), tuple(sorted(use.consumed.items())))
            for place, device in enumerate(self._local[index])
            if (use := self._ledger.uses.get(device.key)) is not None
        )
        return self._use_numbers.setdefault(key, len(self._use_numbers))

    def _content_number(self, node: Node, names: frozenset[str] | None) -> int:
        key = tuple(_pool_content(pool, node, names) for pool in self._inventory.pools_of(node))
        return self._contents.setdefault((names, key), len(self._contents))


def _is_local(pool: Pool, node: Node) -> bool:
    """Return whether one node alone reaches the devices of a pool."""
    return not pool.unreachable and all(
        device.parent.spec.node_name == node.name for devices in pool.slices for device in devices
    )


def _local_devices(pool: Pool, node: Node) -> Iterable[PoolDevice]:
    if _is_local(pool, node):
        for devices in pool.slices:
            yield from devices


def _pool_content(pool: Pool, node: Node, names: frozenset[str] | None) -> Hashable:
    """Return a key that is equal for pools in which the same search finds the same."""
    local = _is_local(pool, node)
    return (
        pool.key.driver if local else pool.key,
        pool.incomplete,
        pool.invalid,
        tuple(
            (counter_set, tuple(sorted(counters.items()))) for counter_set, counters in pool.counters.items()
        ),
        tuple(
            tuple(_device_content(device, node, names, local=local) for device in devices)
            for devices in pool.slices
        ),
    )


def _device_content(device: PoolDevice, node: Node, names: frozenset[str] | None, *, local: bool) -> Hashable:
    published = device.device
    return (
        device_content(device.driver, published, names),
        device.taints,
        device.counters,
        msgspec.json.encode(published.capacity) if published.capacity else b"",
        "" if local else device.name,
        device.reaches(node),
    )
