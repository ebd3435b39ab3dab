"""The test whether one gang fits by itself, and the quota and capacity that its minimum lacks.

Shapes: C classes, D domains, N nodes, Q quotas, R resources.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from batchsched.solver.exact import solve_exact
from batchsched.solver.gang_tree import mask_gangs_with_tree_rules
from batchsched.solver.node_model import count_fitting_pods
from batchsched.solver.objective import count_pods_still_required
from batchsched.solver.packing.packing import Packing
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    FloatArray,
    IntArray,
    Problem,
    ProblemQuotas,
    SolverBudget,
    count_pods_that_fit,
)
from batchsched.solver.relaxation.budget import ExplanationBudget
from batchsched.solver.relaxation.changes import (
    AddedNodes,
    AddedPods,
    CombinedChange,
    RaisedQuota,
    Relaxation,
    apply_change,
    problem_of_added_nodes_only,
)

_MAX_EXACT_NODES: Final = 100
"""Up to this many nodes the exact model decides; beyond, the packing."""
_MAX_EXACT_PAIRS: Final = 300
"""The exact model also requires at most this many pairs of a class and a node."""
_BUDGET: Final = SolverBudget(deterministic=0.2)


@dataclass(frozen=True, slots=True, eq=False)
class FitCounts:
    """The numbers of pods of a gang's minimum that fit in each topology domain [D], by pod class [C].

    Args:
      domains: [D] domains of the required level in which a pod fits, at least one; a single NONE if no level is
        required.
      placed: [D, C] pods that fit into each domain if the whole minimum is placed there.
      minimum_by_class: [C] pods that make the minimum.
    """

    domains: IntArray
    placed: IntArray
    minimum_by_class: IntArray

    @property
    def unplaced_pod_counts(self) -> IntArray:
        """The numbers [D, C] of pods of the gang's minimum that do not fit, for each topology domain and pod class."""
        return self.minimum_by_class - self.placed

    @property
    def fits_in_some_domain(self) -> bool:
        """Whether the gang's minimum number of pods fits in some topology domain."""
        return bool((self.placed.sum(axis=1) >= self.minimum_by_class.sum()).any())

    @property
    def best_domain_position(self) -> int:
        """The position in `domains` of the topology domain in which most pods of the minimum fit."""
        return int(np.argmin(self.unplaced_pod_counts.sum(axis=1)))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Nodes that take a pod, by domain.

    Args:
      nodes: [n] the nodes, sorted by domain.
      domains: [D] the domains.
      first: [D] where in `nodes` each domain begins.
    """

    nodes: IntArray
    domains: IntArray
    first: IntArray


class ResidualProblem:
    """The solver problem of one refused gang, on the capacity that all other gangs leave free.

    Explanations ask the same questions of the same problem many times. The answers belong to this object; a changed
    problem is another `ResidualProblem`.
    """

    def __init__(self, problem: Problem, budget: ExplanationBudget | None = None) -> None:
        """Take the problem of a single gang (`IsolatedGangProblem.problem`)."""
        self.problem = problem
        self._budget = budget or ExplanationBudget()

    @cached_property
    def needed_pod_count(self) -> int:
        """The number of pods that must still be placed so that the gang reaches its minimum."""
        return int(count_pods_still_required(self.problem)[0])

    @cached_property
    def minimum_by_class(self) -> IntArray:
        """The number of pods [C] of each class in the gang's minimum, which consists of its smallest pods."""
        classes = self.problem.classes
        chosen = np.zeros(len(classes.count), np.int64)
        if self.needed_pod_count >= int(classes.count.sum()):
            return chosen + classes.count
        order = np.argsort(self._pod_sizes, kind="stable")
        for subgroup, need in enumerate(self._subgroup_needs):
            chosen += self._first_pods(order[classes.subgroup[order] == subgroup], need, chosen)
        return chosen + self._first_pods(order, self.needed_pod_count - int(chosen.sum()), chosen)

    @property
    def _subgroup_needs(self) -> list[int]:
        """Pods that each subgroup [S] must get: of a tree none, since other subgroups may run in its place."""
        needs: list[int] = self.problem.subgroups.need.tolist()
        return [0] * len(needs) if mask_gangs_with_tree_rules(self.problem)[0] else needs

    def _first_pods(self, order: IntArray, need: int, chosen: IntArray) -> IntArray:
        """Choose `need` pods [C] in this order of classes, of those that are not chosen yet."""
        more = np.zeros(len(chosen), np.int64)
        available = self.problem.classes.count[order] - chosen[order]
        before = np.concatenate([[0], np.cumsum(available)[:-1]]) if len(available) else available
        more[order] = np.clip(need - before, 0, available)
        return more

    @cached_property
    def _pod_sizes(self) -> FloatArray:
        """Dominant share of one pod of each class [C]; 0 if there is a single class, which needs no comparison."""
        demand = self.problem.classes.demand
        if len(demand) == 1:
            return np.zeros(1)
        total = np.maximum(self.problem.nodes.capacity.sum(axis=0), 1)
        share: FloatArray = demand / total
        return np.asarray(share.max(axis=1, initial=0.0), np.float64)

    @cached_property
    def _largest_first(self) -> list[int]:
        order: list[int] = (-self._pod_sizes).argsort(kind="stable").tolist()
        return order

    @cached_property
    def fit_counts(self) -> FitCounts:
        """The numbers of pods of the gang's minimum that fit in each domain, if the largest are placed first.

        Masks, free capacity, the gang's required level and its pinned domain count. Quotas, rows and levels of
        subgroups do not. Exact for a gang of one class.
        """
        cells = self._cells
        placed = _fill(self.problem, cells.nodes, cells.first, self.minimum_by_class, self._largest_first)
        return FitCounts(cells.domains, placed, self.minimum_by_class)

    def fits_with_added_nodes(self, added: Problem) -> bool:
        """Tell whether the gang's minimum fits after new nodes, all in one topology domain, join the cluster.

        The new nodes are filled last, with the pods that the other nodes of their domain do not take.

        Args:
          added: the problem of the new nodes alone (`changes.problem_of_added_nodes_only`).
        """
        counts = self.fit_counts
        if counts.fits_in_some_domain:
            return True
        level, pinned = int(self.problem.gangs.required[0]), int(self.problem.gangs.pinned[0])
        domain = int(added.nodes.levels[level, 0]) if level != NONE else NONE
        if level != NONE and (domain < 0 or pinned not in (NONE, domain)):
            return False
        position = (counts.domains == domain).nonzero()[0]
        short = counts.unplaced_pod_counts[position[0]] if len(position) else counts.minimum_by_class
        nodes, first = np.arange(len(added.nodes.free)), np.zeros(1, np.int64)
        placed = _fill(added, nodes, first, short, self._largest_first)
        return bool(placed.sum() >= short.sum())

    def may_fit(self) -> bool:
        """Return whether some domain has enough free resources for the whole minimum, and for each class.

        The free resources of the domain's nodes are compared with the sum of all requests. For each class, the pods
        that fit on single nodes are counted as if there were no other class. If the answer is False and the gang needs
        all of its pods, the gang does not fit, however it is packed.
        """
        cells = self._cells
        if not len(cells.nodes):
            return False
        free = self.problem.nodes.free[cells.nodes]
        demand, kind = self.problem.classes.demand, self.problem.classes.kind
        request = self.minimum_by_class @ demand
        result: BoolArray = np.all(np.add.reduceat(free, cells.first) >= request, axis=1)
        for class_index in np.flatnonzero(self.minimum_by_class).tolist():
            if result.any():
                need = int(self.minimum_by_class[class_index])
                fits = self.problem.kinds.mask[kind[class_index]][cells.nodes] * count_pods_that_fit(
                    demand[class_index], free, need
                )
                result = result & (np.add.reduceat(fits, cells.first) >= need)
        return bool(result.any())

    @cached_property
    def _cells(self) -> _Cells:
        """Nodes that take a pod of the minimum. Without such a node there is one domain: the pinned or the nearest."""
        level, pinned = int(self.problem.gangs.required[0]), int(self.problem.gangs.pinned[0])
        usable = self._usable_nodes()
        if level == NONE:
            return _Cells(usable.nonzero()[0], np.full(1, NONE, np.int64), np.zeros(1, np.int64))
        domain_of = self.problem.nodes.levels[level]
        nodes = (usable & (domain_of >= 0 if pinned == NONE else domain_of == pinned)).nonzero()[0]
        if not len(nodes):
            nearest = self._nearest_domain(level) if pinned == NONE else pinned
            return _Cells(nodes, np.full(1, nearest, np.int64), np.zeros(1, np.int64))
        nodes = nodes[domain_of[nodes].argsort(kind="stable")]
        domains = domain_of[nodes]
        first = np.r_[0, (domains[1:] != domains[:-1]).nonzero()[0] + 1]
        return _Cells(nodes, domains[first].astype(np.int64), first)

    def _nearest_domain(self, level: int) -> int:
        """Return the domain with the nodes that lack the smallest part of the minimum's requests; 0 without any.

        Only nodes that a pod of the minimum may use count.
        """
        domain_of = self.problem.nodes.levels[level]
        nodes = (self.nodes_passing_filters().any(axis=0) & (domain_of >= 0)).nonzero()[0]
        if not len(nodes):
            return 0
        domains, position = np.unique(domain_of[nodes], return_inverse=True)
        request = self.minimum_by_class @ self.problem.classes.demand
        free = np.zeros((len(domains), len(request)), np.int64)
        np.add.at(free, position, self.problem.nodes.free[nodes])
        lacking = np.maximum(request - free, 0) / np.maximum(request, 1)
        return int(domains[np.argmin(lacking.sum(axis=1))])

    def _usable_nodes(self) -> BoolArray:
        """Which nodes [N] have room for a pod of a class that the minimum needs."""
        problem = self.problem
        usable = np.zeros(len(problem.nodes.free), np.bool_)
        for class_index in self.minimum_by_class.nonzero()[0].tolist():
            fits = problem.kinds.mask[problem.classes.kind[class_index]]
            for resource, amount in enumerate(problem.classes.demand[class_index].tolist()):
                if amount:
                    fits = fits & (problem.nodes.free[:, resource] >= amount)
            usable |= fits
        return usable

    def with_changes(self, parts: Sequence[Relaxation]) -> "ResidualProblem":
        """Return the residual problem after changes such as added nodes; with an empty list, return this object."""
        if not parts:
            return self
        return ResidualProblem(apply_change(self.problem, CombinedChange(tuple(parts))), self._budget)

    # ------------------------------------------------------------------------------------ admission

    def gang_fits(self) -> bool:
        """Tell whether the gang's minimum fits on the nodes and within its queue limits.

        True is always right: a placement was found. False is exact for gangs of one class without rows and without
        levels of subgroups, and for small problems; otherwise it says that filling the largest pods first fails.
        """
        if np.any(self.uncreated_pods_by_class):
            return False
        # Quota shortages are those of the smallest pods; with a choice of pods only the exact model decides.
        if self.quota_shortages:
            return self._has_choice and self._fits_exactly(with_quotas=True)
        return self._is_placeable

    def fits_after_change(self, change: Relaxation) -> bool:
        """Tell whether the gang's minimum fits after a change such as a higher queue limit or more nodes.

        Quotas come first. If the packing need not count against them, the nodes are not examined again for a change
        of quotas alone.
        """
        parts = change.parts if isinstance(change, CombinedChange) else (change,)
        quotas = [part for part in parts if isinstance(part, RaisedQuota)]
        with_pods = any(isinstance(part, AddedPods | CombinedChange) for part in parts)
        if not self.may_be_decided_by_counting_pods or with_pods or self._has_choice:
            return self.with_changes((change,)).gang_fits()
        if not all(_cover_shortage(shortage, quotas) for shortage in self.quota_shortages):
            return False
        if self.uncreated_pods_by_class.any():
            return False
        other_parts = tuple(part for part in parts if not isinstance(part, RaisedQuota))
        if other_parts and isinstance(other_parts[-1], AddedNodes) and self._counting_decides():
            before = self.with_changes(other_parts[:-1])
            return before.fits_with_added_nodes(problem_of_added_nodes_only(before.problem, other_parts[-1]))
        return self.with_changes(other_parts)._is_placeable

    def fitted_before_placements(self, before: "ResidualProblem") -> bool:
        """Tell whether the gang would fit on the capacity that was free before the session placed other gangs.

        `before` is its problem at that time. What the nodes take now they took then, so `before` is examined only if
        the gang does not fit now.
        """
        if self._has_choice:
            return before.gang_fits()
        if self._quota_shortages_of(before) or np.any(self.uncreated_pods_by_class):
            return False
        return (self.may_be_decided_by_counting_pods and self._is_placeable) or before._is_placeable

    @cached_property
    def may_be_decided_by_counting_pods(self) -> bool:
        """Whether a count of the pods that fit may decide if the gang fits, without a search for a placement.

        This is the case if the gang has no plugin constraints, subgroup tree, slices or required levels of subgroups.
        """
        return (
            not self.problem.rows
            and not mask_gangs_with_tree_rules(self.problem)[0]
            and all(level == NONE for level in self.problem.subgroups.required.tolist())
        )

    @cached_property
    def _is_placeable(self) -> bool:
        """Whether the nodes take the gang, provided that all its pods exist and its quotas admit it."""
        countable, fits = self.may_be_decided_by_counting_pods, self.fit_counts.fits_in_some_domain
        if countable and (fits or self._counting_decides()):
            return fits
        rigid = self.needed_pod_count == int(self.problem.classes.count.sum())
        # With rows or inner levels it is harder still: what counting excludes stays excluded.
        if not fits and (len(self.problem.classes.count) == 1 or (rigid and not self.may_fit())):
            return False
        if self._is_small():
            # If every pod is needed, `quota_shortages` states exactly what the quotas lack.
            return self._fits_exactly(with_quotas=not rigid)
        return fits if countable else Packing(self.problem).place_minimum_of_gang(0) is not None

    def _counting_decides(self) -> bool:
        """Whether counting is taken as the answer if only levels and free capacity matter."""
        return len(self.problem.classes.count) == 1 or len(self.problem.nodes.free) > _MAX_EXACT_NODES

    def _is_small(self) -> bool:
        return (
            len(self.problem.nodes.free) <= _MAX_EXACT_NODES
            and int(np.count_nonzero(count_fitting_pods(self.problem))) <= _MAX_EXACT_PAIRS
        )

    @cached_property
    def _has_choice(self) -> bool:
        """Whether the minimum may consist of other pods than the smallest, and the exact model can try them.

        Quota shortages are computed for the smallest pods.
        """
        pods = self.problem.classes.count
        return len(pods) > 1 and self.needed_pod_count < int(pods.sum()) and self._is_small()

    def _fits_exactly(self, *, with_quotas: bool) -> bool:
        problem = self.problem if with_quotas else replace(self.problem, quotas=ProblemQuotas())
        solution = solve_exact(problem, _BUDGET, seed=0)
        self._budget.spend_cpsat_time(solution.effort)
        return bool(solution.taken[0])

    # ------------------------------------------------------------------------------------ what is missing

    @cached_property
    def uncreated_pods_by_class(self) -> IntArray:
        """The number of pods of each pod class [C] that the gang's minimum needs and that do not exist yet."""
        classes = self.problem.classes
        missing = np.zeros(len(classes.count), np.int64)
        for subgroup, need in enumerate(self._subgroup_needs):
            members = np.flatnonzero(classes.subgroup == subgroup)
            lacking = need - int(classes.count[members].sum())
            if len(members) and lacking > 0:
                missing[members[0]] += lacking
        lacking = self.needed_pod_count - int(classes.count.sum()) - int(missing.sum())
        if len(missing) and lacking > 0:
            missing[0] += lacking
        return missing

    @cached_property
    def quota_shortages(self) -> tuple[RaisedQuota, ...]:
        """The queue limits that are too low for the gang's minimum, each with the missing amounts."""
        return self._quota_shortages_of(self)

    def _quota_shortages_of(self, other: "ResidualProblem") -> tuple[RaisedQuota, ...]:
        """What the quotas of `other`, the same gang's problem, lack for the minimum."""
        quotas = other.problem.quotas
        if not len(quotas.gangs):
            return ()
        request = (self.minimum_by_class @ self.problem.classes.demand).tolist()
        counts_as_gang = bool(self.problem.gangs.fresh[0]) and self.needed_pod_count > 0
        shortages = []
        # There are few numbers: Python compares its own ints faster than small arrays.
        for quota, (free, gangs_left) in enumerate(
            zip(quotas.free.tolist(), quotas.gangs.tolist(), strict=True)
        ):
            lacking = tuple(
                max(0, amount - max(0, remaining)) if amount > 0 and remaining < UNLIMITED else 0
                for amount, remaining in zip(request, free, strict=True)
            )
            gangs = int(counts_as_gang and gangs_left < 1)
            if gangs or any(lacking):
                shortages.append(RaisedQuota(quota, lacking, gangs))
        return tuple(shortages)

    def nodes_passing_filters(self) -> BoolArray:
        """Return a mask [C, N]: True where a node passes the filters of a pod class that the gang's minimum needs.

        Classes that the minimum does not need pass no node.
        """
        needed = self.minimum_by_class > 0
        passes: BoolArray = self.problem.kinds.mask[self.problem.classes.kind] & needed[:, None]
        return passes

    def capacity_shortage(self) -> IntArray:
        """Return the amounts [R] by which the gang's minimum exceeds the free capacity of all nodes together.

        Nodes that no pod of the minimum may use do not count; with a required level, neither do those outside the best
        domain, since the gang can only use one domain.
        """
        usable = self.nodes_passing_filters().any(axis=0) & self._nodes_of_best_domain
        request = self.minimum_by_class @ self.problem.classes.demand
        total = self.problem.nodes.free[usable].sum(axis=0)
        return np.where(request > 0, np.maximum(request - total, 0), 0)

    @property
    def _nodes_of_best_domain(self) -> BoolArray:
        """The nodes [N] of the domain that takes the most pods; all nodes if the gang requires no level."""
        level, counts = int(self.problem.gangs.required[0]), self.fit_counts
        if level == NONE:
            return np.ones(len(self.problem.nodes.free), np.bool_)
        is_best: BoolArray = self.problem.nodes.levels[level] == counts.domains[counts.best_domain_position]
        return is_best

    def node_size_shortage(self) -> IntArray:
        """Return the amounts [R] that the most suitable node lacks for a pod that is larger than every node.

        Only nodes that pass the filters of the pod count. The most suitable node is the one that lacks the smallest
        part of the request. If pods of several classes are too large, the result is the maximum of their amounts.
        """
        demand, capacity = self.problem.classes.demand, self.problem.nodes.capacity
        short = np.zeros(demand.shape[1], np.int64)
        for class_index, passes in enumerate(self.nodes_passing_filters()):
            sizes = capacity[passes]
            lacking = np.maximum(demand[class_index] - sizes, 0)
            if len(sizes) and np.all(lacking.any(axis=1)):
                # The node that lacks the smallest part of the request.
                best = np.argmin((lacking / np.maximum(demand[class_index], 1)).max(axis=1))
                short = np.maximum(short, lacking[best])
        return short

    def shortage_in_best_domain(self) -> IntArray:
        """Return the missing amounts [R] for the gang's minimum, in the domain where most of its pods fit.

        A resource counts for a class if more of its pods would fit without requesting it.
        """
        counts = self.fit_counts
        best, demand = counts.best_domain_position, self.problem.classes.demand
        amounts = np.zeros(demand.shape[1], np.int64)
        for class_index in np.flatnonzero(counts.unplaced_pod_counts[best] > 0).tolist():
            request = demand[class_index]
            scarce = self._scarce_resources(class_index)
            amounts += (
                np.where(scarce if scarce.any() else request > 0, request, 0)
                * counts.unplaced_pod_counts[best, class_index]
            )
        return amounts

    def _scarce_resources(self, class_index: int) -> BoolArray:
        """[R] resources without which more pods of the class would fit on some node of the best domain."""
        request = self.problem.classes.demand[class_index]
        passes = self.problem.kinds.mask[self.problem.classes.kind[class_index]]
        passes = passes & self._nodes_of_best_domain
        pods = np.full(
            (len(request), len(self.problem.nodes.free)), UNLIMITED
        )  # [R, N] by each resource alone
        for resource in np.flatnonzero(request).tolist():
            pods[resource] = self.problem.nodes.free[:, resource] // request[resource]
        # A resource is scarce if it alone decides how many pods a node takes.
        fewest = pods.min(axis=0)
        # Without resource r a node takes as many pods as its next scarcest resource allows.
        without = (np.delete(pods, r, 0).min(axis=0, initial=UNLIMITED) for r in range(len(request)))
        return np.array([bool(np.any(passes & (next_fewest > fewest))) for next_fewest in without])


def _fill(
    problem: Problem, nodes: IntArray, first: IntArray, pods: IntArray, order: Sequence[int]
) -> IntArray:
    """Fill each domain, class by class.

    Args:
      problem: the gang's problem.
      nodes: [n] the nodes, sorted by domain.
      first: [D] where in `nodes` each domain begins.
      pods: [C] pods to place into each domain.
      order: classes in the order of placing.

    Returns:
      [D, C] the pods that fit.
    """
    placed = np.zeros((len(first), len(pods)), np.int64)
    if not len(nodes):
        return placed
    order = [class_index for class_index in order if pods[class_index]]
    free = problem.nodes.free.T.take(
        nodes, axis=1
    ).T  # a copy in column order: it is read resource by resource
    for class_index in order:
        want = int(pods[class_index])
        passes = problem.kinds.mask[problem.classes.kind[class_index]][nodes]
        fits = passes * count_pods_that_fit(problem.classes.demand[class_index], free, want)
        placed[:, class_index] = np.minimum(want, np.add.reduceat(fits, first))
        if class_index == order[-1]:
            break
        # Pods on the earlier nodes of the same domain: a running sum that starts again with each domain.
        before = fits.cumsum() - fits
        if len(first) > 1:
            before -= np.repeat(before[first], np.diff(first, append=len(nodes)))
        take = (want - before).clip(0, fits)
        used = take.nonzero()[0]  # at most as many nodes as pods, in each domain
        for resource, amount in enumerate(problem.classes.demand[class_index].tolist()):
            if amount:
                free[used, resource] -= take[used] * amount
    return placed


def _cover_shortage(shortage: RaisedQuota, changes: Sequence[RaisedQuota]) -> bool:
    """Whether changes of quotas together cover the shortage of one quota."""
    own = [change for change in changes if change.quota == shortage.quota]
    amounts = [sum(change.amounts[resource] for change in own) for resource in range(len(shortage.amounts))]
    enough = all(given >= lacking for given, lacking in zip(amounts, shortage.amounts, strict=True))
    return enough and sum(change.gangs for change in own) >= shortage.gangs
