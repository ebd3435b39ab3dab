"""The solver's entry point: greedy, exact or tiered solve, and verification."""

import logging
from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.ports.external import NoTelemetry, Telemetry
from batchsched.ports.workers import SolverWorkers
from batchsched.solver.completion import place_gangs_that_greedy_missed
from batchsched.solver.cpsat import CpSatBudget
from batchsched.solver.greedy import pack_greedily, solve_greedy, solve_like_other_batch_schedulers
from batchsched.solver.improvement.search import improve_solution, split_budget_for_rounds_and_improvement
from batchsched.solver.objective import (
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
    mask_gangs_beyond_quotas,
    mask_gangs_with_unplaceable_minimum,
    mask_unplaceable_pod_classes,
    places_every_allowed_pod,
    preferred_level_cost,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.planned_gangs import place_planned_gangs
from batchsched.solver.problem import BoolArray, Problem, ProblemClassKinds, Solution, SolverBudget
from batchsched.solver.quota_selection import (
    build_gang_subset_problem,
    is_limited_by_quotas_only,
    solve_by_quotas,
)
from batchsched.solver.small_session import solve_small_session
from batchsched.solver.start import MAX_PRICES, WarmStart
from batchsched.solver.tiered.rounding import add_elastic_pods_ejecting_lower_tiers
from batchsched.solver.tiered.rounds import BaselineSolutions, TieredRoundSolver
from batchsched.solver.verify import find_solution_faults
from batchsched.solver.warm_start.solve import solve_from_warm_start

_LOG = logging.getLogger(__name__)

MAX_PLANNED_PAIRS: Final = 12_000
"""Maximum pairs of a pod class and a node with which CP-SAT places the gangs of a plan that rounding did not place."""
PLANNED_SHARE: Final = 0.25
"""Share of the rounds' budget that these calls may spend in addition."""


def solve_problem(
    problem: Problem,
    budget: SolverBudget,
    seed: int = 0,
    telemetry: Telemetry | None = None,
    workers: SolverWorkers | None = None,
    start: WarmStart | None = None,
) -> Solution:
    """Choose which pending gangs of a session are placed, and on which nodes.

    Args:
      problem: the session as arrays.
      budget: limits of time and rounds.
      seed: CP-SAT's seed; equal problem, budget and seed give the same solution, byte for byte.
      telemetry: receives the duration of each step.
      workers: processes that the search may use; the solution is the same without them.
      start: placements and capacity prices of an earlier solve; None if no later solve starts from the solution, so
        that it needs no prices. It is not read if it has no placements, or if the problem is small enough for the exact
        model, has a strict order, or has cuts.

    Returns:
      a solution that passes the verifier, lexicographically no worse than the solutions of `solve_greedy` and of
      `solve_like_other_batch_schedulers`.

    Raises:
      SolverFault: OR-Tools rejects a model as invalid.
    """
    telemetry = telemetry or NoTelemetry()
    with telemetry.stage_span("reduce"):
        unplaceable = mask_unplaceable_pod_classes(problem)
        over = mask_gangs_beyond_quotas(problem) | mask_gangs_with_unplaceable_minimum(problem, unplaceable)
        beyond = over & problem.gangs.allowed
        admissible = exclude_unplaceable_gangs_and_classes(problem, unplaceable, beyond)
        # Prices name the resources of the whole problem.
        numbered_alike = admissible.nodes.free.shape == problem.nodes.free.shape
        if start is not None and not numbered_alike:
            start = replace(start, prices=())
    if beyond.any() and not (problem.rows or problem.cuts or problem.ordered):
        subset = build_gang_subset_problem(admissible, ~beyond)
        own = None if start is None else start.restrict_to_classes(subset.classes, len(problem.classes.count))
        answer = subset.to_solution_of_whole_problem(
            _solved_from_start(subset.problem, budget, seed, telemetry, own, workers)
        )
    else:
        answer = _solved_from_start(admissible, budget, seed, telemetry, start, workers)
    with telemetry.stage_span("verify"):
        faults = () if problem.ordered else find_solution_faults(problem, answer)
    if faults:
        _LOG.error(
            "the solution of stage %s is discarded, and the greedy one is used: %s",
            answer.stage,
            "; ".join(faults),
        )
        floor = _greedy_solution_without_faults(problem, admissible)
        return replace(floor, guard=answer.guard, effort=answer.effort, variables=answer.variables)
    return answer if numbered_alike else replace(answer, prices=())


def _greedy_solution_without_faults(problem: Problem, admissible: Problem) -> Solution:
    """The greedy solution of the admissible gangs and classes; nothing is placed if it has faults in the problem."""
    greedy = solve_greedy(without_repeatedly_refused_gangs(admissible))
    faults = find_solution_faults(problem, greedy)
    if not faults:
        return greedy
    _LOG.error("the greedy solution is discarded, too, and no pod is placed: %s", "; ".join(faults))
    return Packing(problem).to_solution(greedy.stage)


def exclude_unplaceable_gangs_and_classes(
    problem: Problem, unplaceable: BoolArray, beyond: BoolArray
) -> Problem:
    """Return the problem without unplaceable gangs and classes, and without resources that no node offers.

    A pod of an unplaceable class would otherwise raise the bound of its tier, and its requests would add a column for
    each resource that no node offers: ten pods with 500 such resources each took minutes to solve. Classes that request
    more of a resource than any node has are left without pods and requests: sums of these could exceed 64 bits.

    Args:
      problem: the problem.
      unplaceable: [C] classes that fit on no node.
      beyond: [G] gangs that cannot reach their minimum. They are not allowed to be placed.
    """
    if beyond.any():
        problem = replace(problem, gangs=replace(problem.gangs, allowed=problem.gangs.allowed & ~beyond))
    if not unplaceable.any():
        return problem
    # The other ones keep their requests: packing keeps room for pods that fit once others have ended.
    largest = problem.nodes.capacity.max(axis=0, initial=0)
    too_large = unplaceable & (problem.classes.demand > largest).any(axis=1)
    # Classes of one kind may differ in their requests, so the unplaceable ones get a kind of their own.
    kinds, no_node = problem.kinds, np.zeros((1, len(problem.nodes.free)), np.bool_)
    problem = replace(
        problem,
        kinds=ProblemClassKinds(
            mask=np.concatenate([kinds.mask, no_node]),
            score=np.concatenate([kinds.score, no_node.astype(np.int64)]),
        ),
        classes=replace(
            problem.classes,
            kind=np.where(unplaceable, len(kinds.mask), problem.classes.kind).astype(np.int32),
            count=np.where(too_large, 0, problem.classes.count).astype(np.int32),
            demand=np.where(too_large[:, None], 0, problem.classes.demand),
        ),
    )
    offered = problem.nodes.capacity.any(axis=0) | (
        np.arange(problem.nodes.capacity.shape[1]) == problem.pod_resource
    )
    return problem if offered.all() else problem.restrict_to_resources(np.flatnonzero(offered))


def _solved_from_start(
    admissible: Problem,
    budget: SolverBudget,
    seed: int,
    telemetry: Telemetry,
    start: WarmStart | None,
    workers: SolverWorkers | None,
) -> Solution:
    """Solve from a start, and without it if there is none or if the answer is not near its bounds."""
    reads_prices = start is not None
    if not start or admissible.ordered or admissible.cuts or _is_small(admissible, budget):
        return _solved(admissible, budget, seed, telemetry, workers, reads_prices=reads_prices)
    warm = solve_from_warm_start(admissible, start, budget, seed, telemetry)
    if warm.is_near:
        return warm.solution
    # A bad start must cost time only: the placements of the start would draw the rounds towards it.
    fresh = _solved(admissible, budget, seed, telemetry, workers, reads_prices=True)
    better = warm.solution if compare_solutions(warm.solution, fresh) > 0 else fresh
    return replace(
        better,
        effort=fresh.effort + warm.solution.effort,
        variables=fresh.variables + warm.solution.variables,
        guard=fresh.guard or warm.solution.guard,
        prices=fresh.prices or warm.solution.prices,
    )


def _solved(
    admissible: Problem,
    budget: SolverBudget,
    seed: int,
    telemetry: Telemetry,
    workers: SolverWorkers | None,
    *,
    reads_prices: bool,
) -> Solution:
    """Solve for the gangs that do not exceed their quotas by themselves."""
    problem = without_repeatedly_refused_gangs(admissible)
    with telemetry.stage_span("greedy"):
        packing = pack_greedily(problem)
        floor = packing.to_solution("greedy")
    # In strict order no solve may take a later gang in place of an earlier one.
    if problem.ordered:
        return floor
    small = _is_small(problem, budget)
    if is_greedy_known_optimal(admissible, floor, small):
        return replace(floor, bound=floor.objective.copy())
    if small:
        with telemetry.stage_span("exact"):
            return solve_small_session(admissible, budget, seed, floor, telemetry)
    # With cuts the quota relaxation would repeat refused placements.
    if admissible is problem and is_limited_by_quotas_only(packing):
        with telemetry.stage_span("choose"):
            answer = solve_by_quotas(packing, budget, seed, floor)
        if answer is not None:
            return answer
    # Both placements are floors: no gang order may be better in this solver's own objective.
    with telemetry.stage_span("greedy"):
        peers = solve_like_other_batch_schedulers(problem)
    best = peers if compare_solutions(peers, floor) > 0 else floor
    placed = tuple(count_placed_pods(problem, s.classes, s.counts) for s in (floor, peers))
    uncut = replace(admissible, cuts=()) if admissible.cuts else problem
    rounds, units = split_budget_for_rounds_and_improvement(budget)
    stage = TieredRoundSolver(problem, uncut, rounds, seed, BaselineSolutions(best, placed), telemetry)
    answer = stage.solve()
    improvable = not (problem.rows or admissible.cuts)
    if improvable and answer.gap > budget.gap and _pairs(problem) <= MAX_PLANNED_PAIRS:
        with telemetry.stage_span("plan"):
            answer = _with_planned_gangs(problem, stage, answer, rounds, seed)
    # Before the improvement: a larger budget continues from the same solution.
    with telemetry.stage_span("complete"):
        if improvable:
            answer = _with_present_bounds(
                stage, answer, add_elastic_pods_ejecting_lower_tiers(problem, answer)
            )
        answer = place_gangs_that_greedy_missed(problem, answer, seed)
    # Rows and cuts may link the gangs of a neighbourhood to others.
    if answer.gap > budget.gap and improvable and not answer.guard:
        with telemetry.stage_span("improve"):
            improved = improve_solution(problem, answer, units, budget, seed, workers)
        answer = _with_present_bounds(stage, answer, improved)
    return replace(answer, prices=stage.capacity_prices()[-MAX_PRICES:]) if reads_prices else answer


def _with_present_bounds(stage: TieredRoundSolver, before: Solution, after: Solution) -> Solution:
    """A later solution with its bounds: a tier that gained changes what the tiers below it can reach."""
    gained = bool(compare_objectives_by_tier(after.objective[:-1], before.objective[:-1]))
    return stage.add_bounds_to_solution(after) if gained else after


def _with_planned_gangs(
    problem: Problem, stage: TieredRoundSolver, answer: Solution, budget: SolverBudget, seed: int
) -> Solution:
    """The answer of the rounds, or a better one with the gangs of their first plan."""
    spending = CpSatBudget(PLANNED_SHARE * budget.deterministic, budget.guard_seconds, seed)
    planned = place_planned_gangs(problem, stage.planned_gangs(), spending)
    effort, variables = answer.effort + spending.spent, answer.variables + spending.variables
    guard = answer.guard or spending.guard
    if planned is None or compare_solutions(planned, answer) <= 0:
        return replace(answer, effort=effort, variables=variables, guard=guard)
    better = replace(planned, stage=answer.stage, effort=effort, variables=variables, guard=guard)
    return stage.add_bounds_to_solution(add_elastic_pods_ejecting_lower_tiers(problem, better))


def is_greedy_known_optimal(problem: Problem, floor: Solution, small: bool) -> bool:
    """Return whether the greedy solution is known to be optimal: it places every pod that may be placed.

    In a small session, the exact model also decides by preferred levels and node scores. There, the greedy solution is
    optimal only if its pods cause no cost of preferred levels, and if all node scores are equal.
    """
    if not places_every_allowed_pod(problem, floor):
        return False
    # Only the exact stage decides by node scores and preferred levels among equal values.
    flat = not small or bool((problem.kinds.score == problem.kinds.score[:, :1]).all())
    return flat and (not small or preferred_level_cost(problem, floor) <= 0.0)


def without_repeatedly_refused_gangs(problem: Problem) -> Problem:
    """Return the problem without gangs that the plugins refused more than once. Only the exact model handles these."""
    refused = np.bincount(
        np.array([cut.gang for cut in problem.cuts], np.int64), minlength=len(problem.gangs.need)
    )
    if not (refused > 1).any():
        return problem
    return replace(problem, gangs=replace(problem.gangs, allowed=problem.gangs.allowed & (refused <= 1)))


def _is_small(problem: Problem, budget: SolverBudget) -> bool:
    """Whether the exact model is used: above this size it does not end within its budget."""
    return _pairs(problem) <= budget.exact_variables


def _pairs(problem: Problem) -> int:
    """Number of pairs of a class and a node that its mask allows."""
    return int(problem.kinds.mask.sum(axis=1)[problem.classes.kind].sum()) if len(problem.classes.kind) else 0
