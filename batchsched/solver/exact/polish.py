"""Decisions among placements of equal value: gangs taken, preferred levels, node scores, packing or spreading.

Each step adds its own variables to a node-level model, extends the current values to them, and returns an
integer objective to maximise.

Shapes: G gangs, N nodes, V variables, X counts.
"""

from typing import Final

import numpy as np

from batchsched.solver.engine.linear import scale_weights
from batchsched.solver.exact.nodewise import NodeModel
from batchsched.solver.objective import list_preferences
from batchsched.solver.problem import NONE, IntArray

_MAX_OBJECTIVE: Final = 2**52
"""Maximum sum of the objective of gangs and preferred levels."""
_EMPTINESS_PRICE: Final = 100
"""Maximum part of a node's packing cost that depends on how empty it was; using the node costs as much again."""


def add_preferences(model: NodeModel, values: IntArray) -> tuple[IntArray, IntArray, int]:
    """Prefer most gangs taken, then the least cost of preferred levels.

    Returns the values and the objective over all V variables, old and new, and the slack below which two
    objectives count as equal (`scale_weights`).
    """
    problem, linear = model.problem, model.model
    wishes = list_preferences(problem)
    domains = np.array(
        [problem.nodes.levels[level].max(initial=-1) + 2 for _, _, level, _, _ in wishes], np.int64
    )
    weights = np.array([weight for _, _, _, weight, _ in wishes], np.float64)
    gangs = len(problem.gangs.need)
    costs, _, slack = scale_weights(weights, domains, _MAX_OBJECTIVE // (gangs + 1))
    objective = np.zeros(linear.variables, np.int64)
    objective[model.taken[model.taken >= 0]] = int(costs @ domains) + 1
    parts, extended = [objective], [values]
    for (gang, sub, level, _, used), cost in zip(wishes, costs.tolist(), strict=True):
        of = problem.classes.gang == gang if sub == NONE else problem.classes.subgroup == sub
        member = of[model.classes]
        place = problem.nodes.levels[level][model.nodes]
        candidates = np.setdiff1d(place[member], used).astype(np.int64)
        present = np.unique(place[member & (values[: len(place)] > 0)])
        opened = linear.add_variables(np.zeros_like(candidates), np.ones_like(candidates))
        for domain, variable in zip(candidates.tolist(), opened.tolist(), strict=True):
            inside = member & (place == domain)
            for index in np.flatnonzero(of).tolist():
                model.at_most(inside & (model.classes == index), int(problem.classes.count[index]), variable)
        parts.append(np.full(len(opened), -cost))
        extended.append(np.isin(candidates, present).astype(np.int64))
        if not used and len(opened):
            first = linear.add_variables(np.zeros(1, np.int64), np.ones(1, np.int64))
            linear.add_row(np.append(opened, first), np.append(np.ones_like(opened), -1), lower=0)
            parts.append(np.array([cost]))
            extended.append(np.array([int(len(present) > 0)]))
    return np.concatenate(extended), np.concatenate(parts), slack


def place_by_score(model: NodeModel, values: IntArray) -> tuple[IntArray, IntArray]:
    """Pack onto few and full nodes, or spread over many and empty ones; among equals prefer the highest Σ node score.

    Returns the values and the objective over all V variables, old and new.
    """
    problem, linear = model.problem, model.model
    counts = len(model.classes)
    nodes = np.unique(model.nodes)
    touched = linear.add_variables(np.zeros_like(nodes), np.ones_like(nodes))
    where = np.searchsorted(nodes, model.nodes)
    emptiness = np.divide(
        problem.nodes.free,
        problem.nodes.capacity,
        out=np.zeros(problem.nodes.free.shape),
        where=problem.nodes.capacity > 0,
    ).mean(axis=1)
    price = _EMPTINESS_PRICE + np.rint(_EMPTINESS_PRICE * np.clip(emptiness[nodes], 0, 1)).astype(np.int64)
    for position, variable in enumerate(touched.tolist()):
        columns = np.flatnonzero(where == position)
        if problem.spread:
            linear.add_row(np.append(columns, variable), np.append(np.ones_like(columns), -1), lower=0)
            continue
        for column in columns.tolist():
            linear.add_row(np.array([column, variable]), np.array([1, -int(model.upper[column])]), upper=0)
    score = problem.kinds.score[problem.classes.kind[model.classes], model.nodes].astype(np.int64)
    objective = np.zeros(linear.variables, np.int64)
    objective[:counts] = score
    price *= int(score.max(axis=0, initial=0)) * int(problem.classes.count.sum()) + 1
    objective[touched] = price if problem.spread else -price
    present = np.bincount(where, values[:counts], minlength=len(nodes)) > 0
    return np.concatenate([values, present.astype(np.int64)]), objective
