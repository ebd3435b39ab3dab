"""The time of a session with several processes, predicted from the CPU time of each step in one process.

The simulation assigns the steps to processes as `ParallelStepSolver` does, one core for each process. A step that the
search discards, because an earlier one improved the solution, counts with the time of the step with its number, or else
with the mean time. Starting processes and sending the problem to them is not included.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest import mock

from typing_extensions import override

from batchsched.solver.improvement import search
from batchsched.solver.improvement.step import SearchStep, StepResult
from batchsched.solver.improvement.step_solver import STEPS_PER_PROCESS, SequentialStepSolver
from batchsched.solver.problem import Problem, SolverBudget
from batchsched.solver.stage import solve_problem

MOST_COMING: Final = 64
"""Coming steps that are recorded with a step."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step that the search took: its number, those of the coming ones, its CPU seconds, and whether it gained."""

    number: int
    coming: tuple[int, ...]
    seconds: float
    gained: bool


@dataclass(slots=True)
class StepTimes:
    """The steps of a session, in order."""

    steps: list[TimedStep] = field(default_factory=list)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the steps of the searches inside the block."""
        times = self

        class Timed(SequentialStepSolver):
            @override
            def solve(self, step: SearchStep, coming: Iterable[SearchStep]) -> StepResult:
                numbers = tuple(later.number for later, _ in zip(coming, range(MOST_COMING), strict=False))
                begun = time.process_time()
                result = super().solve(step, ())
                seconds = time.process_time() - begun
                times.steps.append(TimedStep(step.number, numbers, seconds, result.better is not None))
                return result

        with mock.patch.object(search, "SequentialStepSolver", Timed):
            yield

    @property
    def seconds(self) -> float:
        """The CPU seconds of all steps."""
        return sum(step.seconds for step in self.steps)

    def simulate(self, workers: int) -> float:
        """Return the seconds of the steps in a number of processes."""
        if not self.steps:
            return 0.0
        mean = statistics.fmean(step.seconds for step in self.steps)
        known = {step.number: step.seconds for step in self.steps}
        simulated = _Simulation(workers, lambda number: known.get(number, mean))
        for step in self.steps:
            simulated.take(step)
        return simulated.now


class _Simulation:
    """The processes, and the steps that they have."""

    def __init__(self, workers: int, seconds_of: Callable[[int], float]) -> None:
        self.now = 0.0
        self._free = [0.0] * (workers - 1)  # when each other process is free
        self._ahead, self._seconds_of = STEPS_PER_PROCESS * workers, seconds_of
        self._queue: list[
            tuple[int, float]
        ] = []  # steps that no process has started, and when they were submitted
        self._ends: dict[int, float] = {}  # steps that another process has started
        self._done: set[int] = set()  # coming steps that the session has solved itself

    def take(self, step: TimedStep) -> None:
        """Solve a step as `ParallelStepSolver.solve` does."""
        ahead = step.coming[: self._ahead] if self._free else ()
        queued = {number for number, _ in self._queue}
        known = queued | self._ends.keys() | self._done
        self._queue += [(number, self.now) for number in ahead if number not in known]
        self._start_queued()
        if step.number in self._ends:
            for later in ahead:
                self._start_queued()
                if self._ends[step.number] <= self.now:
                    break
                if self._withdraw(later):
                    self.now += self._seconds_of(later)
                    self._done.add(later)
            self.now = max(self.now, self._ends.pop(step.number))
        elif step.number in self._done:
            self._done.remove(step.number)
        else:
            self._withdraw(step.number)
            self.now += step.seconds
        if step.gained:
            self._queue, self._ends, self._done = [], {}, set()

    def _start_queued(self) -> None:
        """Let the other processes start what they have time for until now."""
        while self._queue:
            process = self._free.index(min(self._free))
            number, submitted = self._queue[0]
            start = max(self._free[process], submitted)
            if start > self.now:
                return
            self._queue.pop(0)
            self._ends[number] = self._free[process] = start + self._seconds_of(number)

    def _withdraw(self, number: int) -> bool:
        before = len(self._queue)
        self._queue = [entry for entry in self._queue if entry[0] != number]
        return len(self._queue) < before


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted seconds of a session by number of processes, with what they follow from.

    Args:
      seed: the seed of the instance.
      cpu: the CPU seconds in one process.
      steps: the steps of the search.
      gains: the steps that improved the solution.
      in_steps: the CPU seconds of all steps.
      seconds: the predicted seconds of the session by number of processes.
    """

    seed: int
    cpu: float
    steps: int
    gains: int
    in_steps: float
    seconds: dict[int, float]


def predict(problem: Problem, budget: SolverBudget, seed: int, workers: Sequence[int]) -> Prediction:
    """Solve a problem in this process, and predict its time with other numbers of processes."""
    times = StepTimes()
    begun = time.process_time()
    with times.record():
        solve_problem(problem, budget)
    cpu = time.process_time() - begun
    gains = sum(step.gained for step in times.steps)
    seconds = {number: cpu - times.seconds + times.simulate(number) for number in workers}
    return Prediction(seed, cpu, len(times.steps), gains, times.seconds, seconds)


def show_predictions(predictions: Sequence[Prediction]) -> None:
    """A line for each instance: CPU seconds in one process, and how many times faster more processes are."""
    names = "".join(f" {f'{number} processes':>17}" for number in predictions[0].seconds)
    print(f"{'seed':>6} {'cpu s':>7} {'steps':>6} {'gains':>6} {'in steps':>9}{names}")
    for one in predictions:
        times = (f" {seconds:8.2f} s {one.cpu / seconds:4.2f} x" for seconds in one.seconds.values())
        share = one.in_steps / one.cpu
        print(f"{one.seed:>6} {one.cpu:7.2f} {one.steps:>6} {one.gains:>6} {share:9.0%}" + "".join(times))
