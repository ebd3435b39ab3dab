"""Completion: an exact search places refused gangs in the capacity that the other gangs leave.

Only trees, gangs with levels of subgroups and gangs of several classes are searched. Rounding and the greedy fill nodes
class by class. If a gang of several classes needs nearly all of the free capacity, one order of its pods may fail where
another one succeeds. The exact model of a single gang on the nodes that still have room is small also in large
clusters, and finds a placement if there is one. `solver.tree_search` decides about trees.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.node_model import count_fitting_pods
from batchsched.solver.objective import objectives_by_tier
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.relaxation.explain import (
    GangProblemIsolator,
    IsolatedGangProblem,
    problem_of_refused_gangs,
)
from batchsched.solver.relaxation.residual import ResidualProblem
from batchsched.solver.tree_search import (
    SEARCH_EFFORT,
    find_placement_or_proof,
    mask_gangs_that_greedy_may_miss,
)

MAX_COMPLETED_GANGS: Final = 8
"""Maximum gangs that are solved exactly in a session."""
MAX_PAIRS: Final = 300
"""Maximum pairs of a pod class and a node in the exact model of one gang."""
GANG_EFFORT: Final = 0.05
"""Maximum deterministic units of CP-SAT for one gang."""
MAX_SEARCHED_GANGS: Final = 16
"""Maximum trees, and gangs with levels of subgroups, that are searched in a session."""
MAX_SEARCH_EFFORT: Final = 2.0
"""Maximum deterministic units of CP-SAT for all of these in a session."""
MAX_EXAMINED_GANGS: Final = 32
"""Maximum refused gangs for which the free capacity is compared with the requests."""


def place_gangs_that_greedy_missed(problem: Problem, solution: Solution, seed: int) -> Solution:
    """Add refused gangs to a solution if an exact search can place them in the capacity that is left.

    Gangs are tried in the order of their tiers and ranks, each by itself. No placed pod moves. Only gangs with several
    pod classes, a subgroup tree or levels of subgroups are tried. For any other gang, the greedy algorithm finds a
    placement if there is one.

    Args:
      problem: the problem that the solution is for.
      solution: a legal solution.
      seed: CP-SAT's seed.
    """
    classes_of_gang = np.bincount(problem.classes.gang, minlength=len(problem.gangs.need))
    # The exact model of the remaining capacity has no cuts, so a refused placement could be repeated.
    cut = np.isin(np.arange(len(classes_of_gang)), [one.gang for one in problem.cuts])
    searched = mask_gangs_that_greedy_may_miss(problem)
    several = (classes_of_gang > 1) | searched
    refused = np.flatnonzero(~solution.taken & problem.gangs.allowed & several & ~cut)
    order = refused[np.lexsort((problem.gangs.rank[refused], problem.gangs.tier[refused]))]
    isolator, solved, searches, units = None, 0, 0, MAX_SEARCH_EFFORT
    for gang in order[:MAX_EXAMINED_GANGS].tolist():
        isolator = isolator or GangProblemIsolator(problem_of_refused_gangs(problem, solution))
        isolated = isolator.isolate_gang(gang)
        if searched[gang] and searches < MAX_SEARCHED_GANGS and units > 0:
            search = find_placement_or_proof(isolated.problem, min(SEARCH_EFFORT, units), seed)
            searches, units = searches + 1, units - search.effort
            solution = replace(
                solution,
                effort=solution.effort + search.effort,
                variables=solution.variables + search.variables,
                guard=solution.guard or search.guard,
            )
            if search.solution is not None:
                solution, isolator = (
                    add_gang_to_solution(problem, solution, isolated, search.solution),
                    None,
                )
            continue
        if not ResidualProblem(isolated.problem).may_fit():
            continue
        if int(np.count_nonzero(count_fitting_pods(isolated.problem))) > MAX_PAIRS:
            continue
        exact = solve_exact(isolated.problem, SolverBudget(deterministic=GANG_EFFORT), seed)
        solution = replace(
            solution,
            effort=solution.effort + exact.effort,
            variables=solution.variables + exact.variables,
            guard=solution.guard or exact.guard,
        )
        solved += 1
        if exact.taken[0]:
            solution, isolator = add_gang_to_solution(problem, solution, isolated, exact), None
        if solved == MAX_COMPLETED_GANGS:
            break
    return solution


def solve_single_gang(problem: Problem, seed: int = 0) -> Solution:
    """Place the only gang of a problem by the greedy algorithm, or, if that fails, by an exact search."""
    solution = solve_greedy(problem)
    if solution.taken[0] or not problem.gangs.allowed[0] or not mask_gangs_that_greedy_may_miss(problem)[0]:
        return solution
    isolated = GangProblemIsolator(replace(problem, cuts=())).isolate_gang(0)
    search = find_placement_or_proof(isolated.problem, SEARCH_EFFORT, seed)
    solution = replace(solution, guard=search.guard)
    return (
        solution
        if search.solution is None
        else add_gang_to_solution(problem, solution, isolated, search.solution)
    )


def add_gang_to_solution(
    problem: Problem, solution: Solution, isolated: IsolatedGangProblem, exact: Solution
) -> Solution:
    """Add one gang to a solution, with the placements that a separate solve found for this gang alone.

    Args:
      problem: the problem of all gangs.
      solution: a solution without the gang.
      isolated: the problem of the gang alone.
      exact: the solution of that problem.
    """
    classes = np.concatenate([solution.classes, isolated.classes[exact.classes].astype(np.int32)])
    nodes = np.concatenate([solution.nodes, exact.nodes])
    counts = np.concatenate([solution.counts, exact.counts])
    order = np.lexsort((nodes, classes))
    taken = solution.taken.copy()
    taken[isolated.gang] = True
    objective = objectives_by_tier(problem, classes, counts)
    return replace(
        solution,
        classes=classes[order],
        nodes=nodes[order],
        counts=counts[order],
        taken=taken,
        objective=objective,
        # More pods in a tier leave no more capacity to the tiers below, so their bounds still hold.
        bound=np.maximum(solution.bound, objective),
    )
