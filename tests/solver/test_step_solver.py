"""Steps ahead of the search: the same solution with any number of processes, whatever their timing and end."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from typing_extensions import override

from batchsched.ports.workers import PendingResult, SharedInput, SolverWorkers
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.improvement import step_solver
from batchsched.solver.improvement.search import improve_solution
from batchsched.solver.improvement.step import SearchStep, SharedSearchInput, StepResult
from batchsched.solver.improvement.step_solver import ParallelStepSolver
from batchsched.solver.problem import Problem, Solution, SolverBudget
from bench.solver.instances import generate
from bench.solver.problems import to_problem


class FakeResult(PendingResult[Any]):
    """A function in a process that starts at once or never, and ends early, late, or with a lost process."""

    def __init__(self, processes: "FakeProcesses", compute: Any) -> None:
        self._processes, self._compute = processes, compute

    @override
    def cancel_if_not_started(self) -> bool:
        self._processes.withdrawn += not self._processes.starts
        return not self._processes.starts

    @override
    def is_finished(self) -> bool:
        return self._processes.early

    @override
    def wait_for_result(self, seconds: float) -> Any:
        return None if self._processes.lost else self._compute()


class FakeProcesses(SolverWorkers, SharedInput):
    """Processes that compute each result when it is asked for."""

    def __init__(self, workers: int, *, starts: bool = True, early: bool = False, lost: bool = False) -> None:
        self.workers, self.starts, self.early, self.lost = workers, starts, early, lost
        self.shared = self.submitted = self.withdrawn = 0

    @property
    @override
    def process_count_including_session(self) -> int:
        return self.workers

    @override
    def share_input(self, value: Any) -> SharedInput:
        self.shared += 1
        self._value = value
        return self

    @override
    def submit(self, function: Any, argument: Any, /) -> PendingResult[Any]:
        self.submitted += 1
        value = self._value
        return FakeResult(self, lambda: function(value, argument))


def contended(seed: int) -> Problem:
    return to_problem(generate(64, 16, seed, noisy=True))


def content(solution: Solution) -> list[Any]:
    values = [getattr(solution, field.name) for field in fields(solution)]
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "processes",
    [
        FakeProcesses(2),
        FakeProcesses(2, early=True),
        FakeProcesses(2, starts=False),
        FakeProcesses(2, lost=True),
        FakeProcesses(8, early=True),
    ],
    ids=["late", "early", "never started", "lost", "eight"],
)
def test_the_solution_is_that_of_one_process(seed: int, processes: FakeProcesses):
    problem = contended(seed)
    greedy = solve_greedy(problem)
    alone = improve_solution(problem, greedy, 0.5, SolverBudget(), 3)
    assert content(improve_solution(problem, greedy, 0.5, SolverBudget(), 3, processes)) == content(alone)
    assert processes.submitted > 0


def test_after_a_lost_process_no_more_steps_are_submitted():
    processes = FakeProcesses(2, lost=True)
    problem = contended(1)
    improve_solution(problem, solve_greedy(problem), 2.0, SolverBudget(), 0, processes)
    # Those after the first step, and one more when the result of the second one is missing.
    assert (
        processes.submitted == step_solver.STEPS_PER_PROCESS * processes.process_count_including_session + 1
    )


def test_a_solution_within_the_accepted_gap_starts_no_process():
    processes = FakeProcesses(2)
    problem = contended(0)
    improve_solution(problem, solve_greedy(problem), 2.0, SolverBudget(gap=0.99), 0, processes)
    assert (processes.shared, processes.submitted) == (0, 0)


def test_steps_for_which_the_units_do_not_suffice_are_not_submitted():
    processes = FakeProcesses(8)
    problem = contended(1)
    improve_solution(problem, solve_greedy(problem), 0.01, SolverBudget(), 0, processes)
    assert processes.submitted == 0


def test_a_step_that_no_process_has_started_is_solved_by_the_session_itself(monkeypatch: pytest.MonkeyPatch):
    problem = contended(0)
    solution = solve_greedy(problem)
    solved: list[int] = []

    def solve(shared: SharedSearchInput, step: SearchStep) -> StepResult:
        solved.append(step.number)
        return StepResult(None, 0.0, False, 0.0, 0, 0)

    monkeypatch.setattr(step_solver, "solve_step", solve)
    processes = FakeProcesses(2, starts=False)
    ahead = ParallelStepSolver(SharedSearchInput(problem, 0), processes)
    steps = [SearchStep(number, 0, solution, None, SolverBudget()) for number in range(4)]  # type: ignore[arg-type]

    def coming(number: int) -> Iterator[SearchStep]:
        return iter(steps[number + 1 :])

    ahead.solve(steps[0], coming(0))
    ahead.solve(steps[1], coming(1))
    assert solved == [0, 1]
    # A process has step 2: this one takes step 3 rather than wait.
    processes.starts = True
    monkeypatch.setattr(
        FakeResult, "cancel_if_not_started", lambda pending: pending is not ahead._pending.get((2, 0))
    )
    ahead.solve(steps[2], coming(2))
    assert solved == [0, 1, 3, 2]
    ahead.solve(steps[3], coming(3))
    assert solved == [0, 1, 3, 2]
