"""Which gangs are alike: lone pods that ask for the same, so that a run of them is placed as one gang would be."""

import numpy as np

from batchsched.solver.packing.free_capacity import FreeCapacity
from batchsched.solver.problem import NONE


def alike(room: FreeCapacity) -> list[int]:
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
        if room.slots.needs[class_index] and class_index not in room.banned and not room.quotas.bind(gang):
            asked = int(problem.classes.kind[class_index]), room.slots.demand[class_index].tobytes()
            found[gang] = numbers.setdefault(asked, len(numbers))
    return found
