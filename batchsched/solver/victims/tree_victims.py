"""Victims for a gang with a subgroup tree or slices: one exact model chooses both evictions and placement.

`VictimModel` counts pods over all nodes, so it cannot know that a subgroup needs a domain of its own. Here the
node-level model of the gang has a 0/1 variable for each unit that may be evicted, and what a node offers grows with
the units that leave it. It is also the last resort for other gangs, since the packing may miss their placement.

Shapes: C classes, F shares of units on nodes, N nodes, R resources, U units.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from typing_extensions import override

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.linear_model import HIGHEST
from batchsched.solver.node_model import NodeLevelModel, count_fitting_pods
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    IndexArray,
    IntArray,
)
from batchsched.solver.victims.victim_problem import VictimProblem, VictimSolution

MAX_PAIRS: Final = 20_000
"""Maximum pairs of a pod class and a node in the model."""


class VictimPlacementModel(NodeLevelModel):
    """The model that decides together which gangs and elastic pods [U] to evict and where the pending gang runs."""

    def __init__(self, problem: VictimProblem, fits: IntArray) -> None:
        self._victims = problem
        self.leave = np.zeros(0, np.int64)
        everything = problem.free.copy()
        np.add.at(everything, problem.node, problem.freed)
        pending = problem.pending
        # Quotas are rows of their own here, since victims count against them.
        whole = replace(
            pending,
            nodes=replace(pending.nodes, free=np.maximum(everything, 0)),
            quotas=type(pending.quotas)(),
        )
        super().__init__(whole, fits)
        self._require_gang()
        self._add_bonds_and_limits()
        self._add_quotas()

    def _require_gang(self) -> None:
        taken = self.taken[:1]
        if taken[0] != NONE:
            self.set_variable_bounds(taken, np.ones(1, np.int64), np.ones(1, np.int64))

    @override
    def _share(self) -> None:
        """On every node the pods request at most what is free and what the victims leave."""
        problem = self._victims
        self.leave = self.add_booleans(problem.unit_count)
        demand = problem.pending.classes.demand
        shares_on = {node: np.flatnonzero(problem.node == node) for node in np.unique(self.nodes).tolist()}
        for node, shares in shares_on.items():
            columns = np.flatnonzero(self.nodes == node)
            asks = demand[self.classes[columns]]
            for resource in np.flatnonzero(asks.any(axis=0)).tolist():
                freed = problem.freed[shares, resource]
                free = int(problem.free[node, resource])
                reach = int(asks[:, resource] @ self.upper[columns])
                if reach > free:
                    requests = asks[:, resource] > 0
                    self._limit_node(
                        columns[requests], asks[requests, resource], problem.unit[shares], freed, free
                    )

    def _limit_node(
        self, columns: IntArray, asks: IntArray, units: IndexArray, freed: IntArray, free: int
    ) -> None:
        """Add Σ asks·counts - Σ freed·leave <= free for one resource of a node, which all these counts request."""
        names = np.concatenate([columns, self.leave[units]])
        factors = np.concatenate([asks, -freed])
        if free < 0:  # an overcommitted resource must be relieved only for pods that request it
            used = self.add_booleans(1)
            for column in columns.tolist():
                self.add_row(np.array([column, used[0]]), np.array([1, -int(self.upper[column])]), upper=0)
            names, factors, free = np.append(names, used), np.append(factors, -free), 0
        kept = factors != 0
        divisor = int(np.gcd.reduce(factors[kept]))
        self.add_row(names[kept], factors[kept] // divisor, upper=free // divisor)

    def _add_bonds_and_limits(self) -> None:
        problem = self._victims
        for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True):
            self.add_row(self.leave[[unit, other]], np.array([1, -1]), upper=0)
        for row, most in enumerate(problem.limit.tolist()):
            entries = problem.limit_row == row
            if entries.any():
                self.add_row(
                    self.leave[problem.limit_unit[entries]], problem.limit_amount[entries], upper=most
                )
        for cut in problem.cuts:
            self.add_sum_constraint(self.leave[~np.isin(np.arange(problem.unit_count), cut)], lower=1)

    def _add_quotas(self) -> None:
        """What the gang requests is left of its quotas, or victims leave it."""
        problem = self._victims
        pending = problem.pending
        if not len(pending.quotas.gangs):
            return
        freed = problem.freed_resources_by_unit()
        for q in np.flatnonzero(pending.quotas.covers[:, 0]).tolist():
            inside = np.flatnonzero(problem.quota_unit[q])
            for r in np.flatnonzero(problem.quota_left[q] < UNLIMITED).tolist():
                asks = pending.classes.demand[self.classes, r]
                if asks.any():
                    columns = np.flatnonzero(asks)
                    names = np.concatenate([columns, self.leave[inside]])
                    factors = np.concatenate([asks[columns], -freed[inside, r]])
                    self.add_row(names, factors, upper=int(problem.quota_left[q, r]))
            if pending.gangs.fresh[0] and problem.gangs_left[q] < UNLIMITED:
                ends = self.leave[inside[problem.ends[inside]]]
                self.add_sum_constraint(ends, lower=int(1 - problem.gangs_left[q]))


def choose_victims_with_placement(
    problem: VictimProblem, budget: CpSatBudget, gap: float, below: int
) -> tuple[VictimSolution | None, int]:
    """Find the cheapest victims by one model that also places the pending gang on single nodes.

    Return the victims and a lower bound on their cost. The victims are None if no set costs less than `below`, or
    if the budget ends before one is found.
    """
    everything = problem.free.copy()
    np.add.at(everything, problem.node, problem.freed)
    pending = problem.pending
    fits = count_fitting_pods(replace(pending, nodes=replace(pending.nodes, free=np.maximum(everything, 0))))
    if int(np.count_nonzero(fits)) > MAX_PAIRS or budget.remaining <= 0:
        return None, 0
    model = VictimPlacementModel(problem, fits)
    model.add_row(model.leave, problem.cost, -HIGHEST, below - 1)
    objective = np.zeros(model.variable_count, np.int64)
    objective[model.leave] = -problem.cost
    answer = budget.maximise(model, objective, budget.remaining, gap=gap)
    if answer.values is None:
        return None, below if answer.infeasible else max(0, -answer.bound)
    counts = _least_counts(model, answer.values, budget)
    evicted = _needed(problem, answer.values[model.leave] > 0, model, counts)
    placed = np.flatnonzero(counts)
    cost = int(problem.cost[evicted].sum())
    bound = min(cost, max(0, -answer.bound))
    solution = VictimSolution(
        np.flatnonzero(evicted).astype(np.int32),
        cost,
        bound,
        model.classes[placed].astype(np.int32),
        model.nodes[placed].astype(np.int32),
        counts[placed].astype(np.int32),
        stage="exact",
    )
    return solution, bound


def _least_counts(model: VictimPlacementModel, values: IntArray, budget: CpSatBudget) -> IntArray:
    """The counts of the placement without pods that the minimum does not need: no unit is evicted for those."""
    units = model.leave
    model.set_variable_bounds(units, values[units], values[units])
    objective = np.zeros(model.variable_count, np.int64)
    objective[: len(model.classes)] = -1
    answer = budget.maximise(model, objective, max(budget.remaining, 0.01), hint=values)
    return (values if answer.values is None else answer.values)[: len(model.classes)]


def _needed(
    problem: VictimProblem, evicted: BoolArray, model: VictimPlacementModel, counts: IntArray
) -> BoolArray:
    """The units of a set that make room for the placement, or that others require; the dearest are left out first."""
    if len(problem.pending.quotas.gangs) or problem.cuts:
        return evicted
    evicted = evicted.copy()
    used = np.zeros_like(problem.free)
    np.add.at(used, model.nodes, problem.pending.classes.demand[model.classes] * counts[:, None])
    free = problem.free.copy()
    leaving = evicted[problem.unit]
    np.add.at(free, problem.node[leaving], problem.freed[leaving])
    changed = True
    while changed:
        changed = False
        units = np.flatnonzero(evicted)
        for unit in units[np.argsort(-problem.cost[units], kind="stable")].tolist():
            required = evicted[problem.bond_unit[problem.bond_with == unit]].any()
            shares = np.flatnonzero(problem.unit == unit)
            nodes = problem.node[shares]
            spare = free[nodes] - problem.freed[shares]
            if not required and bool(((used[nodes] == 0) | (spare >= used[nodes])).all()):
                evicted[unit] = False
                free[nodes] = spare
                changed = True
    return evicted
