"""The input and output of the solver as arrays.

The solver sees no pods, PodGroups and plugins, but N nodes with free capacity in R resources, C classes of equal pods,
G gangs that own the classes, S subgroups inside gangs, L topology levels, Q quotas and any number of linear rows. The
caller that builds a `Problem` keeps the names of the objects.

Shapes are stated by letter: C classes, G gangs, K kinds (distinct mask and score rows), L levels, N nodes,
Q quotas, R resources, S subgroups, T tiers, U used domains, P placements (the triples of a solution).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from batchsched.solver.start import CapacityPrices

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Positions = NDArray[np.integer] | Sequence[int] | slice
"""Positions along an axis, for `take`."""

NONE: Final = -1
"""No level, no subgroup, no pinned domain."""
UNLIMITED: Final = np.iinfo(np.int64).max // 4
"""A quota or a right side that limits nothing."""
EVERY_NODE: Final = -2
"""As a row's partition: one row for each node."""
ALL_NODES: Final = -1
"""As a row's partition: a single row over all nodes together."""


class Sense(IntEnum):
    """The kind of a linear constraint: its sum is at most (AT_MOST) or at least (AT_LEAST) a limit."""

    AT_MOST = -1
    AT_LEAST = 1


@dataclass(frozen=True, slots=True, eq=False)
class RowRelief:
    """The amounts by which evictions of gangs or elastic pods loosen a plugin's linear constraint.

    Entry i: the eviction of unit `unit[i]` loosens the limit of domain `domain[i]` by `amount[i]`.
    """

    unit: IndexArray  # [E]
    domain: IndexArray  # [E]
    amount: IntArray  # [E]


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintRow:
    """A linear constraint of a plugin on the numbers of pods placed per node, per domain or in the cluster.

    For every domain d: Σ_i coefficients[i] · x[classes[i], nodes of d]
                        + Σ_j gang_coefficients[d, j] · y[gangs[j]]   (sense)   right[d]

    where x counts the pods of a class that are placed on the nodes of d, and y is 1 if a gang is taken (reaches its
    minimum). Nodes outside every domain (domain id -1) belong to no row. A row must be valid: it may admit a
    placement that the pipeline then refuses, and it never refuses a placement that the pipeline allows. A row that
    is violated before anything is placed must not become more violated.

    A row may also exclude two sides from each other: a domain then has pods of one side only. In the domains of
    `used_side`, pods that are no part of the problem any more are of one side already.
    """

    partition: int  # ALL_NODES, EVERY_NODE, or an index into ProblemNodes.partitions
    classes: IndexArray  # [I]
    coefficients: IntArray  # [I]
    right: IntArray  # [D], D the number of domains of the partition (N for EVERY_NODE, 1 for ALL_NODES)
    sense: Sense = Sense.AT_MOST
    gangs: IndexArray = field(default_factory=lambda: np.zeros(0, np.int32))  # [J]
    gang_coefficients: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # [D, J]
    on_second_side: BoolArray | None = None  # [I] side of each class, None without two sides
    used_side: IndexArray | None = (
        None  # [D] 0 or 1, NONE for a domain without such pods; None if no domain has any
    )
    plugin: str = ""
    reason: str = ""
    relief: RowRelief | None = None  # None if no eviction raises a limit

    def class_coefficients(self, classes: int) -> IntArray:
        """Return the coefficient [C] of each pod class; it is 0 if the constraint does not use the class."""
        coefficients = np.zeros(classes, np.int64)
        np.add.at(coefficients, self.classes, self.coefficients)  # a row may name a class twice
        return coefficients

    def domain_by_node(self, nodes: "ProblemNodes") -> IndexArray:
        """Return the domain of each node [N] for this constraint; -1 for a node that is in no domain."""
        if self.partition == EVERY_NODE:
            return np.arange(len(nodes.free), dtype=np.int32)
        if self.partition == ALL_NODES:
            return np.zeros(len(nodes.free), np.int32)
        return nodes.partitions[self.partition]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A placement that plugins refused, and that no later solution may repeat.

    It is given as pod counts on nodes, and a later solution must differ from it in a count. The exact model turns a cut
    into a constraint on these counts.
    The tiered model drops `gang` for the rest of the session when the same gang is cut again.
    """

    gang: int
    classes: IndexArray  # [I]
    nodes: IndexArray  # [I]
    counts: IndexArray  # [I] pods of classes[i] on nodes[i]


@dataclass(frozen=True, slots=True, eq=False)
class ProblemTable:
    """Base class of tables in a `Problem`: each field is an array with one entry per item, such as a gang."""

    def select_entries(self, positions: Positions) -> Self:
        """Return the table with only the items at these positions, in this order."""
        # Without `replace`, which checks every field: refusals take the tables of each gang. The slots are the columns.
        columns: tuple[str, ...] = self.__slots__
        return type(self)(*[getattr(self, column)[positions] for column in columns])

    def renumber_column_values(self, **numbers: IndexArray) -> Self:
        """Return the table with new indexes in some columns: a value `v` becomes `numbers[v]` there."""
        columns: tuple[str, ...] = self.__slots__
        if not len(getattr(self, columns[0])):
            return self  # as most tables of a single refused gang are
        values = {column: getattr(self, column) for column in columns}
        return type(self)(**values | {column: number[values[column]] for column, number in numbers.items()})

    def _fill(self, length: int, **columns: int) -> None:
        """Fill columns that the caller left out with one value each."""
        for column, value in columns.items():
            if len(getattr(self, column)) != length:
                object.__setattr__(self, column, np.full(length, value, np.int32))


def empty_index_array() -> IndexArray:
    """Return an empty array of indexes, the default of a table column."""
    return np.zeros(0, np.int32)


def empty_amount_array() -> IntArray:
    """Return an empty array of amounts, the default of a table column."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ProblemNodes:
    """The nodes of a problem: their free and allocatable resources, and their topology domains.

    Args:
      free: [N, R] unallocated amount on each node, never negative. One of the resources is the pod count.
      capacity: [N, R] allocatable amount. It tells node types apart.
      levels: [L, N] id of the node's domain at each topology level, 0..D_l-1; -1 if the label is missing.
      partitions: further partitions of the nodes for rows: each an int32 [N] of domain ids, -1 for none.
    """

    free: IntArray
    capacity: IntArray
    levels: IndexArray
    partitions: tuple[IndexArray, ...] = ()

    def select_nodes(self, nodes: Positions) -> "ProblemNodes":
        """Return a table of the nodes at the given positions, in this order; positions may repeat."""
        partitions = tuple(partition[nodes] for partition in self.partitions)
        return ProblemNodes(self.free[nodes], self.capacity[nodes], self.levels[:, nodes], partitions)

    def append_nodes(self, other: "ProblemNodes") -> "ProblemNodes":
        """Return a table with these nodes, followed by the nodes of `other`.

        Both tables have the same levels and partitions.
        """
        return ProblemNodes(
            np.concatenate([self.free, other.free]),
            np.concatenate([self.capacity, other.capacity]),
            np.concatenate([self.levels, other.levels], axis=1),
            tuple(map(np.concatenate, zip(self.partitions, other.partitions, strict=True))),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ProblemClassKinds(ProblemTable):
    """The kinds of pod classes in a problem; classes with equal Filter results and scores are of one kind.

    Args:
      mask: [K, N] static Filter result: whether a pod of this kind may be on this node.
      score: [K, N] total node score of the pipeline, higher is better. It only breaks ties.
    """

    mask: BoolArray
    score: IntArray

    def select_nodes(self, nodes: Positions) -> "ProblemClassKinds":
        """Return a table with the results for the nodes at the given positions, in this order.

        A position may occur several times.
        """
        return ProblemClassKinds(self.mask[:, nodes], self.score[:, nodes])

    def append_nodes(self, other: "ProblemClassKinds") -> "ProblemClassKinds":
        """Return a table with the results for the nodes of this table, followed by those of `other`.

        Both tables have the same kinds.
        """
        return ProblemClassKinds(
            np.concatenate([self.mask, other.mask], axis=1), np.concatenate([self.score, other.score], axis=1)
        )


@dataclass(frozen=True, slots=True, eq=False)
class ProblemPodClasses(ProblemTable):
    """The pod classes of a problem: equal pods of one subgroup of one gang form a class.

    Args:
      kind: [C] index into `ProblemClassKinds`.
      gang: [C] index into `ProblemGangs`.
      subgroup: [C] index into `ProblemSubgroups`, -1 for none.
      count: [C] pending pods.
      demand: [C, R] request of one pod.
      weight: [C] value of one placed pod in the objective of its tier, at least 0.
    """

    kind: IndexArray
    gang: IndexArray
    subgroup: IndexArray
    count: IndexArray
    demand: IntArray
    weight: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ProblemGangs(ProblemTable):
    """The gangs of a problem, as columns with one entry for each gang.

    Args:
      need: [G] pods that must still be placed before the gang is taken: minMember less the members that run.
        At 0 the gang has its minimum already, all its pending pods are elastic pods, and it counts as taken.
      tier: [G] 0 is the highest. A lower tier never costs a higher one anything.
      rank: [G] the policy's order, 0 first: the greedy's order and the tie-break.
      required: [G] required level or -1. With a required level all pods of the gang, elastic pods included, are in
        one domain of it; nodes of domain -1 are excluded.
      preferred: [G] preferred level or -1.
      pinned: [G] the domain of the required level where members already run, or -1.
      fresh: [G] False if members already run: the gang does not add to the gang counts of its quotas.
      allowed: [G] False: the gang must not be taken (it was refused before the solver was called).
      min_children: [G] subgroups without a parent that must run for the gang to run, NONE for all of them.
      slice_level: [G] level at which each slice of a gang without subgroups is in one domain, NONE without slices.
      slice_size: [G] pods in a slice, 0 without slices.
    """

    need: IndexArray
    tier: IndexArray
    rank: IndexArray
    required: IndexArray
    preferred: IndexArray
    pinned: IndexArray
    fresh: BoolArray
    allowed: BoolArray
    min_children: IndexArray = field(default_factory=empty_index_array)
    slice_level: IndexArray = field(default_factory=empty_index_array)
    slice_size: IndexArray = field(default_factory=empty_index_array)

    def __post_init__(self) -> None:
        self._fill(len(self.need), min_children=NONE, slice_level=NONE, slice_size=0)


@dataclass(frozen=True, slots=True, eq=False)
class ProblemSubgroups(ProblemTable):
    """The subgroups of all gangs of a problem, as columns with one entry for each subgroup.

    Columns have the meaning of those in `ProblemGangs`, for the pods of the classes in each subgroup. The levels of the
    gang and of the subgroups above apply to them too. A gang needs no less than its subgroups need together, whatever
    its own `need` is, unless it is a tree (`solver.gang_tree`): then its own `need` counts.

    Args:
      gang: [S] index into `ProblemGangs`.
      need: [S] pods of the subgroup that must still be placed; 0 for a subgroup with children.
      required: [S] required level or -1.
      preferred: [S] preferred level or -1.
      pinned: [S] the domain of the required level where members already run, or -1.
      parent: [S] the subgroup above, NONE for none.
      min_children: [S] children that must run for the subgroup to run, NONE for all of them.
      slice_level: [S] level at which each slice of a subgroup without children is in one domain, NONE without slices.
      slice_size: [S] pods in a slice, 0 without slices.
    """

    gang: IndexArray = field(default_factory=empty_index_array)
    need: IndexArray = field(default_factory=empty_index_array)
    required: IndexArray = field(default_factory=empty_index_array)
    preferred: IndexArray = field(default_factory=empty_index_array)
    pinned: IndexArray = field(default_factory=empty_index_array)
    parent: IndexArray = field(default_factory=empty_index_array)
    min_children: IndexArray = field(default_factory=empty_index_array)
    slice_level: IndexArray = field(default_factory=empty_index_array)
    slice_size: IndexArray = field(default_factory=empty_index_array)

    def __post_init__(self) -> None:
        self._fill(len(self.gang), parent=NONE, min_children=NONE, slice_level=NONE, slice_size=0)


@dataclass(frozen=True, slots=True, eq=False)
class RunningSlicePodCounts(ProblemTable):
    """The numbers of running pods per topology domain, for gangs and subgroups with topology slices.

    Args:
      gang: [V] index into `ProblemGangs`.
      subgroup: [V] index into `ProblemSubgroups`, -1 for the gang itself.
      domain: [V] the domain.
      pods: [V] pods of the gang or subgroup that run there.
    """

    gang: IndexArray = field(default_factory=empty_index_array)
    subgroup: IndexArray = field(default_factory=empty_index_array)
    domain: IndexArray = field(default_factory=empty_index_array)
    pods: IndexArray = field(default_factory=empty_index_array)


@dataclass(frozen=True, slots=True, eq=False)
class UsedPreferredDomains(ProblemTable):
    """The domains of preferred topology levels in which pods of a gang already run.

    Further pods in such a domain do not raise the cost of the preferred level.

    Args:
      gang: [U] index into `ProblemGangs`.
      subgroup: [U] index into `ProblemSubgroups`, -1 for the gang itself.
      level: [U] the preferred level.
      domain: [U] the domain in use.
    """

    gang: IndexArray = field(default_factory=empty_index_array)
    subgroup: IndexArray = field(default_factory=empty_index_array)
    level: IndexArray = field(default_factory=empty_index_array)
    domain: IndexArray = field(default_factory=empty_index_array)


@dataclass(frozen=True, slots=True, eq=False)
class ProblemQuotas(ProblemTable):
    """The amounts that queue limits still allow for the gangs of each queue and its descendants.

    Args:
      covers: [Q, G] whether the gang counts against the quota.
      free: [Q, R] amount that may still be used, UNLIMITED where no limit is set.
      gangs: [Q] how many fresh gangs may still be taken, UNLIMITED where no limit is set.
    """

    covers: BoolArray = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    free: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    gangs: IntArray = field(default_factory=empty_amount_array)

    def restrict_to_gangs(self, gangs: Positions) -> "ProblemQuotas":
        """Return the queue limits as they apply to the given gangs only."""
        # Without quotas `covers` may be 0 x 0, which has no columns to take.
        return replace(self, covers=self.covers[:, gangs]) if len(self.gangs) else self


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The solver's input for one session, as arrays: nodes, pod classes, gangs, queue limits and constraints.

    All integers are in base units (milli-CPU, bytes, devices, pods).

    Args:
      nodes: free capacity, topology.
      kinds: Filter and Score results.
      classes: equal pods.
      gangs: minimum, tier, topology of each gang.
      subgroups: minimum and topology of each subgroup.
      used_domains: domains of preferred levels that are used by running members.
      running_slice_pods: running pods of gangs and subgroups with slices.
      quotas: what queues may still use.
      rows: linear rows that plugins add.
      cuts: placements that the pipeline refused.
      pod_resource: the resource that is the pod count, which is no device; -1 if there is none.
      ordered: True: `rank` is strict inside a tier, gang before gang; the solver only places.
      spread: True: placing prefers emptier nodes. False: it packs.
    """

    nodes: ProblemNodes
    kinds: ProblemClassKinds
    classes: ProblemPodClasses
    gangs: ProblemGangs
    subgroups: ProblemSubgroups = field(default_factory=ProblemSubgroups)
    used_domains: UsedPreferredDomains = field(default_factory=UsedPreferredDomains)
    running_slice_pods: RunningSlicePodCounts = field(default_factory=RunningSlicePodCounts)
    quotas: ProblemQuotas = field(default_factory=ProblemQuotas)
    rows: tuple[ConstraintRow, ...] = ()
    cuts: tuple[Cut, ...] = ()
    pod_resource: int = NONE
    ordered: bool = False
    spread: bool = False

    def restrict_to_resources(self, kept: IntArray) -> "Problem":
        """Return a copy of the solver problem with only these resources [R'].

        The caller ensures that no class that may be placed requests another resource.
        """
        number = _renumbered(kept, self.nodes.free.shape[1])
        return replace(
            self,
            nodes=replace(self.nodes, free=self.nodes.free[:, kept], capacity=self.nodes.capacity[:, kept]),
            classes=replace(self.classes, demand=self.classes.demand[:, kept]),
            quotas=replace(self.quotas, free=self.quotas.free[:, kept])
            if len(self.quotas.gangs)
            else self.quotas,
            pod_resource=int(number[self.pod_resource]),
        )

    def restrict_to_gangs(self, gangs: IntArray, classes: IntArray, subgroups: IntArray) -> "Problem":
        """Return the solver problem of the given gangs only, with all nodes, without constraints and cuts.

        Gangs, classes, subgroups and kinds get new numbers, in the order given; quotas keep their numbers.

        Args:
          gangs: [G'] the gangs.
          classes: [C'] all classes of these gangs.
          subgroups: [S'] all subgroups of these gangs.
        """
        gang = _renumbered(gangs, len(self.gangs.need))
        subgroup = _renumbered(subgroups, len(self.subgroups.gang))
        used = self.used_domains.select_entries(np.flatnonzero(gang[self.used_domains.gang] != NONE))
        running = self.running_slice_pods.select_entries(
            np.flatnonzero(gang[self.running_slice_pods.gang] != NONE)
        )
        own = self.classes.select_entries(classes)
        # Few classes have few kinds: Python sorts them faster than numpy.
        kinds = sorted(set(own.kind.tolist()))
        number = {kind: position for position, kind in enumerate(kinds)}
        return replace(
            self,
            kinds=self.kinds.select_entries(kinds),
            classes=replace(
                own,
                kind=np.array([number[kind] for kind in own.kind.tolist()], np.int32),
                gang=gang[own.gang],
                subgroup=subgroup[own.subgroup],
            ),
            gangs=self.gangs.select_entries(gangs),
            subgroups=self.subgroups.select_entries(subgroups).renumber_column_values(
                gang=gang, parent=subgroup
            ),
            used_domains=used.renumber_column_values(gang=gang, subgroup=subgroup),
            running_slice_pods=running.renumber_column_values(gang=gang, subgroup=subgroup),
            quotas=self.quotas.restrict_to_gangs(gangs),
            rows=(),
            cuts=(),
        )


def positions_by_group(labels: NDArray[np.integer], groups: int) -> list[IntArray]:
    """Return for each group the positions of its items, ascending; `labels` has each item's group number.

    An item with a negative label is in no group.
    """
    order, ranges = _ranges_by_group(labels, groups)
    return [order[first:end] for first, end in ranges]


def position_lists_by_group(labels: NDArray[np.integer], groups: int) -> list[Sequence[int]]:
    """Return for each group the positions of its items, ascending, as a sequence of Python integers.

    `labels` has the group number of each item; an item with a negative label is in no group. Python integers are faster
    to read than the arrays of `positions_by_group`.
    """
    order, ranges = _ranges_by_group(labels, groups)
    positions = tuple(order.tolist())
    return [positions[first:end] for first, end in ranges]


def _ranges_by_group(labels: NDArray[np.integer], groups: int) -> tuple[IntArray, Iterator[tuple[int, int]]]:
    """Return the positions of all items, sorted by group, and the first and the end index of each group in them."""
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], np.arange(groups + 1))
    return order, pairwise(edges.tolist())


def count_pods_that_fit(request: IntArray, free: IntArray, most: int) -> IntArray:
    """Return for each row of `free` how many pods with a given request fit into it, but at most `most`.

    Args:
      request: [R] request of one pod.
      free: [n, R] free amounts. A negative one takes no pod that requests the resource.
      most: the result for a pod that requests nothing.
    """
    pods = np.full(len(free), most, np.int64)
    # Few resources are requested: Python loops over them faster than a [n, R] division would take.
    for resource, amount in enumerate(request.tolist()):
        if amount:
            np.minimum(pods, free[:, resource] // amount, out=pods)
    return np.maximum(pods, 0, out=pods)


def _renumbered(kept: IntArray, size: int) -> IndexArray:
    """New numbers by old ones, NONE for those that are left out; the last entry maps NONE to NONE."""
    result = np.full(size + 1, NONE, np.int32)
    result[kept] = np.arange(len(kept))
    return result


@dataclass(frozen=True, slots=True)
class SolverBudget:
    """The limits of the solver in one session: deterministic time, rounds, accepted gap, and size of exact models.

    Args:
      deterministic: CP-SAT's deterministic time over all calls; it repeats across machines and processes.
      rounds: maximum rounds of solving, rounding and cutting.
      gap: stop when the relative gap to the bound is no larger.
      guard_seconds: a loose wall-clock guard. If it fires, the decision may not repeat, and `Solution.guard` is set.
      exact_variables: up to this many (class, node) variables the exact node-level model is used.
    """

    deterministic: float = 2.0
    rounds: int = 3
    gap: float = 0.003
    guard_seconds: float = 30.0
    exact_variables: int = 2500


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The result of the solver: the number of pods by class and node, and each tier's objective and bound.

    Args:
      classes, nodes, counts: [P] triples, counts > 0, sorted by class then node; one triple per (class, node).
      taken: [G] whether the gang has reached its minimum (gangs with need 0 are always taken).
      objective: [T] Σ weight over the placed pods of the tier.
      bound: [T] upper bound on the tier's objective given what this solution placed in the tiers above.
      stage: the step that found it: "greedy", "quotas", "aggregated" or "exact".
      rounds: rounds of solving, rounding and cutting.
      guard: whether the wall-clock guard ended a search.
      effort: CP-SAT's deterministic units that were spent.
      variables: the variables of the models that CP-SAT solved, added over all its calls.
      prices: capacity prices for a start of a later solve; bounds of the tiered model rest on them.
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
    effort: float = 0.0
    variables: int = 0
    prices: tuple[CapacityPrices, ...] = ()

    @property
    def gap(self) -> float:
        """The relative gap between objective and upper bound: 1 - Σ objective ÷ Σ bound, or 0 if the bound is 0."""
        total = float(self.bound.sum())
        return max(0.0, 1.0 - float(self.objective.sum()) / total) if total > 0 else 0.0
