"""The node-level model: a count for each class on each node, whole gangs, domains, quotas, rows and cuts.

It is exact, and for small problems only: with more than a few thousand counts it does not end in time (solver.md).

Shapes: C classes, G gangs, N nodes, R resources, S subgroups, X counts (the pairs of class and node that fit).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.objective import required_pods
from batchsched.solver.problem import (
    ALL_NODES,
    EVERY_NODE,
    NONE,
    Cut,
    IndexArray,
    IntArray,
    Problem,
    Row,
    Sense,
)


def count_fitting(problem: Problem) -> IntArray:
    """Return how many pods of each class fit on each node by themselves [C, N], at most the class's count.

    Masks, free capacity (of the resources that the class requests), required levels and pinned domains count.
    Gangs that are not allowed fit nowhere.
    """
    fits = np.where(problem.kinds.mask[problem.classes.kind], problem.classes.count[:, None], 0).astype(
        np.int64
    )
    fits[~problem.gangs.allowed[problem.classes.gang]] = 0
    for resource in range(problem.classes.demand.shape[1]):
        asks = problem.classes.demand[:, resource]
        asking = asks > 0
        room = problem.nodes.free[None, :, resource] // asks[asking, None]
        fits[asking] = np.minimum(fits[asking], room)
    for index in range(len(problem.classes.gang)):
        gang, sub = problem.classes.gang[index], problem.classes.subgroup[index]
        bindings = [(problem.gangs.required[gang], problem.gangs.pinned[gang])]
        if sub != NONE:
            bindings.append((problem.subgroups.required[sub], problem.subgroups.pinned[sub]))
        for level, pinned in bindings:
            if level != NONE:
                domains = problem.nodes.levels[level]
                fits[index, domains < 0 if pinned == NONE else domains != pinned] = 0
    return fits


def find_domains(problem: Problem, row: Row) -> IndexArray:
    """Return the domain of each node [N] for a row, -1 for nodes outside every domain."""
    nodes = problem.nodes.free.shape[0]
    if row.partition == EVERY_NODE:
        return np.arange(nodes, dtype=np.int32)
    if row.partition == ALL_NODES:
        return np.zeros(nodes, np.int32)
    return problem.nodes.partitions[row.partition]


@dataclass(frozen=True, slots=True, eq=False)
class DomainChoice:
    """One domain for all pods of some classes: at most one variable of the candidate domains is 1."""

    classes: NDArray[np.bool_]  # [C]
    level: int
    domains: IntArray  # [D]
    variables: IntArray  # [D]


@dataclass(frozen=True, slots=True, eq=False)
class NoGoodCut:
    """A cut's literals: the count of `column` is below, or above, the refused count (-1: no such literal)."""

    columns: IntArray
    counts: IntArray
    below: IntArray
    above: IntArray


class NodeModel:
    """The node-level model of one problem. The first X variables are the counts.

    classes, nodes [X]  class and node of each count.
    taken [G]           the variable that is 1 if the gang is taken, -1 if it always is.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model = LinearModel()
        fits = count_fitting(problem)
        self.classes, self.nodes = np.nonzero(fits)
        self.upper = fits[self.classes, self.nodes]
        self.model.add_variables(np.zeros_like(self.upper), self.upper)
        self.gangs = problem.classes.gang[self.classes]
        self.column = np.full(fits.shape, -1, np.int64)
        self.column[self.classes, self.nodes] = np.arange(len(self.classes))
        self.needs = required_pods(problem)
        self.taken = self._take()
        self.choices = tuple(self._choose())
        self._share()
        self._limit()
        for row in problem.rows:
            self._row(row)
        self.no_goods = tuple(found for cut in problem.cuts if (found := self._forbid(cut)) is not None)

    def _take(self) -> IntArray:
        problem = self.problem
        fresh = np.flatnonzero(self.needs > 0)
        taken = np.full(len(self.needs), -1, np.int64)
        taken[fresh] = self.model.add_variables(
            np.zeros(len(fresh), np.int64), problem.gangs.allowed[fresh].astype(np.int64)
        )
        totals = np.bincount(problem.classes.gang, problem.classes.count, minlength=len(self.needs))
        for index in range(len(problem.classes.gang)):
            gang, count = int(problem.classes.gang[index]), int(problem.classes.count[index])
            whole = self.needs[gang] == totals[gang]
            self.at_most(self.classes == index, count, int(taken[gang]), exactly=bool(whole))
        for gang in fresh.tolist():
            self._at_least(self.gangs == gang, int(self.needs[gang]), int(taken[gang]))
        for sub in range(len(problem.subgroups.gang)):
            of = int(taken[problem.subgroups.gang[sub]])
            if of >= 0 and problem.subgroups.need[sub] > 0:
                self._at_least(
                    problem.classes.subgroup[self.classes] == sub, int(problem.subgroups.need[sub]), of
                )
        return taken

    def at_most(self, which: NDArray[np.bool_], limit: int, switch: int, *, exactly: bool = False) -> None:
        """Add Σ of the counts `which` [X] <= (or exactly =) limit · switch; with switch -1 only <= limit."""
        columns = np.flatnonzero(which)
        ones = np.ones(len(columns), np.int64)
        if switch < 0:
            if int(self.upper[columns].sum()) > limit:
                self.model.add_row(columns, ones, upper=limit)
        elif len(columns) or exactly:
            low = 0 if exactly else -HIGHEST
            self.model.add_row(np.append(columns, switch), np.append(ones, -limit), low, 0)

    def _at_least(self, which: NDArray[np.bool_], limit: int, switch: int) -> None:
        columns = np.flatnonzero(which)
        self.model.add_row(
            np.append(columns, switch), np.append(np.ones(len(columns), np.int64), -limit), lower=0
        )

    def _choose(self) -> Iterator[DomainChoice]:
        problem = self.problem
        for gang in range(len(self.needs)):
            if problem.gangs.required[gang] != NONE and problem.gangs.pinned[gang] == NONE:
                of = problem.classes.gang == gang
                yield self._choice(of, int(problem.gangs.required[gang]), gang, int(self.needs[gang]))
        for sub in range(len(problem.subgroups.gang)):
            if problem.subgroups.required[sub] != NONE and problem.subgroups.pinned[sub] == NONE:
                gang = int(problem.subgroups.gang[sub])
                need = int(problem.subgroups.need[sub]) if self.needs[gang] > 0 else 0
                yield self._choice(
                    problem.classes.subgroup == sub, int(problem.subgroups.required[sub]), gang, need
                )

    def _choice(self, of: NDArray[np.bool_], level: int, gang: int, need: int) -> DomainChoice:
        member = of[self.classes]
        place = self.problem.nodes.levels[level][self.nodes]
        domains = np.unique(place[member]).astype(np.int64)
        variables = self.model.add_variables(np.zeros_like(domains), np.ones_like(domains))
        for domain, variable in zip(domains.tolist(), variables.tolist(), strict=True):
            inside = member & (place == domain)
            for index in np.flatnonzero(of).tolist():
                self.at_most(
                    inside & (self.classes == index), int(self.problem.classes.count[index]), variable
                )
            if need > 0:
                self._at_least(inside, need, variable)
        ones, switch = np.ones(len(variables), np.int64), int(self.taken[gang])
        if switch < 0:
            self.model.add_row(variables, ones, upper=1)
        else:
            low = 0 if need > 0 else -HIGHEST
            self.model.add_row(np.append(variables, switch), np.append(ones, -1), low, 0)
        return DomainChoice(of, level, domains, variables)

    def _share(self) -> None:
        """On every node the pods request at most what is free."""
        problem = self.problem
        order = np.argsort(self.nodes, kind="stable")
        nodes, first = np.unique(self.nodes[order], return_index=True)
        for node, here in zip(nodes.tolist(), np.split(order, first[1:]), strict=False):
            asks = problem.classes.demand[self.classes[here]]
            tight = asks.T @ self.upper[here] > problem.nodes.free[node]
            for resource in np.flatnonzero(tight).tolist():
                self._weigh(here, asks[:, resource], int(problem.nodes.free[node, resource]))

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
        self.model.add_row(columns[used], asks[used] // divisor, upper=limit // divisor)

    def _row(self, row: Row) -> None:
        place = find_domains(self.problem, row)
        factor = np.zeros(len(self.problem.classes.gang), np.int64)
        np.add.at(factor, row.classes, row.coefficients)
        mine = factor[self.classes]
        for domain in range(len(row.right)):
            columns = np.flatnonzero((mine != 0) & (place[self.nodes] == domain))
            gangs = row.gang_coefficients[domain] if len(row.gangs) else np.zeros(0, np.int64)
            weight = np.zeros(len(self.needs), np.int64)
            np.add.at(weight, row.gangs, gangs)
            switches = np.flatnonzero((weight != 0) & (self.taken >= 0))
            given = int(weight[self.taken < 0].sum())
            right = int(row.right[domain]) - given
            names = np.concatenate([columns, self.taken[switches]])
            factors = np.concatenate([mine[columns], weight[switches]])
            if len(names) and row.sense == Sense.AT_MOST:
                self.model.add_row(names, factors, upper=max(0, right))
            elif len(names):
                self.model.add_row(names, factors, lower=min(0, right))

    def _forbid(self, cut: Cut) -> NoGoodCut | None:
        columns = self.column[cut.classes, cut.nodes]
        counts = cut.counts.astype(np.int64)
        if not len(columns) or np.any(columns < 0) or np.any(counts > self.upper[columns]):
            return None
        zero, one = np.zeros(len(columns), np.int64), np.ones(len(columns), np.int64)
        below = np.where(counts > 0, self.model.add_variables(zero, one), -1)
        above = np.where(counts < self.upper[columns], self.model.add_variables(zero, one), -1)
        for column, count, low, high in zip(
            columns.tolist(), counts.tolist(), below.tolist(), above.tolist(), strict=True
        ):
            if low >= 0:
                self.model.add_row(np.array([column]), np.array([1]), upper=count - 1, when=low)
            if high >= 0:
                self.model.add_row(np.array([column]), np.array([1]), lower=count + 1, when=high)
        literals = np.concatenate([below[below >= 0], above[above >= 0]])
        self.model.add_row(literals, np.ones_like(literals), lower=1)
        return NoGoodCut(columns, counts, below, above)

    def assignment(self, triples: Iterable[tuple[int, int, int]]) -> IntArray | None:
        """Return the values of all variables for placements (class, node, count); None if a pair is impossible.

        The caller checks whether the values satisfy the rows.
        """
        values = np.zeros(self.model.variables, np.int64)
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
        for cut in self.no_goods:
            now = values[cut.columns]
            values[cut.below[cut.below >= 0]] = (now < cut.counts)[cut.below >= 0]
            values[cut.above[cut.above >= 0]] = (now > cut.counts)[cut.above >= 0]
        return values
