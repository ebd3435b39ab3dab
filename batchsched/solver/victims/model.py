"""The CP-SAT model of victims: a boolean for each eviction unit, and pod counts for nodes or sets of nodes.

Take a pod class on a node that has room for `now` pods, for `most` if all units are evicted, and for m if all but one
unit are evicted. Then x ≤ m + (most - m)·v holds for each unit there. If every m equals `now`, these rows describe
the node completely, and nodes with equal numbers and the same units share one variable. Otherwise rows for the
resources are added. The model may allow too much (several classes, rows of plugins): the caller places the gang and
adds a cut.

Source: measured in the design's notes on the session solver (pairwise rows, linearization 2, hinted by a greedy).

Shapes: B bonds, C classes, F shares of units on sites, K entries of limits, R resources, S sites, U units, V
variables.
"""

from collections.abc import Iterator

import numpy as np

from batchsched.solver.cpsat import CpSatAnswer, CpSatBudget
from batchsched.solver.gang_tree import mask_gangs_with_tree_rules
from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.problem import NONE, UNLIMITED, BoolArray, IntArray
from batchsched.solver.victims.victim_state import VictimSearchInput, VictimState


class VictimModel(LinearModel):
    """The CP-SAT model that chooses the victims for one pending gang; insufficient sets can be excluded later."""

    def __init__(self, search_input: VictimSearchInput) -> None:
        super().__init__()
        self._terms = search_input
        units = search_input.problem.unit_count
        self._leave = self.add_booleans(units)
        self._cells = [_Cells(search_input, c, self) for c in range(len(search_input.count))]
        self._switches: dict[tuple[int, int], int] = {}
        """Site and overcommitted resource → the boolean of `_wants`."""
        self._pairwise()
        self._capacity()
        self._demand()
        self._bonds_and_limits()
        self._quotas()
        for cut in search_input.problem.cuts:
            self.add_cut(np.isin(np.arange(units), cut))
        # The row is written once and moved afterwards, since rows cannot be removed.
        self._cutoff: int | None = None

    def solve(self, hint: VictimState | None, below: int, budget: CpSatBudget, gap: float) -> CpSatAnswer:
        """Find the cheapest set of victims that the model allows, if it costs less than `below`.

        The first U values of the answer say which units are evicted.
        """
        cost = self._terms.problem.cost
        if self._cutoff is None:
            self._cutoff = self.add_row(self._leave, cost, upper=below - 1)
        self.set_row_bounds(self._cutoff, 0, below - 1)
        objective = np.zeros(self.variable_count, np.int64)
        objective[: len(cost)] = -cost
        values = None if hint is None else self._values(hint)
        return budget.maximise(self, objective, budget.remaining, gap=gap, hint=values)

    def add_cut(self, evicted: BoolArray) -> None:
        """Exclude a set of victims [U] and all its subsets: the pending gang did not fit after their eviction."""
        self.add_sum_constraint(self._leave[np.flatnonzero(~evicted)], lower=1)

    def _pairwise(self) -> None:
        """Rows x - (most - m)·v <= m, for each cell and each unit that blocks pods there."""
        for cells in self._cells:
            step = cells.most - cells.without
            pairs = np.flatnonzero(step > 0)
            # A variable for several equal sites takes the sum of their pods.
            width = cells.size[cells.cell[pairs]]
            columns = np.stack([cells.x[cells.cell[pairs]], self._leave[cells.unit[pairs]]], 1)
            factors = np.stack([np.ones(len(pairs), np.int64), -step[pairs] * width], 1)
            self.add_rows(
                np.arange(len(pairs) + 1) * 2,
                columns.ravel(),
                factors.ravel(),
                np.full(len(pairs), -HIGHEST),
                cells.without[pairs] * width,
            )

    def _capacity(self) -> None:
        """Σ demand·x <= free + Σ freed·v, resource by resource, on the sites that the pairwise rows do not describe."""
        search_input, several = self._terms, len(self._terms.count) > 1
        pending = search_input.problem.pending
        loose = np.ones(len(search_input.sites), np.bool_)
        if not several:
            loose = ~self._cells[0].merged
        free = search_input.problem.free[search_input.sites]
        for site in np.flatnonzero(loose).tolist():
            for r in np.flatnonzero((pending.classes.demand > 0).any(axis=0)).tolist():
                self._one_capacity(site, r, search_input.shares_on[site], int(free[site, r]))

    def _one_capacity(self, site: int, r: int, shares: IntArray, free: int) -> None:
        search_input = self._terms
        columns, factors = [], []
        for c, cells in self._cells_of_requesting_classes(site, r):
            columns.append(int(cells.x[cells.of_site[site]]))
            factors.append(int(search_input.problem.pending.classes.demand[c, r]))
        if not columns:
            return
        freed = search_input.freed[shares, r]
        columns += self._leave[search_input.unit[shares[freed > 0]]].tolist()
        factors += (-freed[freed > 0]).tolist()
        if free < 0:  # an overcommitted resource must be relieved only for pods that request it
            columns.append(self._wants(site, r))
            factors.append(-free)
            free = 0
        # Bytes and milli-CPU have large common divisors: without them CP-SAT's sums come close to 2^62.
        divisor = int(np.gcd.reduce(np.array(factors, np.int64)))
        self.add_row(np.array(columns), np.array(factors, np.int64) // divisor, upper=free // divisor)

    def _wants(self, site: int, r: int) -> int:
        """The boolean that must be 1 before a pod that requests a resource may be placed on a site."""
        switch = int(self.add_booleans(1)[0])
        self._switches[site, r] = switch
        for c, cells in self._cells_of_requesting_classes(site, r):
            count = cells.x[cells.of_site[site] : cells.of_site[site] + 1]
            self.link_sum_to_switch(count, switch, int(self._terms.most[c, site]), upper=0)
        return switch

    def _cells_of_requesting_classes(self, site: int, r: int) -> Iterator[tuple[int, "_Cells"]]:
        """The classes that request a resource and may be placed on a site, with their cells."""
        demand = self._terms.problem.pending.classes.demand
        for c, cells in enumerate(self._cells):
            if demand[c, r] and cells.of_site[site] >= 0:
                yield c, cells

    def _demand(self) -> None:
        """As many pods as the gang and each of its subgroups needs, and no more of a class than exist."""
        search_input = self._terms
        pending = search_input.problem.pending
        xs = [cells.x for cells in self._cells]
        for c, x in enumerate(xs):
            count = int(search_input.count[c])
            self.add_sum_constraint(
                x, count if search_input.rigid else 0, HIGHEST if search_input.rigid else count
            )
        if search_input.rigid:
            return
        self.add_sum_constraint(np.concatenate(xs), lower=search_input.minimum)
        # A tree may run without some of its subgroups; whether it runs is for the packing to tell.
        if mask_gangs_with_tree_rules(pending)[0]:
            return
        for s, least in enumerate(pending.subgroups.need.tolist()):
            members = [xs[c] for c in np.flatnonzero(pending.classes.subgroup == s).tolist()]
            if least and members:
                self.add_sum_constraint(np.concatenate(members), lower=int(least))

    def _bonds_and_limits(self) -> None:
        problem = self._terms.problem
        for unit, other in zip(problem.bond_unit.tolist(), problem.bond_with.tolist(), strict=True):
            self.add_row(self._leave[[unit, other]], np.array([1, -1]), upper=0)
        for row, most in enumerate(problem.limit.tolist()):
            entries = problem.limit_row == row
            if entries.any():
                self.add_row(
                    self._leave[problem.limit_unit[entries]], problem.limit_amount[entries], upper=most
                )

    def _quotas(self) -> None:
        """For a gang that needs all its pods: the amounts that its quotas lack must be freed there."""
        problem = self._terms.problem
        pending = problem.pending
        # If the gang may choose its pods, the caller checks the quotas of the placement and adds a cut.
        if not len(pending.quotas.gangs) or not self._terms.rigid:
            return
        requested, freed = self._terms.count @ pending.classes.demand, problem.freed_resources_by_unit()
        for q in np.flatnonzero(pending.quotas.covers[:, 0]).tolist():
            inside = problem.quota_unit[q]
            for r in np.flatnonzero((requested > 0) & (problem.quota_left[q] < UNLIMITED)).tolist():
                lack = int(requested[r] - problem.quota_left[q, r])
                self._free_at_least(np.flatnonzero(inside & (freed[:, r] > 0)), freed[:, r], lack)
            if pending.gangs.fresh[0]:
                ends = np.flatnonzero(inside & problem.ends)
                self._free_at_least(ends, problem.ends.astype(np.int64), int(1 - problem.gangs_left[q]))

    def _free_at_least(self, units: IntArray, amounts: IntArray, lack: int) -> None:
        if lack > 0:
            self.add_row(self._leave[units], amounts[units], lower=lack)

    def _values(self, ground: VictimState) -> IntArray:
        values = np.zeros(self.variable_count, np.int64)
        values[: len(ground.evicted)] = ground.evicted
        for c, cells in enumerate(self._cells):
            fit = np.bincount(
                cells.of_site[cells.of_site >= 0],
                ground.fit[c][cells.of_site >= 0],
                len(cells.x),
            ).astype(np.int64)
            running = np.cumsum(fit)
            missing = np.maximum(0, self._terms.count[c] - (running - fit))
            values[cells.x] = np.minimum(fit, missing)
        for (site, r), wants in self._switches.items():
            counts = [cells.x[cells.of_site[site]] for _, cells in self._cells_of_requesting_classes(site, r)]
            values[wants] = int(values[counts].any())
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

    def __init__(self, search_input: VictimSearchInput, class_index: int, model: LinearModel) -> None:
        now, most = search_input.now[class_index], search_input.most[class_index]
        loose_shares = search_input.without[class_index] > now[search_input.site]
        loose = np.bincount(search_input.site[loose_shares], minlength=len(search_input.sites)) > 0
        self.merged = ~loose & (len(search_input.count) == 1)
        cell_of_key: dict[object, int] = {}
        self.of_site = np.full(len(now), NONE, np.int64)
        sizes: list[int] = []
        first: list[int] = []
        for site in np.flatnonzero(most > 0).tolist():
            key: object = site
            if self.merged[site]:
                key = (
                    int(now[site]),
                    int(most[site]),
                    search_input.unit[search_input.shares_on[site]].tobytes(),
                )
            cell = cell_of_key.setdefault(key, len(cell_of_key))
            if cell == len(sizes):
                sizes.append(0)
                first.append(site)
            sizes[cell] += 1
            self.of_site[site] = cell
        self.size = np.array(sizes, np.int64)
        upper = np.minimum(most[np.array(first, np.int64)] * self.size, search_input.count[class_index])
        self.x = model.add_variables(np.zeros(len(sizes), np.int64), upper)
        shares = np.concatenate([np.zeros(0, np.int64), *(search_input.shares_on[site] for site in first)])
        self.cell = self.of_site[search_input.site[shares]]
        self.unit = search_input.unit[shares]
        self.without = search_input.without[class_index, shares]
        self.most = most[search_input.site[shares]]
