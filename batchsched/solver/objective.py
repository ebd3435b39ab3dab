"""The value of a placement: the objective of each tier, the gangs taken, and the cost of preferred levels.

Every comparison of two placements uses this module, so that all stages have the same objective.

Shapes: C classes, G gangs, N nodes, P placements, R resources, S subgroups, T tiers.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.gang_tree import mask_gangs_with_tree_rules
from batchsched.solver.problem import (
    NONE,
    UNLIMITED,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    Positions,
    Problem,
    Solution,
    count_pods_that_fit,
)

ALL_CLASSES: Final = slice(None)
"""Stands for the classes 0..C-1 in `objectives_by_tier`."""
TIER_TOLERANCE: Final = 1e-9
"""Relative difference up to which objectives are equal: floats that are summed in another order differ by less."""


def count_tiers(problem: Problem) -> int:
    """Return the number T of tiers; tier 0 is the highest."""
    return int(problem.gangs.tier.max(initial=-1)) + 1


def count_pods_still_required(problem: Problem) -> IntArray:
    """Return how many pods each gang [G] still needs to reach its own minimum and those of its subgroups.

    A gang with 0 is taken already.
    """
    parts = problem.subgroups
    if not len(parts.gang):
        return problem.gangs.need.astype(np.int64)
    by_subgroup = np.bincount(parts.gang, parts.need, minlength=len(problem.gangs.need)).astype(np.int64)
    if (parts.parent != NONE).any() or (problem.gangs.min_children != NONE).any():
        # Not all subgroups of a tree may have to run: its own need is that of the cheapest ones.
        by_subgroup[mask_gangs_with_tree_rules(problem)] = 0
    return np.maximum(problem.gangs.need, by_subgroup)


def lower_bound_of_minimum_requests(problem: Problem) -> IntArray:
    """Return a lower bound [G, R] of the resources that each gang needs to place its minimum number of pods.

    It is, for each resource, the sum of the smallest requests of as many pods as the minimum needs. It is at most
    UNLIMITED.
    """
    gangs, need = len(problem.gangs.need), count_pods_still_required(problem)
    requests = np.zeros((gangs, problem.classes.demand.shape[1]), np.int64)
    pods = np.bincount(problem.classes.gang, problem.classes.count, minlength=gangs)
    # With a smaller request of a pod, the sum is still a lower bound, and it stays in 64 bits.
    most = (UNLIMITED // np.maximum(pods, 1).astype(np.int64))[problem.classes.gang]
    demand = np.minimum(problem.classes.demand, most[:, None])
    np.add.at(requests, problem.classes.gang, demand * problem.classes.count[:, None].astype(np.int64))
    # Which pods make the minimum is open: by resource, the smallest requests are a lower bound on any choice.
    for gang in np.flatnonzero(need < pods).tolist():
        members = np.flatnonzero(problem.classes.gang == gang)
        rows = np.repeat(demand[members], problem.classes.count[members], axis=0)
        requests[gang] = np.sort(rows, axis=0)[: need[gang]].sum(axis=0)
    return requests


def mask_gangs_beyond_quotas(problem: Problem) -> BoolArray:
    """Return a mask [G] of the gangs that exceed a queue limit even if no other gang is placed.

    No solution takes them.
    """
    beyond = np.zeros(len(problem.gangs.need), np.bool_)
    if not len(problem.quotas.gangs):
        return beyond
    quota, gang = np.nonzero(problem.quotas.covers)
    requests = lower_bound_of_minimum_requests(problem)[gang]
    remaining = np.maximum(0, problem.quotas.free[quota])
    counted = problem.gangs.fresh[gang] & (count_pods_still_required(problem)[gang] > 0)
    over = ((requests > 0) & (requests > remaining)).any(axis=1) | (
        counted & (problem.quotas.gangs[quota] < 1)
    )
    beyond[gang[over]] = True
    return beyond


def mask_unplaceable_pod_classes(problem: Problem) -> BoolArray:
    """Return a mask [C] of the pod classes with pods that fit on no node even if no other pod is placed."""
    demand, kind, free = problem.classes.demand, problem.classes.kind, problem.nodes.free
    unplaceable = np.zeros(len(kind), np.bool_)
    if not len(free):
        return ~unplaceable
    # Most classes fit on the node with the most free resources of its kind. Only the others need a look at all nodes.
    share = (np.maximum(0, free) / np.maximum(1, free.max(axis=0))).sum(axis=1)
    by_share = np.argsort(-share, kind="stable")
    freest = by_share[problem.kinds.mask[:, by_share].argmax(axis=1)][kind]
    fits = ((demand == 0) | (demand <= free[freest])).all(axis=1)
    fits &= problem.kinds.mask[kind, freest]
    for index in np.flatnonzero(~fits).tolist():
        nodes = problem.kinds.mask[kind[index]]
        unplaceable[index] = not count_pods_that_fit(demand[index], free[nodes], 1).any()
    return unplaceable


def mask_gangs_with_unplaceable_minimum(problem: Problem, unplaceable: BoolArray) -> BoolArray:
    """Return a mask [G] of the gangs with too few placeable pods to reach their minimum."""
    classes = problem.classes
    pods = np.where(unplaceable, 0, classes.count)
    beyond = np.bincount(classes.gang, pods, minlength=len(problem.gangs.need)) < count_pods_still_required(
        problem
    )
    inside = classes.subgroup != NONE
    parts = problem.subgroups
    in_part = np.bincount(classes.subgroup[inside], pods[inside], minlength=len(parts.gang))
    lacking = in_part < parts.need
    if lacking.any():
        # A tree may run without the subgroup.
        lacking &= ~mask_gangs_with_tree_rules(problem)[parts.gang]
        beyond[parts.gang[lacking]] = True
    return beyond


def objectives_by_tier(problem: Problem, classes: Positions, counts: NDArray[np.integer]) -> FloatArray:
    """Return the objective of each tier [T]: the sum of the weights of its placed pods.

    Args:
      problem: the problem.
      classes: [P] the class of each placement; `ALL_CLASSES` if counts are by class [C].
      counts: [P] pods of each placement.
    """
    tier = problem.gangs.tier[problem.classes.gang[classes]]
    return np.bincount(tier, problem.classes.weight[classes] * counts, minlength=count_tiers(problem)).astype(
        np.float64
    )


def compare_objectives_by_tier(first: FloatArray, second: FloatArray) -> int:
    """Compare the objectives [T] of two solutions; the highest tier in which they differ decides.

    Returns 1 if the first solution is better, 0 if both are equal, -1 if the first is worse.
    """
    for value, other in zip(first.tolist(), second.tolist(), strict=True):
        # The first tier that differs decides: a lower tier never costs a higher one anything.
        if abs(value - other) > TIER_TOLERANCE * max(abs(value), abs(other)):
            return 1 if value > other else -1
    return 0


def weights_by_gang(problem: Problem) -> FloatArray:
    """Return for each gang [G] the sum of the weights of its pending pods, whether a solution places them or not."""
    worth = problem.classes.weight * problem.classes.count
    return np.bincount(problem.classes.gang, worth, minlength=len(problem.gangs.need)).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class TopologyPreference:
    """A gang or a subgroup with pods that should be in as few domains of a topology level as possible.

    Args:
      classes: [C] the classes of its pods, those of the subgroups below included.
      level: the preferred level, or that of its slices.
      weight: Σ weight·count over all its pending pods, placed or not: a constant, so that the cost is linear.
      used: domains of the level in which its members run already.
    """

    classes: BoolArray
    level: int
    weight: float
    used: tuple[int, ...]

    def cost(self, problem: Problem, nodes: IndexArray) -> float:
        """Return the penalty for using several domains of the level, if pods are placed on the given nodes.

        It is weight × (domains used - 1). Domains in which members run already count as used.
        """
        domains = set(problem.nodes.levels[self.level][nodes].tolist()) | set(self.used)
        return self.weight * max(0, len(domains) - 1)


def list_topology_preferences(problem: Problem) -> list[TopologyPreference]:
    """Return the gangs and subgroups that prefer few domains of a topology level, or that have slices."""
    preferences = []
    gangs, parts, classes = problem.gangs, problem.subgroups, problem.classes
    worth = classes.weight * classes.count
    entities = [(gang, NONE) for gang in np.flatnonzero(gangs.preferred != NONE).tolist()]
    entities += [(int(parts.gang[s]), s) for s in np.flatnonzero(parts.preferred != NONE).tolist()]
    for gang, sub in entities:
        level = int(gangs.preferred[gang] if sub == NONE else parts.preferred[sub])
        own = classes.gang == gang if sub == NONE else _classes_below(problem, sub)
        used = problem.used_domains
        members = (used.gang == gang) & (used.subgroup == sub) & (used.level == level)
        domains = tuple(sorted(set(used.domain[members].tolist())))
        # Summed as by `weights_by_gang`.
        weight = float(np.bincount(np.zeros(int(own.sum()), np.int64), worth[own], minlength=1)[0])
        preferences.append(TopologyPreference(own, level, weight, domains))
    sliced = [(gang, NONE) for gang in np.flatnonzero(gangs.slice_size > 0).tolist()]
    sliced += [(int(parts.gang[s]), s) for s in np.flatnonzero(parts.slice_size > 0).tolist()]
    for gang, sub in sliced:
        level = int(gangs.slice_level[gang] if sub == NONE else parts.slice_level[sub])
        own = classes.gang == gang if sub == NONE else classes.subgroup == sub
        running = problem.running_slice_pods
        members = (running.gang == gang) & (running.subgroup == sub)
        domains = tuple(sorted(set(running.domain[members].tolist())))
        preferences.append(TopologyPreference(own, level, float(worth[own].sum()), domains))
    return preferences


def _classes_below(problem: Problem, subgroup: int) -> BoolArray:
    """The classes [C] of a subgroup and of all subgroups below it."""
    parent = problem.subgroups.parent
    below = {subgroup}
    while len(more := below | set(np.flatnonzero(np.isin(parent, list(below))).tolist())) > len(below):
        below = more
    return np.asarray(np.isin(problem.classes.subgroup, list(below)))


def preferred_level_cost(problem: Problem, solution: Solution) -> float:
    """Return the penalty for gangs spread over domains of their preferred level: Σ weight × (domains used - 1).

    The sum is over gangs and subgroups that prefer a level or have slices. A domain counts if a member already runs
    there or a pod is placed there. Nodes without the label count together as one more domain. Without any used domain
    the cost is 0.
    """
    return sum(
        preference.cost(problem, solution.nodes[preference.classes[solution.classes]])
        for preference in list_topology_preferences(problem)
    )


def objective_upper_bounds_by_tier(problem: Problem) -> FloatArray:
    """Return an upper bound on the objective of each tier [T]: its value if all its pods were placed."""
    allowed = problem.gangs.allowed[problem.classes.gang]
    return objectives_by_tier(problem, ALL_CLASSES, np.where(allowed, problem.classes.count, 0))


def count_placed_pods(
    problem: Problem, classes: NDArray[np.integer], counts: NDArray[np.integer]
) -> IntArray:
    """Return how many pods of each pod class [C] the given placements contain.

    `classes` and `counts` [P] state the pod class and the number of pods of each placement.
    """
    placed = np.zeros(len(problem.classes.count), np.int64)
    np.add.at(placed, classes, counts)
    return placed


def count_allowed_pods_by_class(problem: Problem) -> IntArray:
    """Return the number of pods of each pod class [C], 0 for a class of a gang that may not be placed."""
    return np.where(problem.gangs.allowed[problem.classes.gang], problem.classes.count, 0).astype(np.int64)


def places_every_allowed_pod(problem: Problem, solution: Solution) -> bool:
    """Return whether a solution places all pods of all gangs that may be placed."""
    placed = count_placed_pods(problem, solution.classes, solution.counts)
    return bool((placed >= count_allowed_pods_by_class(problem)).all())


def compare_solutions(a: Solution, b: Solution) -> int:
    """Compare two solutions by objective, then by number of placed gangs; 1 if `a` is better, -1 if `b` is, else 0."""
    return compare_objectives_by_tier(a.objective, b.objective) or int(
        np.sign(int(a.taken.sum()) - int(b.taken.sum()))
    )
