"""Conversion of plugin constraints that evictions loosen to resources, which evictions free like CPU.

Shapes: C classes, E pairs of a unit and a node, K rows, N nodes, Q quotas, R resources.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from batchsched.solver.packing.limits import limits_each_node_separately
from batchsched.solver.problem import (
    UNLIMITED,
    ConstraintRow,
    IntArray,
    Problem,
    RowRelief,
)
from batchsched.solver.victims.victim_problem import VictimProblem


def convert_relieved_rows_to_resources(problem: VictimProblem) -> VictimProblem:
    """Return the problem with each per-node constraint that evictions can loosen replaced by a resource."""
    relieved = [
        (row, row.relief)
        for row in problem.pending.rows
        if row.relief is not None and limits_each_node_separately(row)
    ]
    if not relieved:
        return problem
    rows = [row for row, _ in relieved]
    limits = np.stack([row.right[: len(problem.free)] for row in rows], axis=1).astype(np.int64)
    freed: dict[tuple[int, int], IntArray] = {}
    resources = problem.free.shape[1]
    width = resources + len(rows)
    for unit, node, amounts in zip(problem.unit.tolist(), problem.node.tolist(), problem.freed, strict=True):
        freed[unit, node] = np.concatenate([amounts, np.zeros(len(rows), np.int64)])
    for number, (_, relief) in enumerate(relieved):
        for unit, node, amount in _pairs(relief):
            entry = freed.setdefault((unit, node), np.zeros(width, np.int64))
            entry[resources + number] += amount
    places = np.array(list(freed), np.int32).reshape(-1, 2)
    return replace(
        problem,
        pending=_with_resources(problem.pending, rows, limits),
        free=np.hstack([problem.free, limits]),
        unit=places[:, 0],
        node=places[:, 1],
        freed=np.array(list(freed.values()), np.int64).reshape(len(freed), width),
        quota_left=_unlimited(problem.quota_left, len(rows)),
    )


def _pairs(relief: RowRelief) -> Sequence[tuple[int, int, int]]:
    return list(zip(relief.unit.tolist(), relief.domain.tolist(), relief.amount.tolist(), strict=True))


def _with_resources(pending: Problem, rows: Sequence[ConstraintRow], limits: IntArray) -> Problem:
    """Return the pending gang's problem with further resources instead of some rows; `limits` [N, K] is free."""
    classes = pending.classes
    demand = np.stack([row.class_coefficients(len(classes.gang)) for row in rows], axis=1)
    highest = np.stack(
        [
            row.right[: len(limits)] + _total_relief(row.relief, len(limits))
            for row in rows
            if row.relief is not None
        ],
        axis=1,
    )
    taken = {id(row) for row in rows}
    return replace(
        pending,
        nodes=replace(
            pending.nodes,
            free=np.hstack([pending.nodes.free, np.maximum(limits, 0)]),
            capacity=np.hstack([pending.nodes.capacity, np.maximum(highest, 0)]),
        ),
        classes=replace(classes, demand=np.hstack([classes.demand, demand])),
        quotas=replace(pending.quotas, free=_unlimited(pending.quotas.free, len(rows))),
        rows=tuple(row for row in pending.rows if id(row) not in taken),
    )


def _total_relief(relief: RowRelief, nodes: int) -> IntArray:
    total = np.zeros(nodes, np.int64)
    np.add.at(total, relief.domain, relief.amount)
    return total


def _unlimited(quotas: IntArray, count: int) -> IntArray:
    """Append `count` resources that no quota limits to the amounts of the quotas [Q, R]."""
    return np.hstack([quotas, np.full((len(quotas), count), UNLIMITED, np.int64)])
