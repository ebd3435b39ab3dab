"""The tiered model, solved one tier after the other: a tier's value is fixed before the next tier is maximized.

CP-SAT chooses gangs and domains, and a linear program divides their pods among the node pools (`transport`). If the
pods do not fit, a cut excludes the choice, and CP-SAT chooses again.

Shapes: C classes, T tiers, V variables.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from batchsched.solver.cpsat import CpSatAnswer, CpSatBudget
from batchsched.solver.linear_model import (
    HIGHEST,
    drop_dominating_unplaceable_classes,
    scale_weights_to_integers,
)
from batchsched.solver.objective import count_tiers
from batchsched.solver.problem import NONE, FloatArray, IntArray
from batchsched.solver.tiered.model import OPEN, TieredModel
from batchsched.solver.tiered.transport import PoolSplit, PoolTransport

MAX_CUTS_PER_TIER: int = 16
"""Maximum Benders cuts a tier: a plan that still does not fit is placed as far as possible."""
TIER_GAP: float = 2e-4
"""Relative gap to which each tier is solved."""
MAX_DOMAIN_CHOICES: Final = 2
"""Maximum choices of domains for a tier."""
ROUND_SHARE: Final = 0.5
"""Share of the remaining deterministic units that one search for domains may spend, divided among the tiers."""
MAX_STEP_EFFORT: float = 0.15
"""Maximum deterministic units of one call."""
MIN_BOUND_EFFORT: float = 0.05
"""Deterministic units that a bound may always spend: without a bound there is no gap to report."""
MAX_TIE_EFFORT: float = 0.02
"""Deterministic units for maximising the number of gangs among equal objectives."""


@dataclass(frozen=True, slots=True, eq=False)
class TieredPlan:
    """The result of the tiered model: values of the variables, pods by node pool, and objective bounds [T]."""

    values: IntArray
    split: PoolSplit
    bound: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _TierChoice:
    """What a tier chose: the variables' values or None, the pods by pool, whether they fit, and an upper bound."""

    values: IntArray | None
    split: PoolSplit
    fits: bool
    bound: int

    def objective_value(self, objective: IntArray) -> int:
        """Return the value of the tier's objective for this choice of gangs; -1 if no choice was found."""
        return -1 if self.values is None else int(objective @ self.values)

    def is_better_than(self, other: "_TierChoice", objective: IntArray) -> bool:
        """Return whether this choice of gangs is better than `other`.

        A choice that fits is better than one that does not. If both fit or both do not, the higher objective decides.
        """
        return (self.fits, self.objective_value(objective)) > (other.fits, other.objective_value(objective))


@dataclass(slots=True, eq=False)
class _Ascent:
    """The state between two tiers.

    Args:
      values, split: the choice so far; at first the hint.
      floors: placements that are as good as the choice in the tiers so far.
      ceiling: the optimum of a looser model, as long as the choice reaches it.
      reserve: deterministic units that remain for later searches.
      bound: [T] upper bounds.
      solved: whether a tier has been solved.
      fits: whether the pods of the choice fit into the pools.
    """

    values: IntArray
    split: PoolSplit
    floors: list[IntArray]
    ceiling: TieredPlan | None
    reserve: float
    bound: FloatArray
    solved: bool = False
    fits: bool = False

    def adopt_choice(self, choice: _TierChoice) -> None:
        """Adopt the choice of gangs of a tier; the solve of the next tier starts from it."""
        assert choice.values is not None
        self.values, self.split = choice.values, choice.split
        self.solved, self.fits = True, choice.split.short == 0.0


class TierSolver:
    """Solver that maximizes the tiers' objectives one by one, highest first, without lowering earlier ones.

    Its cuts remain for the next solve, the fixed tiers do not.
    """

    def __init__(
        self,
        aggregate: TieredModel,
        budget: CpSatBudget,
        chooses_domains: bool = False,
        divides_pods: bool = True,
    ) -> None:
        """Scale every tier's weights to integers, each tier by its own factor.

        With `chooses_domains`, the search is that of a model with many domains: the gangs of a tier are fixed, and not
        only its value, before the next tier is maximized, and no bound of the problem comes from it. Without
        `divides_pods` a choice counts as fitting if the rows of the model allow it: bounds are valid, and maybe higher.
        """
        self._chooses_domains = chooses_domains
        self.aggregate = aggregate
        self._divides_pods = divides_pods
        self._budget = budget
        problem = aggregate.problem
        self._weights = np.zeros(len(problem.classes.count), np.int64)
        self._scale, self._slack = np.ones(count_tiers(problem)), np.zeros(count_tiers(problem), np.int64)
        of_class = problem.gangs.tier[problem.classes.gang]
        self._max_pods = aggregate.max_pods_by_class()
        for t in range(count_tiers(problem)):
            classes = np.flatnonzero(of_class == t)
            weights = problem.classes.weight[classes]
            counts = drop_dominating_unplaceable_classes(
                weights, problem.classes.count[classes], self._max_pods[classes]
            )
            self._weights[classes], self._scale[t], self._slack[t] = scale_weights_to_integers(
                weights, counts
            )
        self._of_class = of_class
        self._rows: list[int] = []
        self._switches = np.setdiff1d(aggregate.switch[aggregate.cell != NONE], np.append(aggregate.y, OPEN))
        self._variables = [self._variables_of_tier(t) for t in range(count_tiers(problem))]

    @cached_property
    def transport(self) -> PoolTransport:
        """The linear program that divides the chosen pods among the node pools."""
        return PoolTransport(self.aggregate)

    def _variables_of_tier(self, tier: int) -> IntArray:
        """The variables that are 0 if the gangs of a tier place no more pods than they have."""
        aggregate = self.aggregate
        gangs = np.flatnonzero((aggregate.problem.gangs.tier == tier) & (aggregate.needs > 0))
        loads = (aggregate.switch == OPEN) & (self._of_class[aggregate.class_index] == tier)
        return np.concatenate([aggregate.y[gangs], aggregate.variable[loads]])

    def maximise_tiers(
        self, hint: IntArray, floors: list[IntArray], ceiling: TieredPlan | None = None
    ) -> TieredPlan | None:
        """Choose gangs and pods tier by tier, the highest priority tier first, so that each objective is maximal.

        Args:
          hint: [V] a first guess; it is feasible if it comes from a placement.
          floors: pods per class [C] of placements; the result is lexicographically no worse.
          ceiling: the optimum of a looser model of the same problem, which is an upper bound.

        Returns:
          the optimum, or None if the budget ended before any solution was found.
        """
        return self._ascend(hint, floors, ceiling, None)

    def compute_bounds(self, placed: IntArray, ceiling: TieredPlan | None = None) -> FloatArray:
        """Return an upper bound on each tier's objective [T], given the placed pods [C] of the higher tiers.

        With a ceiling, the bounds of a looser model, tiers that reach it are not solved again.
        """
        if not self._divides_pods:
            peak = self._ascend(np.zeros(self.aggregate.variable_count, np.int64), [], ceiling, placed)
            return peak.bound if peak is not None else np.full(len(self._scale), np.inf)
        model, local = self.aggregate, self.transport.local
        kept = self.transport.reset_to_original_limits()
        # Local cuts came from tightened rows: they are no limit of the problem, and a bound must not rest on them.
        for row in local:
            model.set_row_bounds(row, -HIGHEST, HIGHEST)
        peak = self._ascend(np.zeros(model.variable_count, np.int64), [], ceiling, placed)
        self.transport.set_limits(kept)
        for row, limit in local.items():
            model.set_row_bounds(row, -HIGHEST, limit)
        return peak.bound if peak is not None else np.full(len(self._scale), np.inf)

    def _ascend(
        self,
        hint: IntArray,
        floors: list[IntArray],
        ceiling: TieredPlan | None,
        placed_above: IntArray | None,
    ) -> TieredPlan | None:
        """Maximize tier after tier; for bounds, hold every tier above at the value of `placed_above` [C]."""
        aggregate, tiers = self.aggregate, len(self._scale)
        reserve = self._budget.remaining * (1 - ROUND_SHARE)
        ascent = _Ascent(hint, self._no_pods(), list(floors), ceiling, reserve, np.zeros(tiers))
        # The bounds are restored below: the model is used again.
        lower, upper = (side.copy() for side in aggregate.variable_bounds())
        every = np.concatenate(self._variables)
        # A row of a plugin may need pods of a lower tier; otherwise they only take room.
        if not aggregate.problem.rows:
            aggregate.set_variable_bounds(every, lower[every], lower[every])
        complete = True
        for t in range(tiers):
            own = self._variables[t]
            aggregate.set_variable_bounds(own, lower[own], upper[own])
            complete = self._ascend_tier(t, ascent, placed_above)
            if not complete:
                break
        if complete and placed_above is None:
            ascent.values, ascent.split = self._ties(ascent.values, ascent.split)
        self._release()
        aggregate.set_variable_bounds(every, lower[every], upper[every])
        return TieredPlan(ascent.values, ascent.split, ascent.bound) if complete else None

    def _ascend_tier(self, t: int, ascent: _Ascent, placed_above: IntArray | None) -> bool:
        """Maximize one tier and hold it; False if there is no choice."""
        weights, ceiling = np.where(self._of_class == t, self._weights, 0), ascent.ceiling
        top = int(weights @ self._max_pods)
        if ceiling is not None:
            top = min(top, int(ceiling.bound[t] * self._scale[t]) + int(self._slack[t]))
        fixed = None if placed_above is None else int(weights @ placed_above)
        worth = self._worth(weights, ascent.values) if ascent.fits else -1
        worth = worth if fixed is None else fixed
        # A solve that starts at the top proves nothing more.
        if worth < top - int(top * TIER_GAP) or (fixed is not None and ceiling is None and worth < top):
            floor = max((int(weights @ other) for other in ascent.floors), default=0)
            least = MIN_BOUND_EFFORT if fixed is not None else 0.0
            most = (self._budget.remaining - ascent.reserve) / (len(self._scale) - t)
            choice = self._tier(weights, ascent.values, floor - int(self._slack[t]), least=least, most=most)
            if choice.values is not None:
                ascent.adopt_choice(choice)
            elif fixed is None:
                return False
            top = min(top, choice.bound)
            worth = fixed if fixed is not None else self._worth(weights, ascent.values)
        ascent.bound[t] = max(top, worth) / self._scale[t]
        self._hold(weights, worth - int(self._slack[t]))
        if fixed is None:
            self._settle_tier(t, ascent, weights, worth)
        return True

    def _settle_tier(self, t: int, ascent: _Ascent, weights: IntArray, worth: int) -> None:
        """Drop what is known of lower tiers and holds no longer, given the value of this tier; fix its gangs."""
        ascent.floors = [f for f in ascent.floors if int(weights @ f) + int(self._slack[t]) >= worth]
        ceiling = ascent.ceiling
        if ceiling is not None and worth < int(ceiling.bound[t] * self._scale[t] * (1 - TIER_GAP)):
            # Below the looser model's peak, what it says of lower tiers is no limit.
            ascent.ceiling = None
        if self._chooses_domains and ascent.solved:
            # Other gangs with the same value are rare, and the lower tiers are far easier with fixed gangs above.
            gangs = self.aggregate.y[self.aggregate.problem.gangs.tier == t]
            self.aggregate.set_variable_bounds(gangs, ascent.values[gangs], ascent.values[gangs])

    def _worth(self, weights: IntArray, values: IntArray) -> int:
        return int(weights @ self.aggregate.pods_by_class(values))

    def _tier(
        self, weights: IntArray, hint: IntArray, floor: int, *, least: float, most: float
    ) -> _TierChoice:
        """Maximize the value of one tier over the choices that fit into the pools.

        Args:
          weights: [C] the tier's weights.
          hint: [V] a first guess.
          floor: the least value.
          least: deterministic units of each call even if none remain.
          most: deterministic units after which no further choice of domains is tried.
        """
        objective = self.aggregate.objective_coefficients(weights)
        row = self._at_least(objective, floor) if floor > 0 else None
        if self._chooses_domains:
            choice = self._choose_domains(objective, hint, most)
        else:
            choice = self._cut_until_fitting(objective, hint, least)
        # The floor holds for this tier only.
        if row is not None:
            self.aggregate.set_row_bounds(row, -HIGHEST, HIGHEST)
        return choice

    def _cut_until_fitting(self, objective: IntArray, hint: IntArray, least: float = 0.0) -> _TierChoice:
        """Solve, check whether the pods fit, cut, repeat."""
        best = _TierChoice(None, self._no_pods(), False, HIGHEST)
        for _ in range(MAX_CUTS_PER_TIER):
            answer = self._maximise(objective, hint, MAX_STEP_EFFORT, least)
            # Every answer's bound stays valid: cuts only remove choices that do not fit.
            best = replace(best, bound=min(best.bound, answer.bound))
            if answer.values is None:
                break
            if not self._divides_pods:
                return replace(best, values=answer.values, fits=True)
            split, fits = self.transport.split_over_pools_or_add_cut(answer.values)
            best = replace(best, values=answer.values, split=split, fits=fits)
            if fits or (self._budget.remaining <= 0 and not least):
                break
        return best

    def _choose_domains(self, objective: IntArray, hint: IntArray, most: float) -> _TierChoice:
        """Choose domains; if the pods do not fit into the pools, choose among the gangs in these domains until they do.

        With fixed domains CP-SAT takes milliseconds, so that the cuts cost little.
        """
        best = _TierChoice(None, self._no_pods(), False, HIGHEST)
        reserve = self._budget.remaining - most
        for _ in range(MAX_DOMAIN_CHOICES):
            answer = self._maximise(objective, hint, MAX_STEP_EFFORT)
            best = replace(best, bound=min(best.bound, answer.bound))
            if answer.values is None:
                break
            split, fits = self.transport.split_over_pools_or_add_cut(answer.values)
            choice = replace(best, values=answer.values, split=split, fits=fits)
            if not fits:
                choice = self._fit_in_domains(objective, choice)
            if choice.is_better_than(best, objective):
                best = choice
            worth = best.objective_value(objective)
            if (best.fits and worth >= best.bound * (1 - TIER_GAP)) or self._budget.remaining <= reserve:
                break
            hint = best.values if best.values is not None else hint
        return best

    def _fit_in_domains(self, objective: IntArray, choice: _TierChoice) -> _TierChoice:
        """Choose again among the gangs, each in the domain of the given choice; its bound stays the valid one."""
        model, values = self.aggregate, choice.values
        if values is None:
            return choice
        closed = self._switches[values[self._switches] == 0]
        upper = model.variable_bounds()[1][closed].copy()
        lower = model.variable_bounds()[0][closed].copy()
        model.set_variable_bounds(closed, lower, lower)
        fitting = self._cut_until_fitting(objective, values)
        model.set_variable_bounds(closed, lower, upper)
        return choice if fitting.values is None else replace(fitting, bound=choice.bound)

    def _no_pods(self) -> PoolSplit:
        classes = len(self.aggregate.problem.classes.count)
        return PoolSplit(np.zeros((classes, self.aggregate.pools.pool_count)), 0.0)

    def _ties(self, values: IntArray, split: PoolSplit) -> tuple[IntArray, PoolSplit]:
        """Maximize the number of gangs among equal objectives."""
        aggregate = self.aggregate
        objective = np.zeros(aggregate.variable_count, np.int64)
        objective[aggregate.y] = 1
        now = int(objective @ values)
        if now >= int((aggregate.variable_bounds()[1][aggregate.y]).sum()):
            return values, split
        answer = self._maximise(objective, values, MAX_TIE_EFFORT)
        if answer.values is None or answer.objective <= now:
            return values, split
        if not self._divides_pods:
            return answer.values, split
        other, fits = self.transport.split_over_pools_or_add_cut(answer.values)
        return (answer.values, other) if fits and other.short == 0.0 else (values, split)

    def _maximise(self, objective: IntArray, hint: IntArray, most: float, least: float = 0.0) -> CpSatAnswer:
        """Maximize with at most `most` deterministic units, and `least` even if none remain."""
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
