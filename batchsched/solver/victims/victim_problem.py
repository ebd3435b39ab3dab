"""The input and output of the choice of victims as arrays.

A `VictimProblem` asks which units to evict for one gang: running gangs, or elastic pods of running gangs. The gang that
needs room is the only gang of an ordinary `Problem`: masks, minimums, domains, rows and quotas mean the same.

Shapes are stated by letter: B bonds, F shares of units on nodes, J entries of limits, M limits, N nodes, P placements,
Q quotas, R resources, U units, V victims.
"""

from dataclasses import dataclass, field

import numpy as np

from batchsched.solver.problem import (
    BoolArray,
    IndexArray,
    IntArray,
    Problem,
    empty_amount_array,
    empty_index_array,
)


@dataclass(frozen=True, slots=True, eq=False)
class VictimProblem:
    """A pending gang that lacks capacity, and the running gangs and elastic pods that may be evicted for it.

    Args:
      pending: the problem of exactly one pending gang. Units are evicted only for its minimum. The free amounts of its
        nodes and quotas are not read; the fields below replace them.
      free: [N, R] free amount now; negative on an overcommitted node.
      cost: [U] cost of evicting a unit, > 0; their sum is below 2^50.
      unit, node: [F] a unit holds resources on a node; each pair occurs once.
      freed: [F, R] the amounts that the eviction of the unit frees there.
      bond_unit, bond_with: [B] the unit may be evicted only with the other one, such as a gang's minimum only
        with its elastic pods.
      limit: [M] how much may be evicted: what disruption budgets and entitlements leave.
      limit_row, limit_unit, limit_amount: [J] the eviction of a unit uses this amount, > 0, of a limit.
      quota_left: [Q, R] remaining amounts of the quotas of `pending`; negative if a limit was lowered below the usage.
      gangs_left: [Q] remaining gangs of the quotas.
      quota_unit: [Q, U] whether a unit's pods count against a quota.
      ends: [U] whether the unit's gang stops running with its eviction.
      cuts: sets of units that do not make room; neither do their subsets.
    """

    pending: Problem
    free: IntArray
    cost: IntArray
    unit: IndexArray
    node: IndexArray
    freed: IntArray
    bond_unit: IndexArray = field(default_factory=empty_index_array)
    bond_with: IndexArray = field(default_factory=empty_index_array)
    limit: IntArray = field(default_factory=empty_amount_array)
    limit_row: IndexArray = field(default_factory=empty_index_array)
    limit_unit: IndexArray = field(default_factory=empty_index_array)
    limit_amount: IntArray = field(default_factory=empty_amount_array)
    quota_left: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    gangs_left: IntArray = field(default_factory=empty_amount_array)
    quota_unit: BoolArray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    ends: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    cuts: tuple[IndexArray, ...] = ()

    @property
    def unit_count(self) -> int:
        """The number U of units that may be evicted; a unit is a running gang or a single elastic pod."""
        return len(self.cost)

    def freed_resources_by_unit(self) -> IntArray:
        """Return the resources [U, R] that the eviction of each gang or elastic pod frees, over all nodes."""
        freed = np.zeros((self.unit_count, self.free.shape[1]), np.int64)
        np.add.at(freed, self.unit, self.freed)
        return freed


@dataclass(frozen=True, slots=True, eq=False)
class VictimSolution:
    """The running gangs and elastic pods to evict for a pending gang, and the placement of that gang.

    Args:
      units: [V] ascending; empty if there is room already.
      cost: Σ of their costs.
      bound: proved lower bound on the cost of any set.
      classes, nodes, counts: [P] a placement of the gang's minimum, sorted by class and node.
      stage: the step that found it: "room", "greedy" or "exact".
      greedy: cost of the best greedy's set; -1 if no greedy found one.
      guard: whether the wall-clock guard ended a search.
    """

    units: IndexArray
    cost: int
    bound: int
    classes: IndexArray
    nodes: IndexArray
    counts: IndexArray
    stage: str = "room"
    greedy: int = -1
    guard: bool = False
