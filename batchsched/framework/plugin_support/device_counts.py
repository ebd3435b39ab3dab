"""The number of devices of a DeviceClass that each node reaches, and how many of them are in use, for scores.

kube-scheduler counts devices for scores in another way than for allocations: slices of incomplete pools and of earlier
generations count, too.

Source: `calculateDRAResourceTotals` of kube-scheduler's plugins/noderesources, resource_allocation.go.
"""

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from batchsched.api.core.device import Device, DeviceClass, ResourceSlice, ResourceSliceSpec
from batchsched.devices.inventory import is_accessible_from_node, pool_key
from batchsched.devices.ledger import DeviceKey, DeviceLedger
from batchsched.devices.selectors import CelSelectorError, compile_selector
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.device_objects import DEVICE_KINDS
from batchsched.framework.status import IndexArray


class ClassDeviceCounts:
    """The devices of one DeviceClass on N nodes.

    If a selector fails for a device, nodes that reach the device have no devices of the class.
    """

    def __init__(self, device_class: DeviceClass, table: NodeTable) -> None:
        self.device_class = device_class
        self.capacity = np.zeros(len(table.nodes), np.int64)
        """[N] the number of devices."""
        self.allocated = np.zeros(len(table.nodes), np.int64)
        """[N] the number of devices that are in use."""
        self.depends_on_labels = False
        """Whether the labels of nodes determine which of them reach some devices."""
        self._nodes_of_device: dict[DeviceKey, list[IndexArray]] = {}
        """The nodes that reach a device, once for each slice that lists the device."""
        self._in_use: set[DeviceKey] = set()
        failed = np.zeros(len(table.nodes), np.bool_)
        for resource_slice in table.cluster_objects.resource_slices:
            driver, pool = pool_key(resource_slice)
            for device, source, nodes in _devices_with_nodes(resource_slice, table):
                self.depends_on_labels |= source.node_selector is not None
                try:
                    if _matches(device_class, driver, device):
                        self.capacity[nodes] += 1
                        key = DeviceKey(driver, pool, device.name)
                        self._nodes_of_device.setdefault(key, []).append(nodes)
                except CelSelectorError:
                    failed[nodes] = True
        self.capacity[failed] = 0
        self.update_all(table.device_ledger)

    def update(self, devices: Iterable[DeviceKey], ledger: DeviceLedger) -> set[int]:
        """Count the present use of some devices; return the nodes for which the number changed."""
        touched: set[int] = set()
        for device in devices:
            is_used = device in ledger.uses
            if device not in self._nodes_of_device or is_used == (device in self._in_use):
                continue
            (self._in_use.add if is_used else self._in_use.discard)(device)
            for nodes in self._nodes_of_device[device]:
                self.allocated[nodes] += 1 if is_used else -1
                touched.update(nodes.tolist())
        return touched

    def update_all(self, ledger: DeviceLedger) -> set[int]:
        """Count the present use of all devices; return the nodes for which the number changed."""
        return self.update(self._nodes_of_device, ledger)


class DeviceCounts:
    """The devices of those DeviceClasses that scores have asked for."""

    def __init__(self) -> None:
        self._by_class: dict[str, ClassDeviceCounts] = {}
        self._names: tuple[str, ...] = ()
        self._node_generation = -1
        self._change_count = 0

    def counts_of_class(self, device_class: DeviceClass, table: NodeTable) -> ClassDeviceCounts:
        """Return the devices of a DeviceClass on all nodes."""
        name = device_class.metadata.name
        if name not in self._by_class:
            self._by_class[name] = ClassDeviceCounts(device_class, table)
        return self._by_class[name]

    def follow(self, table: NodeTable) -> None:
        """Count changes in the use of devices, and record their nodes in `moves`: their scores are outdated.

        A device of a node may be allocated or freed although no pod comes to the node or leaves it, and several nodes
        may reach a device.
        """
        ledger = table.device_ledger
        if table.names is not self._names:
            self._by_class.clear()  # the scores of these classes are dropped, too
        elif self._change_count != ledger.change_count:
            self._follow_ledger(table, ledger)
        if self._node_generation != table.changes.generation:
            for name, counts in self._by_class.items():
                if counts.depends_on_labels:
                    self._by_class[name] = ClassDeviceCounts(counts.device_class, table)
        self._names, self._node_generation = table.names, table.changes.generation
        self._change_count = ledger.change_count

    def _follow_ledger(self, table: NodeTable, ledger: DeviceLedger) -> None:
        changed = ledger.devices_changed_since(self._change_count)
        for counts in self._by_class.values():
            touched = counts.update_all(ledger) if changed is None else counts.update(changed, ledger)
            for node in sorted(touched):
                table.moves.record_node_change(node)


def device_counts(table: NodeTable) -> DeviceCounts:
    """Return the devices of DeviceClasses on all nodes, with their present use."""
    counts = table.cached_value_of_cluster_objects(
        "device counts", lambda _snapshot: DeviceCounts(), DEVICE_KINDS
    )
    counts.follow(table)
    return counts


def record_changed_device_use(table: NodeTable) -> None:
    """Record in `moves` the nodes on which the use of devices changed, if scores depend on it."""
    if table.cluster_objects.device_classes:
        device_counts(table)


def _devices_with_nodes(
    resource_slice: ResourceSlice, table: NodeTable
) -> Iterator[tuple[Device, Device | ResourceSliceSpec, IndexArray]]:
    """Yield each device of a slice, what selects its nodes, and the indexes of the nodes that reach it."""
    spec = resource_slice.spec
    devices = spec.devices or ()
    if spec.per_device_node_selection:
        yield from ((device, device, _nodes_with_access(device, table)) for device in devices)
    elif devices:
        nodes = _nodes_with_access(spec, table)
        yield from ((device, spec, nodes) for device in devices)


def _nodes_with_access(source: Device | ResourceSliceSpec, table: NodeTable) -> IndexArray:
    name = source.node_name
    candidates = range(len(table.nodes)) if not name else [table.index[name]] if name in table.index else []
    return np.array(
        [
            index
            for index in candidates
            if is_accessible_from_node(
                table.nodes[index], name, source.node_selector, all_nodes=bool(source.all_nodes)
            )
        ],
        np.int32,
    )


def _matches(device_class: DeviceClass, driver: str, device: Device) -> bool:
    """Return whether a device matches all selectors of a DeviceClass.

    As in kube-scheduler, the selectors of scores do not see whether the device allows multiple allocations.

    Raises:
      CelSelectorError: a selector cannot be compiled or evaluated.
    """
    seen = device
    if device.allow_multiple_allocations:
        seen = msgspec.structs.replace(device, allow_multiple_allocations=None)
    return all(
        compile_selector(selector.cel.expression).matches(driver, seen)
        for selector in device_class.spec.selectors or ()
        if selector.cel is not None
    )
