"""Joint selection: the solver proposes for all gangs at once, the walk has the last word.

What the walk refuses becomes a cut, and the session solves again; after a bounded number of rounds the best
outcome stands, and gangs that the walk still refuses are refused, never split.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.config.schema import SolverSettings
from batchsched.ports.telemetry import Telemetry
from batchsched.session.joint.formulation import Formulation
from batchsched.session.placement.statement import GangPlacement, PlannedPods, Statement
from batchsched.solver.problem import Budget, Cut, FloatArray, Problem, Solution
from batchsched.solver.stage import solve


@dataclass(frozen=True, slots=True, eq=False)
class JointOutcome:
    """What a session's selection came to.

    Args:
      placements: gangs that were placed, or are held.
      rejected: gang number → what the walk refused, of gangs that the solver had chosen.
      solution: the solver's answer that was walked; its bounds hold for the problem without cuts.
      objective: [T] weight that was placed, by tier.
      bound: [T] upper bounds.
      first: gangs that were walked before all others.
    """

    placements: tuple[GangPlacement, ...]
    rejected: dict[int, GangPlacement]
    solution: Solution
    objective: FloatArray
    bound: FloatArray
    first: frozenset[int] = frozenset()


def budget_of(settings: SolverSettings) -> Budget:
    """Return the solver's budget as the profile states it."""
    return Budget(
        deterministic=settings.deterministic_budget,
        rounds=settings.rounds,
        gap=settings.gap,
        guard_seconds=settings.guard_seconds,
        exact_variables=settings.exact_variables,
    )


class JointProposer:
    """Solve, walk and cut for one session."""

    def __init__(
        self, formulation: Formulation, settings: SolverSettings, seed: int, telemetry: Telemetry
    ) -> None:
        self._formulation = formulation
        self._budget = budget_of(settings)
        self._rounds = settings.rounds
        self._seed = seed
        self._telemetry = telemetry

    def select(self, statement: Statement) -> JointOutcome:
        """Return the best outcome of the rounds; its gangs are walked, and not yet kept."""
        problem = self._formulation.problem
        best: JointOutcome | None = None
        start = statement.checkpoint()
        for _ in range(self._rounds + 1):
            solution = solve(problem, self._budget, self._seed, self._telemetry)
            with self._telemetry.stage("walk"):
                outcome = self._place_solution(statement, solution, best)
                if outcome.placements:
                    outcome = self._turned(statement, start, outcome, best)
            if best is None or _better(outcome, best):
                best, stands = outcome, True
            else:
                stands = False
            if not outcome.rejected:
                break
            problem = self._cut(problem, outcome)
            statement.roll_back_to(start)
            stands = False
        assert best is not None  # the loop runs at least once
        if not stands:
            statement.roll_back_to(start)
            with self._telemetry.stage("walk"):
                again = self._place_solution(statement, best.solution, best, first=best.first)
                best = replace(again, rejected=best.rejected)
        return best

    def _place_solution(
        self,
        statement: Statement,
        solution: Solution,
        before: JointOutcome | None,
        first: frozenset[int] = frozenset(),
    ) -> JointOutcome:
        formulation = self._formulation
        walked = self._place_in_order(statement, shares_of(formulation, solution), first)
        objective = np.zeros(len(formulation.tiers))
        weights = _weight_by_class(formulation)
        for number, one in walked.items():
            objective[formulation.problem.gangs.tier[number]] += _worth(weights, number, one)
        bound = solution.bound if before is None else np.maximum(solution.bound, before.bound)
        return JointOutcome(
            placements=tuple(one for one in walked.values() if one.placed),
            rejected={number: one for number, one in walked.items() if not one.refusal.ok},
            solution=solution,
            objective=objective,
            bound=np.maximum(bound, objective),
            first=first,
        )

    def _turned(
        self, statement: Statement, start: int, outcome: JointOutcome, before: JointOutcome | None
    ) -> JointOutcome:
        """Walk once more, whoever was refused first: it may have come too late to begin a series of its own."""
        late = frozenset(number for number, one in outcome.rejected.items() if not one.final)
        if not late:
            return outcome
        statement.roll_back_to(start)
        other = self._place_solution(statement, outcome.solution, before, first=late)
        if _better(other, outcome):
            return other
        statement.roll_back_to(start)
        again = self._place_solution(statement, outcome.solution, before)
        return replace(again, rejected=outcome.rejected)

    def _place_in_order(
        self, statement: Statement, shares: Mapping[int, Sequence[PlannedPods]], first: frozenset[int]
    ) -> dict[int, GangPlacement]:
        """Walk gang after gang; one that needs another's pods near it is asked again once they are there."""
        problem = self._formulation.problem
        walked: dict[int, GangPlacement] = {}
        left = sorted(
            shares, key=lambda g: (g not in first, int(problem.gangs.tier[g]), int(problem.gangs.rank[g]))
        )
        while left:
            wanted = ((self._formulation.gangs[number], shares[number]) for number in left)
            walked.update(zip(left, statement.place_gangs(wanted), strict=True))
            again = [number for number in left if not walked[number].placed and not walked[number].final]
            if len(again) == len(left):
                break
            left = again
        return walked

    def _cut(self, problem: Problem, outcome: JointOutcome) -> Problem:
        """Forbid what the walk refused: the placement where a filter did, the gang where Reserve or Permit did."""
        solution = outcome.solution
        cuts: list[Cut] = []
        allowed = problem.gangs.allowed.copy()
        for number, walked in outcome.rejected.items():
            if walked.final:
                allowed[number] = False
                continue
            mine = self._formulation.problem.classes.gang[solution.classes] == number
            cuts.append(Cut(number, solution.classes[mine], solution.nodes[mine], solution.counts[mine]))
        return replace(problem, gangs=replace(problem.gangs, allowed=allowed), cuts=(*problem.cuts, *cuts))


def with_gang(
    formulation: Formulation, outcome: JointOutcome, number: int, walked: GangPlacement
) -> JointOutcome:
    """Return the outcome with one more gang that found its place."""
    objective = outcome.objective.copy()
    objective[formulation.problem.gangs.tier[number]] += _worth(_weight_by_class(formulation), number, walked)
    rejected = {one: refused for one, refused in outcome.rejected.items() if one != number}
    return replace(
        outcome,
        placements=(*outcome.placements, walked),
        rejected=rejected,
        objective=objective,
        bound=np.maximum(outcome.bound, objective),
    )


def _weight_by_class(formulation: Formulation) -> dict[tuple[int, int], float]:
    """By gang number and class: the weight of one pod."""
    weight = formulation.problem.classes.weight
    return {
        (number, id(part.pod_class)): float(weight[at]) for at, (number, part) in enumerate(formulation.parts)
    }


def _worth(weights: Mapping[tuple[int, int], float], number: int, walked: GangPlacement) -> float:
    return sum(weights[number, id(placed.pod_class)] for placed in walked.placed)


def shares_of(formulation: Formulation, solution: Solution) -> dict[int, list[PlannedPods]]:
    """Return what the solution gives to each gang, part by part, nodes in order."""
    shares: dict[int, list[PlannedPods]] = {}
    if not len(solution.classes):
        return shares
    edges = np.flatnonzero(np.diff(solution.classes)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(solution.classes)]])
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        number, part = formulation.parts[int(solution.classes[start])]
        nodes = tuple(solution.nodes[start:end].tolist())
        counts = tuple(solution.counts[start:end].tolist())
        shares.setdefault(number, []).append(PlannedPods(part, nodes, counts))
    return shares


def _better(one: JointOutcome, other: JointOutcome) -> bool:
    """Compare tier by tier; equal up to rounding, more gangs win."""
    for mine, theirs in zip(one.objective, other.objective, strict=True):
        if abs(mine - theirs) > 1e-9 * max(1.0, abs(theirs)):
            return bool(mine > theirs)
    return len(one.placements) > len(other.placements)
