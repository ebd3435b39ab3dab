"""The greedy solver: gang after gang in the policy's order, all or nothing.

It gives the solution that every other stage must improve on, the hint for CP-SAT, and the fallback. If the profile
selects in strict order, `solve_greedy` is the whole solver.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from batchsched.solver.objective import ALL_CLASSES, compare_objectives_by_tier, objectives_by_tier
from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, FloatArray, Problem, Solution


def solve_greedy(problem: Problem) -> Solution:
    """Place gangs one by one, the highest priority tier first; in each tier, minMember pods precede elastic pods."""
    return pack_greedily(problem).to_solution("greedy")


def pack_greedily(problem: Problem, plain: bool = False) -> Packing:
    """Place the gangs of a problem greedily; return the packing, which contains nodes and placed pods.

    `plain` is passed to `Packing`.
    """
    packing = Packing(problem, plain)
    fill_packing(packing)
    return packing


def solve_like_other_batch_schedulers(problem: Problem) -> Solution:
    """Place gangs as other batch schedulers do: one gang after the other, on the fullest node first.

    The order of gangs is the same as in `solve_greedy`, and the pods of a gang are placed in the order of their classes
    in the problem. A gang with a required level is tried in one domain after the other, the tightest first, since
    kube-scheduler's topology placement examines all of them. A gang is skipped if its minimum fits in no domain. A
    placed pod never moves.
    """
    return pack_greedily(problem, plain=True).to_solution("greedy")


def solve_greedily_unless_worse(problem: Problem, values: FloatArray, plain: bool = False) -> Solution | None:
    """Place gangs greedily, tier by tier; stop and return None as soon as a given solution is better.

    Args:
      problem: the problem.
      values: [T] the objectives of the given solution.
      plain: as in `pack_greedily`.

    Returns:
      the greedy solution, or None if the given solution is better.
    """
    packing, classes = Packing(problem, plain), problem.classes
    for tier in iterate_filled_tiers(packing):
        own = objectives_by_tier(problem, ALL_CLASSES, classes.count - np.array(packing.room.waiting))[
            : tier + 1
        ]
        if compare_objectives_by_tier(own, values[: tier + 1]) < 0:
            return None
    return packing.to_solution("greedy")


def fill_packing(packing: Packing) -> None:
    """Place every gang and elastic pod that still fits in a packing, the gangs of the highest tier first."""
    for _ in iterate_filled_tiers(packing):
        pass


def iterate_filled_tiers(packing: Packing) -> Iterator[int]:
    """Place every gang and elastic pod that still fits, tier by tier; yield each tier after it is filled.

    Consecutive single-pod gangs with equal requests are placed in one operation, as the pods of one gang would be.
    """
    problem = packing.problem
    kinds = group_numbers_of_equal_single_pod_gangs(packing.room)
    order = np.lexsort((problem.gangs.rank, problem.gangs.tier)).tolist()
    tier = problem.gangs.tier.tolist()
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and tier[order[end]] == tier[order[start]]:
            end += 1
        for kind, gangs in groupby(order[start:end], key=kinds.__getitem__):
            run = list(gangs)
            if kind >= 0 and len(run) > 1:
                packing.place_equal_single_pod_gangs(run)
                continue
            for gang in run:
                packing.place_minimum_of_gang(gang)
        # Elastic pods come after all minimums of the tier, so that they do not take the room of a minimum.
        for gang in order[start:end]:
            packing.place_elastic_pods(gang)
        yield tier[order[start]]
        start = end


def group_numbers_of_equal_single_pod_gangs(capacity: FreeCapacity) -> list[int]:
    """Return a group number for each gang [G]: equal for interchangeable single-pod gangs, otherwise -1.

    Gangs that must be placed by themselves have -1. The others are gangs of one pod with equal demand and kind, which
    no level, row, cut or quota concerns. Placing them one by one or together gives the same result.
    """
    problem = capacity.problem
    numbers_of_gangs = [-1] * len(problem.gangs.need)
    # A row may count any pod, so that the order of the gangs would matter.
    if capacity.rows.rows:
        return numbers_of_gangs
    # A second class may have no pods left, because they request more than any node has.
    alone = (
        (np.bincount(problem.classes.gang, minlength=len(numbers_of_gangs)) == 1)
        & (np.bincount(problem.classes.gang, problem.classes.count, minlength=len(numbers_of_gangs)) == 1)
        & problem.gangs.allowed
        & (problem.gangs.need == 1)
        & (problem.gangs.required == NONE)
        & (problem.gangs.preferred == NONE)
        & (problem.gangs.slice_size == 0)
    )[problem.classes.gang] & (problem.classes.subgroup == NONE)
    numbers: dict[tuple[int, bytes], int] = {}
    for class_index in np.flatnonzero(alone).tolist():
        gang = int(problem.classes.gang[class_index])
        if (
            capacity.slots.needs[class_index]
            and class_index not in capacity.banned
            and not capacity.quotas.is_gang_limited(gang)
        ):
            request = int(problem.classes.kind[class_index]), capacity.slots.demand[class_index].tobytes()
            numbers_of_gangs[gang] = numbers.setdefault(request, len(numbers))
    return numbers_of_gangs
