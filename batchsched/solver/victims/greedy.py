"""Three greedies for victims, each as somebody does it, and what all of them need: bringing back whom nobody needs.

Shapes: C classes, F shares of units on sites, S sites, U units.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from batchsched.solver.problem import BoolArray, FloatArray, IntArray
from batchsched.solver.victims.victim_state import VictimState, VictimTerms

Greedy = Callable[[VictimTerms], VictimState | None]


def choose_by_unit(terms: VictimTerms) -> VictimState | None:
    """Unit after unit, whoever frees most of what is asked for its cost first."""
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
    """Node after node, the cheapest first, when each unit's cost is shared among the nodes that it holds back."""
    gain, price = _gain(terms), np.zeros(len(terms.sites))
    for c in range(len(terms.count)):
        price = np.maximum(price, shared_price(terms, c))
    some = np.flatnonzero(gain > 0)
    order = some[np.argsort(price[some] / gain[some], kind="stable")]
    on = group_units_by_node(terms)
    return _in_order(terms, (on[site] for site in order.tolist()))


def choose_by_node(terms: VictimTerms) -> VictimState | None:
    """Node after node, the one that is cheapest to clear now: units that have left already cost nothing more."""
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
    """Let everybody stay without whom the gang still fits, the most costly first; nobody is left to bring back."""
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
    """The units on each site."""
    order = np.argsort(terms.site, kind="stable")
    edges = np.searchsorted(terms.site[order], np.arange(len(terms.sites) + 1)).tolist()
    units = terms.unit[order].tolist()
    return [units[a:b] for a, b in pairwise(edges)]


def shared_price(terms: VictimTerms, class_index: int) -> FloatArray:
    """What a pod more of a class costs at least on each site [S].

    Of the units without which nothing is gained on a site, each gives its cost in equal parts to all pods that it
    holds back anywhere: what k pods cost in parts is then never more than what the units cost that leave for them.
    """
    gain = terms.most[class_index] - terms.now[class_index]
    barring = (terms.without[class_index] <= terms.now[class_index, terms.site]) & (gain[terms.site] > 0)
    unit, site = terms.unit[barring], terms.site[barring]
    held = np.bincount(unit, gain[site], terms.problem.units)
    part = terms.problem.cost[unit] / held[unit]
    return np.bincount(site, part, len(terms.sites)).astype(np.float64)


def bound_cost(terms: VictimTerms) -> float:
    """No set of units that makes room costs less; 0 where nothing better is known."""
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
    """[U] what a unit costs with those that must leave with it."""
    problem = terms.problem
    total = problem.cost.copy()
    np.add.at(total, problem.bond_unit, problem.cost[problem.bond_with])
    return total


def _gain(terms: VictimTerms) -> FloatArray:
    """[S] the part of what the gang asks for that a site offers once everybody has left it."""
    more = (terms.most - terms.now) / np.maximum(1, terms.count)[:, np.newaxis]
    return np.asarray(more.max(axis=0, initial=0.0), np.float64)


def _helps(terms: VictimTerms) -> BoolArray:
    """[U] whether a unit stands where something could be gained, or against a quota of the gang."""
    more = np.asarray((terms.most > terms.now).any(axis=0))
    helps = np.bincount(terms.unit, more[terms.site], terms.problem.units) > 0
    wanted = terms.problem.wanted
    if len(wanted.quotas.gangs):
        helps |= terms.problem.quota_unit[wanted.quotas.covers[:, 0]].any(axis=0)
    return helps


def _in_order(terms: VictimTerms, groups: Iterable[list[int]]) -> VictimState | None:
    """Let groups leave one after the other until there is room."""
    ground = VictimState(terms)
    if ground.enough():
        return ground
    for group in groups:
        if ground.along(group) and ground.leave(group) and ground.enough():
            return ground
    return None
