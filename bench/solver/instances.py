"""Seeded synthetic sessions: a part-filled GPU cluster and a queue of gangs that does not fit.

Four node types (8-GPU, large 8-GPU, 4-GPU, CPU-only) are in racks of 16, racks in blocks, blocks in zones;
some racks are tainted; most nodes are partly filled, noisily, so that hardly two nodes are alike. Gangs have
1-4 templates; half of the GPU gangs are bound to a topology level, half of those require it. Nine queues in
three departments have limits: the departments share what is free. Demand is a multiple of what is free, of GPUs
and of CPU, including the CPU that GPU pods request.

A node is filled in one of two ways. Lean: four fifths of the nodes, any number of GPUs, and CPU and memory about a
third less full than the GPUs, so that hardly a GPU is left without company. Noisy: 93 % of the nodes, each of the
three resources around one fullness with noise of its own, so that some GPUs cannot be used.

The partitioned mix has noisy nodes in twelve node groups, from which half of the gangs select one to three: many masks.
A third of all gangs require a level, mostly a rack, and few racks have the free nodes for them. Gangs have one to six
templates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

RESOURCES: Final = ("cpu", "memory", "nvidia.com/gpu", "pods")
LEVELS: Final = ("zone", "block", "rack")
GIB: Final = 1 << 30
MIB: Final = 1 << 20
RACK: Final = 16
BLOCK: Final = 8 * RACK
ZONES: Final = 4
DAY: Final = 86_400
Amounts = tuple[int, int, int]
"""milli-CPU, bytes, GPUs"""
Demand = tuple[float, float]
"""The demand of all gangs as multiples of the free GPUs and CPU, including the CPU that GPU pods request."""
PRIORITIES: Final = 4
NOISY_SHARE: Final = 0.93
"""Of 5,000 nodes some 4,650 differ, as solver.md counted."""
GROUPS: Final = 12
"""Node groups of the partitioned mix; all nodes of a rack belong to the same one."""
FULLEST: Final = 0.86
"""The fullest noisy node before its noise: three fifths of all GPUs are free, as on lean nodes."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type: milli-CPU, bytes, GPUs, and its share of the racks."""

    name: str
    cpu: int
    memory: int
    gpu: int
    share: float


TYPES: Final = (
    NodeType("gpu8", 96_000, 768 * GIB, 8, 0.42),
    NodeType("gpu8-large", 192_000, 2048 * GIB, 8, 0.18),
    NodeType("gpu4", 64_000, 256 * GIB, 4, 0.20),
    NodeType("cpu", 64_000, 256 * GIB, 0, 0.20),
)
MAX_PODS: Final = 110


Fill = Callable[[NodeType, np.random.Generator], Amounts]
"""Draws the used amounts of a node."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The distribution of random gangs.

    Args:
      bound: share of the GPU gangs that name a topology level.
      required: share of those that require it; the others prefer it.
      levels: probabilities of zone, block and rack.
      rack_gpus: the largest request of a gang in GPUs that fits in most racks.
      templates: probabilities of 1, 2, ... templates.
    """

    bound: float
    required: float
    levels: tuple[float, float, float]
    rack_gpus: float
    templates: tuple[float, ...]


PLAIN: Final = Draws(0.5, 0.5, (0.1, 0.3, 0.6), 3.5 * RACK, (0.5, 0.25, 0.15, 0.1))
PARTITIONED: Final = Draws(0.7, 0.68, (0.1, 0.2, 0.7), 2.0 * RACK, (0.1, 0.2, 0.25, 0.2, 0.15, 0.1))


@dataclass(frozen=True, slots=True)
class Node:
    """A node, the amounts that its filler pod uses, its domains, and its node group (-1: none)."""

    name: str
    type: NodeType
    tainted: bool
    zone: int
    block: int
    rack: int
    used: Amounts
    group: int = -1


@dataclass(frozen=True, slots=True)
class Template:
    """`count` equal pods of a gang."""

    count: int
    cpu: int
    memory: int
    gpu: int


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang: its templates, order and queue, and its required and preferred topology level (index into LEVELS, or -1).

    `priority` 0 is the highest; `tier` is the same with four tiers, 0 for all with one. `selects` is a node type and
    `groups` are node groups; empty means any. `minimum` is the number of pods that the gang needs; 0 means all.
    """

    name: str
    templates: tuple[Template, ...]
    queue: int
    priority: int
    tier: int
    age: int
    required: int
    preferred: int
    tolerates: bool
    selects: str
    groups: tuple[int, ...] = ()
    minimum: int = 0

    @property
    def pods(self) -> int:
        return sum(template.count for template in self.templates)

    @property
    def min_member(self) -> int:
        return self.minimum or self.pods


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue or a department with its limit (milli-CPU, GPUs); `parent` is -1 for a department."""

    name: str
    parent: int
    cpu: int
    gpu: int


@dataclass(frozen=True, slots=True)
class Instance:
    """The input of a session. Queues 0-2 are departments, 3-11 the queues of gangs."""

    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]
    queues: tuple[Queue, ...]
    tiers: int

    @property
    def pods(self) -> int:
        return sum(gang.pods for gang in self.gangs)


def generate(
    nodes: int, gangs: int, seed: int, demand: Demand = (1.3, 1.3), tiers: int = 4, noisy: bool = False
) -> Instance:
    """Draw an instance with gangs that request a multiple of the free GPUs and of the free CPU."""
    rng = np.random.default_rng([seed, nodes, gangs])
    cluster = _nodes(nodes, fill_noisy if noisy else fill_lean, rng)
    return Instance(cluster, *draw_gangs(cluster, gangs, demand, tiers, PLAIN, rng), tiers)


def partitioned(nodes: int, gangs: int, seed: int, demand: Demand = (1.3, 1.3), tiers: int = 4) -> Instance:
    """Draw an instance of the partitioned mix: many masks, required levels and templates."""
    rng = np.random.default_rng([seed, nodes, gangs])
    cluster = _nodes(nodes, fill_noisy, rng)
    groups = rng.integers(0, GROUPS, -(-nodes // RACK))
    cluster = tuple(replace(node, group=int(groups[node.rack])) for node in cluster)
    drawn, queues = draw_gangs(cluster, gangs, demand, tiers, PARTITIONED, rng)
    return Instance(cluster, tuple(_select_groups(gang, rng) for gang in drawn), queues, tiers)


def _select_groups(gang: Gang, rng: np.random.Generator) -> Gang:
    """Return a gang with one to three node groups, or without: half of the gangs select groups."""
    count, selects = int(rng.integers(1, 4)), rng.random() < 0.5
    chosen = np.sort(rng.choice(GROUPS, count, replace=False)).tolist()
    return replace(gang, groups=tuple(chosen)) if selects else gang


def uncontended(nodes: int, gangs: int, seed: int, pods: int, tiers: int = 4) -> Instance:
    """Draw an instance of the same mix with about `pods` pods and no queue limit that binds."""
    full = generate(nodes, gangs, seed, (1.0, 1.0), tiers)
    share = pods / full.pods
    roomy = tuple(Queue(q.name, q.parent, q.cpu * 100, q.gpu * 100) for q in full.queues)
    return Instance(full.nodes, generate(nodes, gangs, seed, (share, share), tiers).gangs, roomy, tiers)


def _nodes(count: int, fill: Fill, rng: np.random.Generator) -> tuple[Node, ...]:
    racks = -(-count // RACK)
    kinds = rng.choice(len(TYPES), size=racks, p=[kind.share for kind in TYPES])
    tainted = rng.random(racks) < 0.1
    result = []
    for index in range(count):
        rack, block = index // RACK, index // BLOCK
        kind = TYPES[int(kinds[rack])]
        used = fill(kind, rng)
        result.append(Node(f"n{index:05d}", kind, bool(tainted[rack]), block % ZONES, block, rack, used))
    return tuple(result)


def fill_lean(kind: NodeType, rng: np.random.Generator) -> Amounts:
    """Draw the used amounts of a node: CPU and memory are about a third less full than its GPUs."""
    if rng.random() >= 0.8:
        return (0, 0, 0)
    gpu = int(rng.integers(0, kind.gpu + 1)) if kind.gpu else 0
    filled = gpu / kind.gpu if kind.gpu else float(rng.random())
    cpu = int(min(0.95, max(0.02, 0.8 * filled * rng.uniform(0.5, 1.2))) * kind.cpu) // 10 * 10
    memory = int(min(0.95, max(0.02, 0.8 * filled * rng.uniform(0.5, 1.2))) * kind.memory) // MIB * MIB
    return (cpu, memory, gpu)


def fill_noisy(kind: NodeType, rng: np.random.Generator) -> Amounts:
    """Draw the used amounts of a node: each resource is as full as the node, with a random factor of 0.8 to 1.2."""
    if rng.random() >= NOISY_SHARE:
        return (0, 0, 0)
    cpu, memory, gpu = np.clip(rng.uniform(0.0, FULLEST) * rng.uniform(0.8, 1.2, 3), 0.0, 0.95).tolist()
    milli = max(10, int(cpu * kind.cpu) // 10 * 10)
    return (milli, int(memory * kind.memory) // MIB * MIB, round(gpu * kind.gpu))


def draw_gangs(
    nodes: tuple[Node, ...], count: int, demand: Demand, tiers: int, draws: Draws, rng: np.random.Generator
) -> tuple[tuple[Gang, ...], tuple[Queue, ...]]:
    """Draw gangs for the nodes, and queues with limits."""
    free_gpu = sum(node.type.gpu - node.used[2] for node in nodes)
    free_cpu = sum(node.type.cpu - node.used[0] for node in nodes)
    is_gpu = rng.random(count) < 0.7
    is_gpu[:2] = (True, False) if count > 1 else True
    levels = [_topology(bool(gpu), draws, rng) for gpu in is_gpu]
    caps = np.array([_largest(required, len(nodes), draws) for required, _ in levels])
    share = np.where(is_gpu, _shares(is_gpu, caps / max(1, free_gpu * demand[0]), rng), 0.0)
    gpu_pods = {
        at: _gpu_templates(share[at] * free_gpu * demand[0], draws, rng)
        for at in np.flatnonzero(is_gpu).tolist()
    }
    taken = sum(one.count * one.cpu for templates in gpu_pods.values() for one in templates)
    beside = max(0.0, free_cpu * demand[1] - taken)
    cpu_share = _shares(~is_gpu, np.ones(count), rng)
    result = []
    for index in range(count):
        required, preferred = levels[index]
        result.append(
            Gang(
                name=f"gang-{index:04d}",
                templates=gpu_pods.get(index) or _cpu_templates(cpu_share[index] * beside, draws, rng),
                queue=3 + int(rng.integers(0, 9)),
                priority=(priority := int(rng.integers(0, PRIORITIES))),
                tier=priority * tiers // PRIORITIES,
                age=int(rng.integers(0, 2 * DAY)),
                required=required,
                preferred=preferred,
                tolerates=bool(rng.random() < 0.3),
                selects="gpu8-large" if is_gpu[index] and required < 0 and rng.random() < 0.05 else "",
            )
        )
    return tuple(result), _queues(free_cpu, free_gpu)


def _topology(gpu: bool, draws: Draws, rng: np.random.Generator) -> tuple[int, int]:
    bound, required = rng.random() < draws.bound, rng.random() < draws.required
    level = int(rng.choice(3, p=draws.levels))
    if not gpu or not bound:
        return -1, -1
    return (level, -1) if required else (-1, level)


def _largest(required: int, nodes: int, draws: Draws) -> float:
    """Return the largest request of a gang in GPUs that fits in most domains of its level."""
    return (4.0 * min(nodes, 4 * BLOCK), 2.0 * min(nodes, BLOCK), draws.rack_gpus, 1e12)[
        required if required >= 0 else 3
    ]


def _shares(of: np.ndarray, caps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return lognormal shares that sum to 1 over the chosen gangs; amounts above a cap are given to the others."""
    share = np.where(of, rng.lognormal(0.0, 1.0, len(of)), 0.0)
    share /= max(share.sum(), 1e-12)
    for _ in range(8):
        over = share > caps
        share = np.minimum(share, caps)
        room = of & ~over
        if share[room].sum() <= 0:
            break
        share[room] *= (1.0 - share[~room].sum()) / share[room].sum()
    capped: np.ndarray = np.minimum(share, caps)
    return capped


def _parts(draws: Draws, rng: np.random.Generator) -> np.ndarray:
    """Return the share of each template in the request of a gang."""
    return rng.dirichlet(np.ones(int(rng.choice(len(draws.templates), p=draws.templates)) + 1))


def _gpu_templates(gpus: float, draws: Draws, rng: np.random.Generator) -> tuple[Template, ...]:
    parts = _parts(draws, rng) * gpus
    result = []
    for part in parts:
        size = int(rng.choice([1, 2, 4, 8], p=[0.25, 0.2, 0.25, 0.3]))
        cpu = size * int(rng.choice([4_000, 6_000, 8_000, 10_000]))
        memory = size * int(rng.choice([24, 32, 48, 64])) * GIB
        result.append(Template(max(1, round(part / size)), cpu, memory, size))
    return tuple(result)


def _cpu_templates(cpus: float, draws: Draws, rng: np.random.Generator) -> tuple[Template, ...]:
    parts = _parts(draws, rng) * cpus
    result = []
    for part in parts:
        cpu = int(rng.choice([4_000, 8_000, 16_000, 32_000], p=[0.05, 0.25, 0.4, 0.3]))
        memory = cpu // 1000 * int(rng.choice([2, 4, 8], p=[0.3, 0.5, 0.2])) * GIB
        result.append(Template(max(1, round(part / cpu)), cpu, memory, 0))
    return tuple(result)


def _queues(free_cpu: int, free_gpu: int) -> tuple[Queue, ...]:
    """Return three departments with equal limits, and three teams in each with two fifths of its limit."""
    departments = [Queue(f"dept-{i}", -1, int(free_cpu / 3), int(free_gpu / 3)) for i in range(3)]
    queues = [Queue(f"team-{i}", i // 3, int(free_cpu * 0.4 / 3), int(free_gpu * 0.4 / 3)) for i in range(9)]
    return (*departments, *queues)
