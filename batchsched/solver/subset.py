"""Some gangs of a session by themselves, and their solution in the numbers of the whole session.

Shapes: C classes, G gangs, N nodes, Q quotas, S subgroups, T tiers.
"""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.objective import needs, tiers
from batchsched.solver.problem import BoolArray, FloatArray, IntArray, Problem, Solution


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """Some gangs of a problem.

    Args:
      problem: theirs; quotas keep their numbers, gangs and classes have new ones.
      gangs: [G'] their old numbers.
      classes: [C'] those of their classes.
      whole: the problem that they come from.
    """

    problem: Problem
    gangs: IntArray
    classes: IntArray
    whole: Problem

    def widened(self, values: FloatArray) -> FloatArray:
        """Values by tier [T'] as values by tier of the whole problem [T]."""
        result = np.zeros(tiers(self.whole))
        result[: len(values)] = values
        return result

    def restored(self, solution: Solution) -> Solution:
        """A solution of these gangs as one of the whole problem in which no other gang has a new pod."""
        taken = needs(self.whole) == 0
        taken[self.gangs] = solution.taken
        return replace(
            solution,
            classes=self.classes[solution.classes].astype(np.int32),
            taken=taken,
            objective=self.widened(solution.objective),
            bound=self.widened(solution.bound),
        )


def only(problem: Problem, kept: BoolArray) -> Subset:
    """The gangs `kept` [G] of a problem without rows and cuts, all nodes and quotas as they are.

    Raises:
      ValueError: rows or cuts may tie gangs to each other.
    """
    if problem.rows or problem.cuts:
        raise ValueError("rows and cuts tie gangs to each other")
    gangs, classes = np.flatnonzero(kept), np.flatnonzero(kept[problem.classes.gang])
    subgroups = np.flatnonzero(kept[problem.subgroups.gang])
    return Subset(problem.take_gangs(gangs, classes, subgroups), gangs, classes, problem)
