"""The exact solve for small problems: CP-SAT solves the node-level model tier by tier.

It is also the reference of the tests. Each tier is maximized while the tiers above keep their values. Among equal
values the number of gangs, preferred levels, node scores and packing decide, in this order
(`optimize_secondary_objectives`): each step adds variables of its own to the model. The incumbent always satisfies
everything fixed so far: if the budget ends, quality suffers but never validity.

Shapes: C classes, G gangs, N nodes, T tiers, V variables, X counts.
"""

from typing import Final

import numpy as np

from batchsched.errors import SolverFault
from batchsched.solver.cpsat import CpSatBudget, linear_relaxation_bound
from batchsched.solver.linear_model import drop_dominating_unplaceable_classes, scale_weights_to_integers
from batchsched.solver.node_model import NodeLevelModel
from batchsched.solver.objective import (
    compare_objectives_by_tier,
    count_placed_pods,
    count_tiers,
    list_topology_preferences,
    objectives_by_tier,
)
from batchsched.solver.problem import FloatArray, IntArray, Problem, Solution, SolverBudget

_TIER_SHARE: Final = 0.8
"""Share of the deterministic budget for the tiers; the rest decides among equal values."""
_MAX_SCORE_EFFORT: Final = 0.02
"""Maximum deterministic units for node scores and packing: a tie-break that is rarely proved."""
_MIN_EFFORT: Final = 1e-6
"""A budget of this size or less is treated as spent."""


class _Incumbent:
    """The best assignment so far, and the remaining budget."""

    def __init__(self, model: NodeLevelModel, budget: SolverBudget, seed: int, values: IntArray) -> None:
        self.model = model
        self.values = values
        self.budget = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)

    def step_time_limit(self, share: float, most: float = float("inf")) -> float:
        """Return the deterministic time for the next CP-SAT call: a share of what remains, at most `most`.

        Return 0 if the wall-clock guard has ended an earlier step.
        """
        return 0.0 if self.budget.guard else min(most, self.budget.remaining * share)

    def improve_values_and_bound_objective(
        self, objective: IntArray, ceiling: int, allowance: float
    ) -> int | None:
        """Search for a solution with a higher objective than the best so far; return a proved upper bound.

        The upper bound is a bound of the objective. The result is None if no time is left for the search.
        """
        now = int(objective @ self.values)
        if now >= ceiling:
            return now
        if allowance < _MIN_EFFORT:
            return None
        answer = self.budget.maximise(self.model, objective, allowance, hint=self.values)
        if answer.values is not None and answer.objective > now:
            self.values = answer.values
            now = answer.objective
        return max(now, answer.bound)

    def fix_objective(self, objective: IntArray, slack: int) -> None:
        """Require every later solution to reach the objective of the best solution so far, minus `slack`."""
        used = np.flatnonzero(objective)
        if len(used):
            now = int(objective @ self.values)
            self.model.add_row(used, objective[used], lower=now - slack)


def solve_exact(
    problem: Problem,
    budget: SolverBudget,
    seed: int,
    hint: Solution | None = None,
    ceiling: Solution | None = None,
    *,
    tiers_only: bool = False,
) -> Solution:
    """Place gangs by CP-SAT, with a variable for each pod class and node.

    The solution is optimal if the budget suffices. Otherwise its bound is still valid. If the hint violates no
    constraint, the search starts from it, and the solution is lexicographically no worse than the hint. The bounds of
    `ceiling`, another solution, limit the tiers as long as the tiers above have its values. With `tiers_only`, nothing
    decides among solutions of equal values.

    Raises:
      SolverFault: the numbers are too large for an integer model.
    """
    model = NodeLevelModel(problem)
    climb = _Incumbent(model, budget, seed, _first(model, hint))
    bound = np.zeros(count_tiers(problem))
    for tier in range(len(bound)):
        most = np.inf if ceiling is None else float(ceiling.bound[tier])
        bound[tier], worth = _tier(climb, tier, len(bound) - tier, most)
        # The bounds below hold only for what the ceiling's solution placed in this tier.
        if ceiling is not None and compare_objectives_by_tier(
            np.array([worth]), ceiling.objective[tier : tier + 1]
        ):
            ceiling = None
    if not tiers_only:
        optimize_secondary_objectives(climb)
    return _solution(climb, bound)


def _first(model: NodeLevelModel, hint: Solution | None) -> IntArray:
    if hint is not None:
        triples = zip(hint.classes.tolist(), hint.nodes.tolist(), hint.counts.tolist(), strict=True)
        values = model.variable_values_of_placements(triples)
        if values is not None and model.is_satisfied_by(values):
            return values
    nothing = model.variable_values_of_placements(())
    if nothing is None or not model.is_satisfied_by(nothing):
        raise SolverFault("placing nothing breaks a row: a row refuses what the pipeline allows")
    return nothing


def _tier(climb: _Incumbent, tier: int, remaining: int, most: float) -> tuple[float, float]:
    """Maximize one tier, which reaches at most `most`, and fix it; return its bound and its value."""
    problem, model = climb.model.problem, climb.model
    weights = np.where(problem.gangs.tier[problem.classes.gang] == tier, problem.classes.weight, 0.0)
    most_pods = _most_pods(model)
    counts = drop_dominating_unplaceable_classes(weights, problem.classes.count, most_pods)
    integers, scale, slack = scale_weights_to_integers(weights, counts)
    objective = np.zeros(model.variable_count, np.int64)
    objective[: len(model.classes)] = integers[model.classes]
    # No proof is needed when every pod that fits by itself is placed.
    ceiling = int(integers @ most_pods)
    # CP-SAT gets no row with this limit: the row would make the proof harder.
    if most * scale + slack < ceiling:
        ceiling = int(most * scale) + slack
    # Lower tiers get half of what remains, so that a hard tier leaves time for those after it; the last gets all.
    allowance = climb.step_time_limit(_TIER_SHARE if remaining == 1 else _TIER_SHARE / 2)
    bound = climb.improve_values_and_bound_objective(objective, ceiling, allowance)
    worth = float(objectives_by_tier(problem, model.classes, climb.values[: len(model.classes)])[tier])
    # The next tiers may not cost this one anything, apart from the rounding of its weights.
    climb.fix_objective(objective, slack)
    if bound is not None and bound <= int(objective @ climb.values):
        return worth, worth
    proved = most if bound is None else min(most, (bound + slack) / scale)
    if np.isinf(most):
        relaxed = np.zeros(model.variable_count)
        relaxed[: len(model.classes)] = weights[model.classes]
        proved = min(proved, linear_relaxation_bound(model, relaxed))
    return max(worth, proved), worth


def optimize_secondary_objectives(climb: _Incumbent) -> None:
    """Improve the gang count, the use of preferred levels and the packing, without lowering the objective.

    The number of gangs counts first, then preferred topology levels, then packing and node scores.
    """
    packed = pack_onto_one_node_if_optimal(climb.model, climb.values)
    if packed is not None:
        climb.values = packed
        return
    climb.values, objective, slack = add_preference_objective(climb.model, climb.values)
    ceiling = int(objective[climb.model.taken[climb.model.taken >= 0]].sum())
    # Gangs outweigh all preferred levels together: each gang counts more than the sum of all costs.
    climb.improve_values_and_bound_objective(objective, ceiling, climb.step_time_limit(0.75))
    climb.fix_objective(objective, slack)
    climb.values, objective = add_packing_objective(climb.model, climb.values)
    _, upper = climb.model.variable_bounds()
    climb.improve_values_and_bound_objective(
        objective, int(np.maximum(objective, 0) @ upper), climb.step_time_limit(1.0, _MAX_SCORE_EFFORT)
    )


def _solution(climb: _Incumbent, bound: FloatArray) -> Solution:
    model = climb.model
    counts = climb.values[: len(model.classes)]
    placed = np.flatnonzero(counts)
    objective = objectives_by_tier(model.problem, model.classes[placed], counts[placed])
    switched = model.taken >= 0
    taken = ~switched
    taken[switched] = climb.values[model.taken[switched]] == 1
    return Solution(
        classes=model.classes[placed].astype(np.int32),
        nodes=model.nodes[placed].astype(np.int32),
        counts=counts[placed].astype(np.int32),
        taken=taken,
        objective=objective,
        bound=np.maximum(bound, objective),
        stage="exact",
        rounds=1,
        guard=climb.budget.guard,
        effort=climb.budget.spent,
        variables=climb.budget.variables,
    )


_MAX_OBJECTIVE: Final = 2**52
"""Maximum sum of the objective of gangs and preferred levels."""
_EMPTINESS_PRICE: Final = 100
"""Maximum part of a node's packing cost that depends on how empty it was; using the node costs as much again."""


def add_preference_objective(model: NodeLevelModel, values: IntArray) -> tuple[IntArray, IntArray, int]:
    """Add variables for an objective that prefers more gangs, then fewer domains of preferred levels.

    Returns the values and the objective over all V variables, old and new, and the slack below which two
    objectives count as equal (`scale_weights_to_integers`).
    """
    problem = model.problem
    wishes = list_topology_preferences(problem)
    domains = np.array([problem.nodes.levels[wish.level].max(initial=-1) + 2 for wish in wishes], np.int64)
    weights = np.array([wish.weight for wish in wishes], np.float64)
    gangs = len(problem.gangs.need)
    costs, _, slack = scale_weights_to_integers(weights, domains, _MAX_OBJECTIVE // (gangs + 1))
    objective = np.zeros(model.variable_count, np.int64)
    objective[model.taken[model.taken >= 0]] = int(costs @ domains) + 1
    parts, extended = [objective], [values]
    for wish, cost in zip(wishes, costs.tolist(), strict=True):
        of, used = wish.classes, wish.used
        member = of[model.classes]
        place = problem.nodes.levels[wish.level][model.nodes]
        # Domains in use already cost nothing, so only the others need a variable.
        candidates = np.setdiff1d(place[member], used).astype(np.int64)
        present = np.unique(place[member & (values[: len(place)] > 0)])
        opened = model.add_booleans(len(candidates))
        for domain, variable in zip(candidates.tolist(), opened.tolist(), strict=True):
            inside = member & (place == domain)
            for index in np.flatnonzero(of).tolist():
                model.add_pod_limit(
                    inside & (model.classes == index), int(problem.classes.count[index]), variable
                )
        parts.append(np.full(len(opened), -cost))
        extended.append(np.isin(candidates, present).astype(np.int64))
        if not used and len(opened):
            # The first domain is free of cost: this variable may be 1 as soon as one domain is opened.
            model.link_sum_to_switch(opened, int(model.add_booleans(1)[0]), 1, lower=0)
            parts.append(np.array([cost]))
            extended.append(np.array([int(len(present) > 0)]))
    return np.concatenate(extended), np.concatenate(parts), slack


def add_packing_objective(model: NodeLevelModel, values: IntArray) -> tuple[IntArray, IntArray]:
    """Add variables for an objective that packs pods onto few nodes, or spreads them; node scores break ties.

    Pods are packed onto full nodes, or spread over empty ones. Returns the values and the objective over all V
    variables, old and new.
    """
    problem = model.problem
    counts = len(model.classes)
    nodes = np.unique(model.nodes)
    touched = model.add_booleans(len(nodes))
    where = np.searchsorted(nodes, model.nodes)
    for position, variable in enumerate(touched.tolist()):
        columns = np.flatnonzero(where == position)
        if problem.spread:
            model.link_sum_to_switch(columns, variable, 1, lower=0)
            continue
        for column in columns.tolist():
            model.add_row(np.array([column, variable]), np.array([1, -int(model.upper[column])]), upper=0)
    objective = np.zeros(model.variable_count, np.int64)
    objective[:counts] = _pod_scores(model)
    price = _node_prices(problem, objective[:counts])[nodes]
    objective[touched] = price if problem.spread else -price
    present = np.bincount(where, values[:counts], minlength=len(nodes)) > 0
    return np.concatenate([values, present.astype(np.int64)]), objective


def pack_onto_one_node_if_optimal(model: NodeLevelModel, values: IntArray) -> IntArray | None:
    """Move all pods of a solution to one node if this is provably the best packing; otherwise return None.

    Most sessions of a busy cluster place a few small pods. With a thousand nodes, CP-SAT needs a tenth of a second
    for them, and rarely proves which packing is the best.

    Args:
      model: the model, with the rows that every solution must satisfy, and without variables of preferred levels.
      values: [V] a solution.
    """
    problem = model.problem
    if problem.spread or list_topology_preferences(problem):
        return None
    placed = count_placed_pods(problem, model.classes, values[: len(model.classes)])
    # With fewer pods, other pods might be placed instead, or none of them.
    if not placed.any() or (placed < _most_pods(model)).any():
        return None
    used = np.flatnonzero(placed)
    columns = model.column[used]
    demand = placed @ problem.classes.demand
    roomy = ((columns >= 0) & (model.upper[columns] >= placed[used, None])).all(axis=0)
    roomy &= ((demand <= problem.nodes.free) | (demand == 0)).all(axis=1)
    if not roomy.any():
        return None
    pod_scores = _pod_scores(model)
    scores = np.where(columns >= 0, pod_scores[columns], 0)
    prices = _node_prices(problem, pod_scores)
    worth = np.where(roomy, placed[used] @ scores - prices, np.iinfo(np.int64).min)
    best = int(worth.argmax())
    if worth[best] < placed[used] @ scores.max(axis=1) - 2 * prices[model.nodes].min():
        return None  # two nodes might be better
    packed = model.variable_values_of_placements((index, best, int(placed[index])) for index in used.tolist())
    return packed if packed is not None and model.is_satisfied_by(packed) else None


def _most_pods(model: NodeLevelModel) -> IntArray:
    """The pods [C] of each class that can be placed if no other class is."""
    fit = np.bincount(model.classes, model.upper, minlength=len(model.problem.classes.count))
    most: IntArray = np.minimum(fit.astype(np.int64), model.problem.classes.count)
    return most


def _pod_scores(model: NodeLevelModel) -> IntArray:
    """The node score [X] of one pod of each count."""
    problem = model.problem
    return problem.kinds.score[problem.classes.kind[model.classes], model.nodes].astype(np.int64)


def _node_prices(problem: Problem, pod_scores: IntArray) -> IntArray:
    """The packing cost [N] of using each node: one node more or fewer outweighs every sum of the pods' scores [X]."""
    emptiness = np.divide(
        problem.nodes.free,
        problem.nodes.capacity,
        out=np.zeros(problem.nodes.free.shape),
        where=problem.nodes.capacity > 0,
    ).mean(axis=1)
    price = _EMPTINESS_PRICE + np.rint(_EMPTINESS_PRICE * np.clip(emptiness, 0, 1)).astype(np.int64)
    cost: IntArray = price * (int(pod_scores.max(initial=0)) * int(problem.classes.count.sum()) + 1)
    return cost
