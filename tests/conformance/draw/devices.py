"""Devices of several drivers, the classes that select them, and claims that have some of them already."""

from typing import Final

from tests.conformance.draw.cluster import NAMESPACES, ZONE, Draw, Json

GPU: Final = "gpu.example.com"
NIC: Final = "nic.example.com"
PART: Final = "part.example.com"
SHARE: Final = "share.example.com"
NET: Final = "net.example.com"
PCIE: Final = "resource.kubernetes.io/pcieRoot"
TAINT_KEYS: Final = ("gpu.example.com/broken", "maintenance")
SERVED: Final = "example.com/device"
"""An extended resource that a class serves."""

_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "any": (),
    "gpu": (f'device.driver == "{GPU}"',),
    "big-gpu": (
        f'device.driver == "{GPU}"',
        f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0',
    ),
    "nic": (f'device.driver == "{NIC}"',),
    "part": (f'device.driver == "{PART}"',),
    "share": (f'device.driver == "{SHARE}" && device.allowMultipleAllocations',),
    "net": (f'device.driver in ["{NET}"]',),
}


def draw_inventory(draw: Draw, drawn: Json) -> None:
    """Draw classes, slices of every driver, rules that taint devices, and claims with an allocation."""
    drawn["deviceClasses"] = [
        _class(draw, name, number) for number, name in enumerate(_CLASSES) if draw.maybe(0.99)
    ]
    slices: list[Json] = []
    for node in drawn["nodes"]:
        slices += _slices_of_node(draw, node["metadata"]["name"])
    if draw.maybe(0.4):
        slices += _network_pool(draw, drawn["nodes"])
    draw.shuffle(slices)
    drawn["resourceSlices"] = slices
    if draw.maybe(0.2):
        drawn["deviceTaintRules"] = [_taint_rule(draw, drawn, number) for number in range(draw.randint(1, 2))]
    drawn["resourceClaims"] = _busy_claims(draw, slices)


def taint(draw: Draw) -> Json:
    """Draw a taint of a device."""
    found = {
        "key": draw.choice(TAINT_KEYS),
        "effect": draw.choice(("NoSchedule", "NoSchedule", "NoExecute", "None")),
        "timeAdded": "2026-01-01T00:00:00Z",
    }
    return {**found, "value": draw.choice("xy")} if draw.maybe(0.5) else found


def _class(draw: Draw, name: str, number: int) -> Json:
    spec: Json = {}
    if _CLASSES[name]:
        spec["selectors"] = [{"cel": {"expression": text}} for text in _CLASSES[name]]
    if draw.maybe(0.2):
        spec["config"] = [opaque(draw)]
    if name in ("gpu", "big-gpu") and draw.maybe(0.4):
        # Of several classes that serve a resource, the newest does. The implicit resource of the others depends on the
        # order in which kube-scheduler gets to know the classes, so that no pod requests it.
        spec["extendedResourceName"] = SERVED
    created = f"2026-01-0{draw.randint(1, 3)}T00:00:00Z"
    return {
        "metadata": {"name": name, "uid": f"uid-class-{number}", "creationTimestamp": created},
        "spec": spec,
    }


def opaque(draw: Draw) -> Json:
    """Draw configuration for a driver."""
    return {"opaque": {"driver": draw.choice((GPU, NIC)), "parameters": {"mode": draw.choice("abc")}}}


# ------------------------------------------------------------------------------------------------ slices


def _slices_of_node(draw: Draw, node: str) -> list[Json]:
    slices: list[Json] = []
    place = {"nodeName": node}
    if draw.maybe(0.85):
        count = draw.randint(1, 8)
        slices += _pool(draw, GPU, node, place, [_gpu(draw, f"gpu-{number}") for number in range(count)])
    if draw.maybe(0.5):
        count = draw.randint(1, 3)
        slices += _pool(draw, NIC, node, place, [_nic(draw, f"nic-{number}") for number in range(count)])
    if draw.maybe(0.5):
        slices += _partitionable_pool(draw, node, place)
    if draw.maybe(0.55):
        count = draw.randint(1, 3)
        slices += _pool(
            draw, SHARE, node, place, [_shareable(draw, f"share-{number}") for number in range(count)]
        )
    return slices


def _pool(draw: Draw, driver: str, pool: str, place: Json, devices: list[Json]) -> list[Json]:
    """Return the slices of a pool; now and then it is incomplete, invalid, or has slices of an older generation."""
    parts = [devices]
    if len(devices) > 1 and draw.maybe(0.3):
        middle = draw.randint(1, len(devices) - 1)
        parts = [devices[:middle], devices[middle:]]
    if draw.maybe(0.01):
        parts = [*parts, [draw.choice(devices)]]  # a name that occurs twice makes the pool invalid
    generation = draw.randint(1, 3)
    expected = len(parts) + (1 if draw.maybe(0.02) else 0)
    slices = [
        _slice(
            f"{pool}-{driver[:4]}{letter}", driver, (pool, generation, expected), {**place, "devices": part}
        )
        for part, letter in zip(parts, draw.sample("abcd", len(parts)), strict=True)
    ]
    if draw.maybe(0.06):
        older = (pool, generation - 1, draw.randint(1, 2))
        slices.append(_slice(f"{pool}-{driver[:4]}old", driver, older, {**place, "devices": devices}))
    return slices


def _slice(name: str, driver: str, pool: tuple[str, int, int], spec: Json) -> Json:
    stated = dict(zip(("name", "generation", "resourceSliceCount"), pool, strict=True))
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"driver": driver, "pool": stated, **spec},
    }


def _gpu(draw: Draw, name: str) -> Json:
    attributes: Json = {
        "index": {"int": draw.randint(0, 4)},
        "driverVersion": {"version": draw.choice(("550.54.15", "535.1.0", "550.9.0-rc.1"))},
    }
    if draw.maybe(0.9):
        attributes["model"] = {"string": draw.choice(("a100", "h100", "l4"))}
    if draw.maybe(0.8):
        attributes["numa"] = {"int": draw.randint(0, 1)}
    if draw.maybe(0.7):
        attributes[PCIE] = {"string": draw.choice(("pci0000:00", "pci0000:01"))}
    if draw.maybe(0.5):
        attributes[draw.choice(("healthy", f"{GPU}/healthy"))] = {"bool": draw.maybe(0.7)}
    device: Json = {"name": name, "attributes": attributes}
    device["capacity"] = {"memory": {"value": draw.choice(("16Gi", "40Gi", "80Gi", "85899345920"))}}
    if draw.maybe(0.12):
        device["taints"] = [taint(draw) for _ in range(draw.randint(1, 2))]
    if draw.maybe(0.05):
        device["bindingConditions"] = ["ready.example.com"]
        device["bindingFailureConditions"] = ["failed.example.com"]
        device["bindsToNode"] = draw.maybe(0.5)
    return device


def _nic(draw: Draw, name: str) -> Json:
    attributes: Json = {
        PCIE: {"string": draw.choice(("pci0000:00", "pci0000:01"))},
        "speed": {"int": draw.choice((100, 400))},
        "rdma": {"bool": draw.maybe(0.6)},
    }
    if draw.maybe(0.6):
        attributes["numa"] = {"int": draw.randint(0, 1)}
    return {"name": name, "attributes": attributes}


def _shareable(draw: Draw, name: str) -> Json:
    capacity: Json = {"bandwidth": {"value": draw.choice(("10", "40", "100"))}}
    policy: Json = {}
    if draw.maybe(0.5):
        policy["default"] = draw.choice(("2", "10"))
        if draw.maybe(0.5):
            policy["validValues"] = ["2", "5", "10"]
        elif draw.maybe(0.7):
            policy["validRange"] = {"min": "2", "max": "10", **({"step": "4"} if draw.maybe(0.5) else {})}
        capacity["bandwidth"]["requestPolicy"] = policy
    if draw.maybe(0.5):
        capacity["memory"] = {"value": "16Gi"}
        if draw.maybe(0.6):
            steps = {
                "min": "1Gi",
                "max": "8Gi",
                **({"step": draw.choice(("1Gi", "512Mi"))} if draw.maybe(0.6) else {}),
            }
            capacity["memory"]["requestPolicy"] = {"default": "1Gi", "validRange": steps}
    if draw.maybe(0.15):
        steps = draw.choice(({"min": "500m", "max": "2", "step": "500m"}, {"min": "0", "step": "1"}))
        default = steps["min"] if steps["min"] != "0" else "1"
        capacity["cores"] = {"value": "4", "requestPolicy": {"default": default, "validRange": steps}}
    device: Json = {"name": name, "attributes": {"tier": {"string": draw.choice("ab")}}, "capacity": capacity}
    if draw.maybe(0.9):
        device["allowMultipleAllocations"] = True
    else:
        for offered in capacity.values():
            offered.pop("requestPolicy", None)
    return device


def _partitionable_pool(draw: Draw, node: str, place: Json) -> list[Json]:
    cards = [f"card-{number}" for number in range(draw.randint(1, 2))]
    counters = [
        {"name": card, "counters": {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}} for card in cards
    ]
    if draw.maybe(0.01):
        counters.pop()  # devices that consume an unknown counter make the pool invalid
    devices: list[Json] = []
    for number, card in enumerate(cards):
        sizes = [
            ("full", 80, 7),
            *(("half", 40, 3),) * draw.randint(0, 2),
            *(("small", 10, 1),) * draw.randint(0, 4),
        ]
        if draw.maybe(0.3):
            draw.shuffle(sizes)
        for place_number, (profile, memory, count) in enumerate(sizes):
            consumed = {"memory": {"value": f"{memory}Gi"}, "slices": {"value": str(count)}}
            device: Json = {
                "name": f"{profile}-{number}-{place_number}",
                "attributes": {"profile": {"string": profile}, "card": {"int": number}},
                "capacity": {"memory": {"value": f"{memory}Gi"}},
                "consumesCounters": [{"counterSet": card, "counters": consumed}],
            }
            if draw.maybe(0.1):
                device["allowMultipleAllocations"] = True
            devices.append(device)
    pool = (node, 1, 2)
    return [
        _slice(f"{node}-counters", PART, pool, {**place, "sharedCounters": counters}),
        _slice(f"{node}-parts", PART, pool, {**place, "devices": devices}),
    ]


def _network_pool(draw: Draw, nodes: list[Json]) -> list[Json]:
    """Return the slices of a pool that several nodes reach."""
    devices = [_nic(draw, f"net-{number}") for number in range(draw.randint(1, 4))]
    zone = {"key": ZONE, "operator": "In", "values": draw.sample(("za", "zb", "zc"), draw.randint(1, 2))}
    in_zone = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    kind = draw.choice(("all", "selector", "device"))
    if kind == "all":
        return _pool(draw, NET, "fabric", {"allNodes": True}, devices)
    if kind == "selector":
        return _pool(draw, NET, "fabric", {"nodeSelector": in_zone}, devices)
    for device in devices:
        name = draw.choice(nodes)["metadata"]["name"]
        device.update(draw.choice(({"allNodes": True}, {"nodeName": name}, {"nodeSelector": in_zone})))
    return _pool(draw, NET, "fabric", {"perDeviceNodeSelection": True}, devices)


def _taint_rule(draw: Draw, drawn: Json, number: int) -> Json:
    selector: Json = {}
    if draw.maybe(0.7):
        selector["driver"] = draw.choice((GPU, NIC, PART, SHARE))
    if draw.maybe(0.5):
        selector["pool"] = draw.choice(drawn["nodes"])["metadata"]["name"]
    if draw.maybe(0.3):
        selector["device"] = draw.choice(("gpu-0", "nic-0", "full-0-0"))
    spec = {"deviceSelector": selector, "taint": taint(draw)} if draw.maybe(0.9) else {"taint": taint(draw)}
    return {"metadata": {"name": f"rule{number}", "uid": f"uid-rule{number}"}, "spec": spec}


# ------------------------------------------------------------------------------------- allocated claims


def _busy_claims(draw: Draw, slices: list[Json]) -> list[Json]:
    busy: list[Json] = []
    share = draw.choice((0.0, 0.1, 0.2, 0.4))
    for resource_slice in slices:
        for device in resource_slice["spec"].get("devices", ()):
            if draw.maybe(share) and not (device.get("consumesCounters") and draw.maybe(0.6)):
                busy.append(_busy_claim(draw, resource_slice, device, len(busy)))
    return busy


def _busy_claim(draw: Draw, resource_slice: Json, device: Json, number: int) -> Json:
    spec = resource_slice["spec"]
    result: Json = {
        "request": "r",
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "device": device["name"],
    }
    if device.get("allowMultipleAllocations"):
        result["shareID"] = f"00000000-0000-4000-8000-{number:012}"
        result["consumedCapacity"] = {
            name: draw.choice(("1", "2", "10")) if name == "bandwidth" else draw.choice(("1", "1Gi"))
            for name in device.get("capacity", {})
        }
    elif draw.maybe(0.05):
        result["adminAccess"] = True
    if device.get("bindingConditions"):
        result["bindingConditions"] = device["bindingConditions"]
        result["bindingFailureConditions"] = device["bindingFailureConditions"]
    allocation: Json = {"devices": {"results": [result]}}
    if spec.get("nodeName"):
        own = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [own]}]}
    elif spec.get("nodeSelector"):
        allocation["nodeSelector"] = spec["nodeSelector"]
    status: Json = {"allocation": allocation}
    if result.get("bindingConditions"):
        _report_conditions(draw, status, result)
    if draw.maybe(0.5):
        # With 256 consumers, kube-scheduler would place the pod, and the API server refuse its reservation.
        consumers = 255 if draw.maybe(0.04) else draw.randint(1, 2)
        status["reservedFor"] = [
            {"resource": "pods", "name": f"user{number}-{each}", "uid": f"uid-user{number}-{each}"}
            for each in range(consumers)
        ]
    name = f"busy{number}"
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": {"name": name, "namespace": draw.choice(NAMESPACES), "uid": f"uid-claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": status,
    }


def _report_conditions(draw: Draw, status: Json, result: Json) -> None:
    """Report the preparation of a device: not yet, in time or too late, ready, or failed."""
    if draw.maybe(0.8):
        status["allocation"]["allocationTimestamp"] = draw.choice(
            ("2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")
        )
    if draw.maybe(0.3):
        return
    kind = draw.choice(("ready.example.com", "failed.example.com"))
    condition = {
        "type": kind,
        "status": draw.choice(("True", "True", "False")),
        "reason": "Reported",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {name: result[name] for name in ("driver", "pool", "device")}
    status["devices"] = [{**device, "conditions": [condition]}]
