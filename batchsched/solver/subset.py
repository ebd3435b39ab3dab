"""Some gangs of a session by themselves, and their solution in the numbers of the whole session.

Shapes: C classes, G gangs, N nodes, Q quotas, S subgroups, T tiers.
"""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.solver.objective import needs, tiers
from batchsched.solver.problem import NONE, BoolArray, FloatArray, IndexArray, IntArray, Problem, Solution


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
    gangs, classes = np.flatnonzero(kept), np.flatnonzero(kept[problem.gang])
    subgroups, used = np.flatnonzero(kept[problem.sub_gang]), np.flatnonzero(kept[problem.used_gang])
    gang, subgroup = _numbers(gangs, len(kept)), _numbers(subgroups, len(problem.sub_gang))
    kinds, kind = np.unique(problem.kind[classes], return_inverse=True)
    by_gang = {name: getattr(problem, name)[gangs] for name in _BY_GANG}
    by_class = {name: getattr(problem, name)[classes] for name in _BY_CLASS}
    by_subgroup = {name: getattr(problem, name)[subgroups] for name in _BY_SUBGROUP}
    return Subset(
        replace(
            problem,
            mask=problem.mask[kinds],
            score=problem.score[kinds],
            kind=kind.reshape(-1).astype(np.int32),
            gang=gang[problem.gang[classes]],
            subgroup=subgroup[problem.subgroup[classes]],
            sub_gang=gang[problem.sub_gang[subgroups]],
            used_gang=gang[problem.used_gang[used]],
            used_sub=subgroup[problem.used_sub[used]],
            used_level=problem.used_level[used],
            used_domain=problem.used_domain[used],
            quota_member=problem.quota_member[:, gangs] if len(problem.quota_gangs) else problem.quota_member,
            **by_gang,
            **by_class,
            **by_subgroup,
        ),
        gangs,
        classes,
        problem,
    )


_BY_GANG = ("need", "tier", "rank", "required", "preferred", "pinned", "fresh", "allowed")
_BY_CLASS = ("demand", "count", "weight")
_BY_SUBGROUP = ("sub_need", "sub_required", "sub_preferred", "sub_pinned")


def _numbers(kept: IntArray, size: int) -> IndexArray:
    """New numbers by old ones, NONE for those that are left out; the last entry is that of NONE itself."""
    result = np.full(size + 1, NONE, np.int32)
    result[kept] = np.arange(len(kept))
    return result
