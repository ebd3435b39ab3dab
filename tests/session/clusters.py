"""Random small clusters with everything that a session knows, by seed: at most 6 nodes, 4 gangs and a dozen pods."""

import random
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import strategies as st

from batchsched.api.core.node import Node, NodeSpec, Taint
from batchsched.api.core.pod import (
    Affinity,
    Container,
    ContainerPort,
    Pod,
    PodSchedulingGate,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.snapshot import Snapshot
from tests.session.audit import overcommitted
from tests.session.scenario import GPU, amounts, group, node, pod, priority_class, queue, topology

RACKS = {"r0": "z0", "r1": "z0", "r2": "z1"}
HOST = "kubernetes.io/hostname"
DAY = 86400.0


@dataclass(frozen=True)
class Shape:
    """What a random cluster may hold.

    Args:
      nodes, gangs, pods: the maximum numbers; `pods` counts pending pods, to which bound ones are added.
      rules: ports, spreading and affinity between pods.
      faults: references to what does not exist, gates, gangs with too few pods.
    """

    nodes: int = 6
    gangs: int = 4
    pods: int = 12
    rules: bool = True
    faults: bool = True


EVERYTHING = Shape()
NO_RULES = Shape(rules=False, faults=False)
TINY = Shape(nodes=3, gangs=3, pods=5, rules=False, faults=False)


def clusters(shape: Shape = EVERYTHING) -> st.SearchStrategy[Snapshot]:
    return st.integers(0, 2**32 - 1).map(lambda seed: random_cluster(seed, shape))


def random_cluster(seed: int, shape: Shape = EVERYTHING) -> Snapshot:
    return _Draw(random.Random(seed), shape).cluster()


def with_priority_class(one: Pod, name: str) -> Pod:
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, priority_class_name=name))


class _Draw:
    """One cluster in the making."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape
        self.left = shape.pods

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def cluster(self) -> Snapshot:
        nodes = tuple(self.node(f"n{at}") for at in range(self.rng.randint(1, self.shape.nodes)))
        queues = self.queues()
        pods: list[Pod] = []
        groups: list[PodGroup] = []
        for at in range(self.rng.randint(1, self.shape.gangs)):
            more, made = self.gang(f"g{at}", [one.name for one in queues])
            pods += more
            groups += made
        pods = self.bind(pods, groups, nodes)
        pods += self.strangers(nodes)
        self.rng.shuffle(pods)
        snapshot = Snapshot(
            nodes=nodes,
            pods=tuple(pods),
            pod_groups=tuple(groups),
            queues=queues,
            topologies=(topology("zone", "rack"),),
            priority_classes=(priority_class("high", 100), priority_class("low", -5)),
        )
        return self.without_overcommit(snapshot)

    def node(self, name: str) -> Node:
        labels = {}
        if self.chance(0.9):
            rack = self.rng.choice(sorted(RACKS))
            labels = {"zone": RACKS[rack]} | ({"rack": rack} if self.chance(0.9) else {})
        if self.chance(0.4):
            labels["disk"] = "ssd"
        offered: dict[str, Any] = {"cpu": self.rng.choice([2, 4, 6, 8]), "memory": "64Gi"}
        offered |= {"gpu": self.rng.choice([0, 1, 2, 4]), "pods": self.rng.choice([2, 4, 110])}
        made = node(name, labels, **offered)
        taints = (Taint(key="own", effect=self.rng.choice(["NoSchedule", "NoExecute"])),)
        spec = NodeSpec(taints=taints) if self.chance(0.15) else NodeSpec(unschedulable=self.chance(0.05))
        return msgspec.structs.replace(made, spec=spec)

    def queues(self) -> tuple[Queue, ...]:
        if self.chance(0.4):
            return ()
        return (
            queue("org", **self.limits()),
            queue("a", parent="org", **self.limits()),
            queue("b", parent="org", **self.limits()),
        )

    def limits(self) -> dict[str, Any]:
        stated: dict[str, Any] = {}
        if self.chance(0.4):
            stated["limit"] = {"cpu": str(self.rng.randint(1, 12))}
            if self.chance(0.5):
                stated["limit"][GPU] = str(self.rng.randint(0, 5))
        if self.chance(0.2):
            stated["maxRunningPodGroups"] = self.rng.randint(0, 2)
        return stated

    def gang(self, name: str, queues: list[str]) -> tuple[list[Pod], list[PodGroup]]:
        age = self.rng.choice([0.0, 100.0, DAY / 2, 2 * DAY])
        if self.chance(0.25):
            labels = {"scheduling.batchsched.dev/queue": self.rng.choice(queues)} if queues else {}
            return [self.pod(name, age=age, queue=labels, **self.template(name))], []
        subs = self.rng.sample(["x", "y"], self.rng.randint(1, 2)) if self.chance(0.4) else []
        pods: list[Pod] = []
        for part in subs or range(self.rng.randint(1, 2)):
            template = self.template(name)
            sub = part if isinstance(part, str) and not (self.shape.faults and self.chance(0.1)) else ""
            for _ in range(self.rng.randint(1, 3)):
                if self.left > 0:
                    one = self.pod(f"{name}-{len(pods)}", group=name, sub=sub, age=age, **template)
                    pods.append(leaving(one) if self.shape.faults and self.chance(0.03) else one)
        made = self.group(name, pods, subs, queues, age)
        pods = [with_priority_class(one, made.spec.priority_class_name) for one in pods]
        if self.shape.faults and self.chance(0.05):
            return pods, []
        return pods, [made]

    def group(self, name: str, pods: list[Pod], subs: list[str], queues: list[str], age: float) -> PodGroup:
        spec: dict[str, Any] = {}
        least = 0
        if subs:
            spec["subGroups"] = [self.subgroup(one, pods) for one in subs]
            least = sum(one["minMember"] for one in spec["subGroups"])
        most = len(pods) + (1 if self.shape.faults and self.chance(0.1) else 0)
        minimum = self.rng.randint(max(1, least), max(1, least, most)) if self.chance(0.6) else max(1, most)
        if self.chance(0.4):
            spec["topology"] = self.levels()
        if queues and self.chance(0.8):
            spec["queue"] = self.rng.choice(queues)
        elif self.shape.faults and self.chance(0.05):
            spec["queue"] = "nowhere"
        if self.chance(0.3):
            spec["priorityClassName"] = self.rng.choice(["high", "low"])
        if self.chance(0.5):
            spec["expectedRuntimeSeconds"] = self.rng.choice([10, 1000])
        return group(name, None if subs and self.chance(0.3) else minimum, age=age, **spec)

    def subgroup(self, name: str, pods: list[Pod]) -> dict[str, Any]:
        here = sum(one.labels.get("scheduling.batchsched.dev/sub-group") == name for one in pods)
        stated: dict[str, Any] = {"name": name, "minMember": self.rng.randint(0, max(0, here))}
        if self.chance(0.4):
            stated["topology"] = {key: level for key, level in self.levels().items() if key != "name"}
        return stated

    def levels(self) -> dict[str, str]:
        stated = {}
        if self.chance(0.6):
            stated["required"] = self.rng.choice(["zone", "rack"])
        if self.chance(0.6):
            stated["preferred"] = self.rng.choice(["zone", "rack"])
        if self.shape.faults and self.chance(0.03):
            stated["required"] = "row"
        return stated

    def template(self, app: str) -> dict[str, Any]:
        requests = {"cpu": self.rng.choice([1, 1, 2, 3, "500m"])}
        requests["gpu"] = self.rng.choice([0, 0, 1, 2])
        spec: dict[str, Any] = {}
        if self.chance(0.2):
            spec["node_selector"] = {"disk": "ssd"}
        if self.chance(0.3):
            spec["tolerations"] = (Toleration(key="own", operator="Exists"),)
        labels = {"app": self.rng.choice([app, "shared"])}
        if self.shape.rules and self.chance(0.5):
            spec |= self.rule(labels["app"])
        if self.shape.faults and self.chance(0.03):
            spec["scheduling_gates"] = (PodSchedulingGate(name="later"),)
        return {"requests": requests, "spec": spec, "labels": labels}

    def rule(self, app: str) -> dict[str, Any]:
        kind = self.rng.choice(["port", "spread", "apart", "together"])
        selector = {"matchLabels": {"app": app}}
        term = {"topologyKey": self.rng.choice([HOST, "zone"]), "labelSelector": selector}
        named = "requiredDuringSchedulingIgnoredDuringExecution"
        if kind == "port":
            return {"port": 8080}
        if kind == "apart":
            return {"affinity": msgspec.convert({"podAntiAffinity": {named: [term]}}, Affinity)}
        if kind == "together":
            return {"affinity": msgspec.convert({"podAffinity": {named: [term]}}, Affinity)}
        stated = term | {"maxSkew": self.rng.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
        return {"topology_spread_constraints": (msgspec.convert(stated, TopologySpreadConstraint),)}

    def pod(
        self,
        name: str,
        *,
        requests: dict[str, Any],
        spec: dict[str, Any],
        labels: dict[str, str],
        **more: Any,
    ) -> Pod:
        self.left -= 1
        spec = dict(spec)
        port = spec.pop("port", 0)
        own = more.pop("queue", {}) | labels
        made = pod(name, spec=spec, labels=own, **more)
        ports = (ContainerPort(container_port=port, host_port=port),) if port else None
        container = Container(
            name="main", resources=ResourceRequirements(requests=amounts(**requests)), ports=ports
        )
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, containers=(container,)))

    def bind(self, pods: list[Pod], groups: list[PodGroup], nodes: tuple[Node, ...]) -> list[Pod]:
        """Some gangs run already, whole or half; members of a required level in one of its domains."""
        some = {one.key for one in groups if self.chance(0.25)}
        spots = {key: self.rng.sample(nodes, self.rng.randint(1, len(nodes))) for key in sorted(some)}
        found = []
        for one in pods:
            key = f"team/{one.labels.get('scheduling.batchsched.dev/pod-group')}"
            if key in some and self.chance(0.5):
                one = on(one, self.rng.choice(spots[key]).name)
            found.append(one)
        return found

    def strangers(self, nodes: tuple[Node, ...]) -> list[Pod]:
        """Pods of other schedulers that take room."""
        found = []
        for at in range(self.rng.choice([0, 0, 1, 2])):
            one = pod(f"s{at}", labels={"app": "shared"}, cpu=self.rng.choice([1, 2]))
            spec = msgspec.structs.replace(one.spec, scheduler_name="default-scheduler")
            found.append(on(msgspec.structs.replace(one, spec=spec), self.rng.choice(nodes).name))
        return found

    def without_overcommit(self, snapshot: Snapshot) -> Snapshot:
        """Drop bound pods for which there was never room."""
        kept: list[Pod] = []
        for one in snapshot.pods:
            if not one.node_name or not overcommitted(replace(snapshot, pods=(*kept, one)), {}):
                kept.append(one)
        return replace(snapshot, pods=tuple(kept))


def on(one: Pod, name: str) -> Pod:
    """The pod, bound to a node since a minute."""
    spec = msgspec.structs.replace(one.spec, node_name=name)
    status = msgspec.structs.replace(one.status, start_time="2023-11-14T22:12:20Z")
    return msgspec.structs.replace(one, spec=spec, status=status)


def leaving(one: Pod) -> Pod:
    """The pod, being deleted."""
    metadata = msgspec.structs.replace(one.metadata, deletion_timestamp="2023-11-14T22:13:00Z")
    return msgspec.structs.replace(one, metadata=metadata)
