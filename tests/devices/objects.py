"""Slices, classes and claims for tests, from a few words."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from batchsched.api.core.device import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from batchsched.api.core.node import Node
from batchsched.config.kubernetes_release import RELEASES, DeviceRules
from batchsched.devices.allocation import build_allocations, configurations_of_claims
from batchsched.devices.allocator import Allocator
from batchsched.devices.inventory import DeviceInventory
from batchsched.devices.ledger import DeviceLedger
from batchsched.devices.requests import claim_requests

DRIVER = "gpu.example.com"
RULES = RELEASES["1.37"].devices


def gpu(name: str, **fields: Any) -> dict[str, Any]:
    """A device; an attribute `model` unless `attributes` says otherwise."""
    return {"name": name, "attributes": {"model": {"string": "h100"}}, **fields}


def slice_of(
    name: str, devices: Sequence[Mapping[str, Any]], pool: Mapping[str, Any] | None = None, **spec: Any
) -> ResourceSlice:
    """A slice of the only generation of the pool `name`, on the node `name` unless `spec` names other nodes."""
    where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": name}
    stated = {"name": name, "generation": 1, "resourceSliceCount": 1, **(pool or {})}
    return msgspec.convert(
        {
            "metadata": {"name": f"slice-{name}"},
            "spec": {"driver": DRIVER, "pool": stated, "devices": list(devices), **where, **spec},
        },
        ResourceSlice,
    )


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> DeviceClass:
    """A class of the devices of the driver, and of the CEL expressions if there are any."""
    selectors = [{"cel": {"expression": text}} for text in expressions or (f'device.driver == "{DRIVER}"',)]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, DeviceClass
    )


def request(name: str = "r", device_class_name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    """An exact request for one device unless `exactly` says otherwise."""
    return {
        "name": name,
        "exactly": {
            "deviceClassName": device_class_name,
            "allocationMode": "ExactCount",
            "count": 1,
            **exactly,
        },
    }


def claim(name: str = "mine", *requests: Mapping[str, Any], **fields: Any) -> ResourceClaim:
    """A claim in the namespace default, with one exact request unless there are others."""
    devices = {"requests": list(requests) or [request()], **fields.pop("devices", {})}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                **fields.pop("metadata", {}),
            },
            "spec": {"devices": devices},
            **fields,
        },
        ResourceClaim,
    )


def bare_node(name: str, **labels: str) -> Node:
    """A node with labels."""
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


def allocator(
    slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim] = (), rules: DeviceRules = RULES
) -> Allocator:
    """An allocator over slices, with the devices in use that allocated claims have."""
    ledger = DeviceLedger({one.key: one for one in claims})
    return Allocator(DeviceInventory(slices, (), rules), ledger, rules)


def allocate(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    node: Node | None = None,
    classes: Sequence[DeviceClass] = (),
    in_use: Sequence[ResourceClaim] = (),
    rules: DeviceRules = RULES,
) -> Any:
    """Allocate claims on a node, on `a` unless another is given; None if that is impossible."""
    known = {one.metadata.name: one for one in classes or (device_class(),)}
    wanted = [claim_requests(one, known) for one in claims]
    place = node or bare_node("a")
    solution = allocator(slices, in_use, rules).find_devices(place, wanted)
    if solution is None:
        return None
    configurations = configurations_of_claims(wanted, solution.alternatives, rules)
    return build_allocations(solution, claims, place.name, configurations)


def names(result: AllocationResult) -> list[str]:
    """The names of the allocated devices."""
    return [one.device for one in result.devices.results]


def allocated(name: str, *devices: str, pool: str = "a", **fields: Any) -> ResourceClaim:
    """A claim that has devices of a pool."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": device, **fields} for device in devices
    ]
    return claim(name, status={"allocation": {"devices": {"results": results}}})
