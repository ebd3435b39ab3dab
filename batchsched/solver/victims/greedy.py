"""Three greedies for victims and what they share: restoring the units that are not needed.

Shapes: C classes, F shares of units on sites, S sites, U units.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from batchsched.solver.problem import BoolArray, FloatArray, IntArray
from batchsched.solver.victims.victim_state import VictimState, VictimTerms

Greedy = Callable[[VictimTerms], VictimState | None]


def choose_by_unit(terms: VictimTerms) -> VictimState | None:
    """Evict unit after unit, in the order of what they free of the requested resources for their cost."""
    worth = np.zeros(terms.problem.units)
    for c, demand in enumerate(terms.problem.wanted.classes.demand):
        asked = demand > 0
        if asked.any():
            share = (terms.freed[:, asked] / demand[asked]).min(axis=1)
            useful = terms.most[c, terms.site] > terms.now[c, terms.site]
            worth += np.bincount(terms.unit, share * useful, len(worth)) / max(1, terms.count[c])
    useful_units = np.flatnonzero(_helps(terms))
    price = closure_cost(terms)[useful_units] / np.maximum(worth[useful_units], 1e-9)
    return _in_order(terms, ([unit] for unit in useful_units[np.argsort(price, kind="stable")].tolist()))


def choose_by_price(terms: VictimTerms) -> VictimState | None:
    """Clear node after node, the cheapest first; each unit's cost is divided among the nodes it blocks."""
    gain, price = _gain(terms), np.zeros(len(terms.sites))
    for c in range(len(terms.count)):
        price = np.maximum(price, shared_price(terms, c))
    some = np.flatnonzero(gain > 0)
    order = some[np.argsort(price[some] / gain[some], kind="stable")]
    on = group_units_by_node(terms)
    return _in_order(terms, (on[site] for site in order.tolist()))


def choose_by_node(terms: VictimTerms) -> VictimState | None:
    """Clear node after node, the one that is cheapest to clear now: units that are evicted already cost no more."""
    ground = VictimState(terms)
    gain, cost = _gain(terms), closure_cost(terms).astype(np.float64)
    open_sites = gain > 0
    on = group_units_by_node(terms)
    while not ground.enough():
        left = np.flatnonzero(open_sites)
        if not left.size:
            return None
        staying = np.where(ground.gone[terms.unit], 0.0, cost[terms.unit])
        price = np.bincount(terms.site, staying, len(terms.sites))
        site = int(left[np.argmin(price[left] / gain[left])])
        open_sites[site] = False
        ground.leave(on[site])
    return ground


GREEDIES: tuple[Greedy, ...] = (choose_by_node, choose_by_price, choose_by_unit)


def restore_unneeded(ground: VictimState) -> None:
    """Restore units without which the gang still fits, the most costly first, until every evicted unit is needed."""
    cost = ground.problem.cost
    changed = True
    while changed:
        changed = False
        gone = np.flatnonzero(ground.gone)
        for unit in gone[np.argsort(-cost[gone], kind="stable")].tolist():
            if ground.needed(unit):
                continue
            ground.restore(unit)
            if ground.enough():
                changed = True
            else:
                ground.leave([unit])


def group_units_by_node(terms: VictimTerms) -> list[list[int]]:
    """Return the units on each site."""
    order = np.argsort(terms.site, kind="stable")
    edges = np.searchsorted(terms.site[order], np.arange(len(terms.sites) + 1)).tolist()
    units = terms.unit[order].tolist()
    return [units[a:b] for a, b in pairwise(edges)]


def shared_price(terms: VictimTerms, class_index: int) -> FloatArray:
    """Return the least cost of one more pod of a class on each site [S].

    A unit blocks pods on a site if the site gains nothing without its eviction. Each unit divides its cost equally
    among all pods that it blocks on any site. The sum of these parts for k pods never exceeds the cost of the units
    evicted for them.
    """
    gain = terms.most[class_index] - terms.now[class_index]
    barring = (terms.without[class_index] <= terms.now[class_index, terms.site]) & (gain[terms.site] > 0)
    unit, site = terms.unit[barring], terms.site[barring]
    held = np.bincount(unit, gain[site], terms.problem.units)
    part = terms.problem.cost[unit] / held[unit]
    return np.bincount(site, part, len(terms.sites)).astype(np.float64)


def bound_cost(terms: VictimTerms) -> float:
    """Return a lower bound of the cost of any set of units that makes room; 0 if no better bound is known."""
    if not terms.rigid:
        return 0.0
    return max((_bound_class_cost(terms, c) for c in range(len(terms.count))), default=0.0)


def _bound_class_cost(terms: VictimTerms, class_index: int) -> float:
    gain = terms.most[class_index] - terms.now[class_index]
    lacking = int(terms.count[class_index] - terms.now[class_index].sum())
    if lacking <= 0:
        return 0.0
    price = shared_price(terms, class_index)
    order = np.argsort(price, kind="stable")
    running = np.cumsum(gain[order])
    taken = np.minimum(gain[order], np.maximum(0, lacking - (running - gain[order])))
    return float(price[order] @ taken)


def closure_cost(terms: VictimTerms) -> IntArray:
    """Return what each unit costs together with the units that must be evicted with it, [U]."""
    problem = terms.problem
    total = problem.cost.copy()
    np.add.at(total, problem.bond_unit, problem.cost[problem.bond_with])
    return total


def _gain(terms: VictimTerms) -> FloatArray:
    """[S] the fraction of the gang's request that a site offers once all its units are evicted."""
    more = (terms.most - terms.now) / np.maximum(1, terms.count)[:, np.newaxis]
    return np.asarray(more.max(axis=0, initial=0.0), np.float64)


def _helps(terms: VictimTerms) -> BoolArray:
    """[U] whether a unit is on a site where the gang can gain room, or counts against a quota of the gang."""
    more = np.asarray((terms.most > terms.now).any(axis=0))
    helps = np.bincount(terms.unit, more[terms.site], terms.problem.units) > 0
    wanted = terms.problem.wanted
    if len(wanted.quotas.gangs):
        helps |= terms.problem.quota_unit[wanted.quotas.covers[:, 0]].any(axis=0)
    return helps


def _in_order(terms: VictimTerms, groups: Iterable[list[int]]) -> VictimState | None:
    """Evict groups of units one after the other until there is room."""
    ground = VictimState(terms)
    if ground.enough():
        return ground
    for group in groups:
        if ground.along(group) and ground.leave(group) and ground.enough():
            return ground
    return None
