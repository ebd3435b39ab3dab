"""The node-level model: an integer model with the number of pods of each class on each single node.

It contains all constraints: minimums of gangs, domains, quotas, rows and cuts. It is exact, and for small problems
only: with more than a few thousand counts it does not end in time.

Shapes: C classes, G gangs, N nodes, R resources, S subgroups, X counts (the pairs of class and node that fit).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.gang_tree import GangTrees
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.objective import count_pods_still_required
from batchsched.solver.problem import (
    NONE,
    ConstraintRow,
    Cut,
    IntArray,
    Problem,
    Sense,
    count_pods_that_fit,
    positions_by_group,
)
from batchsched.solver.tree_rows import SubgroupTreeRows


def count_fitting_pods(problem: Problem) -> IntArray:
    """Return how many pods [C, N] of each pod class fit on each node if no other pod is placed.

    The result is at most the pod count of the class. Masks, free capacity (of the resources that the class requests),
    required levels and pinned domains count. Gangs that are not allowed fit nowhere.
    """
    fits = np.zeros((len(problem.classes.kind), len(problem.nodes.free)), np.int64)
    for index in np.flatnonzero(problem.gangs.allowed[problem.classes.gang]).tolist():
        pods = count_pods_that_fit(
            problem.classes.demand[index], problem.nodes.free, int(problem.classes.count[index])
        )
        fits[index] = pods * problem.kinds.mask[problem.classes.kind[index]]
    for index in range(len(problem.classes.gang)):
        gang, sub = problem.classes.gang[index], problem.classes.subgroup[index]
        bindings = [(problem.gangs.required[gang], problem.gangs.pinned[gang])]
        sliced = problem.gangs.slice_level[gang] if sub == NONE else problem.subgroups.slice_level[sub]
        bindings.append((sliced, NONE))
        while sub != NONE:
            bindings.append((problem.subgroups.required[sub], problem.subgroups.pinned[sub]))
            sub = problem.subgroups.parent[sub]
        for level, pinned in bindings:
            if level != NONE:
                domains = problem.nodes.levels[level]
                fits[index, domains < 0 if pinned == NONE else domains != pinned] = 0
    return fits


@dataclass(frozen=True, slots=True, eq=False)
class DomainChoice:
    """The choice of one topology domain for all pods of some pod classes: one 0/1 variable for each domain."""

    classes: NDArray[np.bool_]  # [C]
    level: int
    domains: IntArray  # [D]
    variables: IntArray  # [D]


@dataclass(frozen=True, slots=True, eq=False)
class NoGoodCut:
    """A constraint of the model that forbids one placement which the plugins refused.

    For each count of the cut, one variable says that the count is below the refused value, and one that it is above; -1
    means that there is no such variable.
    """

    columns: IntArray
    counts: IntArray
    below: IntArray
    above: IntArray


class NodeLevelModel(LinearModel):
    """The integer model of a problem, with one variable for the number of pods of each pod class on each node.

    The first X variables are the counts.

    classes, nodes [X]  class and node of each count.
    taken [G]           the variable that is 1 if the gang is taken, -1 if it always is.
    """

    def __init__(self, problem: Problem, fits: IntArray | None = None) -> None:
        """Build the model; `fits` [C, N] replaces the numbers of pods that fit on each node (`count_fitting_pods`)."""
        super().__init__()
        self.problem = problem
        fits = count_fitting_pods(problem) if fits is None else fits
        self.classes, self.nodes = np.nonzero(fits)
        self.upper = fits[self.classes, self.nodes]
        self.add_variables(np.zeros_like(self.upper), self.upper)
        self.gangs = problem.classes.gang[self.classes]
        self.column = np.full(fits.shape, -1, np.int64)
        self.column[self.classes, self.nodes] = np.arange(len(self.classes))
        self.needs = count_pods_still_required(problem)
        self._gang_trees = GangTrees(problem)
        self.taken = self._take()
        self.choices = tuple(self._choose())
        self.trees = tuple(self._add_trees())
        self._share()
        self._limit()
        self._exclusions: list[tuple[IntArray, int]] = []
        for row in problem.rows:
            self._row(row)
        self.no_goods = tuple(filter(None, map(self._forbid, problem.cuts)))

    def _take(self) -> IntArray:
        problem = self.problem
        fresh = np.flatnonzero(self.needs > 0)
        taken = np.full(len(self.needs), -1, np.int64)
        taken[fresh] = self.add_variables(
            np.zeros(len(fresh), np.int64), problem.gangs.allowed[fresh].astype(np.int64)
        )
        totals = np.bincount(problem.classes.gang, problem.classes.count, minlength=len(self.needs))
        # If the gang needs all its pods, an equation replaces the inequality: the relaxation becomes tighter.
        for index in range(len(problem.classes.gang)):
            gang, count = int(problem.classes.gang[index]), int(problem.classes.count[index])
            whole = self.needs[gang] == totals[gang]
            self.add_pod_limit(self.classes == index, count, int(taken[gang]), exactly=bool(whole))
        for gang in fresh.tolist():
            self._at_least(self.gangs == gang, int(self.needs[gang]), int(taken[gang]))
        for sub in range(len(problem.subgroups.gang)):
            of = int(taken[problem.subgroups.gang[sub]])
            in_tree = self._gang_trees.is_tree[problem.subgroups.gang[sub]]
            if of >= 0 and problem.subgroups.need[sub] > 0 and not in_tree:
                self._at_least(
                    problem.classes.subgroup[self.classes] == sub, int(problem.subgroups.need[sub]), of
                )
        return taken

    def add_pod_limit(
        self, which: NDArray[np.bool_], limit: int, switch: int, *, exactly: bool = False
    ) -> None:
        """Limit a sum of pod counts to `limit` if the 0/1 variable `switch` is 1, or to 0 if it is 0.

        The mask `which` marks the counts. The constraint is Σ counts[which] <= limit · x[switch], or = with `exactly`.
        If switch is -1, it is Σ counts[which] <= limit.
        """
        columns = np.flatnonzero(which)
        if switch < 0:
            if int(self.upper[columns].sum()) > limit:
                self.add_sum_constraint(columns, upper=limit)
        elif len(columns) or (exactly and limit):
            self.link_sum_to_switch(columns, switch, limit, 0 if exactly else -HIGHEST, 0)

    def _at_least(self, which: NDArray[np.bool_], limit: int, switch: int) -> None:
        self.link_sum_to_switch(np.flatnonzero(which), switch, limit, lower=0)

    def _choose(self) -> Iterator[DomainChoice]:
        problem, is_tree = self.problem, self._gang_trees.is_tree
        for gang in range(len(self.needs)):
            if is_tree[gang]:
                continue
            if problem.gangs.required[gang] != NONE and problem.gangs.pinned[gang] == NONE:
                of = problem.classes.gang == gang
                yield self._choice(of, int(problem.gangs.required[gang]), gang, int(self.needs[gang]))
        for sub in range(len(problem.subgroups.gang)):
            if is_tree[problem.subgroups.gang[sub]]:
                continue
            if problem.subgroups.required[sub] != NONE and problem.subgroups.pinned[sub] == NONE:
                gang = int(problem.subgroups.gang[sub])
                need = int(problem.subgroups.need[sub]) if self.needs[gang] > 0 else 0
                yield self._choice(
                    problem.classes.subgroup == sub, int(problem.subgroups.required[sub]), gang, need
                )

    def _add_trees(self) -> Iterator[SubgroupTreeRows]:
        counts = self.classes, self.nodes
        for gang in np.flatnonzero(self._gang_trees.is_tree & self.problem.gangs.allowed).tolist():
            tree = self._gang_trees.tree_of_gang(gang)
            if tree is not None:
                yield SubgroupTreeRows(self, self.problem, counts, tree, int(self.taken[gang]))

    def _choice(self, of: NDArray[np.bool_], level: int, gang: int, need: int) -> DomainChoice:
        member = of[self.classes]
        place = self.problem.nodes.levels[level][self.nodes]
        domains = np.unique(place[member]).astype(np.int64)
        variables = self.add_booleans(len(domains))
        for domain, variable in zip(domains.tolist(), variables.tolist(), strict=True):
            inside = member & (place == domain)
            for index in np.flatnonzero(of).tolist():
                self.add_pod_limit(
                    inside & (self.classes == index), int(self.problem.classes.count[index]), variable
                )
            if need > 0:
                self._at_least(inside, need, variable)
        switch = int(self.taken[gang])
        if switch < 0:
            self.add_sum_constraint(variables, upper=1)
        else:
            self.link_sum_to_switch(variables, switch, 1, 0 if need > 0 else -HIGHEST, 0)
        return DomainChoice(of, level, domains, variables)

    def _share(self) -> None:
        """On every node the pods request at most what is free."""
        problem = self.problem
        total_demand = np.zeros(problem.nodes.free.shape, np.int64)
        np.add.at(total_demand, self.nodes, problem.classes.demand[self.classes] * self.upper[:, None])
        # Resources that all pods together do not exhaust need no row.
        tight = total_demand > problem.nodes.free
        exhausted = np.flatnonzero(tight.any(axis=1)).tolist()
        if not exhausted:
            return
        columns_of_node = positions_by_group(self.nodes, len(problem.nodes.free))
        for node in exhausted:
            columns = columns_of_node[node]
            asks = problem.classes.demand[self.classes[columns]]
            for resource in np.flatnonzero(tight[node]).tolist():
                self._weigh(columns, asks[:, resource], int(problem.nodes.free[node, resource]))

    def _limit(self) -> None:
        """Quotas: the resources of all covered gangs together, and the number of fresh gangs."""
        problem = self.problem
        if not len(problem.quotas.gangs):
            return
        limits = np.maximum(problem.quotas.free, 0)
        reach = np.zeros((len(self.needs), problem.classes.demand.shape[1]))
        np.add.at(
            reach, self.gangs, problem.classes.demand[self.classes] * self.upper.astype(np.float64)[:, None]
        )
        tight = problem.quotas.covers.astype(np.float64) @ reach > limits
        fresh = problem.quotas.covers & (problem.gangs.fresh & (self.taken >= 0))
        # Quotas that all gangs together keep need no row.
        many = fresh.sum(axis=1) > problem.quotas.gangs
        for quota in np.flatnonzero(tight.any(axis=1) | many).tolist():
            columns = np.flatnonzero(problem.quotas.covers[quota][self.gangs])
            asks = problem.classes.demand[self.classes[columns]]
            for resource in np.flatnonzero(tight[quota]).tolist():
                self._weigh(columns, asks[:, resource], int(limits[quota, resource]))
            if many[quota]:
                counted = self.taken[fresh[quota]]
                self._weigh(counted, np.ones_like(counted), max(0, int(problem.quotas.gangs[quota])))

    def _weigh(self, columns: IntArray, asks: IntArray, limit: int) -> None:
        """Add Σ asks·columns <= limit, divided by the greatest common divisor: exact, and far from overflow."""
        used = asks > 0
        divisor = max(1, int(np.gcd.reduce(asks[used], initial=0)))
        self.add_row(columns[used], asks[used] // divisor, upper=limit // divisor)

    def _row(self, row: ConstraintRow) -> None:
        place = row.domain_by_node(self.problem.nodes)
        factor = row.class_coefficients(len(self.problem.classes.gang))[self.classes]
        for domain in range(len(row.right)):
            columns = np.flatnonzero((factor != 0) & (place[self.nodes] == domain))
            gangs = row.gang_coefficients[domain] if len(row.gangs) else np.zeros(0, np.int64)
            weight = np.zeros(len(self.needs), np.int64)
            np.add.at(weight, row.gangs, gangs)
            switches = np.flatnonzero((weight != 0) & (self.taken >= 0))
            # Gangs without a variable are always taken: their terms are constants.
            right = int(row.right[domain]) - int(weight[self.taken < 0].sum())
            names = np.concatenate([columns, self.taken[switches]])
            factors = np.concatenate([factor[columns], weight[switches]])
            # Placing nothing must satisfy the row, even if running pods violate it: the side is moved to 0.
            if len(names) and row.sense == Sense.AT_MOST:
                self.add_row(names, factors, upper=max(0, right))
            elif len(names):
                self.add_row(names, factors, lower=min(0, right))
            if row.on_second_side is not None:
                second = np.isin(self.classes[columns], row.classes[row.on_second_side])
                used = NONE if row.used_side is None else int(row.used_side[domain])
                self._exclude(columns[~second], columns[second], used)

    def _exclude(self, first: IntArray, second: IntArray, used: int) -> None:
        """Only one of two sets of counts may be above 0: the one with the number `used`, or either one for NONE."""
        if used != NONE:
            self.add_sum_constraint(first if used else second, upper=0)
            return
        if not len(first) or not len(second):
            return
        switch = int(self.add_booleans(1)[0])
        for side, literal in ((first, switch), (second, ~switch)):
            self.add_row(side, np.ones_like(side), upper=0, when=literal)
        self._exclusions.append((first, switch))

    def _forbid(self, cut: Cut) -> NoGoodCut | None:
        columns = self.column[cut.classes, cut.nodes]
        counts = cut.counts.astype(np.int64)
        if not len(columns) or np.any(columns < 0) or np.any(counts > self.upper[columns]):
            return None
        below = np.where(counts > 0, self.add_booleans(len(columns)), -1)
        above = np.where(counts < self.upper[columns], self.add_booleans(len(columns)), -1)
        for column, count, low, high in zip(
            columns.tolist(), counts.tolist(), below.tolist(), above.tolist(), strict=True
        ):
            if low >= 0:
                self.add_row(np.array([column]), np.array([1]), upper=count - 1, when=low)
            if high >= 0:
                self.add_row(np.array([column]), np.array([1]), lower=count + 1, when=high)
        self.add_sum_constraint(np.concatenate([below[below >= 0], above[above >= 0]]), lower=1)
        return NoGoodCut(columns, counts, below, above)

    def variable_values_of_placements(self, triples: Iterable[tuple[int, int, int]]) -> IntArray | None:
        """Return the values of all variables for given placements; None if a pod does not fit on its node.

        A placement is (class, node, count). The caller checks whether the values satisfy the rows.
        """
        values = np.zeros(self.variable_count, np.int64)
        for index, node, count in triples:
            column = int(self.column[index, node])
            if column < 0:
                return None
            values[column] += count
        counts = values[: len(self.classes)]
        placed = np.bincount(self.gangs, counts, minlength=len(self.needs))
        switched = self.taken >= 0
        values[self.taken[switched]] = placed[switched] > 0
        for choice in self.choices:
            member = choice.classes[self.classes] & (counts > 0)
            present = np.unique(self.problem.nodes.levels[choice.level][self.nodes[member]])
            values[choice.variables] = np.isin(choice.domains, present)
        for tree in self.trees:
            tree.compute_subgroup_variable_values(values)
        for first, switch in self._exclusions:
            values[switch] = not values[first].any()
        for cut in self.no_goods:
            now = values[cut.columns]
            values[cut.below[cut.below >= 0]] = (now < cut.counts)[cut.below >= 0]
            values[cut.above[cut.above >= 0]] = (now > cut.counts)[cut.above >= 0]
        return values
