"""Random clusters full of gangs that may be evicted, with one pending gang.

Nodes have 8 GPUs and are in racks of 16. Gangs run on them until 97 % of the GPUs are used, two thirds side by side,
as a scheduler packs them, the others wherever there was room. In a shared cluster they are many and small (1-8 pods of
1, 2 or 4 GPUs), so that a node has several of them; in an aligned one they are few and large (1-32 pods, a quarter of
them of whole nodes). CPU and memory go with the GPUs, with some noise. What it costs that a gang leaves: its pods, by
the hours since its last checkpoint, and twice for the higher of two priorities.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.problem import (
    Problem,
    ProblemClassKinds,
    ProblemGangs,
    ProblemNodes,
    ProblemPodClasses,
)
from batchsched.solver.victims.victim_problem import VictimProblem

GIB: Final = 1 << 30
NODE: Final = np.array([128_000, 1024 * GIB, 8, 110], np.int64)
"""milli-CPU, bytes, GPUs, pods."""
FULL: Final = 0.97
SCATTERED: Final = 1 / 3
RACK: Final = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of an instance, and the request of the pending gang.

    Args:
      nodes, seed: of the cluster.
      pods, gpus: of the pending gang.
      racks: it requires one rack.
      aligned: the running gangs are few and large.
    """

    nodes: int
    seed: int
    pods: int
    gpus: int = 8
    racks: bool = False
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Mix:
    """The distribution of running gangs: equally likely numbers of pods, and GPUs of a pod with probabilities."""

    pods: tuple[int, ...]
    gpus: tuple[int, ...]
    chances: tuple[float, ...]


SHARED: Final = Mix((1, 1, 1, 1, 2, 2, 4, 8), (1, 2, 4), (0.4, 0.3, 0.3))
ALIGNED: Final = Mix((1, 1, 2, 2, 4, 4, 8, 8, 16, 32), (1, 2, 4, 8), (0.3, 0.25, 0.2, 0.25))


def draw(shape: Shape) -> VictimProblem:
    """Make an instance: units are whole gangs."""
    dice = np.random.default_rng(shape.seed)
    mix = ALIGNED if shape.aligned else SHARED
    free = np.tile(NODE, (shape.nodes, 1))
    held: dict[tuple[int, int], np.ndarray] = {}
    costs: list[int] = []
    while free[:, 2].sum() > (1 - FULL) * 8 * shape.nodes:
        pods = int(dice.choice(mix.pods))
        gpus = int(dice.choice(mix.gpus, p=mix.chances))
        request = np.array(
            [gpus * int(dice.integers(8, 15)) * 1000, gpus * int(dice.integers(60, 120)) * GIB, gpus, 1]
        )
        nodes = _places(dice, free, request, pods)
        if not len(nodes):
            continue
        for node in nodes.tolist():
            free[node] -= request
            held[len(costs), node] = held.get((len(costs), node), 0) + request
        lost = float(dice.exponential(3.0))
        costs.append(int(1000 * len(nodes) * (1 + lost) * int(dice.choice((1, 2)))))
    pairs = np.array(list(held), np.int32).reshape(-1, 2)
    return VictimProblem(
        pending=_wanted(shape),
        free=free,
        cost=np.array(costs, np.int64),
        unit=pairs[:, 0],
        node=pairs[:, 1],
        freed=np.stack(list(held.values())),
        ends=np.ones(len(costs), np.bool_),
        quota_unit=np.zeros((0, len(costs)), np.bool_),
    )


def _places(dice: np.random.Generator, free: np.ndarray, request: np.ndarray, pods: int) -> np.ndarray:
    """Return nodes for the pods of a gang, one third scattered; empty if they do not fit."""
    fit = (free // np.maximum(request, 1)).min(axis=1)
    if dice.random() < SCATTERED:
        order = dice.permutation(len(free))
    else:
        order = np.roll(np.arange(len(free)), -int(dice.integers(len(free))))
    nodes = np.repeat(order, np.maximum(fit[order], 0))
    return nodes[:pods] if len(nodes) >= pods else nodes[:0]


def _wanted(shape: Shape) -> Problem:
    one = np.zeros(1, np.int32)
    none = np.full(1, -1, np.int32)
    return Problem(
        nodes=ProblemNodes(
            free=np.zeros((shape.nodes, 4), np.int64),
            capacity=np.tile(NODE, (shape.nodes, 1)),
            levels=(np.arange(shape.nodes, dtype=np.int32) // RACK)[np.newaxis],
        ),
        kinds=ProblemClassKinds(
            mask=np.ones((1, shape.nodes), np.bool_), score=np.zeros((1, shape.nodes), np.int64)
        ),
        classes=ProblemPodClasses(
            demand=np.array([[shape.gpus * 8000, shape.gpus * 60 * GIB, shape.gpus, 1]], np.int64),
            kind=one,
            gang=one,
            subgroup=none,
            count=np.array([shape.pods], np.int32),
            weight=np.ones(1),
        ),
        gangs=ProblemGangs(
            need=np.array([shape.pods], np.int32),
            tier=one,
            rank=one,
            required=one if shape.racks else none,
            preferred=none,
            pinned=none,
            fresh=np.ones(1, np.bool_),
            allowed=np.ones(1, np.bool_),
        ),
        pod_resource=3,
    )
