"""ResourceClaims of the pod: exact requests and alternatives, constraints, templates, and claims shared with others."""

from typing import Final

from tests.conformance.draw.cluster import Draw, Json, configure
from tests.conformance.draw.devices import (
    GPU,
    NET,
    NIC,
    PART,
    PCIE,
    SERVED,
    SHARE,
    TAINT_KEYS,
    draw_inventory,
    opaque,
)

_SELECTORS: Final[dict[str, tuple[str, ...]]] = {
    "gpu": (
        f'device.attributes["{GPU}"].?model.orValue("") == "h100"',
        f'device.attributes["{GPU}"].?model.orValue("none") in ["a100", "l4"]',
        f'has(device.attributes["{GPU}"].numa) && device.attributes["{GPU}"].numa == 0',
        f'device.attributes["{GPU}"].index % 2 == 0',
        f'device.attributes["{GPU}"].driverVersion.isGreaterThan(semver("550.0.0"))',
        f'device.attributes["{GPU}"].driverVersion.compareTo(semver("550.9.0")) < 0',
        f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("20Gi"))',
        f'device.capacity["{GPU}"].memory == quantity("80Gi")',
        f'cel.bind(a, device.attributes["{GPU}"], a.index > 0 || a.?healthy.orValue(false))',
        f'"healthy" in device.attributes["{GPU}"]',
        'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("").endsWith("01")',
        f'device.attributes["{GPU}"].exists(name, name == "model")',
        f'device.driver.startsWith("gpu") && !("{NIC}" in device.attributes)',
        f'device.attributes["{GPU}"].?model.orValue("x").matches("^[ah]100$")',
        f'sets.contains(["a100", "l4"], [device.attributes["{GPU}"].?model.orValue("none")])',
        f'device.attributes["{GPU}"].driverVersion == semver("v0550.54.15", true)',
        f'isSemver("v1.2", true) && !isSemver("1.2-rc", true) && device.attributes["{GPU}"].index > 1',
        f'device.attributes["{GPU}"].?model.orValue("x0").find("(a|h)([0-9]+)") == "h100"',
        f'device.attributes["{GPU}"].?model.orValue("").findAll("[0-9]", 2).size() == 2',
        f'device.attributes["{GPU}"].exists(name, value, name == "index" && value == 2)',
        f'["a100", "h100", "a100"].lastIndexOf(device.attributes["{GPU}"].?model.orValue("")) == 2',
        f'["h100"].indexOf(device.attributes["{GPU}"].?model.orValue("")) + [1, 2].sum() == 3',
        f'lists.range(3).exists(i, i == device.attributes["{GPU}"].index)',
        f'[2, 0, 1].sort()[1] <= device.attributes["{GPU}"].index && ["a", "b"].isSorted()',
        f'[[0, 1], [1]].flatten().distinct().size() == device.attributes["{GPU}"].index',
        f'[3, 1].min() < device.attributes["{GPU}"].index && ["x", "y"].transformList(i, v, i)[1] == 1',
        "device.attributes[device.driver].index < 3",
        '!has(device.attributes[r"none.example.com"].size) && !("none.example.com" in device.attributes)',
    ),
    "nic": (
        f'device.attributes["{NIC}"].rdma',
        f'device.attributes["{NIC}"].speed >= 400',
        f'device.attributes["{NIC}"].?numa.orValue(1) == 0',
        'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"',
    ),
    "part": (
        f'device.attributes["{PART}"].profile == "small"',
        f'device.attributes["{PART}"].profile != "full"',
        f'device.capacity["{PART}"].memory.compareTo(quantity("40Gi")) <= 0',
        f'device.attributes["{PART}"].card == 0',
    ),
    "share": (
        f'device.attributes["{SHARE}"].tier == "a"',
        f'device.capacity["{SHARE}"].bandwidth.compareTo(quantity("40")) >= 0',
    ),
    "net": (f'device.attributes["{NET}"].speed == 100', "!device.allowMultipleAllocations"),
    "any": (f'device.driver == "{GPU}"', 'device.driver.contains("example")'),
}
_SELECTORS_OF: Final = {**_SELECTORS, "big-gpu": _SELECTORS["gpu"]}
_FAULTY: Final = (
    f'device.attributes["{GPU}"].model == "h100"',
    f'device.attributes["{GPU}"].index',
    'device.attributes["none.example.com"].size > 1',
)
"""Selectors that are in error for devices without the attribute, or always."""
_ATTRIBUTES: Final = {
    "gpu": (PCIE, f"{GPU}/numa", f"{GPU}/model", f"{GPU}/index", f"{GPU}/driverVersion"),
    "big-gpu": (PCIE, f"{GPU}/model"),
    "nic": (PCIE, f"{NIC}/numa", f"{NIC}/speed", f"{NIC}/rdma"),
    "part": (f"{PART}/card", f"{PART}/profile"),
    "share": (f"{SHARE}/tier",),
    "net": (f"{NET}/speed",),
}
"""Attributes by class, for constraints."""


def devices(draw: Draw, drawn: Json) -> None:
    """Draw devices, and a pod with claims to them, or with extended resources that they serve."""
    draw_inventory(draw, drawn)
    if draw.maybe(0.2):
        _request_extended(draw, drawn)
        if draw.maybe(0.6):
            return
    pod = drawn["pod"]
    names = [f"k{number}" for number in range(draw.choice((1, 1, 1, 2, 2, 3)))]
    pod["spec"]["resourceClaims"] = [_claim_of(draw, drawn, name) for name in names]
    resources = pod["spec"]["containers"][0].setdefault("resources", {})
    resources["claims"] = [{"name": name} for name in names]


def _claim_of(draw: Draw, drawn: Json, name: str) -> Json:
    """Draw a claim of the pod, and return its entry in the pod's spec."""
    metadata = drawn["pod"]["metadata"]
    kind = draw.choice(("open",) * 55 + ("template",) * 18 + ("busy",) * 10 + ("missing", "deleted"))
    allocated = [
        claim
        for claim in drawn["resourceClaims"]
        if claim["metadata"]["namespace"] == metadata["namespace"] and claim["status"]
    ]
    if kind == "busy" and allocated:
        return {"name": name, "resourceClaimName": draw.choice(allocated)["metadata"]["name"]}
    claim_name = f"claim-{name}"
    if kind != "missing":
        claim: Json = {
            "metadata": {"name": claim_name, "namespace": metadata["namespace"], "uid": f"uid-{claim_name}"},
            "spec": {"devices": _device_claim(draw)},
            "status": {},
        }
        if kind == "deleted":
            claim["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
            claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        drawn["resourceClaims"].append(claim)
    if kind != "template":
        return {"name": name, "resourceClaimName": claim_name}
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    if draw.maybe(0.04):
        owner["uid"] = "uid-of-another-pod"
    claim["metadata"]["ownerReferences"] = [owner]
    statuses = drawn["pod"]["status"].setdefault("resourceClaimStatuses", [])
    if draw.maybe(0.96):
        statuses.append({"name": name, **({"resourceClaimName": claim_name} if draw.maybe(0.95) else {})})
    return {"name": name, "resourceClaimTemplateName": "template"}


def _device_claim(draw: Draw) -> Json:
    requests = [_request(draw, f"r{number}") for number in range(draw.choice((1, 1, 1, 1, 2, 2, 3)))]
    claim: Json = {"requests": requests}
    names = [request["name"] for request in requests]
    for request in requests:
        names += [f"{request['name']}/{part['name']}" for part in request.get("firstAvailable", ())]
    if draw.maybe(0.3):
        classes = _classes(requests)
        claim["constraints"] = [_constraint(draw, names, classes) for _ in range(draw.choice((1, 1, 2)))]
    if draw.maybe(0.25):
        claim["config"] = [
            {**opaque(draw), **({"requests": draw.sample(names, 1)} if draw.maybe(0.7) else {})}
            for _ in range(draw.randint(1, 2))
        ]
    return claim


def _request(draw: Draw, name: str) -> Json:
    if draw.maybe(0.25):
        parts = [{"name": f"s{number}", **_exact(draw)} for number in range(draw.randint(1, 3))]
        return {"name": name, "firstAvailable": parts}
    exactly = _exact(draw)
    if draw.maybe(0.1):
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _exact(draw: Draw) -> Json:
    class_name = draw.choice(
        ("gpu", "gpu", "gpu", "big-gpu", "nic", "part", "part", "share", "share", "net", "any")
    )
    found: Json = {"deviceClassName": class_name, "allocationMode": "ExactCount"}
    if draw.maybe(0.1):
        found["allocationMode"] = "All"
    else:
        found["count"] = 33 if draw.maybe(0.003) else draw.choice((1, 1, 1, 1, 1, 2, 2, 3))
    expressions = draw.some(_SELECTORS_OF[class_name], 2) if draw.maybe(0.35) else []
    if draw.maybe(0.01):
        expressions.append(draw.choice(_FAULTY))
    if expressions:
        found["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    if draw.maybe(0.2):
        found["tolerations"] = [_toleration(draw) for _ in range(draw.randint(1, 2))]
    if draw.maybe(0.6 if class_name == "share" else 0.06):
        found["capacity"] = {"requests": _amounts(draw, class_name)}
    return found


def _amounts(draw: Draw, class_name: str) -> Json:
    if class_name != "share":
        return {"memory": draw.choice(("10Gi", "10Gi", "40Gi", "100Gi"))}
    amounts = {
        "bandwidth": draw.choice(("1", "2", "3", "5", "10", "11", "40")),
        "memory": draw.choice(("512Mi", "1Gi", "1536Mi", "3000000000", "4Gi", "20Gi")),
        "cores": draw.choice(("300m", "500m", "1", "3")),
    }
    weights = ("bandwidth",) * 6 + ("memory", "memory", "cores")
    return {name: amounts[name] for name in sorted({draw.choice(weights) for _ in range(draw.randint(1, 2))})}


def _toleration(draw: Draw) -> Json:
    found: Json = {"operator": draw.choice(("Exists", "Equal"))}
    if found["operator"] == "Equal" or draw.maybe(0.7):
        found["key"] = draw.choice(TAINT_KEYS)
    if found["operator"] == "Equal" and draw.maybe(0.7):
        found["value"] = draw.choice("xy")
    if draw.maybe(0.4):
        found["effect"] = draw.choice(("NoSchedule", "NoExecute"))
    return found


def _classes(requests: list[Json]) -> set[str]:
    parts = [part for one in requests for part in one.get("firstAvailable", [one.get("exactly")])]
    return {part["deviceClassName"] for part in parts}


def _constraint(draw: Draw, names: list[str], classes: set[str]) -> Json:
    """Draw a constraint on an attribute, mostly one that the devices may have."""
    kind = draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    known = [name for one in sorted(classes) for name in _ATTRIBUTES.get(one, ())]
    found: Json = {kind: draw.choice(known) if known and draw.maybe(0.9) else f"{GPU}/missing"}
    if draw.maybe(0.5):
        found["requests"] = draw.sample(names, draw.randint(1, min(2, len(names))))
    return found


def _request_extended(draw: Draw, drawn: Json) -> None:
    """Let containers request a resource that devices may serve; some nodes offer it by a device plugin."""
    resource = draw.choice((SERVED, SERVED, "deviceclass.resource.kubernetes.io/nic"))
    for node in drawn["nodes"]:
        if draw.maybe(0.3):
            amount = draw.choice(("0", "1", "4"))
            node["status"]["allocatable"][resource] = node["status"]["capacity"][resource] = amount
    spec = drawn["pod"]["spec"]
    if draw.maybe(0.3):
        spec["initContainers"] = [{"name": "i0", "image": "img.example/small:2"}]
        if draw.maybe(0.4):
            spec["initContainers"][0]["restartPolicy"] = "Always"
    if draw.maybe(0.3):
        spec["containers"].append({"name": "c1", "image": "img.example/small:2"})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if draw.maybe(0.75):
            resources = container.setdefault("resources", {})
            resources.setdefault("requests", {})[resource] = draw.choice(("1", "1", "2", "3", "0"))
    if draw.maybe(0.7):
        _score(draw, drawn, resource)


def _score(draw: Draw, drawn: Json, resource: str) -> None:
    """Score the use of a resource that devices may serve, alone or with others."""
    names = [resource, *draw.some(("cpu", "memory"), 2)]
    scored = [{"name": name, "weight": draw.choice((1, 1, 5))} for name in names]
    strategy: Json = {
        "type": draw.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        "resources": scored,
    }
    if strategy["type"] == "RequestedToCapacityRatio":
        shape = [{"utilization": 0, "score": draw.randint(0, 10)}, {"utilization": 100, "score": 8}]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    configure(drawn, "NodeResourcesFit", {"scoringStrategy": strategy})
    # kube-scheduler's NodeResourcesBalancedAllocation panics if the class has selectors, so there is no answer then.
    if draw.maybe(0.2):
        balanced = [{"name": name, "weight": 1} for name in names]
        configure(drawn, "NodeResourcesBalancedAllocation", {"resources": balanced})
