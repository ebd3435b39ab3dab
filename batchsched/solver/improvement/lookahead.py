"""Steps of the search that other processes compute before the search needs them.

Most steps do not improve the solution, and then the next step starts from the same solution. So the processes solve the
next steps as if no step improved it. If a step does, the results of the later ones are discarded. The search therefore
takes the same steps with any number of processes, and its solution depends neither on the number nor on timing.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, Protocol

from typing_extensions import override

from batchsched.ports.workers import PendingResult, SharedInput, SolverWorkers
from batchsched.solver.improvement.step import SearchStep, SharedSearchInput, StepResult, solve_step

STEPS_PER_PROCESS: Final = 2
"""Steps that are submitted for each process, so that none waits for the search to take a result."""


class StepSolver(Protocol):
    """Solves the steps of a search."""

    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step.

        Args:
          step: the step.
          coming: the steps after it, as long as none improves the solution.
        """
        ...

    def discard_results(self) -> None:
        """Discard the results of coming steps: the solution has changed, or the search ends."""
        ...


class SequentialStepSolver(StepSolver):
    """Solves each step when it is needed, in this process."""

    def __init__(self, shared: SharedSearchInput) -> None:
        self._shared = shared

    @override
    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step; those after it are not looked at."""
        return solve_step(self._shared, step)

    @override
    def discard_results(self) -> None:
        """Do nothing: no result is kept."""


class ParallelStepSolver(StepSolver):
    """Solves steps in several processes, of which this is one.

    This process also solves coming steps that no other one has started, rather than wait.
    """

    def __init__(self, shared: SharedSearchInput, workers: SolverWorkers) -> None:
        self._shared, self._workers = shared, workers
        self._input: SharedInput | None = None
        self._pending: dict[tuple[int, int], PendingResult[StepResult]] = {}
        self._results: dict[tuple[int, int], StepResult] = {}
        self._lost = False

    @override
    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step, and meanwhile as many of the coming ones as there are processes for."""
        ahead = [] if self._lost else list(islice(coming, STEPS_PER_PROCESS * self._workers.count))
        for later in ahead:
            self._submit(later)
        key = _key(step)
        if key not in self._pending or self._pending[key].cancel_if_not_started():
            self._pending.pop(key, None)
            return self._results.pop(key, None) or solve_step(self._shared, step)
        for later in ahead:
            if self._pending[key].is_finished():
                break
            other = self._pending.get(_key(later))
            if other is not None and other.cancel_if_not_started():
                del self._pending[_key(later)]
                self._results[_key(later)] = solve_step(self._shared, later)
        result = self._pending.pop(key).wait(step.budget.guard_seconds)
        if result is None:
            # A process ended or does not run: this one solves all further steps.
            self._lost = True
            self.discard_results()
            return solve_step(self._shared, step)
        return result

    @override
    def discard_results(self) -> None:
        """Withdraw the coming steps that have not started, and discard the results of the others."""
        for pending in self._pending.values():
            pending.cancel_if_not_started()
        self._pending.clear()
        self._results.clear()

    def _submit(self, step: SearchStep) -> None:
        key = _key(step)
        if key in self._pending or key in self._results:
            return
        self._input = self._input or self._workers.share_input(self._shared)
        self._pending[key] = self._input.submit(solve_step, step)


def _key(step: SearchStep) -> tuple[int, int]:
    """Steps of one solution with equal keys are equal."""
    return step.number, step.tier
