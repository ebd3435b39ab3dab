"""Random gangs that are feasible by construction: each is planted on an empty cluster before the cluster is filled.

A gang has pods of one or two sizes, levels, slices, and up to three levels of subgroups of which some may be optional.
The planted places stay free; the rest of the cluster is filled at random up to the load. An infeasible candidate is the
same gang on a cluster that is filled without regard to the planted places.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.topology import Topology
from batchsched.api.snapshot import Snapshot

GPUS: Final = 8
CPUS: Final = 96
NODES_PER_RACK: Final = 8
RACKS_PER_BLOCK: Final = 4
LEVELS: Final = ("block", "rack")
KINDS: Final = ("levels", "heterogeneous", "slices", "nested", "nested with slices")
POD_SIZES: Final = ((8, 8), (4, 4), (2, 4), (1, 2), (0, 16))
"""Sizes of pods: GPUs and CPUs."""


@dataclass(slots=True)
class Group:
    """A gang or a subgroup of a case.

    Attributes:
      required: its required level, "" for none.
      slice_level, slice_size: its slices; "" and 0 without.
      pods: GPUs and CPUs of each of its own pods.
      minimum: how many of its own pods must run.
      children: the subgroups below it.
      min_children: how many of these must run.
      planted: the nodes of its own pods in the planted placement; empty if it is left out there.
    """

    name: str
    required: str = ""
    slice_level: str = ""
    slice_size: int = 0
    pods: list[tuple[int, int]] = field(default_factory=list)
    minimum: int = 0
    children: list["Group"] = field(default_factory=list)
    min_children: int = 0
    planted: list[int] = field(default_factory=list)

    def iterate(self) -> Iterator["Group"]:
        """Yield it and all groups below it."""
        yield self
        for child in self.children:
            yield from child.iterate()


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster with one pending gang.

    Attributes:
      kind: one of `KINDS`.
      load: the share of GPUs that is in use.
      gang: the gang.
      snapshot: the input of a session.
      free: free GPUs and CPUs of each node.
    """

    kind: str
    load: float
    gang: Group
    snapshot: Snapshot
    free: tuple[tuple[int, int], ...]


class Unplantable(Exception):
    """The gang that was drawn does not fit on the empty cluster, or takes more than the load leaves."""


class CaseGenerator:
    """Draws cases; the same seed gives the same case.

    Args:
      seed: number of the case.
      feasible: keep the planted places free.
    """

    def __init__(self, seed: int, *, feasible: bool = True) -> None:
        self._random = random.Random(seed)
        self._feasible = feasible
        self.kind = KINDS[seed % len(KINDS)]

    def draw(self) -> Case:
        """Return a case; gangs that cannot be planted are drawn again."""
        while True:
            try:
                return self._draw()
            except Unplantable:
                continue

    def _draw(self) -> Case:
        rng = self._random
        self._nodes = rng.choice([64, 128, 128, 512])
        load = rng.uniform(0.60, 0.95)
        left = round((1 - load) * self._nodes * GPUS)
        self._budget = max(2, round(left * rng.uniform(0.2, 0.9)))
        gang = self._group_of_kind()
        self._free = [[GPUS, CPUS] for _ in range(self._nodes)]
        self._plant(gang, list(range(self._nodes)))
        planted = sum(gpus for group in gang.iterate() for gpus, _ in group.pods[: len(group.planted)])
        if planted > left:
            raise Unplantable
        fillers = self._fill(load)
        pods = self._pods(gang, fillers)
        snapshot = Snapshot(
            nodes=tuple(map(_node, range(self._nodes))),
            pods=pods,
            pod_groups=(PodGroup.model_validate(_pod_group(gang)),),
            topologies=(Topology.model_validate(_TOPOLOGY),),
        )
        free = tuple((GPUS - gpus, CPUS - cpus) for gpus, cpus in fillers)
        used = sum(gpus for gpus, _ in fillers) / (self._nodes * GPUS)
        return Case(self.kind, used, gang, snapshot, free)

    # ------------------------------------------------------------------------------------ gangs

    def _group_of_kind(self) -> Group:
        rng = self._random
        if self.kind == "slices":
            return self._sliced("gang", self._budget)
        if self.kind in ("levels", "heterogeneous"):
            gang = Group("gang", required=rng.choice(["", "block"]))
            count = rng.randint(2, 4)
            gang.children = [self._leaf(f"s{n}", self._budget // count) for n in range(count)]
            gang.min_children = count
            return gang
        return self._nested("gang", self._budget, 1)

    def _nested(self, name: str, budget: int, depth: int) -> Group:
        rng = self._random
        group = Group(name, required=rng.choice(["", "", "block"]) if depth < 3 else "")
        count = rng.randint(2, 3)
        group.min_children = rng.randint(1, count) if rng.random() < 0.5 else count
        each = max(1, budget // group.min_children)
        for n in range(count):
            child = f"{name}-{n}"
            if depth < 2 and each >= 8 and rng.random() < 0.6:
                group.children.append(self._nested(child, each, depth + 1))
            elif self.kind == "nested with slices" and rng.random() < 0.6:
                group.children.append(self._sliced(child, each))
            else:
                group.children.append(self._leaf(child, each))
        return group

    def _leaf(self, name: str, budget: int) -> Group:
        rng = self._random
        gpus, cpus = rng.choice([size for size in POD_SIZES if size[0] <= max(budget, 1)])
        count = max(1, min(24, budget // gpus if gpus else rng.randint(1, 6)))
        pods = [(gpus, cpus)] * count
        if self.kind == "heterogeneous" and count > 1:
            other = rng.choice([size for size in POD_SIZES if size[0] <= max(gpus, 1)])
            share = rng.randint(1, count - 1)
            pods = [(gpus, cpus)] * share + [other] * (count - share)
        return Group(name, required=rng.choice(["", "block", "rack", "rack"]), pods=pods, minimum=count)

    def _sliced(self, name: str, budget: int) -> Group:
        rng = self._random
        gpus, cpus = rng.choice([size for size in POD_SIZES if 0 < size[0] <= max(budget, 1)])
        total = max(1, min(48, budget // gpus))
        size = rng.randint(1, min(total, 12))
        count = total // size * size
        return Group(
            name,
            required=rng.choice(["", "", "block"]),
            slice_level=rng.choice(["rack", "rack", "block"]),
            slice_size=size,
            pods=[(gpus, cpus)] * count,
            minimum=count,
        )

    # ------------------------------------------------------------------------------------ planting

    def _plant(self, group: Group, nodes: list[int]) -> None:
        """Give the pods of a group places on some nodes."""
        rng = self._random
        if group.required:
            nodes = rng.choice(list(_by_domain(nodes, group.required).values()))
        for child in rng.sample(group.children, group.min_children):
            self._plant(child, nodes)
        if not group.slice_size:
            for gpus, cpus in group.pods:
                group.planted.append(self._take(nodes, gpus, cpus))
            return
        slices = len(group.pods) // group.slice_size
        domains = list(_by_domain(nodes, group.slice_level).values())
        # As few domains as an almost full cluster may need, and slices spread evenly over them.
        chosen = rng.sample(domains, min(len(domains), slices, rng.randint(1, 4)))
        for number in range(slices):
            for gpus, cpus in group.pods[: group.slice_size]:
                group.planted.append(self._take(chosen[number % len(chosen)], gpus, cpus))

    def _take(self, nodes: list[int], gpus: int, cpus: int) -> int:
        """Reserve the place of a pod on a node; a used node is taken rather than another one."""
        fitting = [n for n in nodes if self._free[n][0] >= gpus and self._free[n][1] >= cpus]
        if not fitting:
            raise Unplantable
        used = [n for n in fitting if self._free[n][0] < GPUS]
        node = self._random.choice(used if used and self._random.random() < 0.7 else fitting)
        self._free[node][0] -= gpus
        self._free[node][1] -= cpus
        return node

    def _fill(self, load: float) -> list[tuple[int, int]]:
        """Fill the nodes up to the load; return the GPUs and CPUs in use on each."""
        rng = self._random
        free = [list(amounts) if self._feasible else [GPUS, CPUS] for amounts in self._free]
        used = [[0, 0] for _ in free]
        target = round(load * self._nodes * GPUS)
        order = list(range(self._nodes))
        while target > 0 and order:
            node = rng.choice(order)
            if not free[node][0]:
                order.remove(node)
                continue
            gpus = min(rng.choice([1, 1, 2, 4, 8]), free[node][0], target)
            cpus = min(free[node][1], gpus * rng.randint(4, 11))
            for amounts, sign in ((free[node], -1), (used[node], 1)):
                amounts[0] += sign * gpus
                amounts[1] += sign * cpus
            target -= gpus
        return [(gpus, cpus) for gpus, cpus in used]

    def _pods(self, gang: Group, fillers: list[tuple[int, int]]) -> tuple[Pod, ...]:
        pods = [_pod(f"busy-{n}", size, {}, f"n{n:03d}") for n, size in enumerate(fillers) if any(size)]
        for group in gang.iterate():
            labels = {"scheduling.batchsched.dev/pod-group": "gang"}
            if group is not gang:
                labels["scheduling.batchsched.dev/sub-group"] = group.name
            pods += [_pod(f"{group.name}-pod-{n}", size, labels, "") for n, size in enumerate(group.pods)]
        return tuple(pods)


def domain_of(node: int, level: str) -> str:
    """Return the name of a node's domain at a level."""
    rack = node // NODES_PER_RACK
    return f"rack-{rack:02d}" if level == "rack" else f"block-{rack // RACKS_PER_BLOCK}"


def _by_domain(nodes: list[int], level: str) -> dict[str, list[int]]:
    domains: dict[str, list[int]] = {}
    for node in nodes:
        domains.setdefault(domain_of(node, level), []).append(node)
    return domains


def _node(number: int) -> Node:
    labels = {f"example.com/{level}": domain_of(number, level) for level in LEVELS}
    allocatable = {"cpu": str(CPUS), "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    document = {
        "metadata": {"name": f"n{number:03d}", "labels": labels},
        "status": {"allocatable": allocatable},
    }
    return msgspec.convert(document, Node)


def _pod(name: str, size: tuple[int, int], labels: dict[str, str], node: str) -> Pod:
    gpus, cpus = size
    requests = {"cpu": str(cpus), "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    spec: dict[str, Any] = {
        "schedulerName": "batchsched" if labels else "other",
        "containers": [{"name": "main", "resources": {"requests": requests}}],
    }
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


_TOPOLOGY: Final = {
    "metadata": {"name": "default"},
    "spec": {"levels": [{"name": level, "nodeLabel": f"example.com/{level}"} for level in LEVELS]},
}


def _topology(group: Group) -> dict[str, Any]:
    result: dict[str, Any] = {"required": group.required} if group.required else {}
    if group.slice_size:
        result["slices"] = {"level": group.slice_level, "size": group.slice_size}
    return {"topology": result} if result else {}


def _pod_group(gang: Group) -> dict[str, Any]:
    spec: dict[str, Any] = _topology(gang)
    if not gang.children:
        spec["minMember"] = gang.minimum
    elif gang.min_children < len(gang.children):
        spec["minSubGroups"] = gang.min_children
    spec["subGroups"] = [
        _sub_group(child, parent, gang) for parent in gang.iterate() for child in parent.children
    ]
    return {"metadata": {"name": "gang", "namespace": "team"}, "spec": spec}


def _sub_group(group: Group, parent: Group, gang: Group) -> dict[str, Any]:
    result: dict[str, Any] = {"name": group.name, **_topology(group)}
    if parent is not gang:
        result["parent"] = parent.name
    if not group.children:
        result["minMember"] = group.minimum
    elif group.min_children < len(group.children):
        result["minSubGroups"] = group.min_children
    return result


def find_fault(case: Case, nodes: dict[str, int]) -> str:
    """Return what is wrong with a placement of the gang; "" if nothing is. It shares no code with the scheduler.

    Args:
      case: the case.
      nodes: the node of each placed pod, by the pod's name.
    """
    used: Counter[tuple[int, int]] = Counter()
    for group in case.gang.iterate():
        for number, (gpus, cpus) in enumerate(group.pods):
            node = nodes.get(f"{group.name}-pod-{number}")
            if node is not None:
                used[node, 0] += gpus
                used[node, 1] += cpus
    if any(amount > case.free[node][resource] for (node, resource), amount in used.items()):
        return "a node is overcommitted"
    if not _runs(case.gang, nodes):
        return "the gang does not run"
    faults = (_fault_of_group(group, nodes) for group in case.gang.iterate())
    return next((fault for fault in faults if fault), "")


def _own_nodes(group: Group, nodes: dict[str, int]) -> list[int]:
    names = (f"{group.name}-pod-{number}" for number in range(len(group.pods)))
    return [nodes[name] for name in names if name in nodes]


def _runs(group: Group, nodes: dict[str, int]) -> bool:
    if len(_own_nodes(group, nodes)) < group.minimum:
        return False
    return sum(_runs(child, nodes) for child in group.children) >= group.min_children


def _fault_of_group(group: Group, nodes: dict[str, int]) -> str:
    inside = [node for below in group.iterate() for node in _own_nodes(below, nodes)]
    if not inside:
        return ""
    if not _runs(group, nodes):
        return f"{group.name} has pods and does not run"
    if group.required and len({domain_of(node, group.required) for node in inside}) > 1:
        return f"{group.name} is in several domains"
    if group.slice_size:
        pods = Counter(domain_of(node, group.slice_level) for node in inside)
        slices = {count // group.slice_size for count in pods.values()}
        if any(count % group.slice_size for count in pods.values()) or max(slices) - min(slices) > 1:
            return f"{group.name} has slices that are not whole, or not even"
    return ""
