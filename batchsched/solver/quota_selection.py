"""Sessions that only quotas contend for: who is taken is chosen as if all nodes were one, and then placed.

Where the greedy had room for whoever the quotas admitted, nodes are not what is scarce. The nodes as one large node,
and the quotas as they are, make a relaxation of the session with a handful of rows; when the greedy places what is best
in it to the last pod, that is the optimum of the session, and no model of the nodes is needed.

Shapes: C classes, G gangs, N nodes, R resources.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.greedy import fill_packing, pack_greedily
from batchsched.solver.objective import compare_solutions, compare_tiers, count_placed, tier_values
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    Budget,
    Problem,
    ProblemKinds,
    ProblemNodes,
    Solution,
    UsedDomains,
)
from batchsched.solver.subset import take_subset

BUDGET_SHARE: Final = 0.1
"""What part of the budget the choice may spend: it is proved in less, or not worth more."""


def is_limited_by_quotas_only(packing: Packing) -> bool:
    """Whether whatever the greedy left out is more than some quota leaves: no node had too little room for it."""
    problem, room = packing.problem, packing.room
    waiting = np.array(room.waiting, np.int64)
    left_out = np.flatnonzero((waiting > 0) & problem.gangs.allowed[problem.classes.gang])
    for class_index in left_out.tolist():
        gang = int(problem.classes.gang[class_index])
        if not packing.taken[gang]:
            if room.quotas.admits(gang) and room.quotas.suffices(gang):
                return False
        elif room.quotas.room(gang, room.slots.needs[class_index], 1):
            return False
    return True


def select_by_quotas(packing: Packing, budget: Budget, seed: int, floor: Solution) -> Solution | None:
    """Choose by quotas alone, and place what was chosen.

    Args:
      packing: the greedy's, of the session; what stays is taken out of it.
      budget: how much may be spent, of which a part is.
      seed: CP-SAT's.
      floor: the same as a solution: what the answer may not fall behind.

    Returns:
      a proved optimum; None when the choice was not proved to be best, or does not all find a place.
    """
    problem = packing.problem
    most = replace(budget, deterministic=budget.deterministic * BUDGET_SHARE)
    binding = packing.room.quotas.binding
    if not binding.any():
        return None
    contended: BoolArray = np.asarray(problem.quotas.covers[binding].any(axis=0))
    some = take_subset(merge_nodes(problem), contended)
    choice = some.restored(solve_exact(some.problem, most, seed))
    if compare_tiers(choice.bound, choice.objective):
        return None
    # Gangs that no quota stops are all chosen.
    free = problem.gangs.allowed & ~contended
    allotted = count_placed(problem, choice.classes, choice.counts)
    pods = np.where(free[problem.classes.gang], problem.classes.count, allotted).astype(np.int32)
    chosen = replace(
        problem,
        classes=replace(problem.classes, count=pods),
        gangs=replace(problem.gangs, allowed=problem.gangs.allowed & (choice.taken | free)),
    )
    best = tier_values(problem, np.arange(len(pods)), pods)
    answer = _beside(packing, chosen, floor).to_solution("quotas")
    if compare_tiers(answer.objective, best):
        answer = pack_greedily(chosen).to_solution("quotas")
    if compare_tiers(answer.objective, best) or compare_solutions(answer, floor) < 0:
        return None
    return replace(answer, bound=np.maximum(best, answer.objective), guard=choice.guard)


def _beside(packing: Packing, chosen: Problem, floor: Solution) -> Packing:
    """Place what was chosen; gangs of which the greedy placed just that stay where they are."""
    placed = count_placed(packing.problem, floor.classes, floor.counts)
    other = (
        np.bincount(chosen.classes.gang, placed != chosen.classes.count, minlength=len(chosen.gangs.need)) > 0
    )
    kept = np.flatnonzero(floor.taken & chosen.gangs.allowed & ~other)
    made = Packing(chosen)
    made.reinstate(packing.withdraw(set(kept.tolist())))
    fill_packing(made)
    return made


def merge_nodes(problem: Problem) -> Problem:
    """The session with all nodes as one, without levels, filters, rows and scores: who fits here need not fit there."""
    kinds = len(problem.kinds.mask)
    gangs, subgroups = problem.gangs, problem.subgroups
    return replace(
        problem,
        nodes=ProblemNodes(
            free=np.minimum(problem.nodes.free.sum(axis=0), UNLIMITED)[None],
            capacity=np.minimum(problem.nodes.capacity.sum(axis=0), UNLIMITED)[None],
            levels=np.zeros((0, 1), np.int32),
        ),
        kinds=ProblemKinds(np.ones((kinds, 1), np.bool_), np.zeros((kinds, 1), np.int64)),
        gangs=replace(
            gangs,
            required=np.full_like(gangs.required, NONE),
            preferred=np.full_like(gangs.preferred, NONE),
            pinned=np.full_like(gangs.pinned, NONE),
        ),
        subgroups=replace(
            subgroups,
            required=np.full_like(subgroups.required, NONE),
            preferred=np.full_like(subgroups.preferred, NONE),
            pinned=np.full_like(subgroups.pinned, NONE),
        ),
        used_domains=UsedDomains(),
        rows=(),
        cuts=(),
    )
