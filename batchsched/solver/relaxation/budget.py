"""The budget of computing work for explaining the refusals of one session.

An explanation names the smallest change that would admit a refused gang. To find it may take longer than to decide the
session, and a namespace with hundreds of refused gangs would delay the pods of all others. The gangs that are explained
first, in the order of the session, have full explanations; the others state their cause only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from batchsched.solver.problem import Problem, Solution

MAX_EXPLANATION_WORK: Final = 1e6
"""Work of all explanations of a session, in units of about a microsecond."""
WORK_PER_EFFORT: Final = 2e6
"""Work of one deterministic unit of CP-SAT."""
WORK_PER_VARIABLE: Final = 80
"""Work of building and presolving a model for one call of CP-SAT, by variable."""
WORK_PER_POOL_VARIABLE: Final = 500
"""The same for models of the tiered stage, in which a variable stands for a pool of nodes, with placing the plan."""
PROBE_WORK: Final = 200
"""Work of one question about one gang, in addition to what the nodes cost."""
NODES_PER_UNIT: Final = 16
"""Nodes that one class is compared with in one unit of work; a row examines nodes one by one."""


def estimate_fit_test_work(problem: Problem) -> float:
    """Return the estimated work, in microseconds, of one test whether the only gang of a problem fits."""
    nodes = len(problem.nodes.free)
    return PROBE_WORK + nodes * (len(problem.rows) + len(problem.classes.kind) / NODES_PER_UNIT)


def estimate_cpsat_work(solution: Solution) -> float:
    """Return the estimated work (in microseconds) that CP-SAT did for a solution."""
    work_per_variable = WORK_PER_POOL_VARIABLE if solution.stage == "aggregated" else WORK_PER_VARIABLE
    return WORK_PER_EFFORT * solution.effort + work_per_variable * solution.variables


class ExplanationBudget:
    """The amount of computing work that may still be used to explain the refusals of one session.

    Work is counted, not timed, so that equal sessions have equal explanations. Once the budget is spent, refusals keep
    their cause and name no change that would admit the gang.

    Args:
      units: units of about a microsecond.

    Attributes:
      remaining: the units that remain, negative if the last computation took more.
    """

    def __init__(self, units: float = MAX_EXPLANATION_WORK) -> None:
        self.remaining = units

    def is_spent(self) -> bool:
        """Return True if no work remains, so that no further test may be computed."""
        return self.remaining <= 0

    def spend(self, units: float) -> None:
        """Subtract computing work that was done for an explanation.

        Args:
          units: units of about a microsecond.
        """
        self.remaining -= units

    @contextmanager
    def limited_to(self, units: float) -> Iterator[None]:
        """Limit the remaining budget to the given computing work while a `with` block runs."""
        withheld = max(0.0, self.remaining - units)
        self.remaining -= withheld
        try:
            yield
        finally:
            self.remaining += withheld

    def spend_cpsat_time(self, deterministic: float) -> None:
        """Convert CP-SAT's deterministic time to work, and subtract it from the budget."""
        self.remaining -= deterministic * WORK_PER_EFFORT
