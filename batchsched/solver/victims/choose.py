"""The choice of victims for one pending gang: by three greedy algorithms, and by CP-SAT in each domain.

Shapes: C classes, D domains, F shares of units on sites, N nodes, S sites, U units.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.gang_tree import mask_gangs_with_tree_rules
from batchsched.solver.objective import count_pods_still_required
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    NONE,
    BoolArray,
    FloatArray,
    IntArray,
)
from batchsched.solver.victims.model import VictimModel
from batchsched.solver.victims.tree_victims import choose_victims_with_placement
from batchsched.solver.victims.victim_problem import VictimProblem, VictimSolution
from batchsched.solver.victims.victim_state import VictimSearchInput, VictimState, place_after_eviction

Greedy = Callable[[VictimSearchInput], VictimState | None]


def choose_victims_by_unit_cost(search_input: VictimSearchInput) -> VictimState | None:
    """Choose victims in the order of cost per freed resource, until the pending gang fits.

    A victim is a gang or an elastic pod. Only resources that the pending gang requests count.
    """
    worth = np.zeros(search_input.problem.unit_count)
    for c, demand in enumerate(search_input.problem.pending.classes.demand):
        requested = demand > 0
        if requested.any():
            share = (search_input.freed[:, requested] / demand[requested]).min(axis=1)
            useful = search_input.most[c, search_input.site] > search_input.now[c, search_input.site]
            worth += np.bincount(search_input.unit, share * useful, len(worth)) / max(
                1, search_input.count[c]
            )
    useful_units = np.flatnonzero(_helps(search_input))
    # The price includes units that must be evicted together, for the room that this unit frees.
    price = cost_with_required_units(search_input)[useful_units] / np.maximum(worth[useful_units], 1e-9)
    return _in_order(
        search_input, ([unit] for unit in useful_units[np.argsort(price, kind="stable")].tolist())
    )


def choose_victims_by_initial_node_cost(search_input: VictimSearchInput) -> VictimState | None:
    """Choose victims node by node, in the order of initial node costs, until the pending gang fits.

    All gangs and elastic pods on a node become victims together. The cost of a victim is divided among the nodes on
    which it blocks pods.
    """
    gain, price = _gain(search_input), np.zeros(len(search_input.sites))
    for c in range(len(search_input.count)):
        price = np.maximum(price, cost_lower_bounds_per_pod_by_node(search_input, c))
    gaining = np.flatnonzero(gain > 0)
    order = gaining[np.argsort(price[gaining] / gain[gaining], kind="stable")]
    return _in_order(search_input, (_units_on(search_input, site) for site in order.tolist()))


def choose_victims_by_current_node_cost(search_input: VictimSearchInput) -> VictimState | None:
    """Choose victims node by node, each time on the node that is now cheapest, until the pending gang fits.

    All gangs and elastic pods on a node become victims together. Victims that are already chosen cost nothing on the
    other nodes. The cost of a node is relative to the room that the pending gang gains there.
    """
    ground = VictimState(search_input)
    gain, cost = _gain(search_input), cost_with_required_units(search_input).astype(np.float64)
    open_sites = gain > 0
    while not ground.gang_fits():
        candidates = np.flatnonzero(open_sites)
        if not candidates.size:
            return None
        staying = np.where(ground.evicted[search_input.unit], 0.0, cost[search_input.unit])
        price = np.bincount(search_input.site, staying, len(search_input.sites))
        site = int(candidates[np.argmin(price[candidates] / gain[candidates])])
        open_sites[site] = False
        ground.evict_units_within_limits(_units_on(search_input, site))
    return ground


GREEDIES: tuple[Greedy, ...] = (
    choose_victims_by_current_node_cost,
    choose_victims_by_initial_node_cost,
    choose_victims_by_unit_cost,
)


def restore_unneeded_victims(ground: VictimState) -> None:
    """Undo evictions that are not needed for the pending gang to fit, the most costly ones first.

    In the end, every evicted unit is needed.
    """
    cost = ground.problem.cost
    changed = True
    while changed:
        # A unit may become unnecessary once another one is restored, so that the loop repeats until nothing changes.
        changed = False
        evicted = np.flatnonzero(ground.evicted)
        for unit in evicted[np.argsort(-cost[evicted], kind="stable")].tolist():
            if ground.is_required_by_evicted_unit(unit):
                continue
            ground.restore_unit(unit)
            if ground.gang_fits():
                changed = True
            else:
                ground.evict_units_within_limits([unit])


def _units_on(search_input: VictimSearchInput, site: int) -> list[int]:
    units: list[int] = search_input.unit[search_input.shares_on[site]].tolist()
    return units


def cost_lower_bounds_per_pod_by_node(search_input: VictimSearchInput, class_index: int) -> FloatArray:
    """Return for each node a lower bound on the eviction cost of each additional pod of a class on that node.

    The result is [S]: the nodes are the *sites*, on which some pod of the pending gang may ever fit.

    A unit blocks pods on a site if the site gains nothing without its eviction. Each unit divides its cost equally
    among all pods that it blocks on any site. The sum of these parts for k pods never exceeds the cost of the units
    evicted for them.
    """
    gain = search_input.most[class_index] - search_input.now[class_index]
    # The site gains nothing as long as this unit stays.
    barring = (search_input.without[class_index] <= search_input.now[class_index, search_input.site]) & (
        gain[search_input.site] > 0
    )
    unit, site = search_input.unit[barring], search_input.site[barring]
    held = np.bincount(unit, gain[site], search_input.problem.unit_count)
    part = search_input.problem.cost[unit] / held[unit]
    return np.bincount(site, part, len(search_input.sites)).astype(np.float64)


def cost_lower_bound(search_input: VictimSearchInput) -> float:
    """Return a lower bound on the cost of all evictions that the pending gang needs; 0 if unknown."""
    if not search_input.rigid:
        return 0.0
    return max((_bound_class_cost(search_input, c) for c in range(len(search_input.count))), default=0.0)


def _bound_class_cost(search_input: VictimSearchInput, class_index: int) -> float:
    gain = search_input.most[class_index] - search_input.now[class_index]
    lacking = int(search_input.count[class_index] - search_input.now[class_index].sum())
    if lacking <= 0:
        return 0.0
    price = cost_lower_bounds_per_pod_by_node(search_input, class_index)
    # The cheapest pods bound the cost from below: no choice of sites pays less for as many pods.
    order = np.argsort(price, kind="stable")
    running = np.cumsum(gain[order])
    taken = np.minimum(gain[order], np.maximum(0, lacking - (running - gain[order])))
    return float(price[order] @ taken)


def cost_with_required_units(search_input: VictimSearchInput) -> IntArray:
    """Return the eviction cost of each eviction unit [U], including the units that must be evicted with it."""
    problem = search_input.problem
    total = problem.cost.copy()
    np.add.at(total, problem.bond_unit, problem.cost[problem.bond_with])
    return total


def _gain(search_input: VictimSearchInput) -> FloatArray:
    """[S] the fraction of the gang's request that a site offers once all its units are evicted."""
    more = (search_input.most - search_input.now) / np.maximum(1, search_input.count)[:, np.newaxis]
    return np.asarray(more.max(axis=0, initial=0.0), np.float64)


def _helps(search_input: VictimSearchInput) -> BoolArray:
    """[U] whether a unit is on a site where the gang can gain room, or counts against a quota of the gang."""
    more = np.asarray((search_input.most > search_input.now).any(axis=0))
    helps = np.bincount(search_input.unit, more[search_input.site], search_input.problem.unit_count) > 0
    pending = search_input.problem.pending
    if len(pending.quotas.gangs):
        helps |= search_input.problem.quota_unit[pending.quotas.covers[:, 0]].any(axis=0)
    return helps


def _in_order(search_input: VictimSearchInput, groups: Iterable[list[int]]) -> VictimState | None:
    """Evict groups of units one after the other until there is room."""
    ground = VictimState(search_input)
    if ground.gang_fits():
        return ground
    for group in groups:
        if (
            ground.units_with_required_units(group)
            and ground.evict_units_within_limits(group)
            and ground.gang_fits()
        ):
            return ground
    return None


@dataclass(frozen=True, slots=True)
class VictimSearchLimits:
    """Limits of time, rounds and gap for the search of the victims of one pending gang.

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


def choose_victims(
    problem: VictimProblem, budget: VictimSearchLimits, seed: int = 0
) -> VictimSolution | None:
    """Find the cheapest running gangs and elastic pods to evict so that the pending gang's minimum fits.

    The set costs no more than the best greedy's set, and every unit in it is needed. If no set makes room for
    the gang, the result is None: then no unit is evicted.

    Raises:
      SolverFault: OR-Tools rejects a model as invalid.
    """
    if not problem.pending.gangs.allowed[0] or not count_pods_still_required(problem.pending)[0]:
        return None
    none_evicted = np.zeros(problem.unit_count, np.bool_)
    room = None if problem.cuts else place_after_eviction(problem, none_evicted)
    if room is not None:
        return _victims(problem, none_evicted, room)
    # Domains with the lowest bound first: a cheap set found early excludes the search in dear domains.
    search = _Search(budget, seed)
    ranked = sorted(
        (
            (cost_lower_bound(search_input), number, search_input)
            for number, search_input in enumerate(search_inputs_by_domain(problem))
        ),
        key=lambda case: case[:2],
    )
    for least, _, search_input in ranked:
        if search.best is None or least < search.best.cost:
            search.try_greedy_algorithms(search_input)
    greedy = search.best.cost if search.best is not None else -1
    if budget.exact and mask_gangs_with_tree_rules(problem.pending)[0]:
        return _choose_for_tree(problem, budget, search, greedy)
    bounds = (
        [search.search_for_cheaper_victims(search_input, least) for least, _, search_input in ranked]
        if budget.exact
        else [0]
    )
    best = search.best
    cost = best.cost if best is not None else int(problem.cost.sum()) + 1
    bound = min([cost, *bounds])
    if budget.exact and cost - bound > budget.gap * cost:
        # The packing may miss a placement of several pod classes, and no bound rests on what it misses.
        cheaper, exact_bound = choose_victims_with_placement(problem, search.spending, budget.gap, cost)
        if cheaper is not None:
            return replace(cheaper, greedy=greedy, guard=search.reached_time_limit)
        bound = min(cost, max(bound, exact_bound))
    if best is None:
        return None
    packing = _settled(best)
    answer = _victims(problem, best.evicted, packing)
    return replace(
        answer,
        bound=min(answer.cost, bound),
        stage="exact" if greedy < 0 or best.cost < greedy else "greedy",
        greedy=greedy,
        guard=search.reached_time_limit,
    )


def _choose_for_tree(
    problem: VictimProblem, budget: VictimSearchLimits, search: "_Search", greedy: int
) -> VictimSolution | None:
    """Search for cheaper victims than the greedy algorithms found, by the model with the subgroup tree of the gang."""
    below = greedy if greedy >= 0 else int(problem.cost.sum()) + 1
    answer, bound = choose_victims_with_placement(problem, search.spending, budget.gap, below)
    if answer is None and search.best is None:
        return None
    if answer is None and search.best is not None:
        answer = replace(_victims(problem, search.best.evicted, _settled(search.best)), stage="greedy")
        answer = replace(answer, cost=int(problem.cost[answer.units].sum()), bound=min(bound, answer.cost))
    return None if answer is None else replace(answer, greedy=greedy, guard=search.reached_time_limit)


def search_inputs_by_domain(problem: VictimProblem) -> Iterator[VictimSearchInput]:
    """Yield a search input for each domain of the gang's required level, or a single one without a level.

    Domains in which no eviction makes enough room are skipped.
    """
    for case in _domains(problem):
        search_input = VictimSearchInput.from_problem(case)
        if search_input.may_fit_pending_gang(search_input.most):
            yield search_input


def _domains(problem: VictimProblem) -> Iterator[VictimProblem]:
    pending = problem.pending
    level = int(pending.gangs.required[0])
    if level == NONE:
        yield problem
        return
    domain_of_node = pending.nodes.levels[level]
    pinned = int(pending.gangs.pinned[0])
    domains = [pinned] if pinned != NONE else np.unique(domain_of_node[domain_of_node >= 0]).tolist()
    for domain in domains:
        yield replace(
            problem,
            pending=replace(
                pending, kinds=replace(pending.kinds, mask=pending.kinds.mask & (domain_of_node == domain))
            ),
        )


class _Search:
    """The best set so far, and the remaining budget."""

    def __init__(self, budget: VictimSearchLimits, seed: int) -> None:
        self._budget = budget
        self.spending = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)
        self.best: VictimState | None = None
        self._best_by_terms: dict[int, VictimState] = {}

    @property
    def reached_time_limit(self) -> bool:
        """Whether a call of CP-SAT ended early because of the wall-clock limit."""
        return self.spending.guard

    def try_greedy_algorithms(self, search_input: VictimSearchInput) -> None:
        """Run all greedy algorithms for victims, and keep the cheapest set that they find."""
        for greedy in GREEDIES:
            ground = greedy(search_input)
            if ground is None:
                continue
            restore_unneeded_victims(ground)
            best = self._best_by_terms.get(id(search_input))
            if best is None or ground.cost < best.cost:
                self._best_by_terms[id(search_input)] = ground
            self._keep(ground)

    def _keep(self, ground: VictimState) -> None:
        if self.best is None or ground.cost < self.best.cost:
            self.best = ground

    def search_for_cheaper_victims(self, search_input: VictimSearchInput, least: float) -> int:
        """Search for cheaper victims by CP-SAT; return a lower bound on the cost of any sufficient set.

        The bound is at most the cost of the best set.
        """
        most = int(search_input.problem.cost.sum()) + 1
        bound = int(least)
        if self.best is not None and least >= self.best.cost:
            return self.best.cost
        model: VictimModel | None = None
        cut = bool(search_input.problem.cuts)
        for _ in range(self._budget.rounds):
            if self.spending.remaining <= 0:
                return bound
            model = model or VictimModel(search_input)
            below = self.best.cost if self.best is not None else most
            answer = model.solve(
                self._best_by_terms.get(id(search_input)), below, self.spending, self._budget.gap
            )
            if not cut:  # cuts say what the greedy's hand cannot place: no bound may rest on them
                bound = max(bound, below if answer.infeasible else -answer.bound)
            if answer.values is None:
                return bound
            evicted = answer.values[: search_input.problem.unit_count] > 0
            if self._fits(search_input, evicted):
                return bound
            model.add_cut(evicted)
            cut = True
        return bound

    def _fits(self, search_input: VictimSearchInput, evicted: BoolArray) -> bool:
        ground = VictimState(search_input)
        if not ground.evict_units_within_limits(np.flatnonzero(evicted).tolist()) or not ground.gang_fits():
            return False
        restore_unneeded_victims(ground)
        self._keep(ground)
        return True


def _settled(ground: VictimState) -> Packing:
    """Place the gang and restore the units that its placement does not need; `ground` is updated."""
    problem = ground.problem
    packing = place_after_eviction(problem, ground.evicted)
    assert packing is not None  # a ground is the best only when it is enough
    # Units that are evicted for a quota only cannot be recognized on the nodes.
    if len(problem.pending.quotas.gangs):
        return packing
    classes, nodes, counts = packing.room.placements()
    requests = np.zeros_like(problem.free)
    np.add.at(requests, nodes, problem.pending.classes.demand[classes] * counts[:, np.newaxis])
    free = problem.free.copy()
    leaving = ground.evicted[problem.unit]
    np.add.at(free, problem.node[leaving], problem.freed[leaving])
    evicted = np.flatnonzero(ground.evicted)
    candidates = evicted[np.argsort(-problem.cost[evicted], kind="stable")].tolist()
    while True:
        idle = next((unit for unit in candidates if _idle(ground, unit, free, requests)), None)
        if idle is None:
            return packing
        candidates.remove(idle)
        ground.restore_unit(idle)
        if ground.is_known_insufficient:
            # A cut says that the set without this unit makes no room, whatever the packing finds.
            ground.evict_units_within_limits([idle])
            continue
        shares = problem.unit == idle
        free[problem.node[shares]] -= problem.freed[shares]


def _idle(ground: VictimState, unit: int, free: IntArray, requests: IntArray) -> bool:
    """Whether an evicted unit could stay on its nodes: the placement requests no more than remains."""
    if ground.is_required_by_evicted_unit(unit):
        return False
    problem = ground.problem
    shares = problem.unit == unit
    nodes = problem.node[shares]
    return bool(((requests[nodes] == 0) | (free[nodes] - problem.freed[shares] >= requests[nodes])).all())


def _victims(problem: VictimProblem, evicted: BoolArray, packing: Packing) -> VictimSolution:
    classes, nodes, counts = packing.room.placements()
    units = np.flatnonzero(evicted).astype(np.int32)
    return VictimSolution(units, int(problem.cost[evicted].sum()), 0, classes, nodes, counts)
