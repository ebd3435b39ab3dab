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
    """The component that solves improvement steps; each step places a subset of the gangs again."""

    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step of the improvement, and perhaps begin to solve later steps in advance.

        Args:
          step: the step.
          coming: the steps ahead: the next ones, if no step before them improves the solution.
        """
        ...

    def discard_results_of_steps_ahead(self) -> None:
        """Discard the results of steps that were solved in advance.

        Call this method when the solution has changed, and when the improvement ends.
        """
        ...


class SequentialStepSolver(StepSolver):
    """A `StepSolver` that solves each step in this process, when the result of the step is needed."""

    def __init__(self, shared: SharedSearchInput) -> None:
        self._shared = shared

    @override
    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step of the improvement in this process; solve no later steps in advance."""
        return solve_step(self._shared, step)

    @override
    def discard_results_of_steps_ahead(self) -> None:
        """Do nothing, because this step solver solves no steps in advance."""


class ParallelStepSolver(StepSolver):
    """A `StepSolver` that also lets other processes solve coming steps in advance.

    Instead of waiting, this process also solves coming steps that no other process has started.
    """

    def __init__(self, shared: SharedSearchInput, workers: SolverWorkers) -> None:
        self._shared, self._workers = shared, workers
        self._input: SharedInput | None = None
        self._pending: dict[tuple[int, int], PendingResult[StepResult]] = {}
        self._results: dict[tuple[int, int], StepResult] = {}
        self._lost = False

    @override
    def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
        """Solve a step of the improvement, while the other processes solve later steps in advance."""
        ahead = (
            []
            if self._lost
            else list(islice(coming, STEPS_PER_PROCESS * self._workers.process_count_including_session))
        )
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
        result = self._pending.pop(key).wait_for_result(step.budget.guard_seconds)
        if result is None:
            # A process ended or does not run: this one solves all further steps.
            self._lost = True
            self.discard_results_of_steps_ahead()
            return solve_step(self._shared, step)
        return result

    @override
    def discard_results_of_steps_ahead(self) -> None:
        """Cancel coming steps that no process has started, and discard all results of coming steps."""
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
