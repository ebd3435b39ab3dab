"""Joint proposals: the solver proposes placements for all gangs at once, and the statement accepts or rejects each.

A rejected placement becomes a cut, and the problem is solved again. After a bounded number of rounds the best outcome
counts; gangs that the statement still rejects are refused as a whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.config.schema import SolverSettings
from batchsched.ports.external import Telemetry
from batchsched.ports.workers import SolverWorkers
from batchsched.session.joint.formulation import Formulation
from batchsched.session.statement import GangPlacement, PlannedPods, Statement
from batchsched.solver.problem import Cut, FloatArray, Problem, Solution, SolverBudget
from batchsched.solver.rank_layout import lay_out_ranks, node_order_for_ranks
from batchsched.solver.relaxation.budget import estimate_cpsat_work
from batchsched.solver.stage import solve_problem


@dataclass(frozen=True, slots=True, eq=False)
class JointOutcome:
    """The result of one round of solving a problem and placing the gangs of the solution.

    Args:
      placements: gangs with a place, including those that wait at Permit.
      rejected: placements that the statement rejected, by gang number, of gangs that the solver had chosen.
      solution: the solver's solution that was placed; its bounds hold for the problem without cuts.
      objective: [T] weight of the placed pods, by tier.
      bound: [T] upper bound on the objective of each tier.
      first: numbers of the gangs that were placed before all others.
    """

    placements: tuple[GangPlacement, ...]
    rejected: dict[int, GangPlacement]
    solution: Solution
    objective: FloatArray
    bound: FloatArray
    first: frozenset[int] = frozenset()


def solver_budget(settings: SolverSettings) -> SolverBudget:
    """Return the solver's budget, as the profile's settings state it."""
    return SolverBudget(
        deterministic=settings.deterministic_budget,
        rounds=settings.rounds,
        gap=settings.gap,
        guard_seconds=settings.guard_seconds,
        exact_variables=settings.exact_variables,
    )


class JointPlacer:
    """A placer that solves one problem for all gangs, and solves it again if plugins reject placements.

    The Filter, Reserve and Permit plugins check the placements of each solution. If Reserve or Permit rejects a pod,
    the next problem excludes the whole gang. After a limited number of rounds, the best outcome counts.
    """

    def __init__(
        self,
        formulation: Formulation,
        settings: SolverSettings,
        seed: int,
        telemetry: Telemetry,
        workers: SolverWorkers | None = None,
    ) -> None:
        self._formulation = formulation
        self._budget = solver_budget(settings)
        self._rounds = settings.rounds
        self._seed = seed
        self._telemetry = telemetry
        self._workers = workers
        self.work = 0.0
        """The estimated work of CP-SAT so far, in units of about a microsecond."""

    def solve_and_place(self, statement: Statement) -> JointOutcome:
        """Solve the problem and place its gangs, in several rounds if necessary; return the best outcome.

        Its placements are in the statement, not yet committed.
        """
        problem = self._formulation.problem
        best: JointOutcome | None = None
        start = statement.checkpoint()
        for _ in range(self._rounds + 1):
            solution = solve_problem(problem, self._budget, self._seed, self._telemetry, self._workers)
            solution = lay_out_ranks(problem, solution, self._formulation.ranked)
            self.work += estimate_cpsat_work(solution)
            with self._telemetry.stage_span("walk"):
                outcome = self._place_solution(statement, solution, best)
                if outcome.placements:
                    outcome = self._place_rejected_first(statement, start, outcome, best)
            # Invariant: `best_is_placed` says whether the statement holds exactly the gangs of `best`.
            best_is_placed = best is None or _is_better(outcome, best)
            if best is None or best_is_placed:
                best = outcome
            if not outcome.rejected:
                break
            problem = self._with_cuts(problem, outcome)
            statement.roll_back_to(start)
            best_is_placed = False
        assert best is not None  # The loop runs at least once.
        if not best_is_placed:
            statement.roll_back_to(start)
            with self._telemetry.stage_span("walk"):
                placed_again = self._place_solution(statement, best.solution, best, first=best.first)
                # Rejections of the first attempt are kept: the diagnosis explains those.
                best = replace(placed_again, rejected=best.rejected)
        return best

    def _place_solution(
        self,
        statement: Statement,
        solution: Solution,
        previous: JointOutcome | None,
        first: frozenset[int] = frozenset(),
    ) -> JointOutcome:
        """Place the gangs of a solution, those numbered in `first` before all others."""
        formulation = self._formulation
        placements = self._place_in_order(statement, planned_pods_by_gang(formulation, solution), first)
        objective = np.zeros(len(formulation.tiers))
        weights = _weight_by_class(formulation)
        for number, placement in placements.items():
            objective[formulation.problem.gangs.tier[number]] += _weight_of(weights, number, placement)
        # Later rounds solve a problem with cuts: its bound is no bound for the original problem, the first one is.
        bound = solution.bound if previous is None else np.maximum(solution.bound, previous.bound)
        return JointOutcome(
            placements=tuple(placement for placement in placements.values() if placement.placed),
            rejected={
                number: placement for number, placement in placements.items() if not placement.refusal.ok
            },
            solution=solution,
            objective=objective,
            bound=np.maximum(bound, objective),
            first=first,
        )

    def _place_rejected_first(
        self, statement: Statement, start: int, outcome: JointOutcome, previous: JointOutcome | None
    ) -> JointOutcome:
        """Place the same solution again with the rejected gangs first, and return the better of both outcomes.

        A gang with inter-pod affinity to itself, for example, may come too late to choose the first domain.
        """
        rejected = frozenset(number for number, placement in outcome.rejected.items() if not placement.final)
        if not rejected:
            return outcome
        statement.roll_back_to(start)
        reordered = self._place_solution(statement, outcome.solution, previous, first=rejected)
        if _is_better(reordered, outcome):
            return reordered
        statement.roll_back_to(start)
        placed_again = self._place_solution(statement, outcome.solution, previous)
        return replace(placed_again, rejected=outcome.rejected)

    def _place_in_order(
        self, statement: Statement, plans: Mapping[int, Sequence[PlannedPods]], first: frozenset[int]
    ) -> dict[int, GangPlacement]:
        """Place gangs by tier and rank; try rejected ones again as long as some gang gets a place.

        A gang may need pods of another gang near it before its own filters pass.
        """
        gang_table = self._formulation.problem.gangs
        placements: dict[int, GangPlacement] = {}
        remaining = sorted(
            plans,
            key=lambda number: (
                number not in first,
                int(gang_table.tier[number]),
                int(gang_table.rank[number]),
            ),
        )
        while remaining:
            proposals = ((self._formulation.gangs[number], plans[number]) for number in remaining)
            placements.update(zip(remaining, statement.place_gangs(proposals), strict=True))
            rejected = [
                number
                for number in remaining
                if not placements[number].placed and not placements[number].final
            ]
            if len(rejected) == len(remaining):
                break
            remaining = rejected
        return placements

    def _with_cuts(self, problem: Problem, outcome: JointOutcome) -> Problem:
        """Forbid what was rejected: the placement if a filter rejected it, the gang if Reserve or Permit did."""
        solution = outcome.solution
        cuts: list[Cut] = []
        allowed = problem.gangs.allowed.copy()
        for number, placement in outcome.rejected.items():
            if placement.final:
                allowed[number] = False
                continue
            # A cut forbids exactly this placement: the gang may pass on other nodes.
            of_gang = self._formulation.problem.classes.gang[solution.classes] == number
            cuts.append(
                Cut(number, solution.classes[of_gang], solution.nodes[of_gang], solution.counts[of_gang])
            )
        return replace(problem, gangs=replace(problem.gangs, allowed=allowed), cuts=(*problem.cuts, *cuts))


def outcome_with_gang_placed_pod_by_pod(
    formulation: Formulation, outcome: JointOutcome, number: int, placement: GangPlacement
) -> JointOutcome:
    """Return the outcome with one more gang, placed pod by pod after plugins rejected its first placement."""
    objective = outcome.objective.copy()
    objective[formulation.problem.gangs.tier[number]] += _weight_of(
        _weight_by_class(formulation), number, placement
    )
    rejected = {other: rejection for other, rejection in outcome.rejected.items() if other != number}
    return replace(
        outcome,
        placements=(*outcome.placements, placement),
        rejected=rejected,
        objective=objective,
        bound=np.maximum(outcome.bound, objective),
    )


def _weight_by_class(formulation: Formulation) -> dict[tuple[int, int], float]:
    """Return the weight of one pod by gang number and identity of its class."""
    weight = formulation.problem.classes.weight
    return {
        (number, id(part.pod_class)): float(weight[index])
        for index, (number, part) in enumerate(formulation.parts)
    }


def _weight_of(weights: Mapping[tuple[int, int], float], number: int, placement: GangPlacement) -> float:
    # Not `sum`: since Python 3.12 it rounds floats differently, and a replay compares decisions byte for byte.
    return math.fsum(weights[number, id(placed.pod_class)] for placed in placement.placed)


def planned_pods_by_gang(formulation: Formulation, solution: Solution) -> dict[int, list[PlannedPods]]:
    """Return the nodes that the solver chose for the pods of each gang, by the gang's index in the problem.

    There is one entry for each gang part. Pods with ranks get the nodes domain by domain, in the order of their ranks.
    """
    plans: dict[int, list[PlannedPods]] = {}
    if not len(solution.classes):
        return plans
    ranked = {item.pod_class: item for item in formulation.ranked}
    edges = np.flatnonzero(np.diff(solution.classes)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(solution.classes)]])
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        pod_class = int(solution.classes[start])
        number, part = formulation.parts[pod_class]
        nodes, counts = solution.nodes[start:end], solution.counts[start:end]
        if pod_class in ranked:
            order = node_order_for_ranks(formulation.problem, ranked[pod_class], nodes)
            nodes, counts = nodes[order], counts[order]
        plans.setdefault(number, []).append(PlannedPods(part, tuple(nodes.tolist()), tuple(counts.tolist())))
    return plans


def _is_better(outcome: JointOutcome, other: JointOutcome) -> bool:
    """Compare objectives tier by tier, up to rounding errors; if they are equal, more gangs are better."""
    for objective, other_objective in zip(outcome.objective, other.objective, strict=True):
        # Sums in another order differ in the last digits, which must not decide between two outcomes.
        if abs(objective - other_objective) > 1e-9 * max(1.0, abs(other_objective)):
            return bool(objective > other_objective)
    return len(outcome.placements) > len(other.placements)
