"""Entry point: the victims for one gang, by three greedies and by the CP-SAT model in every domain.

Shapes: C classes, D domains, F shares of units on sites, N nodes, S sites, U units.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.objective import required_pods
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, FloatArray, IntArray, VictimProblem, VictimSet
from batchsched.solver.victims.model import VictimModel
from batchsched.solver.victims.victim_state import VictimState, VictimTerms, place_without

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
        price = np.maximum(price, cost_per_pod(terms, c))
    some = np.flatnonzero(gain > 0)
    order = some[np.argsort(price[some] / gain[some], kind="stable")]
    return _in_order(terms, (_units_on(terms, site) for site in order.tolist()))


def choose_by_node(terms: VictimTerms) -> VictimState | None:
    """Clear node after node, the one that is cheapest to clear now: units that are evicted already cost no more."""
    ground = VictimState(terms)
    gain, cost = _gain(terms), closure_cost(terms).astype(np.float64)
    open_sites = gain > 0
    while not ground.enough():
        left = np.flatnonzero(open_sites)
        if not left.size:
            return None
        staying = np.where(ground.gone[terms.unit], 0.0, cost[terms.unit])
        price = np.bincount(terms.site, staying, len(terms.sites))
        site = int(left[np.argmin(price[left] / gain[left])])
        open_sites[site] = False
        ground.leave(_units_on(terms, site))
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


def _units_on(terms: VictimTerms, site: int) -> list[int]:
    units: list[int] = terms.unit[terms.shares_on[site]].tolist()
    return units


def cost_per_pod(terms: VictimTerms, class_index: int) -> FloatArray:
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
    price = cost_per_pod(terms, class_index)
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


@dataclass(frozen=True, slots=True)
class VictimBudget:
    """Limits for the search of the victims of one gang.

    Args:
      deterministic: CP-SAT's deterministic time over all its calls.
      rounds: how often, in each domain, the model's set may turn out not to make room.
      gap: stop when the set is proved to cost at most this much more than the optimum, relatively.
      guard_seconds: a loose wall-clock guard.
      exact: False: use the greedies only.
    """

    deterministic: float = 4.0
    rounds: int = 4
    gap: float = 1e-3
    guard_seconds: float = 30.0
    exact: bool = True


def choose_victims(problem: VictimProblem, budget: VictimBudget, seed: int = 0) -> VictimSet | None:
    """Find the least costly set of units to evict so that the gang's minimum fits.

    The set costs no more than the best greedy's set, and every unit in it is needed. If no set makes room for
    the gang, the result is None: then no unit is evicted.

    Raises:
      SolverFault: OR-Tools rejects a model as invalid.
    """
    if not problem.wanted.gangs.allowed[0] or not required_pods(problem.wanted)[0]:
        return None
    nobody = np.zeros(problem.units, np.bool_)
    room = None if problem.cuts else place_without(problem, nobody)
    if room is not None:
        return _victims(problem, nobody, room)
    search = _Search(budget, seed)
    ranked = sorted(
        ((bound_cost(terms), number, terms) for number, terms in enumerate(split_by_domain(problem))),
        key=lambda case: case[:2],
    )
    for least, _, terms in ranked:
        if search.best is None or least < search.best.cost:
            search.greedy(terms)
    greedy = search.best.cost if search.best is not None else -1
    bounds = [search.exact(terms, least) for least, _, terms in ranked] if budget.exact else [0]
    best = search.best
    if best is None:
        return None
    packing = _settled(best)
    answer = _victims(problem, best.gone, packing)
    return replace(
        answer,
        bound=min([answer.cost, *bounds]),
        stage="exact" if greedy < 0 or best.cost < greedy else "greedy",
        greedy=greedy,
        guard=search.guard,
    )


def split_by_domain(problem: VictimProblem) -> Iterator[VictimTerms]:
    """Yield one problem for each domain of the gang's required level, or a single one; none if no eviction helps."""
    for case in _domains(problem):
        terms = VictimTerms.of(case)
        if terms.suffices(terms.most):
            yield terms


def _domains(problem: VictimProblem) -> Iterator[VictimProblem]:
    wanted = problem.wanted
    level = int(wanted.gangs.required[0])
    if level == NONE:
        yield problem
        return
    at = wanted.nodes.levels[level]
    pinned = int(wanted.gangs.pinned[0])
    domains = [pinned] if pinned != NONE else np.unique(at[at >= 0]).tolist()
    for domain in domains:
        yield replace(
            problem,
            wanted=replace(wanted, kinds=replace(wanted.kinds, mask=wanted.kinds.mask & (at == domain))),
        )


class _Search:
    """The best set so far, and the remaining budget."""

    def __init__(self, budget: VictimBudget, seed: int) -> None:
        self._budget = budget
        self._spending = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)
        self.best: VictimState | None = None
        self._known: dict[int, VictimState] = {}

    @property
    def guard(self) -> bool:
        """Whether the wall-clock guard ended a call of CP-SAT."""
        return self._spending.guard

    def greedy(self, terms: VictimTerms) -> None:
        """Try the greedies."""
        for one in GREEDIES:
            ground = one(terms)
            if ground is None:
                continue
            restore_unneeded(ground)
            known = self._known.get(id(terms))
            if known is None or ground.cost < known.cost:
                self._known[id(terms)] = ground
            self._keep(ground)

    def _keep(self, ground: VictimState) -> None:
        if self.best is None or ground.cost < self.best.cost:
            self.best = ground

    def exact(self, terms: VictimTerms, least: float) -> int:
        """Search for a cheaper set with the model; return a lower bound of the cost, at most that of the best set."""
        most = int(terms.problem.cost.sum()) + 1
        bound = int(least)
        if self.best is not None and least >= self.best.cost:
            return self.best.cost
        model: VictimModel | None = None
        cut = bool(terms.problem.cuts)
        for _ in range(self._budget.rounds):
            if self._spending.left <= 0:
                return bound
            model = model or VictimModel(terms)
            below = self.best.cost if self.best is not None else most
            answer = model.solve(self._known.get(id(terms)), below, self._spending, self._budget.gap)
            if not cut:  # cuts say what the greedy's hand cannot place: no bound may rest on them
                bound = max(bound, below if answer.infeasible else -answer.bound)
            if answer.values is None:
                return bound
            gone = answer.values[: terms.problem.units] > 0
            if self._fits(terms, gone):
                return bound
            model.cut(gone)
            cut = True
        return bound

    def _fits(self, terms: VictimTerms, gone: BoolArray) -> bool:
        ground = VictimState(terms)
        if not ground.leave(np.flatnonzero(gone).tolist()) or not ground.enough():
            return False
        restore_unneeded(ground)
        self._keep(ground)
        return True


def _settled(ground: VictimState) -> Packing:
    """Place the gang and restore the units that its placement does not need; `ground` is updated."""
    problem = ground.problem
    packing = place_without(problem, ground.gone)
    assert packing is not None  # a ground is the best only when it is enough
    if len(
        problem.wanted.quotas.gangs
    ):  # units that are evicted for a quota only cannot be recognised on the nodes
        return packing
    classes, nodes, counts = packing.room.triples()
    asked = np.zeros_like(problem.free)
    np.add.at(asked, nodes, problem.wanted.classes.demand[classes] * counts[:, np.newaxis])
    free = problem.free.copy()
    leaving = ground.gone[problem.unit]
    np.add.at(free, problem.node[leaving], problem.freed[leaving])
    gone = np.flatnonzero(ground.gone)
    left = gone[np.argsort(-problem.cost[gone], kind="stable")].tolist()
    while True:
        idle = next((unit for unit in left if _idle(ground, unit, free, asked)), None)
        if idle is None:
            return packing
        left.remove(idle)
        ground.restore(idle)
        if ground.wanting:
            ground.leave([idle])
            continue
        mine = problem.unit == idle
        free[problem.node[mine]] -= problem.freed[mine]


def _idle(ground: VictimState, unit: int, free: IntArray, asked: IntArray) -> bool:
    """Whether an evicted unit could stay on its nodes: the placement requests no more than remains."""
    if ground.needed(unit):
        return False
    problem = ground.problem
    mine = problem.unit == unit
    at = problem.node[mine]
    return bool(((asked[at] == 0) | (free[at] - problem.freed[mine] >= asked[at])).all())


def _victims(problem: VictimProblem, gone: BoolArray, packing: Packing) -> VictimSet:
    classes, nodes, counts = packing.room.triples()
    units = np.flatnonzero(gone).astype(np.int32)
    return VictimSet(units, int(problem.cost[gone].sum()), 0, classes, nodes, counts)
