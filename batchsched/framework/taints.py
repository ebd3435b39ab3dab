"""Taints of all nodes at once: nodes fall into few groups with equal taints, and a group is judged once."""

from collections.abc import Iterable

import numpy as np

from batchsched.framework.nodes import NodeTable
from batchsched.framework.status import IndexArray, IntArray
from batchsched.model.affinity import Toleration
from batchsched.model.node import Taint


def taint_groups(table: NodeTable) -> tuple[IndexArray, tuple[tuple[Taint, ...], ...]]:
    """Return ([N] each node's group, the groups' taints), first seen first."""
    return table.memo("taint groups", _group)


def _group(table: NodeTable) -> tuple[IndexArray, tuple[tuple[Taint, ...], ...]]:
    known: dict[tuple[Taint, ...], int] = {}
    codes = (known.setdefault(node.taints, len(known)) for node in table.nodes)
    return np.fromiter(codes, np.int32, len(table.nodes)), tuple(known)


def untolerated(table: NodeTable, tolerations: tuple[Toleration, ...], effects: frozenset[str]) -> IntArray:
    """[N] how many taints with one of the effects each node has that are not tolerated."""

    def build(table: NodeTable) -> IntArray:
        codes, groups = taint_groups(table)
        counts = [count_untolerated(taints, tolerations, effects) for taints in groups]
        return np.asarray(counts, np.int64)[codes]

    return table.memo(("untolerated", tolerations, effects), build)


def count_untolerated(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...], effects: frozenset[str]
) -> int:
    """Count the taints of one node with one of the effects that are not tolerated."""
    return sum(
        taint.effect in effects and not any(one.tolerates(taint) for one in tolerations) for taint in taints
    )
