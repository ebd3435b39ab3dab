"""Planned gangs: CP-SAT places all gangs of a given plan on nodes, without choosing among them.

The plan of the tiered model is often possible on the nodes although rounding does not find it. With all its gangs
fixed, the exact model has nothing to maximize, and CP-SAT finds a placement up to a hundred times faster than the
optimum of the session. The gangs of the highest tier are placed first, then those of the two highest, and so on:
the answer is the last placement that was found, and the greedy algorithm adds what still fits.
"""

from dataclasses import replace

import numpy as np

from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.node_model import NodeLevelModel
from batchsched.solver.objective import (
    count_pods_still_required,
    count_tiers,
    objective_upper_bounds_by_tier,
    objectives_by_tier,
)
from batchsched.solver.problem import BoolArray, Problem, Solution
from batchsched.solver.quota_selection import GangSubsetProblem, build_gang_subset_problem


def place_planned_gangs(problem: Problem, planned: BoolArray, budget: CpSatBudget) -> Solution | None:
    """Use CP-SAT to place the minimums of all planned gangs, tier by tier, until a tier does not fit.

    Args:
      problem: the problem, without rows and cuts.
      planned: [G] the gangs of the plan.
      budget: the budget of CP-SAT. Each tier may use its share of it.

    Returns:
      a legal solution with all planned gangs of the highest tiers, or None if not even the first tier was placed. Its
      bounds are the objectives that all pods together would reach.
    """
    placement: Solution | None = None
    tiers = count_tiers(problem)
    for tier in range(tiers):
        kept = planned & problem.gangs.allowed & (problem.gangs.tier <= tier)
        if not (kept & (problem.gangs.tier == tier)).any():
            continue
        placed = _place_all(
            build_gang_subset_problem(problem, kept), budget, budget.remaining / (tiers - tier)
        )
        if placed is None:
            break
        placement = placed
    return None if placement is None else _add_others(problem, placement)


def _place_all(subset: GangSubsetProblem, budget: CpSatBudget, units: float) -> Solution | None:
    """The gangs of a subset with all their minimums, or None."""
    model = NodeLevelModel(subset.problem)
    switches = model.taken[model.taken >= 0]
    ones = np.ones(len(switches), np.int64)
    model.set_variable_bounds(switches, ones, ones)
    answer = budget.maximise(model, np.zeros(model.variable_count, np.int64), max(1e-4, units))
    if answer.values is None:
        return None
    counts = answer.values[: len(model.classes)]
    placed = np.flatnonzero(counts)
    taken = np.ones(len(subset.gangs), np.bool_)
    solution = Solution(
        classes=model.classes[placed].astype(np.int32),
        nodes=model.nodes[placed].astype(np.int32),
        counts=counts[placed].astype(np.int32),
        taken=taken,
        objective=objectives_by_tier(subset.problem, model.classes[placed], counts[placed]),
        bound=objective_upper_bounds_by_tier(subset.problem),
        stage="exact",
    )
    return subset.to_solution_of_whole_problem(solution)


def _add_others(problem: Problem, solution: Solution) -> Solution:
    """The solution with the gangs and elastic pods that the greedy algorithm adds."""
    solution = replace(solution, bound=objective_upper_bounds_by_tier(problem))
    rest = np.flatnonzero(
        problem.gangs.allowed & (~solution.taken | (count_pods_still_required(problem) == 0))
    )
    part = NeighbourhoodProblem(problem, solution, GangNeighbourhood(rest, complete=False))
    return part.to_solution_of_whole_problem(solution, solve_greedy(part.problem))
