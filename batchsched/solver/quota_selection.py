"""The solve of sessions that only queue limits restrict: choose gangs as if on one node, then place them.

If the greedy found room for every gang that the quotas admitted, nodes are not scarce. A single large node with the
same quotas is a relaxation of the session that has few rows. If the greedy places its best selection to the last pod,
the result is the optimum of the session, and no model of the nodes is needed.

Shapes: C classes, G gangs, N nodes, Q quotas, R resources, S subgroups, T tiers.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchsched.solver.exact import solve_exact
from batchsched.solver.greedy import fill_packing, pack_greedily
from batchsched.solver.objective import (
    ALL_CLASSES,
    compare_objectives_by_tier,
    compare_solutions,
    count_placed_pods,
    count_pods_still_required,
    count_tiers,
    objectives_by_tier,
)
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    FloatArray,
    IntArray,
    Problem,
    ProblemClassKinds,
    ProblemNodes,
    RunningSlicePodCounts,
    Solution,
    SolverBudget,
    UsedPreferredDomains,
)


@dataclass(frozen=True, slots=True, eq=False)
class GangSubsetProblem:
    """A problem with only some gangs of a whole problem, and the indexes of these gangs in the whole problem.

    Args:
      problem: the problem of these gangs: quotas keep their numbers, gangs and classes have new ones.
      gangs: [G'] the gangs' numbers in the whole problem.
      classes: [C'] the numbers of their classes in the whole problem.
      whole: the problem from which they were taken.
    """

    problem: Problem
    gangs: IntArray
    classes: IntArray
    whole: Problem

    def append_zeros_for_lower_tiers(self, values: FloatArray) -> FloatArray:
        """Extend values of the highest tiers to all tiers of the whole problem, with 0 for the other tiers.

        `values` is [T'], and the result is [T].
        """
        result = np.zeros(count_tiers(self.whole))
        result[: len(values)] = values
        return result

    def to_solution_of_whole_problem(self, solution: Solution) -> Solution:
        """Return a solution of the restricted problem as a solution of the whole problem. No other gang gets a pod."""
        taken = count_pods_still_required(self.whole) == 0
        taken[self.gangs] = solution.taken
        return replace(
            solution,
            classes=self.classes[solution.classes].astype(np.int32),
            taken=taken,
            objective=self.append_zeros_for_lower_tiers(solution.objective),
            bound=self.append_zeros_for_lower_tiers(solution.bound),
        )


def build_gang_subset_problem(problem: Problem, kept: BoolArray) -> GangSubsetProblem:
    """Return the problem restricted to the gangs that `kept` [G] marks. All nodes and quotas stay as they are.

    Raises:
      ValueError: the problem has rows or cuts, which may link gangs to each other.
    """
    if problem.rows or problem.cuts:
        raise ValueError("rows and cuts tie gangs to each other")
    gangs, classes = np.flatnonzero(kept), np.flatnonzero(kept[problem.classes.gang])
    subgroups = np.flatnonzero(kept[problem.subgroups.gang])
    return GangSubsetProblem(problem.restrict_to_gangs(gangs, classes, subgroups), gangs, classes, problem)


BUDGET_SHARE: Final = 0.1
"""Share of the budget that the selection may use. A selection that is not proved with it is rarely proved with more."""


def is_limited_by_quotas_only(packing: Packing) -> bool:
    """Return whether every pod that the greedy solver did not place would exceed a queue limit."""
    problem, room = packing.problem, packing.room
    waiting = np.array(room.waiting, np.int64)
    left_out = np.flatnonzero((waiting > 0) & problem.gangs.allowed[problem.classes.gang])
    for class_index in left_out.tolist():
        gang = int(problem.classes.gang[class_index])
        if not packing.taken[gang]:
            if room.quotas.allows_one_more_running_gang(gang) and room.quotas.may_admit_minimum(gang):
                return False
        elif room.quotas.count_admitted_pods(gang, room.slots.needs[class_index], 1):
            return False
    return True


def solve_by_quotas(packing: Packing, budget: SolverBudget, seed: int, floor: Solution) -> Solution | None:
    """Select gangs as if only queue limits and the total capacity mattered, then place them on nodes.

    Args:
      packing: the greedy's packing of the session. Gangs that are kept are withdrawn from it.
      budget: the budget, of which `BUDGET_SHARE` is used.
      seed: CP-SAT's seed.
      floor: the greedy's solution; the result is no worse.

    Returns:
      a proved optimum; None if the selection is not proved to be the best, or does not fit on the nodes.
    """
    problem = packing.problem
    most = replace(budget, deterministic=budget.deterministic * BUDGET_SHARE)
    binding = packing.room.quotas.binding
    if not binding.any():
        return None
    contended: BoolArray = np.asarray(problem.quotas.covers[binding].any(axis=0))
    subset = build_gang_subset_problem(merge_into_one_node(problem), contended)
    choice = subset.to_solution_of_whole_problem(solve_exact(subset.problem, most, seed))
    # Without a proof, another selection may be better: the tiered model decides then.
    if compare_objectives_by_tier(choice.bound, choice.objective):
        return None
    # Gangs that no limiting quota covers are all selected.
    free = problem.gangs.allowed & ~contended
    allotted = count_placed_pods(problem, choice.classes, choice.counts)
    pods = np.where(free[problem.classes.gang], problem.classes.count, allotted).astype(np.int32)
    chosen = replace(
        problem,
        classes=replace(problem.classes, count=pods),
        gangs=replace(problem.gangs, allowed=problem.gangs.allowed & (choice.taken | free)),
    )
    best = objectives_by_tier(problem, ALL_CLASSES, pods)
    answer = _place_selection(packing, chosen, floor).to_solution("quotas")
    # Gangs that kept their nodes may block others: the second attempt places all of them again.
    if compare_objectives_by_tier(answer.objective, best):
        answer = pack_greedily(chosen).to_solution("quotas")
    if compare_objectives_by_tier(answer.objective, best) or compare_solutions(answer, floor) < 0:
        return None
    # The relaxation has every placement of the session, so that its optimum bounds them all.
    return replace(
        answer,
        bound=np.maximum(best, answer.objective),
        guard=choice.guard,
        effort=choice.effort,
        variables=choice.variables,
    )


def _place_selection(packing: Packing, chosen: Problem, floor: Solution) -> Packing:
    """Place the selection. Gangs of which the greedy placed exactly the selected pods keep their nodes."""
    placed = count_placed_pods(packing.problem, floor.classes, floor.counts)
    other = (
        np.bincount(chosen.classes.gang, placed != chosen.classes.count, minlength=len(chosen.gangs.need)) > 0
    )
    kept = np.flatnonzero(floor.taken & chosen.gangs.allowed & ~other)
    made = Packing(chosen)
    made.reinstate_gangs(packing.withdraw_gangs(set(kept.tolist())))
    fill_packing(made)
    return made


def merge_into_one_node(problem: Problem) -> Problem:
    """Return a simpler problem: one node with the total capacity, and no filters, levels or constraints."""
    kinds = len(problem.kinds.mask)
    gangs, subgroups = problem.gangs, problem.subgroups
    return replace(
        problem,
        nodes=ProblemNodes(
            free=np.minimum(problem.nodes.free.sum(axis=0), UNLIMITED)[None],
            capacity=np.minimum(problem.nodes.capacity.sum(axis=0), UNLIMITED)[None],
            levels=np.zeros((0, 1), np.int32),
        ),
        kinds=ProblemClassKinds(np.ones((kinds, 1), np.bool_), np.zeros((kinds, 1), np.int64)),
        gangs=replace(
            gangs,
            required=np.full_like(gangs.required, NONE),
            preferred=np.full_like(gangs.preferred, NONE),
            pinned=np.full_like(gangs.pinned, NONE),
            slice_level=np.full_like(gangs.slice_level, NONE),
            slice_size=np.zeros_like(gangs.slice_size),
        ),
        subgroups=replace(
            subgroups,
            required=np.full_like(subgroups.required, NONE),
            preferred=np.full_like(subgroups.preferred, NONE),
            pinned=np.full_like(subgroups.pinned, NONE),
            slice_level=np.full_like(subgroups.slice_level, NONE),
            slice_size=np.zeros_like(subgroups.slice_size),
        ),
        used_domains=UsedPreferredDomains(),
        running_slice_pods=RunningSlicePodCounts(),
        rows=(),
        cuts=(),
    )
