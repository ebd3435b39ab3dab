"""The Dynamic Resource Allocation objects of a snapshot, such as ResourceClaims, indexed for plugins."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.core.device import DEVICE_CLASS_PREFIX, DeviceClass, ResourceClaim
from batchsched.api.core.metadata import parse_timestamp
from batchsched.devices.allocator import Allocator
from batchsched.devices.inventory import DeviceInventory
from batchsched.devices.node_groups import NodeGroupsByDevices
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray

_OBJECTS: Final = "device objects"
DEVICE_KINDS: Final = frozenset({"resource_slices", "device_classes", "device_taint_rules"})
"""The fields of Snapshot from which the devices and their classes are read."""
_CLASSES: Final = frozenset({"device_classes"})


@dataclass(frozen=True, slots=True, eq=False)
class DeviceObjects:
    """The ResourceClaims and DeviceClasses of a snapshot by name, and the allocator of its devices.

    Args:
      claims: by `namespace/name`.
      classes: by name.
      class_of_resource: extended resource → the DeviceClass that provides devices for it.
      allocator: finds devices that are free.
    """

    claims: Mapping[str, ResourceClaim]
    classes: Mapping[str, DeviceClass]
    class_of_resource: Mapping[str, DeviceClass]
    allocator: Allocator


def device_objects(table: NodeTable) -> DeviceObjects:
    """Return the ResourceClaims, DeviceClasses and devices of the session's snapshot."""

    def build_device_objects(_snapshot: object) -> DeviceObjects:
        snapshot, rules = table.cluster_objects, table.release.devices
        ledger = table.device_ledger
        return DeviceObjects(
            claims=ledger.claims,
            classes={device_class.metadata.name: device_class for device_class in snapshot.device_classes},
            class_of_resource=device_class_by_resource(table),
            allocator=Allocator(
                DeviceInventory(snapshot.resource_slices, snapshot.device_taint_rules, rules), ledger, rules
            ),
        )

    return table.cached_value_of_cluster_objects(_OBJECTS, build_device_objects, DEVICE_KINDS)


def mask_resources_served_by_devices(table: NodeTable) -> BoolArray:
    """Return a mask [R]: True for each extended resource that pods can get as devices of a DeviceClass.

    Pods get these devices on nodes without a device plugin for the resource.
    """

    def mask_served_resources(_snapshot: object) -> BoolArray:
        served = device_class_by_resource(table)
        return np.array([name in served for name in table.resources], np.bool_)

    return table.cached_value_of_cluster_objects("served resources", mask_served_resources, _CLASSES)


def device_class_by_resource(table: NodeTable) -> Mapping[str, DeviceClass]:
    """Return a mapping from each extended resource to the DeviceClass that provides devices for it."""
    return table.cached_value_of_cluster_objects(
        "classes of resources",
        lambda _snapshot: find_device_class_by_resource(table.cluster_objects.device_classes),
        _CLASSES,
    )


def node_groups_by_devices(table: NodeTable) -> NodeGroupsByDevices:
    """Return groups of nodes with equal devices; the groups follow later allocations and releases."""
    objects = device_objects(table)
    return table.cached_value_of_nodes(
        "device groups",
        lambda built: NodeGroupsByDevices(objects.allocator.inventory, built.device_ledger, built.nodes),
        DEVICE_KINDS,
    )


def find_device_class_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """Return a mapping from each extended resource to the DeviceClass that provides devices for it.

    If several classes state a resource, the newest class provides it. Among equally new classes, the first by name
    provides it.

    Source: k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.
    """
    class_by_resource: dict[str, DeviceClass] = {}
    for device_class in classes:
        class_by_resource[f"{DEVICE_CLASS_PREFIX}{device_class.metadata.name}"] = device_class
        resource = device_class.spec.extended_resource_name
        if resource and (
            resource not in class_by_resource or _is_preferred(device_class, class_by_resource[resource])
        ):
            class_by_resource[resource] = device_class
    return class_by_resource


def _is_preferred(device_class: DeviceClass, other: DeviceClass) -> bool:
    created = parse_timestamp(device_class.metadata.creation_timestamp)
    before = parse_timestamp(other.metadata.creation_timestamp)
    return created > before or (created == before and device_class.metadata.name < other.metadata.name)
