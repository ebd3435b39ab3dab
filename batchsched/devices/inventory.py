"""The inventory of devices: the ResourceSlices of a snapshot, and the pools that a node can reach.

A pool is complete if all slices of its newest generation are known. Devices of incomplete and of invalid pools are not
allocated.

Source: k8s.io/dynamic-resource-allocation/structured/internal/incubating, pools_incubating.go.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from msgspec.structs import replace

from batchsched.api.core.device import (
    CounterSet,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)
from batchsched.api.core.node import Node
from batchsched.api.core.quantity import parse_quantity
from batchsched.api.core.selector import NodeSelector
from batchsched.config.kubernetes_release import DeviceRules
from batchsched.devices.ledger import DeviceKey


class DevicePoolKey(NamedTuple):
    """The identity of a pool of devices: its driver and its name."""

    driver: str
    pool: str


class PoolDevice:
    """A device of a ResourceSlice, prepared for the allocator: with its key, pool, counters and taints.

    Args:
      device: the object, with the taints of DeviceTaintRules.
      parent: the slice.
      number: the number of the device in the inventory.
      pool: the pool of the slice.
    """

    __slots__ = (
        "_capacity",
        "counters",
        "device",
        "key",
        "number",
        "parent",
        "pool",
        "shareable",
        "taints",
        "whole",
    )

    def __init__(self, device: Device, parent: ResourceSlice, number: int, pool: DevicePoolKey) -> None:
        self.device = device
        self.parent = parent
        self.number = number
        """Number of the device in the inventory."""
        self.pool = pool
        self.key = DeviceKey(pool.driver, pool.pool, device.name)
        self.shareable = bool(device.allow_multiple_allocations)
        self.whole = not self.shareable and (
            not device.capacity or all(offered.request_policy is None for offered in device.capacity.values())
        )
        """True if each allocation takes all of the device's capacity, whatever it requests."""
        self.taints: tuple[DeviceTaint, ...] = ()
        if device.taints:
            self.taints = tuple(taint for taint in device.taints if taint.prevents_allocation)
        self.counters: tuple[tuple[str, str, Decimal], ...] = ()
        """What the device consumes while it is allocated: counter set, counter and amount."""
        if device.consumes_counters:
            self.counters = tuple(
                (consumption.counter_set, name, parse_quantity(counter.value))
                for consumption in device.consumes_counters
                for name, counter in (consumption.counters or {}).items()
            )
        self._capacity: dict[str, Decimal] | None = None

    @property
    def capacity(self) -> dict[str, Decimal]:
        """The amount that the device offers of each of its capacities, by the name of the capacity."""
        if self._capacity is None:
            # Most devices are allocated as a whole, and their amounts are never compared.
            self._capacity = {
                name: parse_quantity(offered.value) for name, offered in (self.device.capacity or {}).items()
            }
        return self._capacity

    @property
    def capacity_count(self) -> int:
        """The number of capacities that the device has, such as 1 if it has only memory."""
        return len(self.device.capacity or ())

    @property
    def driver(self) -> str:
        """The name of the driver that offers the device."""
        return self.pool.driver

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.key.device

    def matches_per_device_node_selection(self, node: Node) -> bool:
        """Return whether the fields of the device itself allow access from a node.

        The result is True if the ResourceSlice selects the nodes of all its devices together.
        """
        if not self.parent.spec.per_device_node_selection:
            return True
        device = self.device
        return is_accessible_from_node(
            node, device.node_name, device.node_selector, all_nodes=bool(device.all_nodes)
        )


@dataclass(frozen=True, slots=True, eq=False)
class DevicePool:
    """A pool of devices, divided into the devices that one node can access and all others.

    Args:
      key: the driver and the name.
      slices: the devices of each slice that the node can access, in the order in which they are tried.
      unreachable: the devices of slices that the node cannot access; they consume counters.
      counters: counter set → counter → amount.
      incomplete: slices of the newest generation are missing.
      invalid: why the pool is invalid, "" if it is valid.
    """

    key: DevicePoolKey
    slices: tuple[tuple[PoolDevice, ...], ...] = ()
    unreachable: tuple[PoolDevice, ...] = ()
    counters: dict[str, dict[str, Decimal]] = field(default_factory=dict)
    incomplete: bool = False
    invalid: str = ""

    @property
    def is_usable(self) -> bool:
        """True if devices of the pool may be allocated: the pool is complete and valid."""
        return not self.incomplete and not self.invalid

    @property
    def has_binding_conditions(self) -> bool:
        """True if a device of the pool has binding conditions; the allocator tries such pools last."""
        return any(
            resource_slice.device.binding_conditions is not None
            for devices in self.slices
            for resource_slice in devices
        )


class DeviceInventory:
    """The devices of all ResourceSlices of a snapshot, indexed by the nodes that can access them.

    Args:
      slices: the ResourceSlices.
      taint_rules: taints that administrators add to devices.
      rules: how the release of Kubernetes allocates devices.
    """

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        taint_rules: Sequence[DeviceTaintRule],
        rules: DeviceRules,
    ) -> None:
        self._rules = rules
        rules_in_force = taint_rules if rules.reads_taint_rules else ()
        self._of_node: dict[str, list[ResourceSlice]] = {}
        self._shared: list[ResourceSlice] = []
        self._of_pool: dict[DevicePoolKey, list[ResourceSlice]] = {}
        self._devices: dict[int, tuple[PoolDevice, ...]] = {}
        self._keep_alive: list[ResourceSlice] = []
        self._count = 0
        for original in slices:
            resource_slice = _with_taints(original, rules_in_force)
            self._keep_alive.append(resource_slice)
            everywhere = rules.counter_slices_reach_all_nodes and bool(resource_slice.spec.shared_counters)
            if resource_slice.spec.node_name and not everywhere:
                self._of_node.setdefault(resource_slice.spec.node_name, []).append(resource_slice)
            else:
                self._shared.append(resource_slice)
            self._of_pool.setdefault(pool_key(resource_slice), []).append(resource_slice)
        self._pools: dict[str, tuple[Node, tuple[DevicePool, ...]]] = {}
        self._candidates: dict[str, tuple[Node, tuple[PoolDevice, ...]]] = {}

    @property
    def is_empty(self) -> bool:
        """True if the snapshot has no ResourceSlice."""
        return not self._keep_alive

    @property
    def has_slices_of_several_nodes(self) -> bool:
        """True if the snapshot has a ResourceSlice that is not restricted to a single node."""
        return bool(self._shared)

    def pools_reached_by_one_node(self) -> Iterable[tuple[DevicePoolKey, str]]:
        """Yield each pool that only one node can access, together with the name of this node."""
        for key, slices in self._of_pool.items():
            name = slices[0].spec.node_name
            if not name or slices[0].spec.per_device_node_selection:
                continue
            if len(slices) == 1 or all(
                resource_slice.spec.node_name == name and not resource_slice.spec.per_device_node_selection
                for resource_slice in slices
            ):
                yield key, name

    def slices_if_complete_pools_without_counters(self, node: Node) -> Sequence[ResourceSlice] | None:
        """Return a node's ResourceSlices if each of them is a complete pool without counters; otherwise None.

        Most nodes have only such pools, and then the slices alone determine which devices the node can access.

        The result is also None if two of the slices have the same driver, or if the inventory has a ResourceSlice that
        is not restricted to a single node.
        """
        slices = self._of_node.get(node.name, ())
        if self._shared or not all(map(self._is_simple, slices)):
            return None
        if len(slices) < 2:
            return slices
        ordered = sorted(slices, key=pool_key)
        drivers = {resource_slice.spec.driver for resource_slice in ordered}
        return ordered if len(drivers) == len(ordered) else None

    def _is_simple(self, resource_slice: ResourceSlice) -> bool:
        spec = resource_slice.spec
        devices = spec.devices or ()
        return (
            spec.pool.resource_slice_count == 1
            and len(self._of_pool[pool_key(resource_slice)]) == 1
            and not spec.shared_counters
            and not spec.per_device_node_selection
            # All devices have names of their own, and none consumes counters.
            and len({device.name for device in devices if device.consumes_counters is None}) == len(devices)
        )

    def devices_of_slice(self, parent: ResourceSlice) -> tuple[PoolDevice, ...]:
        """Return the devices of a ResourceSlice."""
        devices = self._devices.get(id(parent))
        if devices is None:
            listed, pool = parent.spec.devices or (), pool_key(parent)
            devices = tuple(
                [
                    PoolDevice(device, parent, number, pool)
                    for number, device in enumerate(listed, self._count)
                ]
            )
            self._count += len(listed)
            self._devices[id(parent)] = devices
        return devices

    def pools_of_node(self, node: Node) -> tuple[DevicePool, ...]:
        """Return the pools of devices that a node can reach, in the order in which the allocator tries them."""
        cached = self._pools.get(node.name)
        if cached is None or cached[0] is not node:
            cached = self._pools[node.name] = node, self._gather(node)
        return cached[1]

    def usable_devices_of_node(self, node: Node) -> tuple[PoolDevice, ...]:
        """Return the devices of all usable pools of a node, in the order in which the allocator tries them."""
        cached = self._candidates.get(node.name)
        if cached is None or cached[0] is not node:
            devices = tuple(
                device
                for pool in self.pools_of_node(node)
                if pool.is_usable
                for slice_devices in pool.slices
                for device in slice_devices
            )
            cached = self._candidates[node.name] = node, devices
        return cached[1]

    def _gather(self, node: Node) -> tuple[DevicePool, ...]:
        simple = self.slices_if_complete_pools_without_counters(node)
        if simple is not None and len(simple) == 1:
            # The only slice of its pool, which serves this node only: nothing else has to be compared or checked.
            return (DevicePool(pool_key(simple[0]), (self.devices_of_slice(simple[0]),)),)
        newest: dict[DevicePoolKey, list[ResourceSlice]] = {}
        for resource_slice in (*self._of_node.get(node.name, ()), *self._shared):
            if _uses_compatibility_groups(resource_slice) and self._rules.ignores_compatibility_groups:
                continue
            if not self._is_relevant(resource_slice, node):
                continue
            kept = newest.setdefault(pool_key(resource_slice), [])
            if kept and resource_slice.spec.pool.generation > kept[0].spec.pool.generation:
                kept.clear()
            if not kept or resource_slice.spec.pool.generation == kept[0].spec.pool.generation:
                kept.append(resource_slice)
        pools = [pool for key, kept in newest.items() if (pool := self._build(key, kept)) is not None]
        return tuple(
            sorted(pools, key=lambda pool: (pool.is_usable and pool.has_binding_conditions, pool.key))
        )

    def _is_relevant(self, resource_slice: ResourceSlice, node: Node) -> bool:
        spec = resource_slice.spec
        if self._rules.counter_slices_reach_all_nodes and spec.shared_counters:
            return True
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return is_accessible_from_node(
                node, spec.node_name, spec.node_selector, all_nodes=bool(spec.all_nodes)
            )
        return bool(spec.per_device_node_selection) and any(
            device.matches_per_device_node_selection(node) for device in self.devices_of_slice(resource_slice)
        )

    def _build(self, key: DevicePoolKey, kept: list[ResourceSlice]) -> DevicePool | None:
        """Return a pool from the slices that a node can reach; None if these are outdated."""
        pool, everything = kept[0].spec.pool, kept
        if len(kept) != pool.resource_slice_count:
            cached = self._of_pool[key]
            if any(resource_slice.spec.pool.generation > pool.generation for resource_slice in cached):
                return None
            everything = [
                resource_slice
                for resource_slice in cached
                if resource_slice.spec.pool.generation == pool.generation
            ]
            if self._rules.ignores_compatibility_groups:
                everything = [
                    resource_slice
                    for resource_slice in everything
                    if not _uses_compatibility_groups(resource_slice)
                ]
            if len(everything) != pool.resource_slice_count:
                return DevicePool(key, incomplete=True)
        names = {resource_slice.metadata.name for resource_slice in kept}
        missing_slices = [
            resource_slice for resource_slice in everything if resource_slice.metadata.name not in names
        ]
        kept = sorted(kept, key=lambda resource_slice: resource_slice.metadata.name)
        with_counters = [
            resource_slice
            for resource_slice in (*kept, *missing_slices)
            if resource_slice.spec.shared_counters
        ]
        slices = tuple(
            self.devices_of_slice(resource_slice)
            for resource_slice in kept
            if not resource_slice.spec.shared_counters
        )
        unreachable = tuple(
            device
            for resource_slice in missing_slices
            if not resource_slice.spec.shared_counters
            for device in self.devices_of_slice(resource_slice)
        )
        counters, problem = _counters(with_counters)
        problem = _duplicate_device(slices) or problem or _unknown_counter(slices, unreachable, counters)
        if problem:
            return DevicePool(key, invalid=problem)
        return DevicePool(key, slices, unreachable, counters)


def pool_key(resource_slice: ResourceSlice) -> DevicePoolKey:
    """Return the identity of the pool to which a ResourceSlice belongs."""
    return DevicePoolKey(resource_slice.spec.driver, resource_slice.spec.pool.name)


def is_accessible_from_node(
    node: Node, node_name: str | None, selector: NodeSelector | None, *, all_nodes: bool
) -> bool:
    """Return whether a node may access a ResourceSlice or device that has the given node fields.

    The node fields `nodeName`, `nodeSelector` and `allNodes` state which nodes have access.
    """
    if node_name:
        return node.name == node_name
    if all_nodes:
        return True
    return selector is not None and selector.matches(node.labels, node.name)


def _uses_compatibility_groups(resource_slice: ResourceSlice) -> bool:
    return any(
        consumption.compatibility_groups
        for device in resource_slice.spec.devices or ()
        for consumption in device.consumes_counters or ()
    )


def _counters(slices: Iterable[ResourceSlice]) -> tuple[dict[str, dict[str, Decimal]], str]:
    """Return the counters of a pool by counter set, and what is wrong with them."""
    counters: dict[str, dict[str, Decimal]] = {}
    for resource_slice in slices:
        for counter_set in resource_slice.spec.shared_counters or ():
            if counter_set.name in counters:
                return {}, f"duplicate counter set name {counter_set.name}"
            counters[counter_set.name] = _amounts(counter_set)
    return counters, ""


def _amounts(counter_set: CounterSet) -> dict[str, Decimal]:
    return {name: parse_quantity(counter.value) for name, counter in (counter_set.counters or {}).items()}


def _duplicate_device(slices: Iterable[Iterable[PoolDevice]]) -> str:
    names: set[str] = set()
    for devices in slices:
        for device in devices:
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def _unknown_counter(
    slices: Iterable[Iterable[PoolDevice]],
    unreachable: Iterable[PoolDevice],
    counters: dict[str, dict[str, Decimal]],
) -> str:
    for devices in (*slices, unreachable):
        for device in devices:
            for counter_set, name, _ in device.counters:
                if counter_set not in counters:
                    return f"counter set {counter_set} not found"
                if name not in counters[counter_set]:
                    return f"counter {name} not found in counter set {counter_set}"
    return ""


def _with_taints(resource_slice: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """Return a slice with the taints that rules add to its devices."""
    if not rules:
        return resource_slice
    applied = [rule.spec for rule in rules if _selects_pool(rule.spec.device_selector, resource_slice)]
    if not applied:
        return resource_slice
    devices = []
    for device in resource_slice.spec.devices or ():
        added = tuple(
            spec.taint
            for spec in applied
            if spec.device_selector is not None and spec.device_selector.device in (None, device.name)
        )
        devices.append(replace(device, taints=(*(device.taints or ()), *added)) if added else device)
    return replace(resource_slice, spec=replace(resource_slice.spec, devices=tuple(devices)))


def _selects_pool(selector: DeviceTaintSelector | None, resource_slice: ResourceSlice) -> bool:
    return (
        selector is not None
        and selector.driver in (None, resource_slice.spec.driver)
        and selector.pool in (None, resource_slice.spec.pool.name)
    )
