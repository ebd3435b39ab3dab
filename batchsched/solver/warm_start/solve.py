"""The solve from a warm start: keep the placements that still fit, and place a new plan around them.

The tiered model without domains chooses the gangs of the plan, with rows from the capacity prices of earlier solves in
place of the linear program that divides pods among pools. These rows cost a tenth of it, and give nearly the same
bounds. If the answer is not near its bounds, one step of the search follows, and if that is not enough, the caller runs
the rounds.

Shapes: C classes, G gangs, T tiers.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.ports.external import Telemetry
from batchsched.solver.completion import place_gangs_that_greedy_missed
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedily_unless_worse
from batchsched.solver.improvement.search import improve_solution
from batchsched.solver.objective import (
    TIER_TOLERANCE,
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
    places_every_allowed_pod,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.start import WarmStart
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.prices import add_price_rows
from batchsched.solver.tiered.tier_solver import TieredPlan, TierSolver
from batchsched.solver.warm_start.packing import WarmStartPlacements

SEARCH_UNITS: Final = 0.05
"""Units of the search after a start: one step, with all gangs that require no level."""
GAP_FACTOR: Final = 2.0
"""An answer is near its bounds if its gap is at most this multiple of the gap of the last answer without a start, plus
the accepted gap."""


@dataclass(frozen=True, slots=True, eq=False)
class WarmStartResult:
    """The result of a warm start: a solution with upper bounds, and whether its gap is small enough."""

    solution: Solution
    is_near: bool


def solve_from_warm_start(
    problem: Problem, start: WarmStart, budget: SolverBudget, seed: int, telemetry: Telemetry
) -> WarmStartResult:
    """Place the gangs of a problem, beginning with the placements of an earlier solve (a warm start).

    Args:
      problem: the problem, without cuts.
      start: placements and prices of an earlier solve.
      budget: limits of time, and the accepted gap.
      seed: CP-SAT's seed.
      telemetry: receives the duration of each step.

    Returns:
      a legal solution that is lexicographically no worse than the start's placements that still fit, and than the
      solutions of `solve_greedy` and of `solve_like_other_batch_schedulers`.
    """
    steps = _Steps(problem, start, budget, seed, telemetry)
    if places_every_allowed_pod(problem, steps.best):
        return WarmStartResult(replace(steps.best, bound=steps.best.objective.copy()), is_near=True)
    steps.place_plan_around_start()
    if steps.best.gap > budget.gap and not problem.rows:
        steps.improve_in_one_step()
    if not steps.is_proved_optimal():
        steps.adopt_better_baseline()
    solution = steps.with_total_effort()
    near = solution.gap <= max(budget.gap, GAP_FACTOR * start.gap + budget.gap)
    return WarmStartResult(replace(solution, prices=start.prices), near and not solution.guard)


class _Steps:
    """The best solution so far, and the model that bounds it."""

    def __init__(
        self, problem: Problem, start: WarmStart, budget: SolverBudget, seed: int, telemetry: Telemetry
    ) -> None:
        self._problem, self._budget, self._seed, self._telemetry = problem, budget, seed, telemetry
        self._start = start
        self._spending = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)
        with telemetry.stage_span("start"):
            self._placements = WarmStartPlacements(problem, start)
            packing = self._placements.place_plan_on_start_nodes(self._placements.pods, moving=False)
            self.best = packing.to_solution("aggregated")

    def is_proved_optimal(self) -> bool:
        """Tell whether the solution is proved to be optimal: each tier's objective is equal to its upper bound."""
        return compare_objectives_by_tier(self.best.bound, self.best.objective) == 0

    def with_total_effort(self) -> Solution:
        """Return the best solution, with the effort of all CP-SAT calls of this solve recorded in it."""
        best, spending = self.best, self._spending
        return replace(
            best,
            effort=best.effort + spending.spent,
            variables=best.variables + spending.variables,
            guard=best.guard or spending.guard,
        )

    def place_plan_around_start(self) -> None:
        """Choose gangs while ignoring topology domains; place them on the start's nodes if possible."""
        problem, telemetry = self._problem, self._telemetry
        with telemetry.stage_span("build"):
            packing = Packing(problem)
            model = TieredModel(packing, build_pools(packing), None, relaxed=True)
            add_price_rows(model, self._start.prices)
            self._tiers = TierSolver(model, self._spending, divides_pods=False)
        with telemetry.stage_span("choose"):
            floor = count_placed_pods(problem, self.best.classes, self.best.counts)
            plan = self._tiers.maximise_tiers(model.variable_values_of_solution(self.best), [floor])
        if plan is not None:
            with telemetry.stage_span("realise"):
                packing = self._placements.place_plan_on_start_nodes(
                    model.pods_by_class(plan.values), moving=True
                )
                self._adopt(packing.to_solution("aggregated"))
        self._bound(plan)

    def improve_in_one_step(self) -> None:
        """Add gangs that still fit, then place all gangs without a required level again in one improvement step."""
        with self._telemetry.stage_span("complete"):
            answer = place_gangs_that_greedy_missed(self._problem, self.best, self._seed)
        if answer.gap > self._budget.gap:
            with self._telemetry.stage_span("improve"):
                answer = improve_solution(self._problem, answer, SEARCH_UNITS, self._budget, self._seed)
        gained = compare_solutions(answer, self.best) > 0
        self.best = answer
        if gained:
            self._bound(None)

    def adopt_better_baseline(self) -> None:
        """Adopt the greedy solution, or the one that other batch schedulers find, if it beats the best.

        They are the solutions of `solve_greedy` and of `solve_like_other_batch_schedulers`.
        """
        with self._telemetry.stage_span("greedy"):
            for plain in (False, True):
                better = solve_greedily_unless_worse(self._problem, self.best.objective, plain)
                if better is not None and self._adopt(better):
                    self._bound(None)

    def _adopt(self, solution: Solution) -> bool:
        if compare_solutions(solution, self.best) <= 0:
            return False
        best = self.best
        self.best = replace(
            solution, stage="aggregated", effort=best.effort, variables=best.variables, guard=best.guard
        )
        return True

    def _bound(self, plan: TieredPlan | None) -> None:
        """Compute an upper bound on each tier's objective, given the solution's pods in the tiers above."""
        best = self.best
        with self._telemetry.stage_span("bound"):
            if plan is not None and (best.objective[:-1] >= plan.bound[:-1] * (1 - TIER_TOLERANCE)).all():
                bound = plan.bound
            else:
                placed = count_placed_pods(self._problem, best.classes, best.counts)
                bound = self._tiers.compute_bounds(placed)
        self.best = replace(best, bound=np.maximum(bound, best.objective))
