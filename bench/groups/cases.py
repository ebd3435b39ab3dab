"""Random gangs that are feasible by construction: each is planted on an empty cluster before the cluster is filled.

A gang has pods of one or two sizes, levels, slices, up to three levels of subgroups of which some may be optional,
affinity between its pods, or a ResourceClaim for each pod with GPUs. The planted places stay free; the rest of the
cluster is filled at random up to the load. An infeasible candidate is the same gang on a cluster that is filled without
regard to the planted places.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

GPUS: Final = 8
CPUS: Final = 96
NODES_PER_RACK: Final = 8
RACKS_PER_BLOCK: Final = 4
LEVELS: Final = ("block", "rack")
KINDS: Final = ("levels", "heterogeneous", "slices", "nested", "nested with slices", "affinity", "claims")
POD_SIZES: Final = ((8, 8), (4, 4), (2, 4), (1, 2), (0, 16))
"""Sizes of pods: GPUs and CPUs."""
ROOT_SIZE: Final = 4
"""Devices behind one PCIe root. The devices of a claim for at most so many are behind one root."""


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
      together: whether required affinity keeps its pods in one rack.
      apart: whether required anti-affinity allows one of its pods on a node.
      near: the name of the subgroup with which required affinity keeps each of its pods in one block, "" for none.
      away: the name of the subgroup with which required anti-affinity lets no pod of it share a rack, "" for none.
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
    together: bool = False
    apart: bool = False
    near: str = ""
    away: str = ""
    planted: list[int] = field(default_factory=list)

    def iterate(self) -> Iterator["Group"]:
        """Yield it and all groups below it."""
        yield self
        for child in self.children:
            yield from child.iterate()

    def iterate_pods(self) -> Iterator[tuple[str, int, int]]:
        """Yield the name, GPUs and CPUs of each of its own pods."""
        for number, (gpus, cpus) in enumerate(self.pods):
            yield f"{self.name}-pod-{number}", gpus, cpus


@dataclass(slots=True)
class NodeRoom:
    """What is free on a node, or in use on it.

    Attributes:
      gpus: GPUs by PCIe root; one entry if they are an extended resource, for which roots do not matter.
      cpus: CPUs.
    """

    gpus: list[int]
    cpus: int

    def fits(self, gpus: int, cpus: int) -> bool:
        """Return whether a pod fits: up to `ROOT_SIZE` devices of a claim are behind one root."""
        room = max(self.gpus) if gpus <= ROOT_SIZE else sum(self.gpus)
        return room >= gpus and self.cpus >= cpus

    def take(self, gpus: int, cpus: int, root: int | None = None) -> None:
        """Subtract a pod that fits from what is free, at the fullest root that has room unless a root is given."""
        self.cpus -= cpus
        if root is None:
            fitting = [at for at, free in enumerate(self.gpus) if free >= gpus]
            root = min(fitting, key=lambda at: self.gpus[at]) if fitting else None
        if root is not None:
            self.gpus[root] -= gpus
            return
        for at, free in enumerate(self.gpus):
            taken = min(free, gpus)
            self.gpus[at] -= taken
            gpus -= taken


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster with one pending gang.

    Attributes:
      number: the seed.
      kind: one of `KINDS`.
      load: the share of GPUs that is in use.
      gang: the gang.
      free: what is free on each node before the gang is placed.
    """

    number: int
    kind: str
    load: float
    gang: Group
    free: tuple[NodeRoom, ...]

    @property
    def has_claims(self) -> bool:
        """Whether GPUs are devices of ResourceClaims instead of an extended resource."""
        return self.kind == "claims"


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
        self._seed = seed
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
        self._free = [self._empty_node() for _ in range(self._nodes)]
        self._plant_all(gang)
        planted = sum(gpus for group in gang.iterate() for gpus, _ in group.pods[: len(group.planted)])
        if planted > left:
            raise Unplantable
        free = self._fill(load)
        used = 1 - sum(sum(room.gpus) for room in free) / (self._nodes * GPUS)
        return Case(self._seed, self.kind, used, gang, tuple(free))

    def _empty_node(self) -> NodeRoom:
        return NodeRoom([ROOT_SIZE] * (GPUS // ROOT_SIZE) if self.kind == "claims" else [GPUS], CPUS)

    # ------------------------------------------------------------------------------------ gangs

    def _group_of_kind(self) -> Group:
        rng = self._random
        if self.kind == "slices":
            return self._sliced("gang", self._budget)
        if self.kind in ("levels", "heterogeneous"):
            return self._flat(required=rng.choice(["", "block"]))
        if self.kind == "affinity":
            return self._with_affinity()
        if self.kind == "claims" and rng.random() < 0.5:
            return self._flat(required=rng.choice(["", "block"]))
        return self._nested("gang", self._budget, 1)

    def _flat(self, required: str = "") -> Group:
        count = self._random.randint(2, 4)
        children = [self._leaf(f"s{n}", self._budget // count) for n in range(count)]
        return Group("gang", required=required, children=children, min_children=count)

    def _with_affinity(self) -> Group:
        """Return a gang of subgroups with affinity; a subgroup is near or away from one that comes before it."""
        rng = self._random
        gang = self._flat()
        for at, group in enumerate(gang.children):
            group.together, group.required = group.required == "rack", ""
            group.apart = rng.random() < 0.4
            before = [other.name for other in gang.children[:at]]
            if before and rng.random() < 0.5:
                # A pod must match all affinity terms to satisfy one of them, so that a group has one term at most.
                group.near, group.together = rng.choice(before), False
            if before and rng.random() < 0.3:
                group.away = rng.choice(before)
        return gang

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

    def _plant_all(self, gang: Group) -> None:
        self._places: dict[str, list[int]] = {}
        self._plant(gang, list(range(self._nodes)))

    def _plant(self, group: Group, nodes: list[int]) -> None:
        """Give the pods of a group places on some nodes."""
        rng = self._random
        if group.required:
            nodes = rng.choice(list(_by_domain(nodes, group.required).values()))
        children = set(rng.sample(range(len(group.children)), group.min_children))
        for at, child in enumerate(group.children):
            if at in children:
                self._plant(child, nodes)
        if not group.slice_size:
            self._plant_pods(group, self._nodes_by_affinity(group, nodes))
            return
        slices = len(group.pods) // group.slice_size
        domains = list(_by_domain(nodes, group.slice_level).values())
        # As few domains as an almost full cluster may need, and slices spread evenly over them.
        chosen = rng.sample(domains, min(len(domains), slices, rng.randint(1, 4)))
        for number in range(slices):
            for gpus, cpus in group.pods[: group.slice_size]:
                group.planted.append(self._take(chosen[number % len(chosen)], gpus, cpus))

    def _plant_pods(self, group: Group, nodes: list[int]) -> None:
        for gpus, cpus in group.pods:
            node = self._take(nodes, gpus, cpus)
            group.planted.append(node)
            if group.apart:
                nodes = [other for other in nodes if other != node]
        self._places[group.name] = group.planted

    def _nodes_by_affinity(self, group: Group, nodes: list[int]) -> list[int]:
        """Return the nodes that the affinity of a group leaves, if one rack is drawn for pods that stay together."""
        if group.near:
            block = domain_of(self._random.choice(self._places[group.near]), "block")
            nodes = [node for node in nodes if domain_of(node, "block") == block]
        if group.away:
            racks = {domain_of(node, "rack") for node in self._places[group.away]}
            nodes = [node for node in nodes if domain_of(node, "rack") not in racks]
        if group.together and nodes:
            nodes = self._random.choice(list(_by_domain(nodes, "rack").values()))
        return nodes

    def _take(self, nodes: Sequence[int], gpus: int, cpus: int) -> int:
        """Reserve the place of a pod on a node; a used node is taken rather than another one."""
        fitting = [n for n in nodes if self._free[n].fits(gpus, cpus)]
        if not fitting:
            raise Unplantable
        used = [n for n in fitting if sum(self._free[n].gpus) < GPUS]
        node = self._random.choice(used if used and self._random.random() < 0.7 else fitting)
        self._free[node].take(gpus, cpus)
        return node

    def _fill(self, load: float) -> list[NodeRoom]:
        """Fill the nodes up to the load; return what is free then, the planted places included."""
        rng = self._random
        room = self._free if self._feasible else [self._empty_node() for _ in self._free]
        free = [self._empty_node() for _ in self._free]
        target = round(load * self._nodes * GPUS)
        order = list(range(self._nodes))
        while target > 0 and order:
            node = rng.choice(order)
            roots = [root for root, gpus in enumerate(room[node].gpus) if gpus]
            if not roots:
                order.remove(node)
                continue
            root = rng.choice(roots)
            gpus = min(rng.choice([1, 1, 2, 4, 8]), room[node].gpus[root], target)
            cpus = min(room[node].cpus, gpus * rng.randint(4, 11))
            for amounts in (room[node], free[node]):
                amounts.take(gpus, cpus, root)
            target -= gpus
        return free


def domain_of(node: int, level: str) -> str:
    """Return the name of a node's domain at a level."""
    rack = node // NODES_PER_RACK
    return f"rack-{rack:02d}" if level == "rack" else f"block-{rack // RACKS_PER_BLOCK}"


def _by_domain(nodes: Sequence[int], level: str) -> dict[str, list[int]]:
    domains: dict[str, list[int]] = {}
    for node in nodes:
        domains.setdefault(domain_of(node, level), []).append(node)
    return domains
