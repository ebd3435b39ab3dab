"""The improvement search: place subsets of the gangs again, until the budget ends or no subset helps.

A step is accepted only if the solution becomes lexicographically better. Then refused gangs that fit by themselves are
added (`solver.completion`). Steps do not depend on the units that remain, so that a larger budget runs the same steps
and then more of them: it never gives a worse solution.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from batchsched.ports.workers import SolverWorkers
from batchsched.solver.completion import place_gangs_that_greedy_missed
from batchsched.solver.cpsat import UNITS_PER_PAIR, estimate_solve_work
from batchsched.solver.improvement.neighbourhood import NeighbourhoodChooser
from batchsched.solver.improvement.step import UNITS_PER_STEP, SearchStep, SharedSearchInput, StepResult
from batchsched.solver.improvement.step_solver import ParallelStepSolver, SequentialStepSolver, StepSolver
from batchsched.solver.objective import count_tiers
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.tiered.rounding import add_elastic_pods_ejecting_lower_tiers

STEP_EFFORT: Final = 0.1
"""Maximum deterministic units of CP-SAT for one step."""
FIRST_STEP_EFFORT: Final = 0.3
"""Maximum deterministic units of CP-SAT for the first step, with all gangs that choose no domain."""
STEP_ROUNDS: Final = 2
"""Maximum rounds of one step."""
MAX_ROUNDS_EFFORT: Final = 1.0
"""Maximum units of the rounds: they end early rather than spend more. The rounds of all larger budgets are the same."""
SHORT_BUDGET: Final = 2.0
"""Units of a budget that is for the rounds, except for `SEARCH_SHARE` of it; the search has all units above it."""
SEARCH_SHARE: Final = 0.05
"""Share of a short budget for the search: the rounds may have spent all of it on the highest tiers."""
IDLE_TURNS: Final = 2
"""Turns of every tier without a gain after which the search ends, for each unit that it may spend."""

NO_TIER: Final = 2**31
"""A number above those of all tiers."""
FIRST_STEP: Final = -1
"""The number of the first step, before those of the tiers' turns."""


def split_budget_for_rounds_and_improvement(budget: SolverBudget) -> tuple[SolverBudget, float]:
    """Return the solver budget of the rounds, and the effort that the improvement may spend after them."""
    rounds = min(budget.deterministic, MAX_ROUNDS_EFFORT)
    short = min(budget.deterministic, SHORT_BUDGET)
    return replace(budget, deterministic=rounds), SEARCH_SHARE * short + budget.deterministic - short


def improve_solution(
    problem: Problem,
    solution: Solution,
    units: float,
    budget: SolverBudget,
    seed: int,
    workers: SolverWorkers | None = None,
) -> Solution:
    """Improve a solution by placing subsets of its gangs again, until the budget is used up or no step helps.

    Args:
      problem: the problem, without rows and cuts.
      solution: a legal solution.
      units: the units that the search may spend; the last step, and the steps for the tiers below a tier that gained,
        may exceed them.
      budget: the accepted gap and the wall-clock guard.
      seed: seed of CP-SAT and of the choice of neighbourhoods.
      workers: processes that compute coming steps; the result is the same without them.

    Returns:
      a solution that is lexicographically no worse. Its bounds are those of the given solution: they hold no longer
      for the tiers below a tier that gained.
    """
    search = _Search(problem, solution, units, budget, seed)
    shared = SharedSearchInput(problem, seed)
    steps = SequentialStepSolver(shared) if workers is None else ParallelStepSolver(shared, workers)
    try:
        search.solve_steps(steps)
    finally:
        steps.discard_results_of_steps_ahead()
    return search.solution


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The turns of the tiers, from the next one on.

    Args:
      tiers: the number of tiers.
      turns: the tiers of the next turns; after these, all tiers have one each.
      step: the number of the next turn.
      idle: the turns since the last gain.
      due: turns that the tiers below a tier that gained are due: they may have lost for it.
      proved: from this tier on, no step with all gangs can gain.
    """

    tiers: int
    turns: tuple[int, ...]
    step: int = 0
    idle: int = 0
    due: int = 0
    proved: int = NO_TIER

    @property
    def next_tier(self) -> int:
        """The highest tier of the gangs that the next step of the improvement places again."""
        return self.turns[0]

    @property
    def next_step_takes_all_gangs(self) -> bool:
        """Whether the next step places all gangs of its tier and of all lower tiers again, not only a part of them."""
        return self.step < self.tiers or self.due > 0

    def schedule_after_step_without_gain(self) -> "_Schedule":
        """Return the schedule after a step that did not improve the solution: the next tier has its turn."""
        turns = self.turns[1:] or _all_turns(self.tiers)
        due = max(0, self.due - 1)
        return replace(self, turns=turns, step=self.step + 1, idle=self.idle + 1, due=due)

    def schedule_after_gain(self) -> "_Schedule":
        """Return the schedule after a step that improved the solution: the tiers below its tier are next."""
        below = range(self.next_tier + 1, self.tiers)
        turns = (*below, *self.schedule_after_step_without_gain().turns)
        return replace(
            self.schedule_after_step_without_gain(), turns=turns, idle=0, due=len(below), proved=NO_TIER
        )

    def schedule_after_proof(self, step: SearchStep) -> "_Schedule":
        """Return the schedule that skips tiers for which a step has proved that further steps are useless.

        The gap of the step is at most the accepted gap. If the step placed all gangs of its tier and of the lower tiers
        again, further steps are useless for all these tiers. Otherwise, the schedule remains as it is.
        """
        if not step.neighbourhood.complete:
            return self
        return replace(self, proved=min(self.proved, step.tier))


def _all_turns(tiers: int) -> tuple[int, ...]:
    # The lowest tier first: its steps are the shortest, and a scarce level above cannot use up its share.
    return tuple(range(tiers))[::-1]


class _Search:
    """The best solution so far, and the units that remain."""

    def __init__(
        self, problem: Problem, solution: Solution, units: float, budget: SolverBudget, seed: int
    ) -> None:
        self.solution, self.units = solution, units
        self._problem, self._budget, self._seed = problem, budget, seed
        self._selection = NeighbourhoodChooser(problem, seed)
        tiers = count_tiers(problem)
        self._schedule = _Schedule(tiers, _all_turns(tiers))
        self._max_idle = IDLE_TURNS * tiers * max(1.0, units)

    def solve_steps(self, steps: StepSolver) -> None:
        """Solve steps of the improvement until the budget is spent or no step improves the solution."""
        first = self._first_step()
        if first is not None:
            self._adopt(steps.solve(first, self._coming_steps(first)), steps)
        while self._continues():
            schedule, step = self._schedule, self._next_step(self._schedule)
            self._schedule = schedule.schedule_after_step_without_gain()
            if step is None:
                continue
            result = steps.solve(step, self._coming_steps(step))
            if result.better is not None:
                self._schedule = schedule.schedule_after_gain()
            if result.gap <= self._budget.gap:
                self._schedule = self._schedule.schedule_after_proof(step)
            self._adopt(result, steps)

    def _continues(self) -> bool:
        schedule = self._schedule
        open_ = self.units > 0 or schedule.due > 0
        # Once the wall-clock guard ended a search, the time of the session is spent.
        worthwhile = schedule.idle < self._max_idle and self.solution.gap > self._budget.gap
        return open_ and worthwhile and not self.solution.guard

    # ------------------------------------------------------------------------------------ steps

    def _first_step(self) -> SearchStep | None:
        """The step for all gangs that choose no domain."""
        neighbourhood = self._selection.gangs_without_required_level()
        if self.solution.gap <= self._budget.gap or self.solution.taken[neighbourhood.gangs].all():
            return None
        budget = replace(self._budget, deterministic=FIRST_STEP_EFFORT, rounds=STEP_ROUNDS)
        return SearchStep(FIRST_STEP, 0, self.solution, neighbourhood, budget)

    def _next_step(self, schedule: _Schedule) -> SearchStep | None:
        """The step of the next turn; None if it cannot gain."""
        tier, number = schedule.next_tier, schedule.step
        neighbourhood = self._selection.choose_neighbourhood(
            tier, number, self.solution, takes_all_gangs=schedule.next_step_takes_all_gangs
        )
        if tier >= schedule.proved or self.solution.taken[neighbourhood.gangs].all():
            return None
        most = replace(self._budget, deterministic=STEP_EFFORT, rounds=STEP_ROUNDS)
        return SearchStep(number, tier, self.solution, neighbourhood, most)

    def _coming_steps(self, step: SearchStep) -> Iterator[SearchStep]:
        """The steps after the present one if none gains, as far as the units may suffice for them."""
        schedule, units = self._schedule.schedule_after_proof(step), self.units - self._least_units(step)
        while (units > 0 or schedule.due) and schedule.idle < self._max_idle:
            coming = self._next_step(schedule)
            schedule = schedule.schedule_after_step_without_gain()
            if coming is not None:
                yield coming
                # Most steps with all gangs end within the accepted gap.
                schedule = schedule.schedule_after_proof(coming)
                units -= self._least_units(coming)

    def _least_units(self, step: SearchStep) -> float:
        """The units of a step without those of CP-SAT."""
        pairs = self._selection.count_class_node_pairs(step.neighbourhood)
        return UNITS_PER_STEP + UNITS_PER_PAIR * pairs

    def _adopt(self, result: StepResult, steps: StepSolver) -> None:
        """Charge a step, and adopt its solution if it is better."""
        self.units -= result.charged_effort
        self.solution = replace(
            self.solution,
            guard=self.solution.guard or result.guard,
            effort=self.solution.effort + result.effort,
            variables=self.solution.variables + result.variables,
        )
        if result.better is not None:
            steps.discard_results_of_steps_ahead()
            spent = self.solution
            better = replace(result.better, guard=spent.guard, effort=spent.effort, variables=spent.variables)
            self._complete(better)

    def _complete(self, solution: Solution) -> None:
        """Adopt a better solution, with the elastic pods and the refused gangs that still fit."""
        settled = add_elastic_pods_ejecting_lower_tiers(self._problem, solution)
        self.solution = place_gangs_that_greedy_missed(self._problem, settled, self._seed)
        effort = self.solution.effort - solution.effort
        self.units -= estimate_solve_work(effort, self.solution.variables - solution.variables, 0)
