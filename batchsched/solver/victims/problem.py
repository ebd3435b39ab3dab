"""The problem of victims, and its answer, as arrays: who may leave, what each frees and costs, and for whom.

Who may leave comes in units: a whole running gang, or a single surplus pod of an elastic one. Who wants in is the
only gang of an ordinary `Problem`, so that masks, minimums, domains, rows and quotas mean what they mean everywhere.

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
    """Who wants in, and who may leave for it.

    Args:
      wanted: exactly one gang that wants in; only its minimum makes anybody leave. Its `free` and its quotas'
        `quota_free` and `quota_gangs` are not read: what follows is.
      free: [N, R] what is free now; less than nothing where a node is overcommitted.
      cost: [U] what it costs that a unit leaves, > 0; all together below 2^50.
      unit, node: [F] a unit holds something on a node; a pair comes once.
      freed: [F, R] what it frees there.
      bond_unit, bond_with: [B] a unit may leave only when another leaves too: a gang's minimum after its surplus.
      limit: [M] how much may be taken away: what budgets and entitlements leave, each at most so much.
      limit_row, limit_unit, limit_amount: [K] a unit takes so much, > 0, from a limit when it leaves.
      quota_left: [Q, R] what the quotas of `wanted` leave; less than nothing where a limit was lowered below use.
      gangs_left: [Q] likewise the gangs.
      quota_unit: [Q, U] a unit's pods count against a quota.
      ends: [U] the unit's gang runs no more once it has left.
      cuts: sets of units that were found wanting: neither one of them nor less than it makes room.
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
        """U, how many units may leave."""
        return len(self.cost)

    def total(self) -> IntArray:
        """[U, R] what each unit holds in all."""
        held = np.zeros((self.units, self.free.shape[1]), np.int64)
        np.add.at(held, self.unit, self.freed)
        return held


@dataclass(frozen=True, slots=True, eq=False)
class VictimSet:
    """Who is to leave, and where the gang goes once they have.

    Args:
      units: [V] ascending; nobody when there is room already.
      cost: Σ of their costs.
      bound: no set costs less; what was proved in the time there was.
      classes, nodes, counts: [P] a placement of the gang's minimum, sorted by class and node.
      stage: whose answer it is: "room", "greedy" or "exact".
      greedy: the cost of the best greedy's set; -1 when no greedy found one.
      guard: the wall-clock guard fired somewhere.
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
