"""The rounds of the tiered solve: choose gangs, divide their pods among node pools, assign them to nodes.

The rounds end if the gap is small enough, or if a round gains nothing more.

The loose model (without the choice of domains) is solved first: it takes milliseconds, and its optimum bounds every
solution. Mostly the full model then only has to find domains for the gangs of that optimum. Pods that rounding could
not place tighten both models.

Each model is solved one tier after the other: a tier's value is fixed before the next tier is maximized.

Shapes: C classes, T tiers, V variables.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.ports.external import Telemetry
from batchsched.solver.cpsat import CpSatBudget, estimate_solve_work
from batchsched.solver.objective import (
    ALL_CLASSES,
    TIER_TOLERANCE,
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
    objectives_by_tier,
    preferred_level_cost,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, BoolArray, FloatArray, IntArray, Problem, Solution, SolverBudget
from batchsched.solver.start import CapacityPrices
from batchsched.solver.tiered.model import TieredModel
from batchsched.solver.tiered.node_pools import build_pools
from batchsched.solver.tiered.prices import capacity_prices_of_cuts
from batchsched.solver.tiered.rounding import RoundingResult, round_to_nodes
from batchsched.solver.tiered.tier_solver import TIER_GAP, TieredPlan, TierSolver
from batchsched.solver.tiered.transport import PoolSplit

MAX_COMPLETE_VARIABLES: Final = 1500
"""Maximum variables of a model with every domain that is solved for bounds."""
MAX_FREE_VARIABLES: Final = 1500
"""A model with more variables than this finds domains only for the gangs of the loose model's optimum."""


@dataclass(frozen=True, slots=True, eq=False)
class BaselineSolutions:
    """The solutions that were found before a tiered solve; its result must be no worse than each of them.

    `best` is the best of these solutions. `placed` has the number of pods by class [C] for each of them.
    """

    best: Solution
    placed: tuple[IntArray, ...]


class TieredRoundSolver:
    """Solver of large problems: each round chooses gangs, places them, and excludes what did not fit."""

    def __init__(
        self,
        problem: Problem,
        uncut: Problem,
        budget: SolverBudget,
        seed: int,
        floors: BaselineSolutions,
        telemetry: Telemetry,
    ) -> None:
        """Build both models.

        Args:
          problem: the problem to solve.
          uncut: the problem without cuts and with every gang that cuts exclude; `problem` itself if there are none.
          budget: limits of time and rounds.
          seed: CP-SAT's seed.
          floors: solutions that the result must not be worse than.
          telemetry: receives the duration of each step.
        """
        self._problem, self._budget, self._telemetry = problem, budget, telemetry
        self._spending = CpSatBudget(budget.deterministic, budget.guard_seconds, seed)
        self._floors, self.best = floors, floors.best
        with telemetry.stage_span("build"):
            packing = Packing(problem)
            pools = build_pools(packing)
            bound = bool((problem.gangs.required != NONE).any() or (problem.subgroups.required != NONE).any())
            full = TieredModel(packing, pools, floors.best) if bound or uncut is not problem else None
            other = full
            if (
                uncut is not problem
            ):  # bounds hold for the session, whatever the cuts have taken from the search
                packing, other = Packing(uncut), None
                pools = build_pools(packing)
            loose = TieredModel(packing, pools, None, relaxed=True, other=other)
            self._loose = TierSolver(loose, self._spending)
            self._full = (
                TierSolver(full, self._spending, chooses_domains=True) if full is not None else self._loose
            )
        self._peak: TieredPlan | None = None
        self._first_plan: TieredPlan | None = None
        self._narrow = False  # no domains were found for what the loose model takes: its bounds are too high
        self._rounds, self._bounded = 0, False
        self._preferring = bool(
            (problem.gangs.preferred != NONE).any() or (problem.subgroups.preferred != NONE).any()
        )

    def solve(self) -> Solution:
        """Solve the problem in rounds, then compute the missing upper bounds; return the best solution."""
        self.run_rounds()
        if self._rounds and not self._bounded:
            self._bound_best()
        self._tighten_open_bound()
        return self._result()

    def run_rounds(self) -> Solution:
        """Run rounds that choose and place gangs, and return the best solution found so far.

        A round computes the upper bounds of the objective only if they could show that the gap is small enough to stop.

        The rounds end if the gap is small, all chosen pods fit, the gain has stopped, or the budget is spent.
        """
        gained = False
        for _ in range(self._budget.rounds):
            self._rounds += 1
            with self._telemetry.stage_span("choose"):
                plan = self._choose()
            if plan is None:
                break
            self._first_plan = self._first_plan or plan
            with self._telemetry.stage_span("realise"):
                realised, better = self._realise(plan, self._preferring and self._rounds == 1)
            self._bounded = self._bounded and not better
            if not (self._bounded or self._open()):
                self._bound_best()
            # The gap is compared only with a bound for what this solution places in the tiers above.
            near = self._bounded and self.best.gap <= self._budget.gap
            idle, gained = gained and not better, gained or better
            if near or idle or not realised.unplaced or self._units_left() <= 0:
                break
            self._learn(plan, realised)
        return self._result()

    def planned_gangs(self) -> BoolArray:
        """Return a mask [G] of the gangs that the first round chose, before their pods are placed on nodes."""
        full, plan = self._full.aggregate, self._first_plan
        return np.zeros(len(full.y), np.bool_) if plan is None else plan.values[full.y] > 0

    def capacity_prices(self) -> tuple[CapacityPrices, ...]:
        """Return the capacity prices of all Benders cuts of the model for upper bounds, the newest last."""
        return capacity_prices_of_cuts(self._loose.transport)

    def _units_left(self) -> float:
        """The units that remain, if the work outside of CP-SAT is charged, too."""
        spending, problem = self._spending, self._problem
        pairs = self._rounds * len(problem.classes.count) * len(problem.nodes.free)
        return self._budget.deterministic - estimate_solve_work(spending.spent, spending.variables, pairs)

    def add_bounds_to_solution(self, solution: Solution) -> Solution:
        """Add an upper bound for each tier's objective to a solution that another component found."""
        spending = self._spending
        effort, variables = solution.effort - spending.spent, solution.variables - spending.variables
        self.best = solution
        self._bound_best()
        self._tighten_open_bound()
        return replace(
            self._result(),
            guard=solution.guard or spending.guard,
            effort=effort + spending.spent,
            variables=variables + spending.variables,
        )

    def _result(self) -> Solution:
        """The best solution, with what the stage has spent."""
        spending = self._spending
        return replace(
            self.best,
            stage="aggregated",
            rounds=self._rounds,
            guard=spending.guard,
            effort=spending.spent,
            variables=spending.variables,
        )

    def _tighten_open_bound(self) -> None:
        if self.best.gap > self._budget.gap and self._narrow:
            with self._telemetry.stage_span("bound"):
                self._tighten_bound()

    def _bound_best(self) -> None:
        with self._telemetry.stage_span("bound"):
            self.best = replace(self.best, bound=self._bound(self.best))
        self._bounded = True

    # ------------------------------------------------------------------------------------ choosing

    def _choose(self) -> TieredPlan | None:
        """The gangs of the loose model's optimum, with domains from the full model."""
        floors = list(self._floors.placed)
        loose = self._loose.aggregate
        top = _above(self._loose, loose.variable_values_of_solution(self.best), floors, None)
        if self._peak is None:
            self._peak = top
        if top is None or self._full is self._loose:
            return top
        peak = self._among(top, self._full.aggregate.variable_values_of_solution(self.best), whole=True)
        if peak is not None and not self._is_below(peak, top):
            return peak
        # The gangs of lower tiers must be placed there, too: they may take the domains of elastic pods above them.
        self._narrow = True
        other = self._choose_again(top, floors)
        if peak is None or other is None:
            return peak or other
        return other if compare_objectives_by_tier(self._values(other), self._values(peak)) > 0 else peak

    def _choose_again(self, top: TieredPlan, floors: list[IntArray]) -> TieredPlan | None:
        """Find domains for as many gangs of the loose optimum as possible, or in a small model for any gangs."""
        full, peak = self._full.aggregate, None
        if full.variable_count > MAX_FREE_VARIABLES:
            peak = self._among(top, np.zeros(full.variable_count, np.int64), whole=False)
        return peak or _above(self._full, full.variable_values_of_solution(self.best), floors, top)

    def _is_below(self, plan: TieredPlan, top: TieredPlan) -> bool:
        """Whether a plan ends below the loose model's optimum in the highest tier that differs by more than the gap."""
        loose = self._loose.aggregate
        values, most = (
            self._values(plan),
            objectives_by_tier(loose.problem, ALL_CLASSES, loose.pods_by_class(top.values)),
        )
        differs = np.flatnonzero(np.abs(most - values) > TIER_GAP * most)
        return bool(differs.size and values[differs[0]] < most[differs[0]])

    def _values(self, plan: TieredPlan) -> FloatArray:
        """The objectives [T] of a plan of the full model, whether or not all its pods fit on the nodes."""
        return objectives_by_tier(self._problem, ALL_CLASSES, self._full.aggregate.pods_by_class(plan.values))

    def _among(self, top: TieredPlan, hint: IntArray, whole: bool) -> TieredPlan | None:
        """Find domains for the gangs of the loose optimum: for all of them (`whole`), or for as many as possible."""
        full, y = self._full.aggregate, self._full.aggregate.y
        # The bounds are restored below: the model is used again in the next round.
        lower, upper = (side.copy() for side in full.variable_bounds())
        chosen = top.values[self._loose.aggregate.y]
        most = np.maximum(np.minimum(chosen, upper[y]), lower[y])
        full.set_variable_bounds(y, np.minimum(chosen, upper[y]) if whole else lower[y], most)
        peak = self._full.maximise_tiers(hint, [], top)
        full.set_variable_bounds(y, lower[y], upper[y])
        return peak

    # ------------------------------------------------------------------------------------ realising

    def _realise(self, plan: TieredPlan, prefer: bool) -> tuple[RoundingResult, bool]:
        """Place a plan; return the result, and whether it beats the best solution so far."""
        realised = round_to_nodes(self._full.aggregate, plan.values, plan.split.pods, prefer, self._spending)
        solution = realised.packing.to_solution("aggregated")
        better = self._beats(solution)
        if better:
            self.best = solution
        return realised, better

    def _beats(self, solution: Solution) -> bool:
        """Whether a solution is better than the best so far; among equals fewer preferred domains decide."""
        order = compare_solutions(solution, self.best)
        if order or not self._preferring:
            return order > 0
        return preferred_level_cost(self._problem, solution) < preferred_level_cost(self._problem, self.best)

    def _open(self) -> bool:
        """Whether the gap exceeds the budget's gap: the bound is never below the loose model's optimum."""
        peak = 0.0 if self._peak is None else float(self._peak.bound.sum())
        return float(self.best.objective.sum()) < peak * (1 - self._budget.gap)

    def _learn(self, plan: TieredPlan, realised: RoundingResult) -> None:
        """Reduce each pool by its share of the pods that did not fit, and forbid the domains that were too full."""
        for unplaced in realised.unplaced:
            share = plan.split.pods[unplaced.class_index]
            total = float(share.sum())
            if total > 0:
                for tier_solver in {id(c): c for c in (self._loose, self._full)}.values():
                    tier_solver.transport.reduce_pool_capacity(
                        unplaced.class_index, np.ceil(share * (unplaced.pods / total))
                    )
            if self._full is not self._loose:
                self._forbid(plan, unplaced.gang)

    def _forbid(self, plan: TieredPlan, gang: int) -> None:
        """Forbid this combination of gangs in this domain."""
        full = self._full.aggregate
        on = (full.cell != NONE) & (plan.values[np.maximum(full.switch, 0)] > 0) & (full.switch >= 0)
        loads = np.flatnonzero(on & (full.owner == gang))
        for load in loads.tolist():
            nodes = full.cells[int(full.cell[load])].nodes
            overlapping = [
                j
                for j in np.flatnonzero(on).tolist()
                if np.isin(full.cells[int(full.cell[j])].nodes, nodes).any()
            ]
            switches = np.unique(full.switch[overlapping])
            full.add_sum_constraint(switches, 0, len(switches) - 1)

    # ------------------------------------------------------------------------------------ bounds

    def _tighten_bound(self) -> None:
        """Compute bounds with a model of every domain: they may be lower than those of the loose model."""
        packing = self._loose.aggregate.packing
        # The model takes longer to build than its size to estimate.
        if _count_domain_choices(packing) > MAX_COMPLETE_VARIABLES:
            return
        loose_model = self._loose.aggregate
        model = TieredModel(packing, loose_model.pools, None, complete=True, other=loose_model)
        if model.variable_count > MAX_COMPLETE_VARIABLES:
            return
        complete = TierSolver(model, self._spending)
        placed = count_placed_pods(self._problem, self.best.classes, self.best.counts)
        loose = TieredPlan(np.zeros(0, np.int64), PoolSplit(np.zeros((0, 0)), 0.0), self.best.bound)
        bound = np.minimum(self.best.bound, complete.compute_bounds(placed, loose))
        self.best = replace(self.best, bound=np.maximum(bound, self.best.objective))

    def _bound(self, solution: Solution) -> FloatArray:
        """Upper bounds [T], each given what the solution places in the tiers above."""
        peak = self._peak
        if peak is not None:
            above = solution.objective[:-1] >= peak.bound[:-1] * (1 - TIER_TOLERANCE)
            if bool(above.all()):
                return np.maximum(peak.bound, solution.objective)
        placed = count_placed_pods(self._problem, solution.classes, solution.counts)
        return np.maximum(self._loose.compute_bounds(placed), solution.objective)


def _count_domain_choices(packing: Packing) -> int:
    """The number of pairs of a gang with a required level and a domain that may hold it."""
    gangs, needs = packing.problem.gangs, packing.needs
    choosing = np.flatnonzero((gangs.required != NONE) & (gangs.pinned == NONE) & gangs.allowed)
    return sum(
        len(
            packing.fitting_domains(
                packing.pod_classes_of_gang(g), max(needs[g], 1), int(gangs.required[g]), None
            )
        )
        for g in choosing.tolist()
    )


def _above(
    tier_solver: TierSolver, hint: IntArray, floors: list[IntArray], ceiling: TieredPlan | None
) -> TieredPlan | None:
    """Solve above the floors; if cuts have made that impossible, without floors."""
    return tier_solver.maximise_tiers(hint, floors, ceiling) or tier_solver.maximise_tiers(hint, [], ceiling)
