"""The clusters and pods of scheduler_perf, kube-scheduler's own bench, as far as they can be built here."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
ZONES = 3
ROOM = {"cpu": "4", "memory": "32Gi", "pods": "110"}
SMALL = {"cpu": "100m", "memory": "500Mi"}
BLUE = {"matchLabels": {"color": "blue"}}


@dataclass(frozen=True, slots=True)
class Workload:
    """Existing pods, and equal pods that are placed.

    Args:
      name: as in scheduler_perf.
      arriving: the spec of the pods that are placed, without their requests.
      labels: of the pods that are placed, and of the existing pods.
      requests: of the pods that are placed.
      there: the spec of the existing pods if it differs; None if it does not.
      filled: number of pods that fill each node, for the preemption workload.
      published: the threshold of scheduler_perf in pods per second at 5,000 nodes; "" if it has none.
      most: the target in milliseconds for each pod at 5,000 nodes; None for no target.
      arrivals: the number of pods that are placed, if it is not that of the arguments.
    """

    name: str
    arriving: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=lambda: dict(SMALL))
    there: dict[str, Any] | None = None
    filled: int = 0
    published: str = ""
    most: float | None = None
    arrivals: int | None = None


def spread(key: str, skew: int, action: str) -> dict[str, Any]:
    """Return a spec that spreads blue pods."""
    asked = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": BLUE}
    return {"topologySpreadConstraints": [asked]}


def near(kind: str, key: str) -> dict[str, Any]:
    """Return a spec with required affinity or anti-affinity to blue pods."""
    required = [{"topologyKey": key, "labelSelector": BLUE, "namespaces": ["default"]}]
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def preferred(kind: str, key: str) -> dict[str, Any]:
    """Return a spec with preferred affinity or anti-affinity to blue pods."""
    wish = {"weight": 1, "podAffinityTerm": {"topologyKey": key, "labelSelector": BLUE}}
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


def in_zones(*zones: str) -> dict[str, Any]:
    """Return a spec with node affinity to zones."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


COLOR = {"color": "blue"}
WORKLOADS = (
    Workload("SchedulingBasic", published="680-810"),
    Workload("NodeAffinity", in_zones("zone0", "zone1"), published="220"),
    Workload("TopologySpreading", spread(ZONE, 5, "DoNotSchedule"), COLOR, published="460", most=5),
    Workload("PreferredTopologySpreading", spread(ZONE, 5, "ScheduleAnyway"), COLOR, published="340", most=5),
    Workload("SpreadingOverHosts", spread(HOST, 1, "DoNotSchedule"), COLOR, most=5),
    Workload("PodAffinity", near("podAffinity", ZONE), COLOR, published="35", most=5),
    Workload("PodAntiAffinity", near("podAntiAffinity", HOST), COLOR, there={}, published="60", most=5),
    Workload("PreferredPodAntiAffinity", preferred("podAntiAffinity", HOST), COLOR, most=5),
    Workload("PreemptionBasic", {"priority": 10}, requests={"cpu": "3", "memory": "500Mi"}, filled=4,
             published="570", arrivals=2),
    Workload("Unschedulable", requests={"cpu": "9", "memory": "500Mi"}, published="590"),
)  # fmt: skip
EVERYTHING = Workload(
    "Everything",
    {
        "affinity": {
            **preferred("podAntiAffinity", HOST)["affinity"],
            **in_zones("zone0", "zone1", "zone2")["affinity"],
        },
        "topologySpreadConstraints": [
            *spread(ZONE, 50, "DoNotSchedule")["topologySpreadConstraints"],
            *spread(HOST, 5, "ScheduleAnyway")["topologySpreadConstraints"],
        ],
    },
    COLOR,
)
"""A pod that gives every plugin without volumes something to do."""
BY_NAME = {one.name: one for one in (*WORKLOADS, EVERYTHING)}


def nodes(count: int, seed: int) -> tuple[Node, ...]:
    """Return nodes in three zones, each with ten of thirty images; one in twenty has a PreferNoSchedule taint."""
    rng = random.Random(seed)
    images = [{"names": [f"registry.example/app-{at}:1"], "sizeBytes": 2**26 * (at + 1)} for at in range(30)]
    return tuple(_node(at, rng.sample(images, 10), soft=rng.random() < 0.05) for at in range(count))


def _node(at: int, images: list[dict[str, Any]], *, soft: bool) -> Node:
    name = f"node-{at:05d}"
    taints = [{"key": "example.com/soft", "effect": "PreferNoSchedule"}] if soft else []
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {HOST: name, ZONE: f"zone{at % ZONES}"}},
            "spec": {"taints": taints},
            "status": {"allocatable": ROOM, "images": images},
        },
        Node,
    )


def pods(prefix: str, template: dict[str, Any], on: Iterable[str]) -> tuple[Pod, ...]:
    """Return equal pods, one for each node name in `on`; "" for a pending pod."""
    common = msgspec.convert(template, Pod)
    places = tuple(on)
    specs = {
        name: msgspec.structs.replace(common.spec, node_name=name) if name else common.spec for name in places
    }
    return tuple(
        msgspec.structs.replace(
            common,
            metadata=msgspec.structs.replace(
                common.metadata, name=f"{prefix}-{at:05d}", uid=f"{prefix}-{at}"
            ),
            spec=specs[name],
        )
        for at, name in enumerate(places)
    )


def template(spec: dict[str, Any], labels: dict[str, str], requests: dict[str, str]) -> dict[str, Any]:
    """Return a pod with one container."""
    container = {
        "name": "main",
        "image": "registry.example/app-7:1",
        "resources": {"requests": requests},
    }
    return {
        "metadata": {"name": "pod", "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "batchsched", "containers": [container], **spec},
    }


def snapshot(workload: Workload, count: int, waiting: int, seed: int) -> Snapshot:
    """Return a cluster of `count` nodes with one bound pod for every five nodes, and `waiting` pending pods."""
    made = nodes(count, seed)
    names = [one.metadata.name for one in made]
    rng = random.Random(seed + 1)
    if workload.filled:
        filler = template({"priority": 0}, {}, {"cpu": "900m", "memory": "500Mi"})
        there = pods("low", filler, [name for name in names for _ in range(workload.filled)])
    else:
        spec = workload.arriving if workload.there is None else workload.there
        spec = spec if workload.name != "Unschedulable" else {}
        labels = workload.labels if workload.there is None else {}
        there = pods("init", template(spec, labels, SMALL), rng.sample(names, count // 5))
    arriving = template(workload.arriving, workload.labels, workload.requests)
    return Snapshot(nodes=made, pods=there + pods("pod", arriving, [""] * waiting))
