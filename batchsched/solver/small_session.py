"""The solve of a small session by the exact model, with doubling budgets until the optimum is proved.

Most optima are proved with a small part of the budget. For the others the bounds of the tiered model are often lower
than what CP-SAT proves about the numbers of pods on nodes, and its solution is often better: both help the exact model.
A search that places parts of the gangs again finds most of what the exact model of all gangs misses.

Only whole steps are run, so that a larger budget runs the same steps and then more of them: it never gives a worse
solution.

Shapes: G gangs, T tiers.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.ports.external import Telemetry
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.exact import solve_exact
from batchsched.solver.improvement.exact_search import ExactSearch, is_proved_optimal
from batchsched.solver.objective import (
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
)
from batchsched.solver.planned_gangs import place_planned_gangs
from batchsched.solver.problem import BoolArray, FloatArray, Problem, Solution, SolverBudget
from batchsched.solver.tiered.rounds import BaselineSolutions, TieredRoundSolver

FIRST_STEP_EFFORT: Final = 0.25
"""Units of the first step, and of the tiered model after it. Each further step has as many as all steps before it."""
SEARCH_SHARE: Final = 0.75
"""Share of a further step for the search; the exact model of all gangs has the rest."""


def solve_small_session(
    problem: Problem, budget: SolverBudget, seed: int, floor: Solution, telemetry: Telemetry
) -> Solution:
    """Place the gangs of a small session by exact models; the result is no worse than the solution `floor`.

    Args:
      problem: the problem.
      budget: limits of all steps together.
      seed: CP-SAT's seed.
      floor: a legal solution.
      telemetry: receives the duration of each step of the tiered model.
    """
    steps = _Steps(problem, budget, seed, floor)
    # The tiered model handles cuts by leaving out gangs, and its bounds do not know rows of all plugins. Both may link
    # the gangs of a neighbourhood to others.
    linked = bool(problem.rows or problem.cuts)
    units = min(FIRST_STEP_EFFORT, budget.deterministic)
    steps.solve_exactly(units)
    spent = units
    if not (steps.is_proved_optimal() or linked) and 2 * spent <= budget.deterministic:
        planned = steps.solve_tiered_model(units, telemetry)
        spent += units
        if not steps.is_proved_optimal() and planned.any() and 2 * spent <= budget.deterministic:
            steps.place_planned_gangs(planned, spent)
            spent *= 2
    while not steps.is_finished() and 2 * spent <= budget.deterministic:
        # The proof starts from what the search has found.
        searched = 0.0 if linked else SEARCH_SHARE * spent
        if searched:
            steps.improve_by_subsets(searched)
        steps.solve_exactly(spent - searched)
        spent *= 2
    return steps.best


class _Steps:
    """The best solution so far, with the lowest known bounds."""

    def __init__(self, problem: Problem, budget: SolverBudget, seed: int, floor: Solution) -> None:
        self.best = floor
        self._search = ExactSearch(problem, budget, seed)
        self._problem, self._budget, self._seed = problem, budget, seed
        self._ceiling: Solution | None = None
        self._settled = False  # whether the exact model has decided among solutions of equal value

    def is_proved_optimal(self) -> bool:
        """Tell whether each tier's objective is proved to be optimal, up to the relative gap `TIER_GAP`."""
        return is_proved_optimal(self.best)

    def is_finished(self) -> bool:
        """Tell whether the search can end: the optimum is proved and ties are decided, or CP-SAT timed out.

        Ties are decided if the best solution comes from the exact model, which compares solutions of equal objective.
        CP-SAT timed out if the wall-clock guard ended one of its calls.
        """
        return (self.is_proved_optimal() and self._settled) or self.best.guard

    def solve_exactly(self, units: float) -> None:
        """Solve the exact model, starting from the best solution so far."""
        budget = replace(self._budget, deterministic=units)
        self._adopt(solve_exact(self._problem, budget, self._seed, self.best, self._ceiling), exact=True)

    def solve_tiered_model(self, units: float, telemetry: Telemetry) -> BoolArray:
        """Solve the tiered model, which gives bounds for the exact model, and perhaps a better solution.

        Returns a mask [G] of the gangs in the plan of the tiered model.
        """
        problem, best = self._problem, self.best
        placed = count_placed_pods(problem, best.classes, best.counts)
        floors = BaselineSolutions(best, (placed,))
        budget = replace(self._budget, deterministic=units, gap=0.0)
        stage = TieredRoundSolver(problem, problem, budget, self._seed, floors, telemetry)
        self._adopt(stage.solve(), exact=False)
        self._ceiling = self.best
        return stage.planned_gangs()

    def improve_by_subsets(self, units: float) -> None:
        """Improve the best solution so far by placing subsets of its gangs again."""
        searched = self._search.improve_solution(replace(self.best, effort=0.0, variables=0), units)
        self._adopt(searched, exact=False)
        self._ceiling = self.best

    def place_planned_gangs(self, planned: BoolArray, units: float) -> None:
        """Place the gangs in the mask `planned` [G] with CP-SAT; stop at the first tier that does not fit."""
        spending = CpSatBudget(units, self._budget.guard_seconds, self._seed)
        answer = place_planned_gangs(self._problem, planned, spending)
        if answer is not None:
            self._adopt(replace(answer, effort=spending.spent, variables=spending.variables), exact=False)

    def _adopt(self, answer: Solution, *, exact: bool) -> None:
        """Keep the better solution, with the bounds of both and the work of both."""
        best = self.best
        order = compare_solutions(answer, best)
        # Among equal solutions, the one of the exact model has the better packing. Its integer weights may have made it
        # worse in a tier, to gain in the tiers below.
        chosen = answer if order > 0 or (exact and order == 0) else best
        if chosen is answer:
            self._settled = exact
        self.best = replace(
            chosen,
            bound=_lowest_bounds(chosen, best if chosen is answer else answer),
            stage="exact",
            rounds=max(1, best.rounds),
            guard=best.guard or answer.guard,
            effort=best.effort + answer.effort,
            variables=best.variables + answer.variables,
        )


def _lowest_bounds(chosen: Solution, other: Solution) -> FloatArray:
    """The bounds [T] of a solution, reduced by those of another one as long as the tiers above are equal."""
    bound = chosen.bound.copy()
    for tier in range(len(bound)):
        bound[tier] = min(bound[tier], other.bound[tier])
        if compare_objectives_by_tier(chosen.objective[tier : tier + 1], other.objective[tier : tier + 1]):
            break
    lowest: FloatArray = np.maximum(bound, chosen.objective)
    return lowest
