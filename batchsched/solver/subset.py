"""Some gangs of a session by themselves, and their solution in the numbers of the whole session.

Shapes: C classes, G gangs, N nodes, Q quotas, S subgroups, T tiers.
"""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.objective import count_tiers, required_pods
from batchsched.solver.problem import BoolArray, FloatArray, IntArray, Problem, Solution


@dataclass(frozen=True, slots=True, eq=False)
class GangSubset:
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

    def widen_tiers(self, values: FloatArray) -> FloatArray:
        """Values by tier [T'] as values by tier of the whole problem [T]."""
        result = np.zeros(count_tiers(self.whole))
        result[: len(values)] = values
        return result

    def restored(self, solution: Solution) -> Solution:
        """A solution of these gangs as one of the whole problem in which no other gang has a new pod."""
        taken = required_pods(self.whole) == 0
        taken[self.gangs] = solution.taken
        return replace(
            solution,
            classes=self.classes[solution.classes].astype(np.int32),
            taken=taken,
            objective=self.widen_tiers(solution.objective),
            bound=self.widen_tiers(solution.bound),
        )


def take_subset(problem: Problem, kept: BoolArray) -> GangSubset:
    """The gangs `kept` [G] of a problem without rows and cuts, all nodes and quotas as they are.

    Raises:
      ValueError: rows or cuts may tie gangs to each other.
    """
    if problem.rows or problem.cuts:
        raise ValueError("rows and cuts tie gangs to each other")
    gangs, classes = np.flatnonzero(kept), np.flatnonzero(kept[problem.classes.gang])
    subgroups = np.flatnonzero(kept[problem.subgroups.gang])
    return GangSubset(problem.take_gangs(gangs, classes, subgroups), gangs, classes, problem)
