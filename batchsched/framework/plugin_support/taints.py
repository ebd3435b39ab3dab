"""Taints of all nodes at once: nodes with equal taints form a group, and tolerations are checked once for a group."""

from collections.abc import Iterable

import numpy as np

from batchsched.api.core.node import Taint
from batchsched.api.core.pod import Toleration
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.status import IndexArray, IntArray


def taint_groups(table: NodeTable) -> tuple[IndexArray, tuple[tuple[Taint, ...], ...]]:
    """Return ([N] group of each node, taints of each group). A group may have no node any more."""
    group_numbers: dict[tuple[Taint, ...], int] = table.beside("taint groups", lambda _: {})

    def codes(nodes: Nodes) -> IndexArray:
        numbers = (group_numbers.setdefault(node.taints, len(group_numbers)) for node in nodes.objects)
        return np.fromiter(numbers, np.int32, len(nodes))

    return table.each("taint groups", codes), tuple(group_numbers)


def untolerated(table: NodeTable, tolerations: tuple[Toleration, ...], effects: frozenset[str]) -> IntArray:
    """[N] Return the number of each node's taints with one of the effects that are not tolerated."""

    def counts(nodes: Nodes) -> IntArray:
        codes, groups = taint_groups(table)
        counts = [count_untolerated(taints, tolerations, effects) for taints in groups]
        return np.asarray(counts, np.int64)[codes[nodes.where]]

    return table.each(("untolerated", tolerations, effects), counts)


def count_untolerated(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...], effects: frozenset[str]
) -> int:
    """Return the number of a node's taints with one of the effects that are not tolerated."""
    return sum(
        taint.effect in effects and not any(one.tolerates(taint) for one in tolerations) for taint in taints
    )
