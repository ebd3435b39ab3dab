"""Whether one gang fits by itself, and what its minimum lacks of quotas and capacity.

Shapes: C classes, D domains, N nodes, Q quotas, R resources.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from batchsched.solver.exact.exact import solve_exact
from batchsched.solver.exact.nodewise import count_fitting
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import NONE, UNLIMITED, BoolArray, Budget, IntArray
from batchsched.solver.relaxation.changes import (
    CombinedChange,
    NodeChange,
    PodChange,
    QuotaChange,
    Relaxation,
    added_nodes,
    apply_change,
)
from batchsched.solver.relaxation.fit_count import FitCounter

_MAX_EXACT_NODES: Final = 100
"""Up to this many nodes the exact model decides; beyond, the packing."""
_MAX_EXACT_PAIRS: Final = 300
"""The exact model also requires at most this many pairs of a class and a node."""
_BUDGET: Final = Budget(deterministic=0.5)


class Residual(FitCounter):
    """One gang's own problem on what the other gangs leave, and everything that was computed about it.

    Explanations ask the same questions of the same problem many times. The answers belong to this object; a changed
    problem is another `Residual`.
    """

    def changed(self, parts: Sequence[Relaxation]) -> "Residual":
        """Return the residual with these changes made; without changes it is this one, with its answers."""
        return Residual(apply_change(self.problem, CombinedChange(tuple(parts)))) if parts else self

    # ------------------------------------------------------------------------------------ admission

    def fits(self) -> bool:
        """Tell whether the gang can be taken.

        True is always right: a placement was found. False is exact for gangs of one class without rows and without
        levels of subgroups, and for small problems; otherwise it says that filling the largest pods first fails.
        """
        if np.any(self.missing_pods):
            return False
        if self.quota_gaps:
            return self._has_choice and self._fits_exactly()
        return self._is_placeable

    def fits_with(self, change: Relaxation) -> bool:
        """Tell whether the gang fits once the problem is changed.

        Quotas come first. If the packing need not count against them, the nodes are not examined again for a change
        of quotas alone.
        """
        parts = change.parts if isinstance(change, CombinedChange) else (change,)
        quotas = [part for part in parts if isinstance(part, QuotaChange)]
        with_pods = any(isinstance(part, PodChange | CombinedChange) for part in parts)
        if not self.is_countable or with_pods or self._has_choice:
            return self.changed((change,)).fits()
        if not all(_close_gap(gap, quotas) for gap in self.quota_gaps):
            return False
        if self.missing_pods.any():
            return False
        others = tuple(part for part in parts if not isinstance(part, QuotaChange))
        if others and isinstance(others[-1], NodeChange) and self._counting_decides():
            before = self.changed(others[:-1])
            return before.fits_with_nodes(added_nodes(before.problem, others[-1]))
        return self.changed(others)._is_placeable

    def fitted_before(self, before: "Residual") -> bool:
        """Tell whether the gang fitted `before`, when nodes and quotas had more left.

        What the nodes take now they took then, so `before` is examined only if the gang does not fit now.
        """
        if self._has_choice:
            return before.fits()
        if self._quota_gaps_of(before) or np.any(self.missing_pods):
            return False
        return (self.is_countable and self._is_placeable) or before._is_placeable

    @property
    def is_countable(self) -> bool:
        """Whether counting pods and resources suffices: there are no rows and no levels of subgroups."""
        return not self.problem.rows and all(
            level == NONE for level in self.problem.subgroups.required.tolist()
        )

    @cached_property
    def _is_placeable(self) -> bool:
        """Whether the nodes take the gang, provided that all its pods exist and its quotas admit it."""
        countable, fits = self.is_countable, self.fit_counts.fits
        if countable and (fits or self._counting_decides()):
            return fits
        rigid = self.min_pods == int(self.problem.classes.count.sum())
        # With rows or inner levels it is harder still: what counting excludes stays excluded.
        if not fits and (len(self.problem.classes.count) == 1 or (rigid and not self.may_fit())):
            return False
        if self._is_small():
            return self._fits_exactly()
        return fits if countable else Packing(self.problem).try_gang(0) is not None

    def _counting_decides(self) -> bool:
        """Whether counting is taken as the answer if only levels and free capacity matter."""
        return len(self.problem.classes.count) == 1 or len(self.problem.nodes.free) > _MAX_EXACT_NODES

    def _is_small(self) -> bool:
        return (
            len(self.problem.nodes.free) <= _MAX_EXACT_NODES
            and int(np.count_nonzero(count_fitting(self.problem))) <= _MAX_EXACT_PAIRS
        )

    @cached_property
    def _has_choice(self) -> bool:
        """Whether the minimum may consist of other pods than the smallest, and the exact model can try them.

        Quota gaps are computed for the smallest pods.
        """
        pods = self.problem.classes.count
        return len(pods) > 1 and self.min_pods < int(pods.sum()) and self._is_small()

    def _fits_exactly(self) -> bool:
        return bool(solve_exact(self.problem, _BUDGET, seed=0).taken[0])

    # ------------------------------------------------------------------------------------ what is missing

    @cached_property
    def missing_pods(self) -> IntArray:
        """Pods that do not exist but would be needed to meet the minimum at all, by class [C]."""
        classes, subgroups = self.problem.classes, self.problem.subgroups
        missing = np.zeros(len(classes.count), np.int64)
        for subgroup, need in enumerate(subgroups.need.tolist()):
            members = np.flatnonzero(classes.subgroup == subgroup)
            lacking = need - int(classes.count[members].sum())
            if len(members) and lacking > 0:
                missing[members[0]] += lacking
        lacking = self.min_pods - int(classes.count.sum()) - int(missing.sum())
        if len(missing) and lacking > 0:
            missing[0] += lacking
        return missing

    @cached_property
    def quota_gaps(self) -> tuple[QuotaChange, ...]:
        """What the quotas lack for the minimum: one change for each quota that lacks something."""
        return self._quota_gaps_of(self)

    def _quota_gaps_of(self, other: "Residual") -> tuple[QuotaChange, ...]:
        """What the quotas of `other`, the same gang's problem, lack for the minimum."""
        quotas = other.problem.quotas
        if not len(quotas.gangs):
            return ()
        request = (self.minimum @ self.problem.classes.demand).tolist()
        counts_as_gang = bool(self.problem.gangs.fresh[0]) and self.min_pods > 0
        gaps = []
        # There are few numbers: Python compares its own ints faster than small arrays.
        for quota, (free, gangs_left) in enumerate(
            zip(quotas.free.tolist(), quotas.gangs.tolist(), strict=True)
        ):
            lacking = tuple(
                max(0, amount - max(0, left)) if amount > 0 and left < UNLIMITED else 0
                for amount, left in zip(request, free, strict=True)
            )
            gangs = int(counts_as_gang and gangs_left < 1)
            if gangs or any(lacking):
                gaps.append(QuotaChange(quota, lacking, gangs))
        return tuple(gaps)

    def passing_nodes(self) -> BoolArray:
        """[C, N] which nodes pass the filters of each class; classes that the minimum does not need pass none."""
        needed = self.minimum > 0
        passes: BoolArray = self.problem.kinds.mask[self.problem.classes.kind] & needed[:, None]
        return passes

    def capacity_short(self) -> IntArray:
        """[R] what all nodes that pass a filter lack together for the minimum."""
        usable = self.passing_nodes().any(axis=0)
        request = self.minimum @ self.problem.classes.demand
        total = self.problem.nodes.free[usable].sum(axis=0)
        return np.where(request > 0, np.maximum(request - total, 0), 0)

    def size_short(self) -> IntArray:
        """[R] by how much the largest node that passes is too small, even empty, for a pod of the minimum."""
        demand, capacity = self.problem.classes.demand, self.problem.nodes.capacity
        short = np.zeros(demand.shape[1], np.int64)
        for class_index, passes in enumerate(self.passing_nodes()):
            sizes = capacity[passes]
            lacking = np.maximum(demand[class_index] - sizes, 0)
            if len(sizes) and np.all(lacking.any(axis=1)):
                # The node that lacks the smallest part of the request.
                best = np.argmin((lacking / np.maximum(demand[class_index], 1)).max(axis=1))
                short = np.maximum(short, lacking[best])
        return short

    def resources_short(self) -> IntArray:
        """[R] the amounts that the pods lack that do not fit in the best domain.

        A resource counts for a class if more of its pods would fit without requesting it.
        """
        counts = self.fit_counts
        best, demand = counts.best_domain, self.problem.classes.demand
        amounts = np.zeros(demand.shape[1], np.int64)
        for class_index in np.flatnonzero(counts.short[best] > 0).tolist():
            request = demand[class_index]
            scarce = self._scarce_resources(class_index)
            amounts += (
                np.where(scarce if scarce.any() else request > 0, request, 0)
                * counts.short[best, class_index]
            )
        return amounts

    def _scarce_resources(self, class_index: int) -> BoolArray:
        """[R] resources without which more pods of the class would fit on some node."""
        request = self.problem.classes.demand[class_index]
        passes = self.problem.kinds.mask[self.problem.classes.kind[class_index]]
        pods = np.full(
            (len(request), len(self.problem.nodes.free)), UNLIMITED
        )  # [R, N] by each resource alone
        for resource in np.flatnonzero(request).tolist():
            pods[resource] = self.problem.nodes.free[:, resource] // request[resource]
        fewest = pods.min(axis=0)
        # Without resource r a node takes as many pods as its next scarcest resource allows.
        without = (np.delete(pods, r, 0).min(axis=0, initial=UNLIMITED) for r in range(len(request)))
        return np.array([bool(np.any(passes & (next_fewest > fewest))) for next_fewest in without])


def _close_gap(gap: QuotaChange, changes: Sequence[QuotaChange]) -> bool:
    """Whether changes of quotas together close the gap of one quota."""
    own = [change for change in changes if change.quota == gap.quota]
    amounts = [sum(change.amounts[resource] for change in own) for resource in range(len(gap.amounts))]
    enough = all(given >= lacking for given, lacking in zip(amounts, gap.amounts, strict=True))
    return enough and sum(change.gangs for change in own) >= gap.gangs
