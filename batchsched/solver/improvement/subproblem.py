"""The problem of a neighbourhood: its gangs on the capacity and the quotas that all other gangs leave.

Shapes: C classes, G gangs, N nodes, T tiers.
"""

from dataclasses import replace

import numpy as np

from batchsched.ports.external import Telemetry
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood
from batchsched.solver.objective import (
    count_placed_pods,
    count_pods_still_required,
    objective_upper_bounds_by_tier,
    objectives_by_tier,
)
from batchsched.solver.problem import BoolArray, Problem, Solution, SolverBudget
from batchsched.solver.quota_selection import build_gang_subset_problem
from batchsched.solver.relaxation.explain import problem_of_refused_gangs
from batchsched.solver.tiered.rounds import BaselineSolutions, TieredRoundSolver


class NeighbourhoodProblem:
    """The problem of placing only some gangs again, while all other gangs keep their placements."""

    def __init__(self, problem: Problem, solution: Solution, neighbourhood: GangNeighbourhood) -> None:
        """Restrict a problem to some gangs, on the capacity and the quotas that all other gangs leave.

        Args:
          problem: the whole problem, without rows and cuts.
          solution: a legal solution of it.
          neighbourhood: the gangs that are decided again.
        """
        kept = np.zeros(len(problem.gangs.need), np.bool_)
        kept[neighbourhood.gangs] = True
        inside: BoolArray = kept[problem.classes.gang[solution.classes]]
        self._problem = problem
        self._kept = _part(solution, ~inside, solution.taken & ~kept)
        self._subset = build_gang_subset_problem(problem_of_refused_gangs(problem, self._kept), kept)
        self.problem = self._subset.problem
        number = np.zeros(len(problem.classes.count), np.int32)
        number[self._subset.classes] = np.arange(len(self._subset.classes))
        own = _part(solution, inside, solution.taken[self._subset.gangs])
        own = replace(own, classes=number[own.classes])
        # The incumbent of the neighbourhood: what the step must improve on.
        self.incumbent = replace(
            own,
            objective=objectives_by_tier(self.problem, own.classes, own.counts),
            bound=objective_upper_bounds_by_tier(self.problem),
        )

    @property
    def class_node_pair_count(self) -> int:
        """The size of the problem: its number of pod classes multiplied by its number of nodes."""
        return len(self.problem.classes.count) * len(self.problem.nodes.free)

    def solve(self, budget: SolverBudget, seed: int, telemetry: Telemetry) -> Solution:
        """Solve the problem by a tiered solve; the result is no worse than the present placements."""
        incumbent = self.incumbent
        placed = count_placed_pods(self.problem, incumbent.classes, incumbent.counts)
        floors = BaselineSolutions(incumbent, (placed,))
        return TieredRoundSolver(self.problem, self.problem, budget, seed, floors, telemetry).run_rounds()

    def to_solution_of_whole_problem(self, solution: Solution, part: Solution) -> Solution:
        """Return a solution of the whole problem that contains `part`, a solution of this subproblem.

        All other gangs keep their placements.

        Args:
          solution: the solution of the whole problem from which this subproblem was made.
          part: the solution of this subproblem.
        """
        rest, own = self._kept, self._subset.to_solution_of_whole_problem(part)
        classes = np.concatenate([rest.classes, own.classes])
        nodes = np.concatenate([rest.nodes, own.nodes])
        counts = np.concatenate([rest.counts, own.counts])
        order = np.lexsort((nodes, classes))
        objective = objectives_by_tier(self._problem, classes, counts)
        return replace(
            solution,
            classes=classes[order],
            nodes=nodes[order],
            counts=counts[order],
            taken=rest.taken | own.taken | (count_pods_still_required(self._problem) == 0),
            objective=objective,
            bound=np.maximum(solution.bound, objective),
        )


def _part(solution: Solution, placements: BoolArray, taken: BoolArray) -> Solution:
    """A solution with some placements [P] of another one."""
    return replace(
        solution,
        classes=solution.classes[placements],
        nodes=solution.nodes[placements],
        counts=solution.counts[placements],
        taken=taken,
    )
