"""Rounds of choosing, spreading and realising, until the gap is small enough or nothing more is gained.

The looser model (no choice of domains) climbs first: it takes milliseconds, its peak bounds everything, and mostly the
full model only has to find domains for the gangs that it chose. What realise could not place tightens both.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.ports.telemetry import Telemetry
from batchsched.solver.aggregated.aggregate import Aggregate
from batchsched.solver.aggregated.climb import Climber, Peak, Spending
from batchsched.solver.aggregated.pools import divide
from batchsched.solver.aggregated.realise import Realised, realise
from batchsched.solver.aggregated.transport import Split
from batchsched.solver.outcome import compare, placed_per_class, to_solution
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, FloatArray, IntArray, Problem, Solution
from batchsched.solver.worth import TOLERANCE, preferred_cost

COMPLETE: Final = 1500
"""So many variables the model with every domain may have to be asked for bounds."""
TRIES: Final = 2
"""So many orders of placing a round tries: gangs that fell short go first in the next."""


@dataclass(frozen=True, slots=True, eq=False)
class Floors:
    """Placements that the answer may not fall behind, and the best of them."""

    best: Solution
    placed: tuple[IntArray, ...]


class Rounds:
    """The aggregated stage for one problem."""

    def __init__(
        self, problem: Problem, uncut: Problem, spending: Spending, floors: Floors, telemetry: Telemetry
    ) -> None:
        """Build both models.

        Args:
          problem: what to solve.
          uncut: the same without cuts and with every gang that they cost; `problem` itself when there are none.
          spending: the budget.
          floors: what the answer may not fall behind.
          telemetry: hears how long each step takes.
        """
        self._problem, self._spending, self._telemetry = problem, spending, telemetry
        self._floors, self.best = floors, floors.best
        with telemetry.stage("build"):
            packing = Packing(problem)
            pools = divide(packing)
            bound = bool((problem.required != NONE).any() or (problem.sub_required != NONE).any())
            full = Aggregate(packing, pools, floors.best) if bound or uncut is not problem else None
            if (
                uncut is not problem
            ):  # bounds hold for the session, whatever the cuts have taken from the search
                packing = Packing(uncut)
                pools = divide(packing)
            self._loose = Climber(Aggregate(packing, pools, None, relaxed=True), self._spending)
            self._full = Climber(full, self._spending) if full is not None else self._loose
        self._peak: Peak | None = None
        self._narrow = False  # no domains were found for what the loose model takes: its bounds are too high
        self._preferring = bool((problem.preferred != NONE).any() or (problem.sub_preferred != NONE).any())

    def run(self) -> Solution:
        """Rounds until the gap is met, nothing falls short, or the budget ends."""
        done = 0
        for number in range(self._spending.budget.rounds):
            done = number + 1
            with self._telemetry.stage("choose"):
                plan = self._choose()
            if plan is None:
                break
            with self._telemetry.stage("realise"):
                realised, better = self._realise(plan)
            if better or number == 0:
                with self._telemetry.stage("bound"):
                    self.best = replace(self.best, bound=self._bound(self.best))
            if (
                self.best.gap <= self._spending.budget.gap
                or not realised.shortages
                or self._spending.left <= 0
            ):
                break
            self._learn(plan, realised)
        if self.best.gap > self._spending.budget.gap and self._narrow:
            with self._telemetry.stage("bound"):
                self._tighten_bound()
        return replace(self.best, stage="aggregated", rounds=done, guard=self._spending.guard)

    # ------------------------------------------------------------------------------------ choosing

    def _choose(self) -> Peak | None:
        """The gangs that the loose model takes, with domains from the full one."""
        floors = list(self._floors.placed)
        loose = self._loose.aggregate
        top = _above(self._loose, loose.values_of(self.best), floors, None)
        if self._peak is None:
            self._peak = top
        if top is None or self._full is self._loose:
            return top
        full = self._full.aggregate
        lower, upper = (side.copy() for side in full.model.bounds())
        chosen = top.values[loose.y]
        full.model.set_bounds(full.y, np.minimum(chosen, upper[full.y]), np.maximum(chosen, lower[full.y]))
        peak = self._full.climb(full.values_of(self.best), [], top)
        full.model.set_bounds(full.y, lower[full.y], upper[full.y])
        if peak is None:
            self._narrow = True
            peak = _above(self._full, full.values_of(self.best), floors, top)
        return peak

    # ------------------------------------------------------------------------------------ realising

    def _realise(self, plan: Peak) -> tuple[Realised, bool]:
        """Try a few orders; returns the first try, and whether the best answer so far was beaten."""
        first: frozenset[int] = frozenset()
        prefer = self._preferring
        attempts: list[Realised] = []
        better = False
        for _ in range(TRIES):
            attempt = realise(self._full.aggregate, plan.values, plan.split.pods, first, prefer)
            attempts.append(attempt)
            solution = to_solution(attempt.packing, "aggregated")
            if self._beats(solution):
                self.best, better = solution, True
            short = frozenset(shortage.gang for shortage in attempt.shortages)
            if not short or short <= first or self._near(plan):
                break
            first, prefer = first | short, False
        return min(attempts, key=lambda attempt: sum(s.pods for s in attempt.shortages)), better

    def _beats(self, solution: Solution) -> bool:
        """Whether a solution is better than the best so far; among equals the one with fewer preferred domains."""
        order = compare(solution, self.best)
        if order or not self._preferring:
            return order > 0
        return preferred_cost(self._problem, solution) < preferred_cost(self._problem, self.best)

    def _near(self, plan: Peak) -> bool:
        """Whether the best answer is as good as the plan, to the gap that is asked for, in every tier."""
        return bool((self.best.objective >= plan.bound * (1 - self._spending.budget.gap)).all())

    def _learn(self, plan: Peak, realised: Realised) -> None:
        """Take what fell short off the pools where the plan had it, and forbid the domains that were too full."""
        for shortage in realised.shortages:
            share = plan.split.pods[shortage.klass]
            total = float(share.sum())
            if total > 0:
                for climber in {id(c): c for c in (self._loose, self._full)}.values():
                    climber.transport.tighten(shortage.klass, np.ceil(share * (shortage.pods / total)))
            if self._full is not self._loose:
                self._forbid(plan, shortage.gang)

    def _forbid(self, plan: Peak, gang: int) -> None:
        """Not these gangs together in this domain again."""
        full = self._full.aggregate
        on = (full.cell != NONE) & (plan.values[np.maximum(full.switch, 0)] > 0) & (full.switch >= 0)
        mine = np.flatnonzero(on & (full.owner == gang))
        for load in mine.tolist():
            nodes = full.cells[int(full.cell[load])].nodes
            here = [
                j
                for j in np.flatnonzero(on).tolist()
                if np.isin(full.cells[int(full.cell[j])].nodes, nodes).any()
            ]
            switches = np.unique(full.switch[here])
            full.model.add_row(switches, np.ones(len(switches), np.int64), 0, len(switches) - 1)

    # ------------------------------------------------------------------------------------ bounds

    def _tighten_bound(self) -> None:
        """What the looser model leaves open may be closed by one with every domain."""
        packing = self._loose.aggregate.packing
        model = Aggregate(packing, self._loose.aggregate.pools, None, complete=True)
        if model.model.variables > COMPLETE:
            return
        complete = Climber(model, self._spending)
        placed = placed_per_class(self._problem, self.best.classes, self.best.counts)
        loose = Peak(np.zeros(0, np.int64), Split(np.zeros((0, 0)), 0.0), self.best.bound)
        bound = np.minimum(self.best.bound, complete.bounds(placed, loose))
        self.best = replace(self.best, bound=np.maximum(bound, self.best.objective))

    def _bound(self, solution: Solution) -> FloatArray:
        """Upper bounds [T], each given what the solution places in the tiers above."""
        peak = self._peak
        if peak is not None:
            above = solution.objective[:-1] >= peak.bound[:-1] * (1 - TOLERANCE)
            if bool(above.all()):
                return np.maximum(peak.bound, solution.objective)
        placed = placed_per_class(self._problem, solution.classes, solution.counts)
        return np.maximum(self._loose.bounds(placed), solution.objective)


def _above(climber: Climber, hint: IntArray, floors: list[IntArray], ceiling: Peak | None) -> Peak | None:
    """Climb above the floors, or, where cuts have made that impossible, from anywhere."""
    return climber.climb(hint, floors, ceiling) or climber.climb(hint, [], ceiling)
