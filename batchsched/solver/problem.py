"""The session's problem and its solution, as arrays: all that the solver ever sees.

The solver knows no pods, no PodGroups and no plugins. It sees N nodes with free capacity in R resources, C
classes of equal pods, G gangs that own the classes, S subgroups inside gangs, L topology levels, Q quotas and
any number of linear rows. Whoever builds a `Problem` keeps the names of things to himself.

Shapes are stated by letter: C classes, G gangs, K kinds (distinct mask and score rows), L levels, N nodes,
Q quotas, R resources, S subgroups, T tiers, P placements (the triples of a solution).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

NONE: Final = -1
"""No level, no subgroup, no pinned domain."""
UNLIMITED: Final = np.iinfo(np.int64).max // 4
"""A quota or a right side that never binds."""
EVERY_NODE: Final = -2
"""As a row's partition: one row for each node."""
ALL_NODES: Final = -1
"""As a row's partition: a single row over all nodes together."""


class Sense(IntEnum):
    """How a row's left side relates to its right side."""

    AT_MOST = -1
    AT_LEAST = 1


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A family of linear rows, one for each domain d of a partition of the nodes.

    For every domain d: Σ_i coefficients[i] · x[classes[i], nodes of d]
                        + Σ_j gang_coefficients[d, j] · y[gangs[j]]   (sense)   right[d]

    where x counts the pods of a class that land on the nodes of d, and y says that a gang is taken (reaches its
    minimum). Nodes outside every domain (domain id -1) belong to no row. A row must be valid: it may admit too
    much, which replay then cuts, and never refuses a placement that the pipeline allows. Should placing nothing
    break a row already, then it must not be broken further.
    """

    partition: int  # ALL_NODES, EVERY_NODE, or an index into Problem.partitions
    classes: IndexArray  # [I]
    coefficients: IntArray  # [I]
    right: IntArray  # [D], D the number of domains of the partition (N for EVERY_NODE, 1 for ALL_NODES)
    sense: Sense = Sense.AT_MOST
    gangs: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))  # [J]
    gang_coefficients: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # [D, J]
    plugin: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A placement of some gangs that the pipeline refused: not all of these counts, exactly, may come again.

    The exact model turns it into a no-good over the named counts; the aggregated model gives up `gang` for the
    rest of the session when the same gang is cut again.
    """

    gang: int
    classes: IndexArray  # [I]
    nodes: IndexArray  # [I]
    counts: IndexArray  # [I] pods of classes[i] on nodes[i]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One session, as arrays. All integers in base units (milli-CPU, bytes, devices, pods).

    Nodes:
      free [N, R]         what is left on each node, never negative; one of the resources is the pod count.
      capacity [N, R]     allocatable, for telling node types apart.
      pods                the column of the pod count, which is no device, or -1 where there is none.
      levels [L, N]       id of the node's domain at each topology level, 0..D_l-1; -1 where the label is missing.
      partitions          further partitions of the nodes for rows: each an int32 [N] of domain ids, -1 for none.
    Kinds:
      mask [K, N]         the static verdict: may a pod of this kind be on this node.
      score [K, N]        the total node score of the pipeline, higher is better: a tie-break only.
    Classes (equal pods of one subgroup of one gang):
      kind [C], gang [C], subgroup [C] (-1: none), count [C] pods that wait, demand [C, R],
      weight [C]          value of one placed pod in its tier's objective (float, > 0 or 0).
    Gangs:
      need [G]            pods that must still be placed before the gang is taken (minMember less what runs);
                          0: it is at its minimum already, all its pods are surplus, and it counts as taken.
      tier [G]            0 is the highest; a lower tier never costs a higher one anything.
      rank [G]            the policy's order, 0 first: the greedy's order and the tie-break.
      required [G], preferred [G]   level or -1. With a required level all pods of the gang, surplus included,
                          lie in one domain of it; nodes of domain -1 are out.
      pinned [G]          the domain of the required level where members already run, or -1.
      fresh [G]           False when members already run: the gang does not add to its quotas' gang counts.
      allowed [G]         False: the gang must not be taken (refused before the solver was asked).
    Subgroups:
      sub_gang [S], sub_need [S], sub_required [S], sub_preferred [S], sub_pinned [S]: as for gangs, for the pods
                          of the classes whose `subgroup` is s. The gang's own level binds them too. A gang needs
                          no less than its subgroups need together, whatever `need` says.
    Used domains (members that already run make a domain used; cost of preferred levels):
      used_gang, used_level, used_domain   [U] triples; used_sub [U] is the subgroup or -1 for the gang itself.
    Quotas (a queue's limit at every ancestor):
      quota_member [Q, G] gang g counts against quota q.
      quota_free [Q, R]   what may still be used, UNLIMITED where nothing is set.
      quota_gangs [Q]     how many fresh gangs may still be taken, UNLIMITED where nothing is set.
    Rows and cuts:
      rows                what plugins add, cuts what replay found.
    ordered               True: `rank` is strict inside a tier, gang before gang; the solver only places.
    spread                True: realise prefers emptier nodes, False: it packs.
    """

    free: IntArray
    capacity: IntArray
    mask: BoolArray
    score: IntArray
    demand: IntArray
    kind: IndexArray
    gang: IndexArray
    subgroup: IndexArray
    count: IndexArray
    weight: FloatArray
    need: IndexArray
    tier: IndexArray
    rank: IndexArray
    required: IndexArray
    preferred: IndexArray
    pinned: IndexArray
    fresh: BoolArray
    allowed: BoolArray
    levels: IndexArray
    sub_gang: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    sub_need: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    sub_required: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    sub_preferred: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    sub_pinned: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    used_gang: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    used_sub: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    used_level: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    used_domain: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))
    quota_member: BoolArray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    quota_free: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    quota_gangs: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    partitions: tuple[IndexArray, ...] = ()
    rows: tuple[Row, ...] = ()
    cuts: tuple[Cut, ...] = ()
    pods: int = NONE
    ordered: bool = False
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """How much the solver may spend on one session.

    Args:
      deterministic: CP-SAT's deterministic time over all its calls; repeats across machines and processes.
      rounds: at most so many rounds of solve, realise and cut.
      gap: stop when the relative gap to the bound is no larger.
      guard_seconds: a loose wall-clock guard; when it fires the decision may not repeat, and says so.
      exact_variables: up to so many (class, node) variables the exact node-level model runs instead.
    """

    deterministic: float = 2.0
    rounds: int = 3
    gap: float = 0.003
    guard_seconds: float = 30.0
    exact_variables: int = 2500


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """An assignment of counts, and the solver's account of it.

    Args:
      classes, nodes, counts: [P] triples, counts > 0, sorted by class then node; one triple per (class, node).
      taken: [G] the gang has reached its minimum (gangs with need 0 are always taken).
      objective: [T] Σ weight over the placed pods of the tier.
      bound: [T] upper bound of the tier's objective given what this solution placed in the tiers above.
      stage: which step's answer this is: "greedy", "quotas", "aggregated" or "exact".
      rounds: rounds of solve, realise and cut.
      guard: the wall-clock guard fired somewhere.
    """

    classes: IndexArray
    nodes: IndexArray
    counts: IndexArray
    taken: BoolArray
    objective: FloatArray
    bound: FloatArray
    stage: str = "greedy"
    rounds: int = 0
    guard: bool = False

    @property
    def gap(self) -> float:
        """1 - Σ objective ÷ Σ bound, and 0 when nothing could be placed at all."""
        total = float(self.bound.sum())
        return max(0.0, 1.0 - float(self.objective.sum()) / total) if total > 0 else 0.0
