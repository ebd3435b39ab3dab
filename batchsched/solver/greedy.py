"""The greedy: gang after gang in the policy's order, all or nothing. The floor, the hint, the fallback.

`greedy` also places a session whose profile selects in strict order: then it is the whole answer.
"""

from itertools import groupby

import numpy as np

from batchsched.solver.outcome import to_solution
from batchsched.solver.packing.equal_gangs import alike
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import Problem, Solution


def greedy(problem: Problem) -> Solution:
    """Place gangs tier by tier in the order of their rank, then each tier's surplus."""
    return to_solution(greedy_packing(problem), "greedy")


def greedy_packing(problem: Problem) -> Packing:
    """The greedy's packing itself, for whoever goes on from there."""
    packing = Packing(problem)
    fill(packing)
    return packing


def job_by_job(problem: Problem) -> Solution:
    """What the peers do: gang after gang in the same order, its pods as given, the fullest node first.

    A gang with a required level is tried in one domain after the other, the tightest first, as kube-scheduler's
    topology placement looks at all of them. It is given up when its minimum fits in none, and nothing placed is
    ever moved or taken back.
    """
    packing = Packing(problem, plain=True)
    fill(packing)
    return to_solution(packing, "greedy")


def fill(packing: Packing) -> None:
    """Add whatever gang or surplus pod still fits, tier by tier, in the policy's order.

    Equal lone pods that follow each other are placed as one gang would be.
    """
    problem = packing.problem
    kinds = alike(packing.room)
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
                packing.try_alike(run)
                continue
            for gang in run:
                packing.try_gang(gang)
        for gang in order[start:end]:
            packing.add_surplus(gang)
        start = end
