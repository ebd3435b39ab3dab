"""The problem of victims and its solution as arrays.

Units may be evicted: a unit is a whole running gang, or a single surplus pod of an elastic gang. The gang that needs
room is the only gang of an ordinary `Problem`, so that masks, minimums, domains, rows and quotas have their usual
meaning.

Shapes: B bonds, C classes, F shares of units on nodes, K entries of limits, M limits, N nodes, P placements,
Q quotas, R resources, U units, V victims.
"""

from dataclasses import dataclass, field

import numpy as np

from batchsched.solver.problem import BoolArray, IndexArray, IntArray, Problem


def _none(*shape: int) -> IntArray:
    return np.zeros(shape, np.int64)


def _nobody() -> IndexArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class VictimProblem:
    """The gang that needs room, and the units that may be evicted for it.

    Args:
      wanted: the problem of exactly one pending gang. Units are evicted only for its minimum. The free amounts of its
        nodes and quotas are not read; the fields below replace them.
      free: [N, R] free amount now; negative on an overcommitted node.
      cost: [U] cost of evicting a unit, > 0; their sum is below 2^50.
      unit, node: [F] a unit holds resources on a node; each pair occurs once.
      freed: [F, R] the amounts that the eviction of the unit frees there.
      bond_unit, bond_with: [B] the unit may be evicted only with the other one: a gang's minimum after its surplus.
      limit: [M] how much may be evicted: what disruption budgets and entitlements leave.
      limit_row, limit_unit, limit_amount: [K] the eviction of a unit uses this amount, > 0, of a limit.
      quota_left: [Q, R] remaining amounts of the quotas of `wanted`; negative if a limit was lowered below the usage.
      gangs_left: [Q] remaining gangs of the quotas.
      quota_unit: [Q, U] whether a unit's pods count against a quota.
      ends: [U] whether the unit's gang stops running with its eviction.
      cuts: sets of units that do not make room; neither do their subsets.
    """

    wanted: Problem
    free: IntArray
    cost: IntArray
    unit: IndexArray
    node: IndexArray
    freed: IntArray
    bond_unit: IndexArray = field(default_factory=_nobody)
    bond_with: IndexArray = field(default_factory=_nobody)
    limit: IntArray = field(default_factory=lambda: _none(0))
    limit_row: IndexArray = field(default_factory=_nobody)
    limit_unit: IndexArray = field(default_factory=_nobody)
    limit_amount: IntArray = field(default_factory=lambda: _none(0))
    quota_left: IntArray = field(default_factory=lambda: _none(0, 0))
    gangs_left: IntArray = field(default_factory=lambda: _none(0))
    quota_unit: BoolArray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    ends: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    cuts: tuple[IndexArray, ...] = ()

    @property
    def units(self) -> int:
        """U, the number of units that may be evicted."""
        return len(self.cost)

    def total(self) -> IntArray:
        """Return what each unit holds on all nodes, [U, R]."""
        held = np.zeros((self.units, self.free.shape[1]), np.int64)
        np.add.at(held, self.unit, self.freed)
        return held


@dataclass(frozen=True, slots=True, eq=False)
class VictimSet:
    """The units to evict, and the placement of the gang after that.

    Args:
      units: [V] ascending; empty if there is room already.
      cost: Σ of their costs.
      bound: proved lower bound of the cost of any set.
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
