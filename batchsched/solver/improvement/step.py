"""One step of the improvement: some gangs are placed again on the capacity that all other gangs leave.

A step is a pure function of the problem, the seed and its input, so that any process may compute it.
"""

from dataclasses import dataclass
from typing import Final

from batchsched.ports.external import NoTelemetry
from batchsched.solver.cpsat import estimate_solve_work
from batchsched.solver.improvement.neighbourhood import GangNeighbourhood
from batchsched.solver.improvement.subproblem import NeighbourhoodProblem
from batchsched.solver.objective import compare_solutions
from batchsched.solver.problem import Problem, Solution, SolverBudget

UNITS_PER_STEP: Final = 0.05
"""Units that every step is charged with, besides those of `estimate_solve_work`."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchStep:
    """A step of the solver's improvement: the solution to improve, and the gangs to place again.

    Args:
      number: the number of the step; steps of one solution with equal numbers and tiers are equal.
      tier: the highest tier of the gangs.
      solution: the solution that the step is to improve.
      neighbourhood: the gangs to place again.
      budget: limits of the step.
    """

    number: int
    tier: int
    solution: Solution
    neighbourhood: GangNeighbourhood
    budget: SolverBudget


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """The result of a step of the solver's improvement: a better solution if one was found, and the effort.

    Args:
      better: the improved solution of the whole problem; None without an improvement.
      gap: the gap that remains in the neighbourhood.
      guard: whether the wall-clock guard ended the step.
      effort: CP-SAT's deterministic units that were spent.
      variables: the variables of the models that CP-SAT solved, added over all its calls.
      class_node_pair_count: the pairs of a pod class and a node in the neighbourhood.
    """

    better: Solution | None
    gap: float
    guard: bool
    effort: float
    variables: int
    class_node_pair_count: int

    @property
    def charged_effort(self) -> float:
        """The solver effort that is charged to the budget of the improvement for this step."""
        return UNITS_PER_STEP + estimate_solve_work(self.effort, self.variables, self.class_node_pair_count)


@dataclass(frozen=True, slots=True, eq=False)
class SharedSearchInput:
    """The input that all steps of one improvement share: the solver problem and the seed of CP-SAT.

    The problem has no rows and no cuts.
    """

    problem: Problem
    seed: int


def solve_step(shared: SharedSearchInput, step: SearchStep) -> StepResult:
    """Solve a step of the improvement: place some gangs again, while all other gangs keep their placements."""
    part = NeighbourhoodProblem(shared.problem, step.solution, step.neighbourhood)
    answer = part.solve(step.budget, shared.seed, NoTelemetry())
    gained = compare_solutions(answer, part.incumbent) > 0
    better = part.to_solution_of_whole_problem(step.solution, answer) if gained else None
    return StepResult(
        better, answer.gap, answer.guard, answer.effort, answer.variables, part.class_node_pair_count
    )
