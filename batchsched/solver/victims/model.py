"""The CP-SAT model of victims: a boolean for each unit that may be evicted, counts of pods for nodes or sets of them.

Take a pod class on a node that has room for `now` pods, for `most` if all units are evicted, and for m if all but one
unit are evicted. Then x ≤ m + (most - m)·v holds for each unit there. If every m equals `now`, these rows describe
the node completely, and nodes with equal numbers and the same units share one variable. Otherwise rows for the
resources are added. The model may allow too much (several classes, rows of plugins): the caller places the gang and
adds a cut.

Source: measured in the design's notes on the session solver (pairwise rows, linearization 2, hinted by a greedy).

Shapes: B bonds, C classes, F shares of units on sites, K entries of limits, R resources, S sites, U units, V
variables.
"""

import numpy as np

from batchsched.solver.cpsat import CpSatAnswer, SolveLimits, maximise
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.problem import NONE, UNLIMITED, BoolArray, IntArray
from batchsched.solver.victims.victim_state import VictimState, VictimTerms


class VictimModel:
    """The model of one problem; solving again after a cut writes only the cut."""

    def __init__(self, terms: VictimTerms) -> None:
        self._terms = terms
        self._model = LinearModel()
        units = terms.problem.units
        self._leave = self._model.add_variables(np.zeros(units, np.int64), np.ones(units, np.int64))
        self._cells = [self._cells_of(c) for c in range(len(terms.count))]
        self._wanting: dict[int, int] = {}
        self._pairwise()
        self._capacity()
        self._demand()
        self._bonds_and_limits()
        self._quotas()
        for cut in terms.problem.cuts:
            self.cut(np.isin(np.arange(units), cut))
        self._cutoff: int | None = None

    def solve(self, hint: VictimState | None, below: int, effort: SolveLimits) -> CpSatAnswer:
        """Find the least costly set of units that costs less than `below`; its first U values say which are evicted."""
        cost = self._terms.problem.cost
        if self._cutoff is None:
            self._cutoff = self._model.add_row(self._leave, cost, upper=below - 1)
        self._model.set_row(self._cutoff, 0, below - 1)
        objective = np.zeros(self._model.variables, np.int64)
        objective[: len(cost)] = -cost
        return maximise(self._model, objective, effort, hint=None if hint is None else self._values(hint))

    def cut(self, gone: BoolArray) -> None:
        """Forbid a set of units [U] and all its subsets: another unit has to be evicted."""
        staying = np.flatnonzero(~gone)
        self._model.add_row(self._leave[staying], np.ones(len(staying), np.int64), lower=1)

    def _cells_of(self, class_index: int) -> "_Cells":
        return _Cells(self._terms, class_index, self._model)

    def _pairwise(self) -> None:
        """Rows x - (most - m)·v <= m, for each cell and each unit that blocks pods there."""
        for cells in self._cells:
            step = cells.most - cells.without
            some = np.flatnonzero(step > 0)
            width = cells.size[cells.cell[some]]
            columns = np.stack([cells.x[cells.cell[some]], self._leave[cells.unit[some]]], 1)
            factors = np.stack([np.ones(len(some), np.int64), -step[some] * width], 1)
            self._model.add_rows(
                np.arange(len(some) + 1) * 2,
                columns.ravel(),
                factors.ravel(),
                np.full(len(some), -HIGHEST),
                cells.without[some] * width,
            )

    def _capacity(self) -> None:
        """Σ demand·x <= free + Σ freed·v, resource by resource, on the sites that the pairwise rows do not describe."""
        terms, several = self._terms, len(self._terms.count) > 1
        wanted = terms.problem.wanted
        loose = np.ones(len(terms.sites), np.bool_)
        if not several:
            loose = ~self._cells[0].merged
        free = terms.problem.free[terms.sites]
        order = np.argsort(terms.site, kind="stable")
        edges = np.searchsorted(terms.site[order], np.arange(len(terms.sites) + 1))
        for site in np.flatnonzero(loose).tolist():
            shares = order[edges[site] : edges[site + 1]]
            for r in np.flatnonzero((wanted.classes.demand > 0).any(axis=0)).tolist():
                self._one_capacity(site, r, shares, int(free[site, r]))

    def _one_capacity(self, site: int, r: int, shares: IntArray, free: int) -> None:
        terms = self._terms
        columns, factors = [], []
        for c, cells in enumerate(self._cells):
            demand = int(terms.problem.wanted.classes.demand[c, r])
            if demand and cells.of_site[site] >= 0:
                columns.append(int(cells.x[cells.of_site[site]]))
                factors.append(demand)
        if not columns:
            return
        freed = terms.freed[shares, r]
        columns += self._leave[terms.unit[shares[freed > 0]]].tolist()
        factors += (-freed[freed > 0]).tolist()
        if free < 0:  # an overcommitted node must be relieved only if the gang uses it
            columns.append(self._wants(site))
            factors.append(-free)
            free = 0
        divisor = int(np.gcd.reduce(np.array(factors, np.int64)))
        self._model.add_row(np.array(columns), np.array(factors, np.int64) // divisor, upper=free // divisor)

    def _wants(self, site: int) -> int:
        """The boolean that must be 1 before a pod may be placed on a site."""
        known = self._wanting.get(site)
        if known is None:
            known = int(self._model.add_variables(np.zeros(1, np.int64), np.ones(1, np.int64))[0])
            self._wanting[site] = known
            for c, cells in enumerate(self._cells):
                if cells.of_site[site] >= 0:
                    pair = np.array([cells.x[cells.of_site[site]], known])
                    self._model.add_row(pair, np.array([1, -self._terms.most[c, site]]), upper=0)
        return known

    def _demand(self) -> None:
        """As many pods as the gang and each of its subgroups needs, and no more of a class than exist."""
        terms = self._terms
        wanted = terms.problem.wanted
        xs = [cells.x for cells in self._cells]
        for c, x in enumerate(xs):
            self._model.add_row(
                x, np.ones(len(x), np.int64), lower=int(terms.count[c]) if terms.rigid else 0,
                upper=HIGHEST if terms.rigid else int(terms.count[c]),
            )  # fmt: skip
        if terms.rigid:
            return
        every = np.concatenate(xs)
        self._model.add_row(every, np.ones(len(every), np.int64), lower=terms.minimum)
        for s, least in enumerate(wanted.subgroups.need.tolist()):
            mine = [xs[c] for c in np.flatnonzero(wanted.classes.subgroup == s).tolist()]
            if least and mine:
                some = np.concatenate(mine)
                self._model.add_row(some, np.ones(len(some), np.int64), lower=int(least))

    def _bonds_and_limits(self) -> None:
        problem = self._terms.problem
        for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True):
            self._model.add_row(self._leave[[unit, other]], np.array([1, -1]), upper=0)
        for row, most in enumerate(problem.limit.tolist()):
            mine = problem.limit_row == row
            if mine.any():
                self._model.add_row(
                    self._leave[problem.limit_unit[mine]], problem.limit_amount[mine], upper=most
                )

    def _quotas(self) -> None:
        """For a gang that needs all its pods: the amounts that its quotas lack must be freed there."""
        problem = self._terms.problem
        wanted = problem.wanted
        if not len(wanted.quotas.gangs) or not self._terms.rigid:
            return
        asked, held = self._terms.count @ wanted.classes.demand, problem.total()
        for q in np.flatnonzero(wanted.quotas.covers[:, 0]).tolist():
            inside = problem.quota_unit[q]
            for r in np.flatnonzero((asked > 0) & (problem.quota_left[q] < UNLIMITED)).tolist():
                lack = int(asked[r] - problem.quota_left[q, r])
                self._free_at_least(np.flatnonzero(inside & (held[:, r] > 0)), held[:, r], lack)
            if wanted.gangs.fresh[0]:
                ends = np.flatnonzero(inside & problem.ends)
                self._free_at_least(ends, problem.ends.astype(np.int64), int(1 - problem.gangs_left[q]))

    def _free_at_least(self, units: IntArray, amounts: IntArray, lack: int) -> None:
        if lack > 0:
            self._model.add_row(self._leave[units], amounts[units], lower=lack)

    def _values(self, ground: VictimState) -> IntArray:
        values = np.zeros(self._model.variables, np.int64)
        values[: len(ground.gone)] = ground.gone
        for c, cells in enumerate(self._cells):
            fit = np.bincount(
                cells.of_site[cells.of_site >= 0],
                ground.fit[c][cells.of_site >= 0],
                len(cells.x),
            ).astype(np.int64)
            running = np.cumsum(fit)
            left = np.maximum(0, self._terms.count[c] - (running - fit))
            values[cells.x] = np.minimum(fit, left)
        for site, wants in self._wanting.items():
            cells_there = [cells.x[cells.of_site[site]] for cells in self._cells if cells.of_site[site] >= 0]
            values[wants] = int(values[cells_there].any())
        return values


class _Cells:
    """The counts of one class: a variable for each site, or for a set of equal sites.

    Attributes:
      x: [X] the variables.
      size: [X] how many sites each variable represents.
      of_site: [S] the cell of a site, -1 for none.
      cell, unit: [E] the pairs of a cell and a unit there.
      without, most: [E] pods that one site of the cell takes if only this unit stays, and if none stays.
      merged: [S] sites that the pairwise rows describe completely.
    """

    def __init__(self, terms: VictimTerms, class_index: int, model: LinearModel) -> None:
        now, most = terms.now[class_index], terms.most[class_index]
        loose_shares = terms.without[class_index] > now[terms.site]
        loose = np.bincount(terms.site[loose_shares], minlength=len(terms.sites)) > 0
        self.merged = ~loose & (len(terms.count) == 1)
        order = np.lexsort((terms.unit, terms.site))
        edges = np.searchsorted(terms.site[order], np.arange(len(now) + 1)).tolist()
        known: dict[object, int] = {}
        self.of_site = np.full(len(now), NONE, np.int64)
        sizes: list[int] = []
        first: list[int] = []
        for site in np.flatnonzero(most > 0).tolist():
            shares = order[edges[site] : edges[site + 1]]
            key: object = site
            if self.merged[site]:
                key = (int(now[site]), int(most[site]), terms.unit[shares].tobytes())
            cell = known.setdefault(key, len(known))
            if cell == len(sizes):
                sizes.append(0)
                first.append(site)
            sizes[cell] += 1
            self.of_site[site] = cell
        self.size = np.array(sizes, np.int64)
        most_of = most[first] if first else np.zeros(0, np.int64)
        upper = np.minimum(most_of * self.size, terms.count[class_index])
        self.x = model.add_variables(np.zeros(len(sizes), np.int64), upper)
        shares = (
            np.concatenate([order[edges[site] : edges[site + 1]] for site in first])
            if first
            else np.zeros(0, np.int64)
        )
        self.cell = self.of_site[terms.site[shares]]
        self.unit = terms.unit[shares]
        self.without = terms.without[class_index, shares]
        self.most = most[terms.site[shares]]
