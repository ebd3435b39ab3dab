"""The problem of some gangs of a session, and its solution in the numbers of the whole session.

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
      problem: the problem of these gangs: quotas keep their numbers, gangs and classes have new ones.
      gangs: [G'] the gangs' numbers in the whole problem.
      classes: [C'] the numbers of their classes in the whole problem.
      whole: the problem from which they were taken.
    """

    problem: Problem
    gangs: IntArray
    classes: IntArray
    whole: Problem

    def widen_tiers(self, values: FloatArray) -> FloatArray:
        """Return values by tier [T'] as values by tier of the whole problem [T]."""
        result = np.zeros(count_tiers(self.whole))
        result[: len(values)] = values
        return result

    def restored(self, solution: Solution) -> Solution:
        """Return a solution of these gangs as a solution of the whole problem. No other gang gets a pod."""
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
    """Return the gangs `kept` [G] of a problem without rows and cuts. All nodes and quotas stay as they are.

    Raises:
      ValueError: the problem has rows or cuts, which may link gangs to each other.
    """
    if problem.rows or problem.cuts:
        raise ValueError("rows and cuts tie gangs to each other")
    gangs, classes = np.flatnonzero(kept), np.flatnonzero(kept[problem.classes.gang])
    subgroups = np.flatnonzero(kept[problem.subgroups.gang])
    return GangSubset(problem.take_gangs(gangs, classes, subgroups), gangs, classes, problem)
