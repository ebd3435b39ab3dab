"""The greedy: gang after gang in the policy's order, all or nothing. The floor, the hint, the fallback.

`solve_greedy` also places a session whose profile selects in strict order: then it is the whole answer.
"""

from itertools import groupby

import numpy as np

from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, Problem, Solution


def solve_greedy(problem: Problem) -> Solution:
    """Place gangs tier by tier in the order of their rank, then each tier's surplus."""
    return pack_greedily(problem).to_solution("greedy")


def pack_greedily(problem: Problem) -> Packing:
    """The greedy's packing itself, for whoever goes on from there."""
    packing = Packing(problem)
    fill_packing(packing)
    return packing


def solve_job_by_job(problem: Problem) -> Solution:
    """What the peers do: gang after gang in the same order, its pods as given, the fullest node first.

    A gang with a required level is tried in one domain after the other, the tightest first, as kube-scheduler's
    topology placement looks at all of them. It is given up when its minimum fits in none, and nothing placed is
    ever moved or taken back.
    """
    packing = Packing(problem, plain=True)
    fill_packing(packing)
    return packing.to_solution("greedy")


def fill_packing(packing: Packing) -> None:
    """Add whatever gang or surplus pod still fits, tier by tier, in the policy's order.

    Equal lone pods that follow each other are placed as one gang would be.
    """
    problem = packing.problem
    kinds = number_equal_gangs(packing.room)
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
                packing.try_equal_gangs(run)
                continue
            for gang in run:
                packing.try_gang(gang)
        for gang in order[start:end]:
            packing.add_surplus(gang)
        start = end


def number_equal_gangs(room: FreeCapacity) -> list[int]:
    """[G] Equal numbers for lone pods that ask for the same of any node, and of nothing else; -1 for all others.

    To place them one by one, or all of them as one, comes to the same number.
    """
    problem = room.problem
    found = [-1] * len(problem.gangs.need)
    if room.rows.rows:
        return found
    alone = (
        (np.bincount(problem.classes.gang, problem.classes.count, minlength=len(found)) == 1)
        & problem.gangs.allowed
        & (problem.gangs.need == 1)
        & (problem.gangs.required == NONE)
        & (problem.gangs.preferred == NONE)
    )[problem.classes.gang] & (problem.classes.subgroup == NONE)
    numbers: dict[tuple[int, bytes], int] = {}
    for class_index in np.flatnonzero(alone).tolist():
        gang = int(problem.classes.gang[class_index])
        if (
            room.slots.needs[class_index]
            and class_index not in room.banned
            and not room.quotas.is_limited(gang)
        ):
            asked = int(problem.classes.kind[class_index]), room.slots.demand[class_index].tobytes()
            found[gang] = numbers.setdefault(asked, len(numbers))
    return found
