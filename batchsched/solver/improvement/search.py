"""The search: one neighbourhood after the other, until the units are spent or no step improves the solution.

A step is accepted only if the solution becomes lexicographically better. Then refused gangs that fit by themselves are
added (`solver.completion`). Steps do not depend on the units that remain, so that a larger budget runs the same steps
and then more of them: it never gives a worse solution.
"""

from dataclasses import replace
from typing import Final

from batchsched.ports.external import NoTelemetry
from batchsched.solver.completion import place_remaining_gangs
from batchsched.solver.cpsat import units_of_work
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood, NeighbourhoodSelection
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.objective import compare_solutions, count_tiers
from batchsched.solver.problem import Budget, Problem, Solution
from batchsched.solver.tiered.rounding import settle_elastic_pods

STEP_EFFORT: Final = 0.1
"""Maximum deterministic units of CP-SAT for one step."""
FIRST_STEP_EFFORT: Final = 0.3
"""Maximum deterministic units of CP-SAT for the first step, with all gangs that choose no domain."""
STEP_ROUNDS: Final = 2
"""Maximum rounds of one step."""
UNITS_PER_STEP: Final = 0.05
"""Units that every step is charged with, besides those of `units_of_work`."""
MAX_ROUNDS_EFFORT: Final = 1.0
"""Maximum units of the rounds: they end early rather than spend more. The rounds of all larger budgets are the same."""
SHORT_BUDGET: Final = 2.0
"""Units of a budget that is for the rounds, except for `SEARCH_SHARE` of it; the search has all units above it."""
SEARCH_SHARE: Final = 0.05
"""Share of a short budget for the search: the rounds may have spent all of it on the highest tiers."""
IDLE_TURNS: Final = 2
"""Turns of every tier without a gain after which the search ends, for each unit that it may spend."""


def split_budget(budget: Budget) -> tuple[Budget, float]:
    """Divide the solver budget into one part for solver rounds and one part for the improvement of the result."""
    rounds = min(budget.deterministic, MAX_ROUNDS_EFFORT)
    short = min(budget.deterministic, SHORT_BUDGET)
    return replace(budget, deterministic=rounds), SEARCH_SHARE * short + budget.deterministic - short


def improve_solution(
    problem: Problem, solution: Solution, units: float, budget: Budget, seed: int
) -> Solution:
    """Improve a solution by placing subsets of its gangs again, until the budget is used up or no step helps.

    Args:
      problem: the problem, without rows and cuts.
      solution: a legal solution.
      units: the units that the search may spend; the last step, and the steps for the tiers below a tier that gained,
        may exceed them.
      budget: the accepted gap and the wall-clock guard.
      seed: seed of CP-SAT and of the choice of neighbourhoods.

    Returns:
      a solution that is lexicographically no worse. Its bounds are those of the given solution: they hold no longer
      for the tiers below a tier that gained.
    """
    selection, tiers = NeighbourhoodSelection(problem, seed), count_tiers(problem)
    search = _Search(problem, solution, units, seed)
    first = selection.gangs_without_domain()
    if solution.gap > budget.gap and not solution.taken[first.gangs].all():
        search.take_step(first, replace(budget, deterministic=FIRST_STEP_EFFORT, rounds=STEP_ROUNDS))
    most = replace(budget, deterministic=STEP_EFFORT, rounds=STEP_ROUNDS)
    step = idle = 0
    # The lowest tier first: its steps are the shortest, and a scarce level above cannot use up its share.
    turns = list(range(tiers))[::-1]
    max_idle = IDLE_TURNS * tiers * max(1.0, units)
    due = 0  # turns that the tiers below a tier that gained are due: they may have lost for it
    proved = tiers  # from this tier on, no step with all gangs can gain
    while (search.units > 0 or due) and idle < max_idle and search.solution.gap > budget.gap:
        tier = turns.pop(0)
        everything = step < tiers or due > 0
        neighbourhood = selection.choose_neighbourhood(tier, step, search.solution, everything=everything)
        turns = turns or list(range(tiers))[::-1]
        step, idle, due = step + 1, idle + 1, max(0, due - 1)
        if tier >= proved or search.solution.taken[neighbourhood.gangs].all():
            continue
        gained, gap = search.take_step(neighbourhood, most)
        if gained:
            idle, proved = 0, tiers
            turns, due = [*range(tier + 1, tiers), *turns], tiers - 1 - tier
        if neighbourhood.complete and gap <= budget.gap:
            proved = min(proved, tier)
        if search.solution.guard:
            break
    return search.solution


class _Search:
    """The best solution so far, and the units that remain."""

    def __init__(self, problem: Problem, solution: Solution, units: float, seed: int) -> None:
        self.solution, self.units = solution, units
        self._problem, self._seed = problem, seed

    def take_step(self, neighbourhood: GangNeighbourhood, budget: Budget) -> tuple[bool, float]:
        """Place some gangs (a neighbourhood) again; return whether the solution improved, and the gap that remains."""
        solution = self.solution
        part = NeighbourhoodProblem(self._problem, solution, neighbourhood)
        answer = part.solve(budget, self._seed, NoTelemetry())
        self.units -= UNITS_PER_STEP + units_of_work(answer.effort, answer.variables, part.size)
        solution = replace(
            solution,
            guard=answer.guard,
            effort=solution.effort + answer.effort,
            variables=solution.variables + answer.variables,
        )
        gained = compare_solutions(answer, part.incumbent) > 0
        self.solution = solution
        if gained:
            self._complete(part.to_whole_problem(solution, answer))
        return gained, answer.gap

    def _complete(self, solution: Solution) -> None:
        """Adopt a better solution, with the elastic pods and the refused gangs that still fit."""
        settled = settle_elastic_pods(self._problem, solution)
        self.solution = place_remaining_gangs(self._problem, settled, self._seed)
        effort = self.solution.effort - solution.effort
        self.units -= units_of_work(effort, self.solution.variables - solution.variables, 0)
