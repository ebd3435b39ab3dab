"""Tier after tier: maximise one tier of the aggregated model, fix its value, go on with the next."""

from dataclasses import dataclass

import numpy as np

from batchsched.solver.aggregate import Aggregate
from batchsched.solver.cpsat import Effort, maximise
from batchsched.solver.linear import HIGHEST, scale_weights
from batchsched.solver.problem import Budget, FloatArray, IntArray
from batchsched.solver.transport import Split, Transport
from batchsched.solver.worth import tiers

CUTS: int = 60
"""So many Benders cuts a tier at most."""
TIER_GAP: float = 2e-4
"""Each tier is solved to this relative gap."""
TIES: float = 0.02
"""Deterministic units for the number of gangs among equal tiers."""


@dataclass(frozen=True, slots=True, eq=False)
class Peak:
    """The end of a climb: the model's values, their spread over pools, and each tier's proved bound [T]."""

    values: IntArray
    split: Split
    bound: FloatArray


class Spending:
    """What is left of a session's budget, and whether a guard has fired."""

    def __init__(self, budget: Budget, seed: int) -> None:
        """Start with all of it."""
        self.left = budget.deterministic
        self.guard = False
        self._guard_seconds, self._seed = budget.guard_seconds, seed

    def effort(self, most: float) -> Effort:
        """The effort for one call, at most `most` deterministic units."""
        return Effort(max(1e-4, min(most, self.left)), self._guard_seconds, TIER_GAP, self._seed)


class Climber:
    """Climbs one aggregated model; its cuts stay for the next climb, the fixed tiers do not."""

    def __init__(self, aggregate: Aggregate, spending: Spending) -> None:
        """Scale every tier's weights to integers of their own."""
        self.aggregate = aggregate
        self.transport = Transport(aggregate)
        self._spending = spending
        problem = aggregate.problem
        self._weights = np.zeros(len(problem.count), np.int64)
        self._scale, self._slack = np.ones(tiers(problem)), np.zeros(tiers(problem), np.int64)
        of_class = problem.tier[problem.gang]
        for t in range(tiers(problem)):
            mine = np.flatnonzero(of_class == t)
            self._weights[mine], self._scale[t], slack = scale_weights(problem.weight[mine], problem.count[mine])
            self._slack[t] = slack
        self._of_class = of_class
        self._rows: list[int] = []

    def climb(self, hint: IntArray, floors: list[IntArray]) -> Peak | None:
        """Maximise tier after tier.

        Args:
          hint: [V] a first guess; feasible when it comes from a placement.
          floors: pods per class [C] of placements that the climb may not fall behind, lexicographically.

        Returns:
          the peak, or None when the budget ended before anything was found.
        """
        return self._ascend(hint, floors, None)

    def bounds(self, placed: IntArray) -> FloatArray:
        """Each tier's upper bound [T] given what `placed` [C] is worth in the tiers above."""
        peak = self._ascend(np.zeros(self.aggregate.model.variables, np.int64), [], placed)
        assert peak is not None  # noqa: S101 - bounds come also when nothing is found
        return peak.bound

    def _ascend(self, hint: IntArray, floors: list[IntArray], given: IntArray | None) -> Peak | None:
        """Climb freely, or, for bounds, with every tier above held at what `given` [C] is worth."""
        aggregate, model = self.aggregate, self.aggregate.model
        problem = aggregate.problem
        bound = np.zeros(len(self._scale))
        values, split = hint, Split(np.zeros((len(problem.count), aggregate.pools.size)), 0.0)
        level = list(floors)
        found = False
        for t in range(len(self._scale)):
            weights = np.where(self._of_class == t, self._weights, 0)
            most = int((weights * np.where(problem.allowed[problem.gang], problem.count, 0)).sum())
            fixed = int(weights @ given) if given is not None else None
            if fixed is not None and fixed >= most:
                worth, top = fixed, most
            else:
                floor = max((int(weights @ other) for other in level), default=0)
                step = self._tier(weights, values, floor - int(self._slack[t]))
                if step is None:
                    return None
                answer, split, top = step
                values = values if answer is None else answer
                found = found or answer is not None
                worth = fixed if fixed is not None else int(weights @ aggregate.pods(values))
            bound[t] = min(top, most) / self._scale[t]
            if given is None:
                level = [other for other in level if int(weights @ other) + int(self._slack[t]) >= worth]
            self._hold(weights, worth - int(self._slack[t]))
        if given is None:
            values, split = self._ties(values, split)
        self._release()
        return Peak(values, split, bound)

    def _tier(self, weights: IntArray, hint: IntArray, floor: int) -> tuple[IntArray | None, Split, int] | None:
        """Solve, ask whether it fits, cut, and again; the last answer's bound counts."""
        aggregate, spending = self.aggregate, self._spending
        objective = aggregate.objective(weights)
        row = self._at_least(objective, floor) if floor > 0 else None
        best: tuple[IntArray | None, Split, int] | None = None
        bound = HIGHEST
        for _ in range(CUTS):
            answer = maximise(aggregate.model, objective, spending.effort(0.5), hint=hint)
            spending.left -= answer.deterministic_used
            spending.guard |= answer.guard
            bound = min(bound, answer.bound)
            if answer.values is None:
                break
            split, fits = self.transport.split(answer.values)
            best = answer.values, split, bound
            if fits or spending.left <= 0:
                break
        if row is not None:
            aggregate.model.set_row(row, -HIGHEST, HIGHEST)
        if best is None:
            empty = Split(np.zeros((len(weights), aggregate.pools.size)), 0.0)
            return None, empty, bound
        return best[0], best[1], bound

    def _ties(self, values: IntArray, split: Split) -> tuple[IntArray, Split]:
        """Among equal tier values, more gangs."""
        aggregate = self.aggregate
        objective = np.zeros(aggregate.model.variables, np.int64)
        objective[aggregate.y] = 1
        now = int(objective @ values)
        if now >= int((aggregate.model.bounds()[1][aggregate.y]).sum()):
            return values, split
        answer = maximise(aggregate.model, objective, self._spending.effort(TIES), hint=values)
        self._spending.left -= answer.deterministic_used
        if answer.values is None or answer.objective <= now:
            return values, split
        other, fits = self.transport.split(answer.values)
        return (answer.values, other) if fits and other.short == 0.0 else (values, split)

    def _at_least(self, objective: IntArray, floor: int) -> int | None:
        used = np.flatnonzero(objective)
        return self.aggregate.model.add_row(used, objective[used], floor, HIGHEST) if used.size else None

    def _hold(self, weights: IntArray, floor: int) -> None:
        """Let a tier keep its value for the rest of the climb."""
        row = self._at_least(self.aggregate.objective(weights), floor)
        if row is not None:
            self._rows.append(row)

    def _release(self) -> None:
        for row in self._rows:
            self.aggregate.model.set_row(row, -HIGHEST, HIGHEST)
        self._rows.clear()
