"""Options to add copies of existing nodes, with which a refused gang may be placed."""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from batchsched.api.decision import InputChange
from batchsched.session.explanation.gang_view import GangView
from batchsched.session.explanation.options import MAX_ALTERNATIVES, ChangeOption

MAX_COPIES: Final = 4096


def node_addition_options(view: GangView, emptied: GangView) -> list[ChangeOption]:
    """Return options to add copies of existing nodes; nodes that accept most of the gang's pods come first.

    Args:
      view: the gang in the tables after the decision of its session.
      emptied: the gang alone in the cluster, so that each node shows which pods it accepts.
    """
    table = emptied.tables.node_table
    passes = emptied.feasible_node_mask
    domains = _required_domains(emptied)
    nodes_by_type: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for index in np.flatnonzero(passes.any(axis=0)).tolist():
        node = table.nodes[index]
        kind = (table.allocatable[index].tobytes(), node.taints, passes[:, index].tobytes(), *domains[index])
        nodes_by_type[kind].append(index)
    free = np.maximum(0, view.tables.node_table.allocatable - view.tables.node_table.requested)
    total = np.maximum(1, table.allocatable.sum(axis=0))

    def node_type_sort_key(nodes: list[int]) -> tuple[int, int, int, float, int, str]:
        """Return the sort key of a node type: types that accept more of the gang's pods come first."""
        index = nodes[0]
        return (
            -int(passes[:, index].sum()),
            _copies(emptied, index),
            -_room(emptied, free, domains, index),
            float((table.allocatable[index] / total).sum()),
            -len(nodes),
            table.names[index],
        )

    pending = sum(len(members.pending) for members in view.tables.gangs.values())
    return [
        ChangeOption(
            partial(_added_nodes, table.names[nodes[0]]), most=min(MAX_COPIES, max(1, pending)), field="nodes"
        )
        for nodes in sorted(nodes_by_type.values(), key=node_type_sort_key)[:MAX_ALTERNATIVES]
    ]


def _added_nodes(name: str, steps: int) -> tuple[InputChange, ...]:
    return (InputChange(copy=f"Node/{name}", count=steps),)


def _required_domains(view: GangView) -> list[tuple[str, ...]]:
    """Return for each node its domains at the levels that the gang and its subGroups require."""
    keys = [level.node_label for level in view.required_levels_with_subgroups]
    return [tuple(node.labels.get(key, "") for key in keys) for node in view.tables.node_table.nodes]


def _copies(view: GangView, index: int) -> int:
    """Return the least number of empty nodes of a type for those of the gang's pods that the type accepts."""
    node, total = view.tables.node_table.allocatable[[index]], 0.0
    for row, part in enumerate(view.gang.parts):
        if view.feasible_node_mask[row, index]:
            total += len(part.pods) / max(1, int(part.count_fitting_pods(node)[0]))
    return math.ceil(total)


def _room(view: GangView, free: np.ndarray, domains: Sequence[tuple[str, ...]], index: int) -> int:
    """Return how many pods of the gang's first part fit in the domain of a node."""
    inside = np.array([domain == domains[index] for domain in domains])
    each = view.gang.parts[0].count_fitting_pods(free)
    return int(each[inside & view.feasible_node_mask[0]].sum())
