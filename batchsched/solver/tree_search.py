"""The exact search for a placement of one gang on the free capacity, or for the proof that there is none.

The greedy for trees chooses domain after domain and may fail although a placement exists. Here CP-SAT decides. Nodes
that are interchangeable for the gang become one: with equal domains, equal free amounts and equal filters.

Shapes: C classes, N nodes, M sets of interchangeable nodes.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.gang_tree import mask_gangs_with_tree_rules
from batchsched.solver.node_model import NodeLevelModel, count_fitting_pods
from batchsched.solver.objective import objectives_by_tier
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    IntArray,
    Problem,
    Solution,
    count_pods_that_fit,
)

MAX_SEARCH_PAIRS: Final = 20_000
"""Maximum pairs of a pod class and a set of interchangeable nodes in the model of one gang."""
SEARCH_EFFORT: Final = 0.5
"""Maximum deterministic units of CP-SAT for one gang."""
GUARD_SECONDS: Final = 30.0
"""Loose wall-clock guard of one search."""
IMPROVE_SHARE: Final = 0.3
"""Share of the units that may be spent to place more pods, and slices over fewer domains."""


@dataclass(frozen=True, slots=True, eq=False)
class GangSearchResult:
    """The result of an exact search for a placement of one gang.

    Args:
      solution: a placement of at least the minimum, in the numbers of the gang's own problem; None if none was found.
      proved: there is provably no placement.
      effort: deterministic units of CP-SAT.
      variables: variables of the models.
      guard: whether the wall-clock guard ended a call.
    """

    solution: Solution | None
    proved: bool
    effort: float = 0.0
    variables: int = 0
    guard: bool = False


def mask_gangs_that_greedy_may_miss(problem: Problem) -> BoolArray:
    """Return a mask [G] of the gangs for which the greedy algorithm may miss a placement that exists.

    They have nested or optional subgroups, topology slices, or subgroups with a required level.
    """
    searched = mask_gangs_with_tree_rules(problem)
    parts = problem.subgroups
    searched[parts.gang[parts.required != NONE]] = True
    return searched


def find_placement_or_proof(problem: Problem, units: float, seed: int) -> GangSearchResult:
    """Find a placement for a problem with a single gang and no cuts, or prove that none exists.

    Args:
      problem: the problem of the gang on the free capacity.
      units: maximum deterministic units of CP-SAT.
      seed: CP-SAT's seed.
    """
    fits = count_fitting_pods(problem)
    budget = CpSatBudget(units, GUARD_SECONDS, seed)
    merged = _merge_equal_nodes(problem, fits)
    answer = _search(problem, merged, budget)
    # Pods of several sizes may fit into the sums of a set, but not onto its nodes.
    if answer is None and len(merged) < len(problem.nodes.free) and budget.remaining > 0:
        answer = _search(problem, [np.array([node]) for node in range(len(problem.nodes.free))], budget)
    solution, proved = answer if answer is not None else (None, False)
    return GangSearchResult(solution, proved, budget.spent, budget.variables, budget.guard)


def _merge_equal_nodes(problem: Problem, fits: IntArray) -> list[IntArray]:
    """The sets of interchangeable nodes that take a pod of the gang; single nodes if plugins have rows."""
    usable = np.flatnonzero(fits.any(axis=0))
    if problem.rows:
        return [np.array([node]) for node in usable.tolist()]
    requested = np.flatnonzero(problem.classes.demand.any(axis=0))
    parts, gangs = problem.subgroups, problem.gangs
    levels = np.unique(np.concatenate([gangs.required, gangs.slice_level, parts.required, parts.slice_level]))
    levels = levels[levels != NONE]
    columns = [problem.nodes.levels[levels][:, usable].astype(np.int64), fits[:, usable]]
    free, demand = problem.nodes.free[usable], problem.classes.demand
    if len(np.unique(demand, axis=0)) > 1:
        columns.append(free[:, requested].T)
    elif len(demand):  # what is left over by equal pods does not matter
        columns.append(count_pods_that_fit(demand[0], free, int(problem.classes.count.sum()))[None])
    _, number = np.unique(np.concatenate(columns), axis=1, return_inverse=True)
    number = number.reshape(-1)
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(int(number.max(initial=-1)) + 2))
    return [usable[order[first:end]] for first, end in pairwise(edges.tolist())]


def _search(
    problem: Problem, sets: list[IntArray], budget: CpSatBudget
) -> tuple[Solution | None, bool] | None:
    """Solve over sets of nodes; None if the budget or the sets leave the question open."""
    if not sets:
        return None, True
    merged, fits = _merged_problem(problem, sets)
    if int(np.count_nonzero(fits)) > MAX_SEARCH_PAIRS:
        return None
    model = NodeLevelModel(merged, fits)
    taken = int(model.taken[0])
    if taken != NONE:
        model.set_variable_bounds(np.array([taken]), np.ones(1, np.int64), np.ones(1, np.int64))
    nothing = np.zeros(model.variable_count, np.int64)
    answer = budget.maximise(model, nothing, budget.remaining * (1 - IMPROVE_SHARE))
    if answer.values is None:
        return (None, True) if answer.infeasible else None
    values = _improve(model, answer.values, budget)
    for candidate in (values, answer.values):
        placed = _spread(problem, sets, model, candidate)
        if placed is not None:
            return placed, False
    return None


def _improve(model: NodeLevelModel, values: IntArray, budget: CpSatBudget) -> IntArray:
    """Place more pods, then use fewer domains for slices, as far as the budget goes."""
    flags = [part.used for tree in model.trees for part in tree.slices]
    used = np.concatenate(flags) if flags else np.zeros(0, np.int64)
    objective = np.zeros(model.variable_count, np.int64)
    objective[: len(model.classes)] = len(used) + 1
    objective[used] = -1
    most = int(model.problem.classes.count.sum()) * (len(used) + 1)
    if budget.remaining <= 0 or (not flags and int(objective @ values) >= most):
        return values
    answer = budget.maximise(model, objective, budget.remaining, hint=values)
    return values if answer.values is None else answer.values


def _merged_problem(problem: Problem, sets: list[IntArray]) -> tuple[Problem, IntArray]:
    """The problem with one node for each set, and how many pods of each class fit there [C, M]."""
    fits = count_fitting_pods(problem)
    first = np.array([nodes[0] for nodes in sets])
    size = np.array([len(nodes) for nodes in sets], np.int64)
    pods = fits[:, first] * size
    free = problem.nodes.free[first] * size[:, None]
    demand = problem.classes.demand
    for number, node in enumerate(first.tolist()):
        takers = np.flatnonzero(fits[:, node])
        # What is left over on each node must not be added up: for equal pods, only whole pods count.
        if len(np.unique(demand[takers], axis=0)) == 1:
            request = demand[takers[0]]
            each = int(
                count_pods_that_fit(request, problem.nodes.free[[node]], int(problem.classes.count.sum()))[0]
            )
            free[number] = np.where(request > 0, request * each * size[number], free[number])
    pods = np.minimum(pods, problem.classes.count[:, None])
    nodes = replace(
        problem.nodes,
        free=np.minimum(free, UNLIMITED),
        capacity=problem.nodes.capacity[first],
        levels=problem.nodes.levels[:, first],
        partitions=tuple(partition[first] for partition in problem.nodes.partitions),
    )
    kinds = replace(problem.kinds, mask=problem.kinds.mask[:, first], score=problem.kinds.score[:, first])
    return replace(problem, nodes=nodes, kinds=kinds), pods


def _spread(
    problem: Problem, sets: list[IntArray], model: NodeLevelModel, values: IntArray
) -> Solution | None:
    """Place the pods of each set on its nodes, the largest first; None if some do not fit."""
    demand = problem.classes.demand
    share = (demand / np.maximum(1, problem.nodes.capacity.max(axis=0, initial=1))).max(axis=1, initial=0.0)
    free = problem.nodes.free.copy()
    placed: list[tuple[int, int, int]] = []
    columns = np.flatnonzero(values[: len(model.classes)])
    for column in columns[np.argsort(-share[model.classes[columns]], kind="stable")].tolist():
        class_index, missing = int(model.classes[column]), int(values[column])
        for node in sets[int(model.nodes[column])].tolist():
            count = int(count_pods_that_fit(demand[class_index], free[[node]], missing)[0])
            count = min(missing, count)
            if count:
                free[node] -= demand[class_index] * count
                placed.append((class_index, node, count))
                missing -= count
            if not missing:
                break
        if missing:
            return None
    classes, nodes, counts = np.array(sorted(placed), np.int32).reshape(-1, 3).T
    objective = objectives_by_tier(problem, classes, counts)
    return Solution(
        classes.copy(), nodes.copy(), counts.copy(), np.ones(1, np.bool_), objective, objective, "exact", 1
    )
