"""The search: one neighbourhood after the other, until the units are spent or no step improves the solution.

A step is accepted only if the solution becomes lexicographically better. Steps do not depend on the units that
remain, so that a larger budget runs the same steps and then more of them: it never gives a worse solution.
"""

from dataclasses import replace
from typing import Final

from batchsched.ports.external import NoTelemetry
from batchsched.solver.improvement.neighbourhood import NeighbourhoodSelection
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.objective import compare_solutions, count_tiers
from batchsched.solver.problem import Budget, Problem, Solution

STEP_EFFORT: Final = 0.1
"""Maximum deterministic units of CP-SAT for one step."""
STEP_ROUNDS: Final = 2
"""Maximum rounds of one step."""
UNITS_PER_STEP: Final = 0.05
"""Units that every step is charged with."""
UNITS_PER_VARIABLE: Final = 6e-5
"""Units for each variable of a model that is solved, for the linear programs and for building the model."""
UNITS_PER_PAIR: Final = 2e-8
"""Units for each pair of a pod class and a node, for building the node pools and for rounding."""


MAX_ROUNDS_EFFORT: Final = 2.0
"""Maximum units of the rounds: they end early rather than spend more, so the search has what is above it."""
SEARCH_SHARE: Final = 0.05
"""Least units of the search, as a share of the budget: the rounds may have spent all of it on the highest tiers."""


def split_budget(budget: Budget) -> tuple[Budget, float]:
    """Divide the solver budget: return the part for the rounds, and the units of effort for the search after them."""
    rounds = min(budget.deterministic, MAX_ROUNDS_EFFORT)
    return (
        replace(budget, deterministic=rounds),
        max(SEARCH_SHARE * budget.deterministic, budget.deterministic - rounds),
    )


def step_cost(effort: float, variables: int, pairs: int) -> float:
    """Return the cost of one step in units of effort: those of CP-SAT, and a fixed price for all other work.

    The wall clock would not repeat. The prices are fitted to CPU seconds, at about five seconds a unit.

    Args:
      effort: CP-SAT's deterministic units.
      variables: the variables of the models that CP-SAT solved, added over all its calls.
      pairs: the pairs of a pod class and a node.
    """
    return UNITS_PER_STEP + effort + UNITS_PER_VARIABLE * variables + UNITS_PER_PAIR * pairs


def improve_solution(
    problem: Problem, solution: Solution, units: float, budget: Budget, seed: int
) -> Solution:
    """Improve a solution by deciding subsets of its gangs again, until the units are spent or no step helps.

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
    most = replace(budget, deterministic=STEP_EFFORT, rounds=STEP_ROUNDS)
    step = idle = 0
    # The lowest tier first: its steps are the shortest, and a scarce level above cannot use up its share.
    turns = list(range(tiers))[::-1]
    due = 0  # turns that the tiers below a tier that gained are due: they may have lost for it
    proved = tiers  # from this tier on, no step with all gangs can gain
    while (units > 0 or due) and idle < 2 * tiers and solution.gap > budget.gap:
        tier = turns.pop(0)
        neighbourhood = selection.choose(tier, step, solution, everything=step < tiers or due > 0)
        turns = turns or list(range(tiers))[::-1]
        step, idle, due = step + 1, idle + 1, max(0, due - 1)
        if tier >= proved or solution.taken[neighbourhood.gangs].all():
            continue
        part = NeighbourhoodProblem(problem, solution, neighbourhood)
        answer = part.solve(most, seed, NoTelemetry())
        units -= step_cost(answer.effort, answer.variables, part.size)
        solution = replace(
            solution,
            guard=answer.guard,
            effort=solution.effort + answer.effort,
            variables=solution.variables + answer.variables,
        )
        if compare_solutions(answer, part.incumbent) > 0:
            solution, idle, proved = part.to_whole_problem(solution, answer), 0, tiers
            turns, due = [*range(tier + 1, tiers), *turns], tiers - 1 - tier
        if neighbourhood.complete and answer.gap <= budget.gap:
            proved = min(proved, tier)
        if solution.guard:
            break
    return solution
