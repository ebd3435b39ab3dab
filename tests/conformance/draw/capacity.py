"""Requests of pods, scoring strategies, and pods that preemption may evict."""

from typing import Final

from tests.conformance.draw.cluster import Draw, Json, configure, pod_named

_EXTENDED: Final = ("example.com/gpu", "hugepages-2Mi", "ephemeral-storage", "example.com/none")
_AMOUNTS: Final = {
    "cpu": ("100m", "1", "1500m", "0", "0.1", "3"),
    "memory": ("64Mi", "1Gi", "1e9", "0", "123456789", "12Gi"),
    "example.com/gpu": ("0", "1", "2", "4"),
    "example.com/none": ("0", "1"),
    "hugepages-2Mi": ("2Mi", "4Mi", "1Gi"),
    "ephemeral-storage": ("1Gi", "100M", "40Gi"),
}


def _wanted(draw: Draw, most: int = 3) -> Json:
    names = ["cpu", "memory"] if draw.maybe(0.5) else sorted(_AMOUNTS)
    return {name: draw.choice(_AMOUNTS[name]) for name in draw.some(names, most)}


def _container(draw: Draw, name: str) -> Json:
    found: Json = {"name": name, "image": "img.example/small:2"}
    if wanted := _wanted(draw):
        found["resources"] = {"requests": wanted}
    return found


def _fill(draw: Draw, pod: Json) -> None:
    spec = pod["spec"]
    spec["containers"] = [_container(draw, f"c{number}") for number in range(draw.randint(1, 3))]
    if draw.maybe(0.35):
        spec["initContainers"] = []
        for number in range(draw.randint(1, 3)):
            one = _container(draw, f"i{number}")
            if draw.maybe(0.5):
                one["restartPolicy"] = "Always"
            spec["initContainers"].append(one)
    if draw.maybe(0.2):
        spec["overhead"] = {name: _AMOUNTS[name][0] for name in draw.some(("cpu", "memory"), 2)}
    if draw.maybe(0.2):
        names = draw.some(("cpu", "memory", "hugepages-2Mi"), 2)
        spec["resources"] = {"requests": {name: draw.choice(_AMOUNTS[name]) for name in names}}


def _resize(draw: Draw, pod: Json) -> None:
    """Report other resources of a running pod than it asks for, as during an in-place resize."""
    status = pod["status"]
    status["containerStatuses"] = []
    for container in pod["spec"]["containers"]:
        one: Json = {"name": container["name"]}
        if draw.maybe(0.8):
            one["resources"] = {"requests": {name: draw.choice(_AMOUNTS[name]) for name in ("cpu", "memory")}}
        if draw.maybe(0.6):
            one["allocatedResources"] = {"cpu": draw.choice(_AMOUNTS["cpu"])}
        status["containerStatuses"].append(one)
    initial = [one["name"] for one in pod["spec"].get("initContainers", ())]
    status["initContainerStatuses"] = [
        {"name": name, "resources": {"requests": {"cpu": draw.choice(_AMOUNTS["cpu"])}}} for name in initial
    ]
    if "resources" in pod["spec"]:
        if draw.maybe(0.6):
            status["resources"] = {"requests": {"cpu": draw.choice(_AMOUNTS["cpu"]), "memory": "1Gi"}}
        if draw.maybe(0.4):
            status["allocatedResources"] = {"cpu": draw.choice(_AMOUNTS["cpu"])}
    if draw.maybe(0.4):
        status["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": draw.choice(("Infeasible", "Deferred"))}
        ]


def resources(draw: Draw, drawn: Json) -> None:
    """Draw requests of every kind, resources of nodes, and a scoring strategy."""
    for node in drawn["nodes"]:
        allocatable = node["status"]["allocatable"]
        for name in draw.some(_EXTENDED[:3], 3):
            allocatable[name] = (
                draw.choice(("0", "1", "4")) if "gpu" in name else draw.choice(("8Mi", "50Gi"))
            )
        if draw.maybe(0.1):
            del allocatable[draw.choice(("cpu", "memory", "pods"))]
    for pod in drawn["pods"]:
        if draw.maybe(0.5):
            _fill(draw, pod)
        if draw.maybe(0.15):
            _resize(draw, pod)
    if draw.maybe(0.9):
        _fill(draw, drawn["pod"])
    if draw.maybe(0.6):
        _strategy(draw, drawn)
    if draw.maybe(0.3):
        weights = [{"name": name, "weight": 1} for name in draw.sample(sorted(_AMOUNTS), draw.randint(1, 4))]
        configure(drawn, "NodeResourcesBalancedAllocation", {"resources": weights})


def _strategy(draw: Draw, drawn: Json) -> None:
    kind = draw.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    names = draw.sample(sorted(_AMOUNTS), draw.randint(1, 4))
    strategy: Json = {
        "type": kind,
        "resources": [{"name": name, "weight": draw.choice((1, 1, 2, 5, 100))} for name in names],
    }
    if kind == "RequestedToCapacityRatio":
        points = sorted(draw.sample(range(0, 101, 5), draw.randint(1, 4)))
        shape = [{"utilization": point, "score": draw.randint(0, 10)} for point in points]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    arguments: Json = {"scoringStrategy": strategy}
    if draw.maybe(0.3):
        arguments["ignoredResources"] = draw.some(("example.com/gpu", "example.com/none"), 2)
    if draw.maybe(0.2):
        arguments["ignoredResourceGroups"] = ["example.com"]
    configure(drawn, "NodeResourcesFit", arguments)


def preemption(draw: Draw, drawn: Json) -> None:
    """Fill nodes with pods of many priorities, with budgets, nominations and pods on their way out."""
    nodes = drawn["nodes"] = drawn["nodes"][:5]
    names = [node["metadata"]["name"] for node in nodes]
    for node in nodes:
        node["status"]["allocatable"].update(cpu=draw.choice(("2", "3")), pods=draw.choice(("4", "6", "110")))
    for number in range(draw.randint(4, 24)):
        pod = pod_named(draw, f"q{number}")
        pod["spec"]["nodeName"] = draw.choice(names)
        drawn["pods"].append(pod)
    for number, pod in enumerate(drawn["pods"]):
        if pod["spec"]["nodeName"] not in names:
            pod["spec"]["nodeName"] = draw.choice(names)
        pod["spec"]["priority"] = draw.choice((-10, 0, 0, 5, 10, 50, 200))
        # No two start alike: the order of such victims is left to chance.
        pod["status"]["startTime"] = f"2026-01-01T{draw.randint(0, 9):02}:{number % 60:02}:{number // 60:02}Z"
        if draw.maybe(0.1):
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
            reason = draw.choice(("PreemptionByScheduler", "EvictionByEvictionAPI"))
            pod["status"]["conditions"] = [
                {"type": "DisruptionTarget", "status": draw.choice(("True", "False")), "reason": reason}
            ]
        pod["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {})["cpu"] = (
            draw.choice(("250m", "500m", "1"))
        )
    incoming = drawn["pod"]
    incoming["spec"]["priority"] = draw.choice((10, 100, 100, 0))
    incoming["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": draw.choice(("1", "2", "1500m", "3"))}
    }
    if draw.maybe(0.1):
        incoming["spec"]["preemptionPolicy"] = draw.choice(("Never", "PreemptLowerPriority"))
    if draw.maybe(0.2):
        incoming["status"]["nominatedNodeName"] = draw.choice((*names, "nowhere"))
    drawn["podDisruptionBudgets"] = [_budget(draw, number) for number in range(draw.randint(0, 3))]
    _nominate(draw, drawn, names)


def _budget(draw: Draw, number: int) -> Json:
    status: Json = {"disruptionsAllowed": draw.choice((0, 0, 1, 2))}
    if draw.maybe(0.3):
        status["disruptedPods"] = {f"q{draw.randint(0, 9)}": "2026-01-01T00:00:00Z"}
    selector = draw.choice(
        ({}, {"matchLabels": {"app": draw.choice("abc")}}, {"matchLabels": {"version": "1"}})
    )
    return {
        "metadata": {"name": f"b{number}", "namespace": draw.choice(("default", "blue", "green"))},
        "spec": {"selector": selector, "minAvailable": 1},
        "status": status,
    }


def _nominate(draw: Draw, drawn: Json, names: list[str]) -> None:
    drawn["nominatedPods"] = []
    for number in range(draw.choice((0, 0, 1, 2))):
        pod = pod_named(draw, f"nominated{number}")
        pod["spec"]["priority"] = draw.choice((5, 10, 100, 200))
        pod["status"] = {"phase": "Pending", "nominatedNodeName": draw.choice(names)}
        if drawn["pods"] and draw.maybe(0.7):
            # What else was drawn for bound pods, nominated ones ask for, too.
            like = draw.choice(drawn["pods"])
            pod["metadata"] = {
                **like["metadata"],
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
            }
            pod["spec"] = {**like["spec"], "priority": pod["spec"]["priority"]}
            del pod["spec"]["nodeName"]
        drawn["nominatedPods"].append(pod)
