"""Seeded small sessions with an optimum that a long run of the exact model proves.

30 to 60 nodes in racks of 4 to 8, two racks in a block, two blocks in a zone; 15 to 20 gangs in one, two or four tiers
that request 1 to 1.8 times what is free. Racks have one of the four node types, some are tainted, and nodes belong to
four groups from which 40 % of the gangs select. A quarter of the gangs are elastic, and half of all sessions have room
in every queue, so that nodes alone are scarce.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from bench.solver.instances import (
    TYPES,
    Draws,
    Fill,
    Gang,
    Instance,
    Node,
    Queue,
    draw_gangs,
    fill_lean,
    fill_noisy,
)

RACKS_PER_BLOCK: Final = 2
RACKS_PER_ZONE: Final = 4
NODE_GROUPS: Final = 4


def small(seed: int) -> Instance:
    """Draw a small instance."""
    rng = np.random.default_rng([seed, 30, 60])
    gangs, tiers = int(rng.integers(15, 21)), int(rng.choice([1, 2, 4], p=[0.2, 0.4, 0.4]))
    demand, rack_size = float(rng.uniform(1.0, 1.8)), int(rng.integers(4, 9))
    fill = fill_noisy if rng.random() < 0.5 else fill_lean
    nodes = _nodes(int(rng.integers(30, 61)), rack_size, fill, rng)
    draws = Draws(0.7, 0.68, (0.15, 0.3, 0.55), 2.0 * rack_size, (0.3, 0.25, 0.2, 0.15, 0.1))
    drawn, queues = draw_gangs(nodes, gangs, (demand, demand), tiers, draws, rng)
    if rng.random() < 0.5:
        queues = tuple(Queue(q.name, q.parent, 100 * q.cpu, 100 * q.gpu) for q in queues)
    return Instance(nodes, tuple(_vary(gang, rng) for gang in drawn), queues, tiers)


def _nodes(count: int, rack_size: int, fill: Fill, rng: np.random.Generator) -> tuple[Node, ...]:
    racks = -(-count // rack_size)
    types = rng.choice(len(TYPES), racks, p=[one.share for one in TYPES]).tolist()
    tainted, groups = rng.random(racks) < 0.1, rng.integers(0, NODE_GROUPS, count).tolist()
    result = []
    for index, group in enumerate(groups):
        rack = index // rack_size
        kind, zone, block = TYPES[types[rack]], rack // RACKS_PER_ZONE, rack // RACKS_PER_BLOCK
        used = fill(kind, rng)
        result.append(Node(f"n{index:05d}", kind, bool(tainted[rack]), zone, block, rack, used, group))
    return tuple(result)


def _vary(gang: Gang, rng: np.random.Generator) -> Gang:
    """The gang with one to three node groups or any, and elastic or rigid."""
    chosen = np.sort(rng.choice(NODE_GROUPS, int(rng.integers(1, 4)), replace=False)).tolist()
    selects, elastic, share = rng.random() < 0.4, rng.random() < 0.25, rng.uniform(0.3, 0.9)
    minimum = max(1, int(share * gang.pods)) if elastic else gang.minimum
    return replace(gang, groups=tuple(chosen) if selects else (), minimum=minimum)
