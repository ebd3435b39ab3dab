"""The improvement of a small session: the exact model places some gangs again, while others keep their nodes.

CP-SAT rarely proves the optimum of a contended session, and its solutions then end up to a tenth below. With half of
the gangs fixed it proves the best places of the other half in a hundredth of the time. Steps alternate between two
kinds of neighbourhoods: a random half of the placed gangs with all refused ones, and the gangs on the nodes that one
gang may use.

Shapes: C classes, G gangs, N nodes, T tiers.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.solver.exact import solve_exact
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.objective import (
    compare_objectives_by_tier,
    compare_solutions,
    objective_upper_bounds_by_tier,
)
from batchsched.solver.problem import FloatArray, IntArray, Problem, Solution, SolverBudget
from batchsched.solver.tiered.tier_solver import TIER_GAP

STEP_EFFORT: Final = 0.03
"""Maximum deterministic units of CP-SAT for one step."""
UNITS_PER_STEP: Final = 0.002
"""Units that every step is charged with besides those of CP-SAT."""
PLACED_SHARE: Final = 0.5
"""Share of the placed gangs that a random neighbourhood decides again."""
FIRST_RELATED_PAIRS: Final = 400
"""Pairs of a pod class and a node in the first neighbourhood of related gangs."""
PAIRS_PACE: Final = 0.1
"""By how much such a neighbourhood grows after a step that ended within its units, and shrinks after another one."""
REFUSED_SHARE: Final = 0.8
"""Share of the neighbourhoods of related gangs that start from a refused gang, if there is one."""


class ExactSearch:
    """A search that improves the solution of a small session: CP-SAT places subsets of the gangs again.

    CP-SAT has variables for each single node. The problem has no rows and no cuts, because these may link the gangs of
    a neighbourhood to other gangs.
    """

    def __init__(self, problem: Problem, budget: SolverBudget, seed: int) -> None:
        self._problem, self._budget, self._seed = problem, budget, seed
        self._step, self._related_pairs = 0, float(FIRST_RELATED_PAIRS)
        self._usable = problem.kinds.mask[problem.classes.kind]
        gangs = len(problem.gangs.need)
        self._pairs = np.bincount(problem.classes.gang, self._usable.sum(axis=1), minlength=gangs)

    def improve_solution(self, solution: Solution, units: float) -> Solution:
        """Place subsets of the gangs again until the budget is used up or the optimum is proved.

        Args:
          solution: a legal solution with valid bounds.
          units: the units to spend; the last step may exceed them.

        Returns:
          a solution that is lexicographically no worse, with valid bounds.
        """
        while units > 0 and not is_proved_optimal(solution) and not solution.guard:
            related = self._step % 2 == 1
            gangs = self._choose_related(solution) if related else self._choose_random(solution)
            self._step += 1
            part = NeighbourhoodProblem(self._problem, solution, GangNeighbourhood(gangs, complete=False))
            answer = self._solve(part, solution)
            if related:
                ended = answer.effort < STEP_EFFORT / 2
                self._related_pairs *= 1 + PAIRS_PACE if ended else 1 - PAIRS_PACE
            units -= answer.effort + UNITS_PER_STEP
            if compare_solutions(answer, part.incumbent) > 0:
                solution = _with_valid_bounds(
                    self._problem, part.to_solution_of_whole_problem(solution, answer), solution
                )
            solution = replace(
                solution,
                guard=solution.guard or answer.guard,
                effort=solution.effort + answer.effort,
                variables=solution.variables + answer.variables,
            )
        return solution

    def _solve(self, part: NeighbourhoodProblem, solution: Solution) -> Solution:
        """Place the gangs of a neighbourhood by the exact model, as much better as the bounds of the session allow."""
        incumbent = part.incumbent
        tiers = len(incumbent.objective)
        gap = np.maximum(0.0, solution.bound - solution.objective)[:tiers]
        ceiling = replace(incumbent, bound=incumbent.objective + gap)
        budget = replace(self._budget, deterministic=STEP_EFFORT)
        return solve_exact(part.problem, budget, self._seed, incumbent, ceiling, tiers_only=True)

    # ------------------------------------------------------------------------------------ neighbourhoods

    def _random(self) -> "np.random.Generator":  # numpy loads this module, 7 ms, when it is first used
        return np.random.default_rng([self._seed, self._step])

    def _choose_random(self, solution: Solution) -> IntArray:
        """All refused gangs and a random part of the placed ones."""
        drawn = self._random().random(len(solution.taken)) < PLACED_SHARE
        return np.flatnonzero(self._problem.gangs.allowed & (drawn | ~solution.taken))

    def _choose_related(self, solution: Solution) -> IntArray:
        """One gang, mostly a refused one, and gangs on the nodes that it may use, up to a number of pairs."""
        random, allowed = self._random(), self._problem.gangs.allowed
        refused, placed = np.flatnonzero(allowed & ~solution.taken), np.flatnonzero(allowed & solution.taken)
        from_refused = refused.size and (not placed.size or random.random() < REFUSED_SHARE)
        first = int(random.choice(refused if from_refused else placed))
        # Shares differ little between gangs, so that the random part decides about many of them.
        near = self._shares_on_nodes_of(first, solution) + random.random(len(allowed))
        near[first] = np.inf
        order = np.argsort(-near, kind="stable")
        order = order[allowed[order]]
        chosen: list[int] = []
        pairs = 0.0
        for gang in order.tolist():
            if not chosen or pairs + self._pairs[gang] <= self._related_pairs:
                chosen.append(gang)
                pairs += self._pairs[gang]
        return np.sort(np.array(chosen, np.int64))

    def _shares_on_nodes_of(self, gang: int, solution: Solution) -> FloatArray:
        """For each gang [G] the share of its placements on nodes that some pod of the given gang may use."""
        classes = self._problem.classes
        usable = self._usable[classes.gang == gang].any(axis=0)
        owner, gangs = classes.gang[solution.classes], len(solution.taken)
        inside = np.bincount(owner, usable[solution.nodes], minlength=gangs)
        return inside / np.maximum(1, np.bincount(owner, minlength=gangs))


def is_proved_optimal(solution: Solution) -> bool:
    """Tell whether the objective of each tier is proved to be optimal, up to the relative gap `TIER_GAP`."""
    return bool((solution.bound <= solution.objective * (1 + TIER_GAP)).all())


def _with_valid_bounds(problem: Problem, better: Solution, before: Solution) -> Solution:
    """A solution with those bounds of a worse one that still hold; for other tiers, with the values of all pods.

    A bound holds if each tier above has at least the value for which it was found.
    """
    bound = objective_upper_bounds_by_tier(problem)
    for tier in range(len(bound)):
        bound[tier] = before.bound[tier]
        pair = better.objective[tier : tier + 1], before.objective[tier : tier + 1]
        if compare_objectives_by_tier(*pair) < 0:
            break
    return replace(better, bound=np.maximum(bound, better.objective))
