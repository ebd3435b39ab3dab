"""Maximise one tier of the tiered model after the other: each value is fixed before the next tier is maximised."""

from dataclasses import dataclass

import numpy as np

from batchsched.solver.cpsat import CpSatAnswer, CpSatBudget
from batchsched.solver.linear_model import HIGHEST, scale_weights
from batchsched.solver.objective import count_tiers
from batchsched.solver.problem import FloatArray, IntArray
from batchsched.solver.tiered.model import TieredModel
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
    """Result of a lexicographic solve: the model's values, their split over pools, proved bounds [T]."""

    values: IntArray
    split: PoolSplit
    bound: FloatArray


class TierSolver:
    """Solves one tiered model lexicographically. Its cuts remain for the next solve, the fixed tiers do not."""

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

    def climb(
        self, hint: IntArray, floors: list[IntArray], ceiling: TieredSolution | None = None
    ) -> TieredSolution | None:
        """Maximise tier after tier.

        Args:
          hint: [V] a first guess; it is feasible if it comes from a placement.
          floors: pods per class [C] of placements; the result is lexicographically no worse.
          ceiling: the optimum of a looser model of the same problem, which is an upper bound.

        Returns:
          the optimum, or None if the budget ended before any solution was found.
        """
        return self._ascend(hint, floors, ceiling, None)

    def bounds(self, placed: IntArray, ceiling: TieredSolution | None = None) -> FloatArray:
        """Return each tier's upper bound [T], given the value of `placed` [C] in the tiers above.

        With a ceiling, the bounds of a looser model, tiers that reach it are not solved again.
        """
        model, local = self.aggregate, self.transport.local
        kept = self.transport.loosen()
        # Local cuts came from tightened rows: they are no limit of the problem, and a bound must not rest on them.
        for row in local:
            model.set_row(row, -HIGHEST, HIGHEST)
        peak = self._ascend(np.zeros(model.variables, np.int64), [], ceiling, placed)
        self.transport.restore(kept)
        for row, limit in local.items():
            model.set_row(row, -HIGHEST, limit)
        return peak.bound if peak is not None else np.full(len(self._scale), np.inf)

    def _ascend(
        self,
        hint: IntArray,
        floors: list[IntArray],
        ceiling: TieredSolution | None,
        placed_above: IntArray | None,
    ) -> TieredSolution | None:
        """Maximise tier after tier; for bounds, hold every tier above at the value of `given` [C]."""
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
            worth = fixed if fixed is not None else int(weights @ aggregate.pods(values)) if sound else -1
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
                worth = fixed if fixed is not None else int(weights @ aggregate.pods(values))
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
        objective = aggregate.objective(weights)
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
            split, fits = self.transport.split(values)
            if fits or (self._budget.remaining <= 0 and not least):
                break
        # The floor holds for this tier only.
        if row is not None:
            aggregate.set_row(row, -HIGHEST, HIGHEST)
        return values, split, bound

    def _ties(self, values: IntArray, split: PoolSplit) -> tuple[IntArray, PoolSplit]:
        """Maximise the number of gangs among equal tier values."""
        aggregate = self.aggregate
        objective = np.zeros(aggregate.variables, np.int64)
        objective[aggregate.y] = 1
        now = int(objective @ values)
        if now >= int((aggregate.bounds()[1][aggregate.y]).sum()):
            return values, split
        answer = self._maximise(objective, values, MAX_TIE_EFFORT)
        if answer.values is None or answer.objective <= now:
            return values, split
        other, fits = self.transport.split(answer.values)
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
        row = self._at_least(self.aggregate.objective(weights), floor)
        if row is not None:
            self._rows.append(row)

    def _release(self) -> None:
        for row in self._rows:
            self.aggregate.set_row(row, -HIGHEST, HIGHEST)
        self._rows.clear()
