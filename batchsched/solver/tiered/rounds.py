"""Rounds of selecting, splitting and rounding, until the gap is small enough or nothing more is gained.

The loose model (without the choice of domains) is solved first: it takes milliseconds, and its optimum bounds every
solution. Mostly the full model then only has to find domains for the gangs of that optimum. Pods that rounding could
not place tighten both models.

Each model is solved one tier after the other: a tier's value is fixed before the next tier is maximised.

Shapes: C classes, T tiers, V variables.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.ports.external import Telemetry
from batchsched.solver.cpsat import CpSatAnswer, CpSatBudget
from batchsched.solver.linear_model import HIGHEST, scale_weights
from batchsched.solver.objective import (
    TIER_TOLERANCE,
    compare_solutions,
    count_placed_pods,
    count_tiers,
    preferred_level_cost,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, Budget, FloatArray, IntArray, Problem, Solution
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.rounding import RoundedSolution, round_to_nodes
from batchsched.solver.tiered.transport import PoolSplit, PoolTransport

MAX_CUTS_PER_TIER: int = 16
"""Maximum Benders cuts a tier: a plan that still does not fit is placed as far as possible."""
TIER_GAP: float = 2e-4
"""Relative gap to which each tier is solved."""
MAX_STEP_EFFORT: float = 0.15
"""Maximum deterministic units of one call."""
MIN_BOUND_EFFORT: float = 0.05
"""Deterministic units that a bound may always spend: without a bound there is no gap to report."""
MAX_TIE_EFFORT: float = 0.02
"""Deterministic units for maximising the number of gangs among equal tier values."""


@dataclass(frozen=True, slots=True, eq=False)
class TieredSolution:
    """The result of solving a tiered model: variable values, pods by node pool, and bounds of the objectives [T]."""

    values: IntArray
    split: PoolSplit
    bound: FloatArray


class TierSolver:
    """Maximises the objective of one priority tier after the other; higher tiers keep the values they have reached.

    Its cuts remain for the next solve, the fixed tiers do not.
    """

    def __init__(self, aggregate: TieredModel, budget: CpSatBudget) -> None:
        """Scale every tier's weights to integers, each tier by its own factor."""
        self.aggregate = aggregate
        self.transport = PoolTransport(aggregate)
        self._budget = budget
        problem = aggregate.problem
        self._weights = np.zeros(len(problem.classes.count), np.int64)
        self._scale, self._slack = np.ones(count_tiers(problem)), np.zeros(count_tiers(problem), np.int64)
        of_class = problem.gangs.tier[problem.classes.gang]
        for t in range(count_tiers(problem)):
            classes = np.flatnonzero(of_class == t)
            self._weights[classes], self._scale[t], slack = scale_weights(
                problem.classes.weight[classes], problem.classes.count[classes]
            )
            self._slack[t] = slack
        self._of_class = of_class
        self._rows: list[int] = []

    def maximise_tiers(
        self, hint: IntArray, floors: list[IntArray], ceiling: TieredSolution | None = None
    ) -> TieredSolution | None:
        """Maximise the objective of one tier after the other, the highest tier first.

        Args:
          hint: [V] a first guess; it is feasible if it comes from a placement.
          floors: pods per class [C] of placements; the result is lexicographically no worse.
          ceiling: the optimum of a looser model of the same problem, which is an upper bound.

        Returns:
          the optimum, or None if the budget ended before any solution was found.
        """
        return self._ascend(hint, floors, ceiling, None)

    def compute_bounds(self, placed: IntArray, ceiling: TieredSolution | None = None) -> FloatArray:
        """Return upper bounds of the tiers' objectives [T], given that higher tiers place the pods `placed` [C].

        With a ceiling, the bounds of a looser model, tiers that reach it are not solved again.
        """
        model, local = self.aggregate, self.transport.local
        kept = self.transport.loosen_limits()
        # Local cuts came from tightened rows: they are no limit of the problem, and a bound must not rest on them.
        for row in local:
            model.set_row_bounds(row, -HIGHEST, HIGHEST)
        peak = self._ascend(np.zeros(model.variable_count, np.int64), [], ceiling, placed)
        self.transport.restore_limits(kept)
        for row, limit in local.items():
            model.set_row_bounds(row, -HIGHEST, limit)
        return peak.bound if peak is not None else np.full(len(self._scale), np.inf)

    def _ascend(
        self,
        hint: IntArray,
        floors: list[IntArray],
        ceiling: TieredSolution | None,
        placed_above: IntArray | None,
    ) -> TieredSolution | None:
        """Maximise tier after tier; for bounds, hold every tier above at the value of `placed_above` [C]."""
        aggregate = self.aggregate
        problem = aggregate.problem
        bound = np.zeros(len(self._scale))
        values, split = hint, PoolSplit(np.zeros((len(problem.classes.count), aggregate.pools.size)), 0.0)
        level, sound = list(floors), False
        all_pods = np.where(problem.gangs.allowed[problem.classes.gang], problem.classes.count, 0)
        for t in range(len(self._scale)):
            weights = np.where(self._of_class == t, self._weights, 0)
            # The value if every pod of the tier were placed; a solve that starts there proves nothing more.
            top = int(weights @ all_pods)
            if ceiling is not None:
                top = min(top, int(ceiling.bound[t] * self._scale[t]) + int(self._slack[t]))
            fixed = int(weights @ placed_above) if placed_above is not None else None
            worth = (
                fixed
                if fixed is not None
                else int(weights @ aggregate.pods_by_class(values))
                if sound
                else -1
            )
            if worth < top - int(top * TIER_GAP) or (fixed is not None and ceiling is None and worth < top):
                floor = max((int(weights @ other) for other in level), default=0)
                least = MIN_BOUND_EFFORT if placed_above is not None else 0.0
                tier_values, spread, reached = self._tier(weights, values, floor - int(self._slack[t]), least)
                if tier_values is None and placed_above is None:
                    self._release()
                    return None
                if tier_values is not None:
                    values, split, sound = tier_values, spread, spread.short == 0.0
                top = min(top, reached)
                worth = fixed if fixed is not None else int(weights @ aggregate.pods_by_class(values))
            bound[t] = max(top, worth) / self._scale[t]
            if placed_above is None:
                level = [other for other in level if int(weights @ other) + int(self._slack[t]) >= worth]
                if ceiling is not None and worth < int(ceiling.bound[t] * self._scale[t] * (1 - TIER_GAP)):
                    ceiling = None  # below the looser model's peak, what it says of lower tiers is no limit
            self._hold(weights, worth - int(self._slack[t]))
        if placed_above is None:
            values, split = self._ties(values, split)
        self._release()
        return TieredSolution(values, split, bound)

    def _tier(
        self, weights: IntArray, hint: IntArray, floor: int, least: float = 0.0
    ) -> tuple[IntArray | None, PoolSplit, int]:
        """Solve, check whether the pods fit, cut, repeat; return the last values, their split, an upper bound."""
        aggregate = self.aggregate
        objective = aggregate.objective_coefficients(weights)
        row = self._at_least(objective, floor) if floor > 0 else None
        values: IntArray | None = None
        split = PoolSplit(np.zeros((len(weights), aggregate.pools.size)), 0.0)
        bound = HIGHEST
        for _ in range(MAX_CUTS_PER_TIER):
            answer = self._maximise(objective, hint, MAX_STEP_EFFORT, least)
            # Every answer's bound stays valid: cuts only remove choices that do not fit.
            bound = min(bound, answer.bound)
            if answer.values is None:
                break
            values = answer.values
            split, fits = self.transport.split_over_pools(values)
            if fits or (self._budget.remaining <= 0 and not least):
                break
        # The floor holds for this tier only.
        if row is not None:
            aggregate.set_row_bounds(row, -HIGHEST, HIGHEST)
        return values, split, bound

    def _ties(self, values: IntArray, split: PoolSplit) -> tuple[IntArray, PoolSplit]:
        """Maximise the number of gangs among equal tier values."""
        aggregate = self.aggregate
        objective = np.zeros(aggregate.variable_count, np.int64)
        objective[aggregate.y] = 1
        now = int(objective @ values)
        if now >= int((aggregate.bounds()[1][aggregate.y]).sum()):
            return values, split
        answer = self._maximise(objective, values, MAX_TIE_EFFORT)
        if answer.values is None or answer.objective <= now:
            return values, split
        other, fits = self.transport.split_over_pools(answer.values)
        return (answer.values, other) if fits and other.short == 0.0 else (values, split)

    def _maximise(self, objective: IntArray, hint: IntArray, most: float, least: float = 0.0) -> CpSatAnswer:
        """Maximise with at most `most` deterministic units, and `least` even if none remain."""
        units = max(1e-4, least, min(most, self._budget.remaining))
        return self._budget.maximise(self.aggregate, objective, units, gap=TIER_GAP, hint=hint)

    def _at_least(self, objective: IntArray, floor: int) -> int | None:
        used = np.flatnonzero(objective)
        return self.aggregate.add_row(used, objective[used], floor, HIGHEST) if used.size else None

    def _hold(self, weights: IntArray, floor: int) -> None:
        """Require the tier's value for the rest of this solve."""
        row = self._at_least(self.aggregate.objective_coefficients(weights), floor)
        if row is not None:
            self._rows.append(row)

    def _release(self) -> None:
        for row in self._rows:
            self.aggregate.set_row_bounds(row, -HIGHEST, HIGHEST)
        self._rows.clear()


MAX_COMPLETE_VARIABLES: Final = 1500
"""Maximum variables of a model with every domain that is solved for bounds."""
MAX_FREE_VARIABLES: Final = 1500
"""A model with more variables than this finds domains only for the gangs of the loose model's optimum."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineSolutions:
    """Earlier solutions that the tiered solve must match or improve on, and the best of them."""

    best: Solution
    placed: tuple[IntArray, ...]


class TieredStage:
    """The tiered solve of one problem, in rounds: choose gangs, place them on nodes, exclude what did not fit."""

    def __init__(
        self,
        problem: Problem,
        uncut: Problem,
        budget: Budget,
        seed: int,
        floors: BaselineSolutions,
        telemetry: Telemetry,
    ) -> None:
        """Build both models.

        Args:
          problem: the problem to solve.
          uncut: the problem without cuts and with every gang that cuts exclude; `problem` itself if there are none.
          budget: limits of time and rounds.
          seed: CP-SAT's seed.
          floors: solutions that the result must not be worse than.
          telemetry: receives the duration of each step.
        """
        self._problem, self._budget, self._telemetry = problem, budget, telemetry
        self._spending = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)
        self._floors, self.best = floors, floors.best
        with telemetry.time_stage("build"):
            packing = Packing(problem)
            pools = build_pools(packing)
            bound = bool((problem.gangs.required != NONE).any() or (problem.subgroups.required != NONE).any())
            full = TieredModel(packing, pools, floors.best) if bound or uncut is not problem else None
            if (
                uncut is not problem
            ):  # bounds hold for the session, whatever the cuts have taken from the search
                packing = Packing(uncut)
                pools = build_pools(packing)
            self._loose = TierSolver(TieredModel(packing, pools, None, relaxed=True), self._spending)
            self._full = TierSolver(full, self._spending) if full is not None else self._loose
        self._peak: TieredSolution | None = None
        self._narrow = False  # no domains were found for what the loose model takes: its bounds are too high
        self._rounds, self._bounded = 0, False
        self._preferring = bool(
            (problem.gangs.preferred != NONE).any() or (problem.subgroups.preferred != NONE).any()
        )

    def run(self) -> Solution:
        """Run rounds until the gap is small, all pods fit, improvement stops or the budget ends; compute bounds."""
        self.run_rounds()
        if self._rounds and not self._bounded:
            self._bound_best()
        self._tighten_open_bound()
        return self._result()

    def run_rounds(self) -> Solution:
        """Run rounds as `run` does, but without computing bounds, unless a round needs them to end the search."""
        gained = False
        for _ in range(self._budget.rounds):
            self._rounds += 1
            with self._telemetry.time_stage("choose"):
                plan = self._choose()
            if plan is None:
                break
            with self._telemetry.time_stage("realise"):
                realised, better = self._realise(plan, self._preferring and self._rounds == 1)
            self._bounded = self._bounded and not better
            if not (self._bounded or self._open()):
                self._bound_best()
            # The gap is compared only with a bound for what this solution places in the tiers above.
            near = self._bounded and self.best.gap <= self._budget.gap
            idle, gained = gained and not better, gained or better
            if near or idle or not realised.shortages or self._spending.remaining <= 0:
                break
            self._learn(plan, realised)
        return self._result()

    def with_bounds(self, solution: Solution) -> Solution:
        """Return a solution, which another component found, with upper bounds of the objectives of its tiers."""
        spending = self._spending
        effort, variables = solution.effort - spending.spent, solution.variables - spending.variables
        self.best = solution
        self._bound_best()
        self._tighten_open_bound()
        return replace(
            self._result(),
            guard=solution.guard or spending.guard,
            effort=effort + spending.spent,
            variables=variables + spending.variables,
        )

    def _result(self) -> Solution:
        """The best solution, with what the stage has spent."""
        spending = self._spending
        return replace(
            self.best,
            stage="aggregated",
            rounds=self._rounds,
            guard=spending.guard,
            effort=spending.spent,
            variables=spending.variables,
        )

    def _tighten_open_bound(self) -> None:
        if self.best.gap > self._budget.gap and self._narrow:
            with self._telemetry.time_stage("bound"):
                self._tighten_bound()

    def _bound_best(self) -> None:
        with self._telemetry.time_stage("bound"):
            self.best = replace(self.best, bound=self._bound(self.best))
        self._bounded = True

    # ------------------------------------------------------------------------------------ choosing

    def _choose(self) -> TieredSolution | None:
        """The gangs of the loose model's optimum, with domains from the full model."""
        floors = list(self._floors.placed)
        loose = self._loose.aggregate
        top = _above(self._loose, loose.values_of_solution(self.best), floors, None)
        if self._peak is None:
            self._peak = top
        if top is None or self._full is self._loose:
            return top
        full = self._full.aggregate
        peak = self._among(top, full.values_of_solution(self.best), whole=True)
        if peak is None:
            self._narrow = True
            if full.variable_count > MAX_FREE_VARIABLES:
                peak = self._among(top, np.zeros(full.variable_count, np.int64), whole=False)
        return peak or _above(self._full, full.values_of_solution(self.best), floors, top)

    def _among(self, top: TieredSolution, hint: IntArray, whole: bool) -> TieredSolution | None:
        """Find domains for the gangs of the loose optimum: for all of them (`whole`), or for as many as possible."""
        full, y = self._full.aggregate, self._full.aggregate.y
        # The bounds are restored below: the model is used again in the next round.
        lower, upper = (side.copy() for side in full.bounds())
        chosen = top.values[self._loose.aggregate.y]
        most = np.maximum(np.minimum(chosen, upper[y]), lower[y])
        full.set_bounds(y, np.minimum(chosen, upper[y]) if whole else lower[y], most)
        peak = self._full.maximise_tiers(hint, [], top)
        full.set_bounds(y, lower[y], upper[y])
        return peak

    # ------------------------------------------------------------------------------------ realising

    def _realise(self, plan: TieredSolution, prefer: bool) -> tuple[RoundedSolution, bool]:
        """Place a plan; return the result, and whether it beats the best solution so far."""
        realised = round_to_nodes(self._full.aggregate, plan.values, plan.split.pods, prefer)
        solution = realised.packing.to_solution("aggregated")
        better = self._beats(solution)
        if better:
            self.best = solution
        return realised, better

    def _beats(self, solution: Solution) -> bool:
        """Whether a solution is better than the best so far; among equals fewer preferred domains decide."""
        order = compare_solutions(solution, self.best)
        if order or not self._preferring:
            return order > 0
        return preferred_level_cost(self._problem, solution) < preferred_level_cost(self._problem, self.best)

    def _open(self) -> bool:
        """Whether the gap exceeds the budget's gap: the bound is never below the loose model's optimum."""
        peak = 0.0 if self._peak is None else float(self._peak.bound.sum())
        return float(self.best.objective.sum()) < peak * (1 - self._budget.gap)

    def _learn(self, plan: TieredSolution, realised: RoundedSolution) -> None:
        """Reduce the pools by the pods that did not fit there, and forbid the domains that were too full."""
        for shortage in realised.shortages:
            share = plan.split.pods[shortage.class_index]
            total = float(share.sum())
            if total > 0:
                for tier_solver in {id(c): c for c in (self._loose, self._full)}.values():
                    tier_solver.transport.tighten(
                        shortage.class_index, np.ceil(share * (shortage.pods / total))
                    )
            if self._full is not self._loose:
                self._forbid(plan, shortage.gang)

    def _forbid(self, plan: TieredSolution, gang: int) -> None:
        """Forbid this combination of gangs in this domain."""
        full = self._full.aggregate
        on = (full.cell != NONE) & (plan.values[np.maximum(full.switch, 0)] > 0) & (full.switch >= 0)
        loads = np.flatnonzero(on & (full.owner == gang))
        for load in loads.tolist():
            nodes = full.cells[int(full.cell[load])].nodes
            overlapping = [
                j
                for j in np.flatnonzero(on).tolist()
                if np.isin(full.cells[int(full.cell[j])].nodes, nodes).any()
            ]
            switches = np.unique(full.switch[overlapping])
            full.add_sum(switches, 0, len(switches) - 1)

    # ------------------------------------------------------------------------------------ bounds

    def _tighten_bound(self) -> None:
        """Compute bounds with a model of every domain: they may be lower than those of the loose model."""
        packing = self._loose.aggregate.packing
        model = TieredModel(packing, self._loose.aggregate.pools, None, complete=True)
        if model.variable_count > MAX_COMPLETE_VARIABLES:
            return
        complete = TierSolver(model, self._spending)
        placed = count_placed_pods(self._problem, self.best.classes, self.best.counts)
        loose = TieredSolution(np.zeros(0, np.int64), PoolSplit(np.zeros((0, 0)), 0.0), self.best.bound)
        bound = np.minimum(self.best.bound, complete.compute_bounds(placed, loose))
        self.best = replace(self.best, bound=np.maximum(bound, self.best.objective))

    def _bound(self, solution: Solution) -> FloatArray:
        """Upper bounds [T], each given what the solution places in the tiers above."""
        peak = self._peak
        if peak is not None:
            above = solution.objective[:-1] >= peak.bound[:-1] * (1 - TIER_TOLERANCE)
            if bool(above.all()):
                return np.maximum(peak.bound, solution.objective)
        placed = count_placed_pods(self._problem, solution.classes, solution.counts)
        return np.maximum(self._loose.compute_bounds(placed), solution.objective)


def _above(
    tier_solver: TierSolver, hint: IntArray, floors: list[IntArray], ceiling: TieredSolution | None
) -> TieredSolution | None:
    """Solve above the floors; if cuts have made that impossible, without floors."""
    return tier_solver.maximise_tiers(hint, floors, ceiling) or tier_solver.maximise_tiers(hint, [], ceiling)
