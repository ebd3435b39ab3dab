"""The tiered model: it chooses which gangs to place, how many pods of each class, and in which domains.

The decision variables are integers of one CP-SAT model: y[gang]; the *switches* d[gang, domain] and e[part, domain]
for required levels; t[class] for elastic classes. The rows over them are exact: choices, minimums, quotas, and slot
rows of every candidate domain. The placement of the pods, x[class, pool], is not in the model: a linear program
(`transport`) decides whether a choice fits the pools, and if not, gives a Benders cut that excludes it.

A gang with a required level has candidate domains; a *cell* is the nodes of one of them, with a switch. A *load* is
the pods of one class under one switch. Their number is factor · value of the load's variable.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.solver.linear_model import HIGHEST, LinearModel
from batchsched.solver.packing.packing import GangPodClasses, Packing, SubgroupPodClasses
from batchsched.solver.problem import (
    ALL_NODES,
    NONE,
    UNLIMITED,
    BoolArray,
    IntArray,
    Problem,
    Sense,
    Solution,
)
from batchsched.solver.tiered.domain_rows import DomainRowBuilder, RivalGangsRow
from batchsched.solver.tiered.node_pools import NodePools, SlotCounter

MAX_BEST_FIT_DOMAINS: Final = 4
"""Maximum candidates that are the tightest domains that hold the gang."""
MAX_FRUGAL_DOMAINS: Final = 4
"""Maximum candidates where the gang takes the fewest devices from groups that pods with more devices need."""
MAX_SCATTERED_DOMAINS: Final = 4
"""Maximum candidates that are chosen by a fixed hash, so that gangs do not crowd into the same domains."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainCell:
    """The nodes that a gang or a subgroup may use if the solver chooses a certain topology domain for it.

    Args:
      areas: (level, domain) pairs; their rows count the cell's pods.
      nodes: the nodes, ascending.
    """

    areas: tuple[tuple[int, int], ...]
    nodes: IntArray


class CandidateDomainSearch:
    """Component that finds the candidate domains of gangs with a required level, in large problems."""

    def __init__(
        self, packing: Packing, supply: SlotCounter, incumbent: Solution | None, complete: bool = False
    ) -> None:
        """Compute containments of levels and the incumbent's domains; `complete`: all domains are candidates."""
        self._best = len(packing.problem.nodes.free) if complete else MAX_BEST_FIT_DOMAINS
        self._packing, self._supply = packing, supply
        self._problem = packing.problem
        self._kept = _domains_of(packing, incumbent) if incumbent is not None else {}
        levels = self._problem.nodes.levels
        self.containments: dict[tuple[int, int], IntArray] = {
            (a, b): _containment(levels[a], levels[b])
            for a in range(len(levels))
            for b in range(len(levels))
            if a != b
        }

    def enclosing_domains(self, level: int, domain: int) -> tuple[tuple[int, int], ...]:
        """Return a topology domain and the domains of other levels around it, as (level, domain) pairs.

        A domain is around another one if it contains all its nodes.
        """
        result = [(level, domain)]
        for other in range(len(self._problem.nodes.levels)):
            if other != level:
                outer = int(self.containments[level, other][domain])
                if outer != NONE:
                    result.append((other, outer))
        return tuple(result)

    def candidate_domains_of_gang(
        self, gang: int, members: GangPodClasses, every: bool = False
    ) -> list[DomainCell]:
        """Return the candidate topology domains of a gang, each as the set of its nodes (a cell).

        With `every`, there is a single cell of all domains that may hold the gang.
        """
        gangs, need = self._problem.gangs, max(self._packing.needs[gang], 1)
        level = int(gangs.required[gang]), int(gangs.pinned[gang])
        chosen = self._candidates(members, need, level, None, None if every else (gang, NONE))
        return self._to_cells(level[0], chosen, None, every)

    def candidate_domains_of_subgroup(
        self, gang: int, part: SubgroupPodClasses, outer: DomainCell | None, every: bool = False
    ) -> list[DomainCell]:
        """Return the candidate topology domains of a subgroup, each as the set of its nodes (a cell).

        The cells are inside `outer`. `every` is as in `candidate_domains_of_gang`.
        """
        packing = self._packing
        pods = int(self._problem.classes.count[list(part.classes)].sum())
        members = GangPodClasses(part.classes, (part,), pods, levelled=True)
        rigid = packing.pod_classes_of_gang(gang).pods == packing.needs[gang]
        need = pods if rigid else max(1, part.need)
        nodes, level = None if outer is None else outer.nodes, (part.required, part.pinned)
        chosen = self._candidates(members, need, level, nodes, None if every else (gang, part.index))
        return self._to_cells(part.required, chosen, outer, every)

    def _candidates(
        self,
        members: GangPodClasses,
        need: int,
        level: tuple[int, int],
        nodes: IntArray | None,
        chooser: tuple[int, int] | None,
    ) -> list[int]:
        """The domains that may hold a minimum: the pinned one, or those chosen for `chooser`, a gang and a part."""
        required, pinned = level
        if pinned != NONE:
            return [pinned] if self._packing.nodes_of_domain(required, pinned).size else []
        fitting = self._supply.domains_with_enough_slots(members, need, required, nodes)
        if chooser is None:
            return fitting
        # Gangs and parts with other numbers choose other domains, so that they do not crowd into the same ones.
        salt = chooser[0] + 7919 * (chooser[1] + 1)
        if len(fitting) > self._best + MAX_FRUGAL_DOMAINS + MAX_SCATTERED_DOMAINS:
            fitting = _choose(fitting, self._best, salt, self._lost_devices(members, required))
        kept = self._kept.get(chooser)
        return fitting if kept is None or kept in fitting else [*fitting, kept]

    def _lost_devices(self, members: GangPodClasses, level: int) -> IntArray:
        """Devices that a gang takes from the largest groups on its nodes, for each domain [D] of a level.

        A pod with four devices, for example, takes a place of a pod with eight unless its node has four other devices.
        """
        room, slots = self._packing.room, self._packing.room.slots
        ids = self._problem.nodes.levels[level]
        named = ids >= 0
        lost = np.zeros(int(ids.max(initial=-1)) + 1, np.int64)
        for class_index in members.classes:
            device = slots.device_of[class_index]
            if device < 0:
                continue
            request, largest = int(slots.demand[class_index, device]), int(slots.demand[:, device].max())
            if request == largest:
                continue
            spare_pods = np.minimum(
                room.count_fitting_pods(class_index), room.free[device] % largest // request
            )
            held = np.bincount(ids[named], spare_pods[named], minlength=len(lost)).astype(np.int64)
            lost += np.maximum(0, room.waiting[class_index] - held) * request
        return lost

    def _to_cells(
        self, level: int, domains: list[int], outer: DomainCell | None, every: bool
    ) -> list[DomainCell]:
        """One cell for each domain, or with `every` one of all nodes in any of them, for bounds."""
        if every and not domains:
            return []
        if every:
            inside = np.isin(self._problem.nodes.levels[level], domains)
            nodes = np.flatnonzero(inside) if outer is None else outer.nodes[inside[outer.nodes]]
            return [DomainCell((), nodes)]
        cells = []
        for domain in domains:
            nodes, areas = self._packing.nodes_of_domain(level, domain), self.enclosing_domains(level, domain)
            if outer is not None:
                nodes = np.intersect1d(nodes, outer.nodes, assume_unique=True)
                areas = tuple(dict.fromkeys(areas + outer.areas))
            cells.append(DomainCell(areas, nodes))
        return cells


def _choose(fitting: list[int], best: int, salt: int, lost: IntArray) -> list[int]:
    """The tightest domains, those that lose the fewest devices [D] of large groups, and some chosen by a fixed hash."""
    # Knuth's multiplicative hash: scattered, and the same in every process.
    rest = sorted(fitting[best:], key=lambda d: ((d + 1) * 2654435761 + salt * 40503) % 2**32)
    frugal = sorted(rest, key=lambda d: int(lost[d]))[:MAX_FRUGAL_DOMAINS]
    scattered = [domain for domain in rest if domain not in frugal]
    return fitting[:best] + frugal + scattered[:MAX_SCATTERED_DOMAINS]


def _domains_of(packing: Packing, incumbent: Solution) -> dict[tuple[int, int], int]:
    """The domains of gangs and parts with a required level in a solution: (gang, part or -1) to domain."""
    problem = packing.problem
    result: dict[tuple[int, int], int] = {}
    for class_index, node in zip(incumbent.classes.tolist(), incumbent.nodes.tolist(), strict=True):
        g, s = int(problem.classes.gang[class_index]), int(problem.classes.subgroup[class_index])
        if problem.gangs.required[g] != NONE:
            result[g, NONE] = int(problem.nodes.levels[problem.gangs.required[g], node])
        if s != NONE and problem.subgroups.required[s] != NONE:
            result[g, s] = int(problem.nodes.levels[problem.subgroups.required[s], node])
    return result


def _containment(inner: IntArray, outer: IntArray) -> IntArray:
    """For each inner domain the outer domain that contains all its nodes, or -1."""
    size = int(inner.max(initial=-1)) + 1
    low = np.full(size, np.iinfo(np.int64).max)
    high = np.full(size, NONE, np.int64)
    named = inner >= 0
    np.minimum.at(low, inner[named], outer[named])
    np.maximum.at(high, inner[named], outer[named])
    return np.where(low == high, high, NONE)


OPEN = NONE
"""A switch that is always on: for the pods of a gang that is taken already."""


Load = tuple[int, int, int, int, int]
"""Class, switch, cell, variable and factor of a load."""


class TieredModel(LinearModel):
    """The CP-SAT model of a large problem: it chooses gangs, pod counts and domains, but assigns no pods to nodes.

    Cuts only tighten it. Attributes `class_index`, `switch`, `cell`, `variable`, `factor` [J] describe the loads;
    `cell` points into `cells`; `y` [G] are the gangs' variables; `rival_rows` are the rows over gangs that compete for
    domains.
    """

    def __init__(
        self,
        packing: Packing,
        pools: NodePools,
        incumbent: Solution | None,
        relaxed: bool = False,
        complete: bool = False,
        other: "TieredModel | None" = None,
    ) -> None:
        """Build the model.

        Args:
          packing: a packing without placed pods.
          pools: its pools.
          incumbent: a solution; its domains are among the candidates.
          relaxed: omit the choice of domains: a model for bounds only.
          complete: make every domain that holds a gang a candidate: then bounds of this model hold, too.
          other: another model of the same packing, of which the slots and the rows over gangs that compete for domains
            are used; both are computed if None.
        """
        super().__init__()
        self.problem: Problem = packing.problem
        self.packing, self.pools = packing, pools
        self.supply: SlotCounter = SlotCounter(packing) if other is None else other.supply
        self.cells: list[DomainCell] = []
        self._domains = CandidateDomainSearch(packing, self.supply, None if relaxed else incumbent, complete)
        self._relaxed = relaxed
        loads: list[Load] = []
        self._outer: dict[int, int] = {}
        problem = self.problem
        self.needs = np.array(packing.needs, np.int64)
        taken = self.needs == 0
        self.y = self.add_variables(taken.astype(np.int64), (problem.gangs.allowed | taken).astype(np.int64))
        self.rigid: BoolArray = np.array(
            [packing.pod_classes_of_gang(g).pods == n for g, n in enumerate(packing.needs)]
        )
        for gang in np.flatnonzero(problem.gangs.allowed).tolist():
            loads += self._loads_of_gang(gang)
        columns = np.array(loads, np.int64).reshape(len(loads), 5).T
        self.class_index, self.switch, self.cell, self.variable, self.factor = columns
        self.owner = problem.classes.gang[self.class_index].astype(np.int64)
        self._minimums()
        self._quotas()
        self._whole_rows()
        self._domain_rows()
        self.rival_rows: tuple[RivalGangsRow, ...] = (
            tuple(DomainRowBuilder(packing, self.supply, self._domains.containments).rival_rows())
            if other is None
            else other.rival_rows
        )
        for row in self.rival_rows:
            self.add_row(self.y[row.gangs], row.factors, upper=row.right)

    # ------------------------------------------------------------------------------------ variables

    def _loads_of_gang(self, gang: int) -> Iterator[Load]:
        """Add the switches of one gang and yield its loads."""
        members, need = self.packing.pod_classes_of_gang(gang), int(self.needs[gang])
        # Fewer pods exist than the gang needs, so it cannot be taken.
        if members.pods < need:
            self._close(int(self.y[gang]))
        if not members.pods or members.pods < need:
            return
        root = OPEN if need == 0 else int(self.y[gang])
        outer: list[tuple[int, DomainCell | None]] = [(root, None)]
        if self.problem.gangs.required[gang] != NONE:
            cells = self._domains.candidate_domains_of_gang(gang, members, every=self._relaxed)
            outer = self._switches(root, cells)
        for switch, cell in outer:
            for part in members.parts:
                yield from self._loads_of_part(gang, part, switch, cell)

    def _loads_of_part(
        self, gang: int, part: SubgroupPodClasses, switch: int, cell: DomainCell | None
    ) -> Iterator[Load]:
        inner: list[tuple[int, DomainCell | None]] = [(switch, cell)]
        if part.required != NONE and part.classes:
            cells = self._domains.candidate_domains_of_subgroup(gang, part, cell, every=self._relaxed)
            inner = self._switches(switch, cells, optional=not (self.rigid[gang] or part.need))
        for inner_switch, inner_cell in inner:
            if inner_cell is not None and (not self.cells or self.cells[-1] is not inner_cell):
                self.cells.append(inner_cell)
            for class_index in part.classes:
                yield self._add_load(
                    class_index, inner_switch, NONE if inner_cell is None else len(self.cells) - 1
                )

    def _switches(
        self, root: int, cells: list[DomainCell], optional: bool = False
    ) -> list[tuple[int, DomainCell | None]]:
        """Add a 0/1 variable for each cell. At most one is 1; exactly one if `root` is 1, unless optional."""
        if not cells:
            if root != OPEN and not optional:
                self._close(root)
            return []
        if self._relaxed:  # one cell of all that may do, under the gang's own switch
            return [(root, cells[0])]
        switches = self.add_booleans(len(cells))
        if root == OPEN:
            self.add_sum_constraint(switches, upper=1)
        else:
            self.link_sum_to_switch(switches, root, 1, -HIGHEST if optional else 0, 0)
        self._outer.update(dict.fromkeys(switches.tolist(), root))
        return list(zip(switches.tolist(), cells, strict=True))

    def _close(self, switch: int) -> None:
        self.set_variable_bounds(np.array([switch]), np.zeros(1, np.int64), np.zeros(1, np.int64))

    def _add_load(self, class_index: int, switch: int, cell: int) -> Load:
        """Add the pods of a class under a switch: a rigid gang uses the switch itself, others a new variable."""
        fit = self.pools.fit[self.pools.kinds[class_index]]
        room = int((fit if cell == NONE else fit[self.cells[cell].nodes]).sum())
        count = int(self.problem.classes.count[class_index])
        if self.rigid[self.problem.classes.gang[class_index]]:
            # A rigid gang has all its pods or none: one class without room closes the switch.
            if room < count:
                self._close(switch)
            return class_index, switch, cell, switch, count
        most = min(count, room)
        variable = self.add_variables(np.zeros(1, np.int64), np.array([most]))
        if switch != OPEN and most:
            self.link_sum_to_switch(variable, switch, most, upper=0)
        return class_index, switch, cell, int(variable[0]), 1

    # ------------------------------------------------------------------------------------ rows

    def add_pod_count_row(
        self, loads: IntArray, factors: IntArray, lower: int, upper: int, gangs: IntArray | None = None
    ) -> None:
        """Add a linear constraint on numbers of placed pods and, with `gangs`, on which gangs are placed.

        It is lower <= Σ factors · pods (+ Σ gangs · y) <= upper.

        The pods are those of `loads`. The variable y of a gang is 1 if the gang is placed, and `gangs` [G] has the
        coefficients of these variables. The integers are not scaled.
        """
        total = np.zeros(self.variable_count, np.int64)
        np.add.at(total, self.variable[loads], factors * self.factor[loads])
        if gangs is not None:
            np.add.at(total, self.y, gangs)
        used = np.flatnonzero(total)
        if used.size:
            self.add_row(used, total[used], max(lower, -HIGHEST), min(upper, HIGHEST))

    def _minimums(self) -> None:
        problem = self.problem
        for gang in np.flatnonzero(~self.rigid & (self.needs > 0) & problem.gangs.allowed).tolist():
            own = np.flatnonzero(self.owner == gang)
            minimums = [(own, int(self.needs[gang]))]
            parts = self.packing.pod_classes_of_gang(gang).parts
            minimums += [(own[np.isin(self.class_index[own], part.classes)], part.need) for part in parts]
            for loads, need in minimums:
                if need:
                    minus = np.zeros(len(problem.gangs.need), np.int64)
                    minus[gang] = -need
                    self.add_pod_count_row(loads, np.ones(len(loads), np.int64), 0, HIGHEST, minus)

    def _quotas(self) -> None:
        problem = self.problem
        for q in np.flatnonzero(problem.quotas.covers.any(axis=1)).tolist():
            member = problem.quotas.covers[q]
            loads = np.flatnonzero(member[self.owner])
            for r in np.flatnonzero(problem.quotas.free[q] < UNLIMITED).tolist():
                unit = self.supply.units[r]
                limit = max(0, int(problem.quotas.free[q, r])) // unit
                self.add_pod_count_row(
                    loads, problem.classes.demand[self.class_index[loads], r] // unit, -HIGHEST, limit
                )
            if problem.quotas.gangs[q] < UNLIMITED:
                # Gangs that need nothing more were counted against the quota when they started.
                fresh = np.flatnonzero(member & problem.gangs.fresh & (self.needs > 0))
                most = max(0, int(problem.quotas.gangs[q]))
                self.add_sum_constraint(self.y[fresh], upper=most)

    def _whole_rows(self) -> None:
        """Add the rows of plugins that cover all nodes together, as rows over the loads."""
        tally = self.packing.room.rows
        for row, rights in zip(tally.rows, tally.right, strict=True):
            right = int(rights[0]) if row.partition == ALL_NODES else 0
            if row.partition != ALL_NODES or abs(right) >= UNLIMITED:
                continue
            factor = row.class_coefficients(len(self.problem.classes.count))
            gangs = np.zeros(len(self.problem.gangs.need), np.int64)
            if row.gangs.size:
                np.add.at(gangs, row.gangs, row.gang_coefficients[0])
            loads = np.arange(len(self.class_index))
            lower, upper = (-HIGHEST, right) if row.sense is Sense.AT_MOST else (right, HIGHEST)
            self.add_pod_count_row(loads, factor[self.class_index], lower, upper, gangs)

    def _domain_rows(self) -> None:
        """Add the slot rows of every domain to which a load is restricted."""
        inside: dict[tuple[int, int], list[int]] = {}
        for load, cell in enumerate(self.cell.tolist()):
            if cell != NONE:
                for area in self.cells[cell].areas:
                    inside.setdefault(area, []).append(load)
        for area in sorted(inside):
            loads = np.array(inside[area], np.int64)
            self._levels(loads, self.packing.nodes_of_domain(*area))

    def _levels(self, loads: IntArray, nodes: IntArray) -> None:
        """Add the slot rows of one domain that can be violated at all."""
        pods = self.problem.classes.count[self.class_index[loads]].astype(np.int64)
        for level in self.supply.nonredundant_rows(self.class_index[loads], pods, nodes):
            self.add_pod_count_row(loads, level.factors, -HIGHEST, level.right)

    # ------------------------------------------------------------------------------------ values

    def pods_by_class(self, values: IntArray) -> IntArray:
        """Return the number of placed pods of each pod class [C], given the values of the model's variables."""
        result = np.zeros(len(self.problem.classes.count), np.int64)
        np.add.at(result, self.class_index, self.factor * values[self.variable])
        return result

    def max_pods_by_class(self) -> IntArray:
        """Return how many pods of each class [C] the bounds of the variables allow at most."""
        _, upper = self.variable_bounds()
        # A gang has variables for each of its candidate domains.
        most: IntArray = np.minimum(self.pods_by_class(upper), self.problem.classes.count)
        return most

    def objective_coefficients(self, weights: IntArray) -> IntArray:
        """Convert pod weights by class [C] to objective coefficients of the model's variables [V]."""
        total = np.zeros(self.variable_count, np.int64)
        np.add.at(total, self.variable, weights[self.class_index] * self.factor)
        return total

    def variable_values_of_solution(self, solution: Solution) -> IntArray:
        """Return the values of the model's variables that represent a solution, for use as a hint of CP-SAT.

        The solution uses candidate domains only.
        """
        problem = self.problem
        values = np.zeros(self.variable_count, np.int64)
        values[self.y] = solution.taken
        placed = np.zeros(len(problem.classes.count), np.int64)
        np.add.at(placed, solution.classes, solution.counts)
        first = np.full(len(problem.classes.count), -1, np.int64)
        first[solution.classes[::-1]] = solution.nodes[::-1]
        for load in np.flatnonzero(placed[self.class_index]).tolist():
            class_index, cell = int(self.class_index[load]), int(self.cell[load])
            if cell != NONE and not np.isin(first[class_index], self.cells[cell].nodes):
                continue
            switch = int(self.switch[load])
            # An inner switch may be 1 only with its outer one.
            while switch != OPEN:
                values[switch] = 1
                switch = self._outer.get(switch, OPEN)
            if self.variable[load] != self.switch[load]:
                values[self.variable[load]] = placed[class_index]
        return values
