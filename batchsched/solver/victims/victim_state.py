"""The free capacity while a search evicts and restores victims, and the test whether the pending gang fits.

For one class without rows or levels of its own, pods are counted; otherwise the packing places the gang.

Shapes: C classes, F shares of units on sites, N nodes, Q quotas, R resources, S sites, U units.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.objective import count_pods_still_required
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    UNLIMITED,
    BoolArray,
    IndexArray,
    IntArray,
    Problem,
    count_pods_that_fit,
    position_lists_by_group,
    positions_by_group,
)
from batchsched.solver.victims.victim_problem import VictimProblem


@dataclass(frozen=True, slots=True, eq=False)
class VictimSearchInput:
    """The data that stay constant while a search evicts and restores victims for one pending gang.

    Args:
      problem: the problem.
      sites: [S] the nodes where some class may ever fit, ascending.
      now, most: [C, S] pods of a class that fit there if all units stay, and if none stays.
      unit, site: [F] the shares of units on sites.
      shares_on: the shares on each site, ascending.
      freed: [F, R] what they free.
      without: [C, F] pods of a class that fit on the share's site if only its unit stays.
      minimum: pods that the gang needs.
      count: [C] pods of each class of the gang.
      rigid: whether it needs all of them.
      plain: whether counting decides; otherwise a placement has to be found.
    """

    problem: VictimProblem
    sites: IntArray
    now: IntArray
    most: IntArray
    unit: IndexArray
    site: IntArray
    shares_on: list[IntArray]
    freed: IntArray
    without: IntArray
    minimum: int
    count: IntArray
    rigid: bool
    plain: bool

    @classmethod
    def from_problem(cls, problem: VictimProblem) -> "VictimSearchInput":
        """Compute the data of a search for victims that stay constant while victims are evicted and restored."""
        pending = problem.pending
        evictable = np.zeros_like(problem.free)
        np.add.at(evictable, problem.node, problem.freed)
        mask = pending.kinds.mask[pending.classes.kind]
        ever = _fits(pending, problem.free + evictable) * mask
        sites = np.flatnonzero(ever.any(axis=0))
        place = np.full(len(problem.free), -1, np.int64)
        place[sites] = np.arange(len(sites))
        # By unit, so that equal sets of units on two sites are equal arrays.
        inside = np.flatnonzero(place[problem.node] >= 0)
        inside = inside[np.argsort(problem.unit[inside], kind="stable")]
        site = place[problem.node[inside]]
        freed = problem.freed[inside]
        nodes = sites[site]
        minimum = int(count_pods_still_required(pending)[0])
        # If all pods are needed, each class counts by itself and the total adds nothing.
        rigid = minimum == int(pending.classes.count.sum())
        plain = (
            len(pending.classes.kind) == 1
            and not pending.rows
            and not pending.cuts
            and not len(pending.subgroups.gang)
            and not pending.gangs.slice_size[0]
            and (rigid or not len(pending.quotas.gangs))
            and _one_domain(pending, sites)
        )
        return cls(
            problem,
            sites,
            _fits(pending, problem.free[sites]) * mask[:, sites],
            ever[:, sites],
            problem.unit[inside],
            site,
            positions_by_group(site, len(sites)),
            freed,
            _fits(pending, (problem.free + evictable)[nodes] - freed) * mask[:, nodes],
            minimum,
            pending.classes.count.astype(np.int64),
            rigid,
            plain,
        )

    def may_fit_pending_gang(self, fit: IntArray) -> bool:
        """Tell whether the pending gang may fit if a given number of pods of each class fits on each node.

        `fit` [C, S] has these numbers, by class and site.
        """
        each = np.minimum(fit.sum(axis=1), self.count)
        return bool((each == self.count).all()) if self.rigid else int(each.sum()) >= self.minimum


def _fits(problem: Problem, free: IntArray) -> IntArray:
    """[C, n] pods of each class that fit into each row of free [n, R]."""
    counts = problem.classes.count.tolist()
    return np.array(
        [
            count_pods_that_fit(request, free, count)
            for request, count in zip(problem.classes.demand, counts, strict=True)
        ]
    ).reshape(len(counts), len(free))


def _one_domain(problem: Problem, sites: IntArray) -> bool:
    """Whether these nodes are in a single domain of the required level, or no level is required."""
    level = int(problem.gangs.required[0])
    return level < 0 or len(np.unique(problem.nodes.levels[level][sites])) <= 1


class VictimState:
    """The gangs and elastic pods that a search has evicted so far, and the capacity that is then free."""

    def __init__(self, search_input: VictimSearchInput) -> None:
        self.search_input = search_input
        self.problem = problem = search_input.problem
        self.evicted = np.zeros(problem.unit_count, np.bool_)
        self._free = problem.free[search_input.sites].copy()
        self.fit = search_input.now.copy()
        self._taken = np.zeros(len(problem.limit), np.int64)
        self._shares = positions_by_group(search_input.unit, problem.unit_count)
        self._limits = position_lists_by_group(problem.limit_unit, problem.unit_count)
        self._needs = [
            problem.bond_with[bonds].tolist()
            for bonds in positions_by_group(problem.bond_unit, problem.unit_count)
        ]
        self._upon = [
            problem.bond_unit[bonds].tolist()
            for bonds in positions_by_group(problem.bond_with, problem.unit_count)
        ]

    @property
    def cost(self) -> int:
        """The sum of the costs of all victims evicted so far."""
        return int(self.problem.cost[self.evicted].sum())

    def units_with_required_units(self, units: Iterable[int]) -> list[int]:
        """Return the given units and all units that must be evicted with them, unless evicted already.

        They are in no particular order.
        """
        closure: dict[int, None] = {}
        stack = list(units)
        while stack:
            unit = stack.pop()
            if unit not in closure and not self.evicted[unit]:
                closure[unit] = None
                stack += self._needs[unit]
        return list(closure)

    def evict_units_within_limits(self, units: Iterable[int]) -> bool:
        """Evict units, and the units that must be evicted with them; return False if limits forbid this.

        The limits come from disruption budgets and entitlements. If the result is False, nothing has changed.
        """
        leaving = self.units_with_required_units(units)
        # Limits are tested unit by unit, so that a failure undoes only what was moved.
        for number, unit in enumerate(leaving):
            self._move(unit, 1)
            rows = [self.problem.limit_row[entry] for entry in self._limits[unit]]
            if any(self._taken[row] > self.problem.limit[row] for row in rows):
                for moved in leaving[: number + 1]:
                    self._move(moved, -1)
                return False
        return True

    def restore_unit(self, unit: int) -> None:
        """Undo the eviction of one gang or elastic pod. No other evicted unit may require its eviction."""
        self._move(unit, -1)

    def is_required_by_evicted_unit(self, unit: int) -> bool:
        """Return whether an evicted unit requires the eviction of this unit, which then must stay evicted."""
        return any(self.evicted[other] for other in self._upon[unit])

    def _move(self, unit: int, sign: int) -> None:
        self.evicted[unit] = sign > 0
        for entry in self._limits[unit]:
            self._taken[self.problem.limit_row[entry]] += sign * self.problem.limit_amount[entry]
        sites = self.search_input.site[self._shares[unit]]
        self._free[sites] += sign * self.search_input.freed[self._shares[unit]]
        pending = self.problem.pending
        mask = pending.kinds.mask[pending.classes.kind][:, self.search_input.sites[sites]]
        # Only the sites of this unit change: a recount of all would dominate the greedies.
        self.fit[:, sites] = _fits(pending, self._free[sites]) * mask

    @property
    def is_known_insufficient(self) -> bool:
        """Whether an earlier attempt has shown that the pending gang does not fit after these evictions."""
        return any(not np.delete(self.evicted, cut).any() for cut in self.problem.cuts)

    def gang_fits(self) -> bool:
        """Tell whether the pending gang's minimum fits after the evictions so far."""
        if (
            not self.search_input.may_fit_pending_gang(self.fit)
            or (self.search_input.rigid and not self._in_quota())
            or self.is_known_insufficient
        ):
            return False
        # Counting is exact for one class on nodes of one domain; otherwise the packing must find a placement.
        return self.search_input.plain or place_after_eviction(self.problem, self.evicted) is not None

    def _in_quota(self) -> bool:
        """Whether the quotas admit the whole gang."""
        pending = self.problem.pending
        if not len(pending.quotas.gangs):
            return True
        quota_left, gangs = quotas_after_eviction(self.problem, self.evicted)
        requested = self.search_input.count @ pending.classes.demand
        own = pending.quotas.covers[:, 0]
        over = ((requested > quota_left) & (requested > 0)).any(axis=1) | (
            int(pending.gangs.fresh[0]) > gangs
        )
        return not bool((over & own).any())


def place_after_eviction(problem: VictimProblem, evicted: BoolArray) -> Packing | None:
    """Place the pending gang's minimum after certain evictions; None if no placement is found.

    Args:
      problem: the pending gang, and the U units of pods that can only be evicted together.
      evicted: [U] True for each evicted unit.
    """
    free = problem.free.copy()
    leaving = evicted[problem.unit]
    np.add.at(free, problem.node[leaving], problem.freed[leaving])
    pending = replace(problem.pending, nodes=replace(problem.pending.nodes, free=np.maximum(free, 0)))
    if len(pending.quotas.gangs):
        quota_left, gangs = quotas_after_eviction(problem, evicted)
        pending = replace(pending, quotas=replace(pending.quotas, free=quota_left, gangs=gangs))
    packing = Packing(pending)
    return packing if packing.place_minimum_of_gang(0) is not None else None


def quotas_after_eviction(problem: VictimProblem, evicted: BoolArray) -> tuple[IntArray, IntArray]:
    """Return what the Q queue limits allow after evictions: amounts [Q, R] and numbers of gangs [Q].

    Args:
      problem: the queue limits, and the U units of pods that can only be evicted together.
      evicted: [U] True for each evicted unit.
    """
    back = problem.quota_unit[:, evicted].astype(np.int64)
    quota_left = problem.quota_left + back @ problem.freed_resources_by_unit()[evicted]
    gangs = problem.gangs_left + back @ problem.ends[evicted].astype(np.int64)
    # A packing reads quotas as amounts that are left: an exceeded one leaves nothing.
    return np.clip(quota_left, 0, UNLIMITED), np.clip(gangs, 0, UNLIMITED)
