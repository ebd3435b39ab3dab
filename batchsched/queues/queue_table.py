"""The queue tree as arrays, and the entitlements of every queue.

Rows are ordered level by level, parents before children, siblings by name. Row 0 is the implicit root; its
guarantee is the capacity of the cluster. If a queue has both children and PodGroups of its own, it gets an additional
child row named `{queue}/` with weight 1, to which these PodGroups belong. So every PodGroup belongs to a leaf,
`own_gangs_row(queue)`.

    build_queue_table(tree, TotalCapacity(resources, amounts, weighed), QueueUsageAndDemand(usage, request, history))
    resolve_policies(table, default, chosen) -> [Q] policies: that of row q divides among its children
    QueueTable                   frozen: names [Q], parent [Q], guarantee, limit, lending, borrowing, usage [Q, R], ...
    table.own_gangs_row(queue) -> int     row of a queue's own PodGroups
    table.row_and_ancestors_without_root(row)     [D] row, its parent, ... without the root
    table.with_usage(usage)          the same table with another usage [Q, R]
    Entitlements                 guarantee, fair [Q, R]; lendable, floor, ceiling for policies

Input amounts are those of each queue alone; the table contains sums over subtrees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from batchsched.api.crd.base import parse_quantities_in_base_units
from batchsched.api.crd.podgroup import DEFAULT_QUEUE
from batchsched.api.crd.queue import QueueSpec
from batchsched.queues.gang_order import FloatArray, IntArray
from batchsched.queues.sharing.policy import SharingPolicy
from batchsched.queues.sharing.sibling_queues import UNLIMITED, BoolArray
from batchsched.queues.tree import QueueTree

ROOT = ""
"""Name of row 0."""
OWN_PODGROUPS_SUFFIX = "/"
"""Suffix of the row for the own PodGroups of a queue with children. A queue name never contains it."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTable:
    """The queue tree as arrays with one row for each queue: its settings, its usage and its demand.

    There are Q rows and R resources. Amounts are in base units.

    Args:
      names: [Q] queue names; row 0 is the root.
      parent: [Q] row of the parent, in ascending order; -1 for the root.
      guarantee: [Q, R] the guarantee, as `QueueTree.guarantees` states it; 0 for the root.
      limit: [Q, R] the limit, UNLIMITED if unset.
      lending: [Q, R] the part of an unused guarantee that other queues may use; UNLIMITED if unset.
      borrowing: [Q, R] the amount that the queue may use above its guarantee; UNLIMITED if unset.
      weight: [Q] float, the weight of the queue among its siblings.
      priority: [Q] a higher value is served first.
      usage: [Q, R] requests of the bound and assumed pods in the subtree.
      request: [Q, R] usage plus requests of pending gangs in the subtree; only the values of leaves are read.
      history: [Q, R] float, decayed usage of the subtree; zeros without history.
      capacity: [R] capacity of all nodes.
      weighed: [R] bool, the resources that dominant shares consider.
    """

    names: tuple[str, ...]
    parent: IntArray
    guarantee: IntArray
    limit: IntArray
    lending: IntArray
    borrowing: IntArray
    weight: FloatArray
    priority: IntArray
    usage: IntArray
    request: IntArray
    history: FloatArray
    capacity: IntArray
    weighed: BoolArray
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.names)})

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.names)

    def child_row_ranges(self) -> IntArray:
        """Return the range of rows of each queue's children: the first row, and the row after the last.

        Returns:
          [Q, 2] the begin and the end of each range; both are equal for a queue without children.
        """
        rows = np.arange(len(self))
        return np.stack(
            [np.searchsorted(self.parent, rows, "left"), np.searchsorted(self.parent, rows, "right")], axis=1
        )

    def rows_by_level(self) -> list[slice]:
        """Return for each level of the queue tree the slice of its rows, starting with the children of the root."""
        levels, begin, end = [], 1, int(np.searchsorted(self.parent, 1, "left"))
        while begin < end:
            levels.append(slice(begin, end))
            begin, end = end, int(np.searchsorted(self.parent, end, "left"))
        return levels

    def own_gangs_row(self, queue: str) -> int:
        """Return the table row for a queue's own PodGroups, without the PodGroups of its child queues.

        Raises:
          KeyError: the queue does not exist.
        """
        return self._rows.get(f"{queue}{OWN_PODGROUPS_SUFFIX}") or self._rows[queue]

    def row_and_ancestors_without_root(self, row: int) -> IntArray:
        """Return the row numbers of a queue and its ancestors, from the queue upwards, without the root."""
        rows = []
        while row > 0:
            rows.append(row)
            row = int(self.parent[row])
        return np.array(rows, np.int64)

    def with_usage(self, usage: IntArray) -> "QueueTable":
        """Return a copy of the queue table in which `usage` replaces the usage of all queues.

        `usage` is [Q, R], with the rows and resources of this table.
        """
        return replace(self, usage=usage)


@dataclass(frozen=True, slots=True, eq=False)
class Entitlements:
    """The guarantees and fair shares of all queues, as arrays with the same rows as the queue table.

    Args:
      guarantee: [Q, R] effective guarantees: within limits, and scaled down if the children's sum exceeds the
        parent's.
      fair: [Q, R] fair shares: the floor plus a part of the surplus. The fair share of the root is the capacity.
      floor: [Q, R] the part of `fair` that the guarantee secures under every policy.
      ceiling: [Q, R] the maximum that each row can use: the minimum of request, limit and borrowing limit.
      lendable: [Q, R] the amount that the children of a row can use together: the row's own and what it may borrow.
    """

    guarantee: IntArray
    fair: IntArray
    floor: IntArray
    ceiling: IntArray
    lendable: IntArray


Number = TypeVar("Number", np.int64, np.float64)
_PLAIN = QueueSpec()


@dataclass(frozen=True, slots=True, eq=False)
class TotalCapacity:
    """The capacity of the whole cluster by resource.

    Args:
      resources: names of the R resources.
      amounts: [R] sums over all nodes, in base units.
      weighed: [R] bool, the resources that dominant shares consider; limits and guarantees hold for all resources.
    """

    resources: tuple[str, ...]
    amounts: IntArray
    weighed: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class QueueUsageAndDemand:
    """The usage and the demand of each queue's own PodGroups, without the PodGroups of its child queues.

    A queue that is absent from a mapping has no usage, request or history.

    Args:
      usage: by queue, [R] requests of its bound and assumed pods, in base units.
      request: by queue, [R] usage plus requests of its pending gangs.
      history: by queue, [R] decayed usage in base units.
    """

    usage: Mapping[str, IntArray]
    request: Mapping[str, IntArray]
    history: Mapping[str, FloatArray] = field(default_factory=dict)


class _Rows:
    """Names, parents and settings of all rows, level by level."""

    def __init__(self, tree: QueueTree, busy: frozenset[str]) -> None:
        self.names, self.parent, self.specs = [ROOT], [-1], [_PLAIN]
        below: dict[str, list[str]] = {}
        for name in sorted({*tree.queues, DEFAULT_QUEUE}):
            spec = tree.queues[name].spec if name in tree.queues else _PLAIN
            below.setdefault(spec.parent or ROOT, []).append(name)
        row = 0
        while row < len(self.names):
            name = self.names[row]
            children = below.get(name, [])
            for child in children:
                self._add(child, row, tree.queues[child].spec if child in tree.queues else _PLAIN)
            if children and name in busy and name != ROOT:
                self._add(f"{name}{OWN_PODGROUPS_SUFFIX}", row, _PLAIN)
            row += 1
        self.row = {name: row for row, name in enumerate(self.names)}

    def _add(self, name: str, parent: int, spec: QueueSpec) -> None:
        self.names.append(name)
        self.parent.append(parent)
        self.specs.append(spec)


def build_queue_table(tree: QueueTree, capacity: TotalCapacity, load: QueueUsageAndDemand) -> QueueTable:
    """Build the queue table from the queue tree, the capacity of the cluster, and the demand of the queues.

    Args:
      tree: the queues.
      capacity: the capacity of the cluster.
      load: usage and demand by queue. Queues that do not exist are ignored.
    """
    rows = _Rows(tree, frozenset(load.usage) | frozenset(load.request) | frozenset(load.history))
    count, width = len(rows.names), len(capacity.resources)
    column = {name: at for at, name in enumerate(capacity.resources)}
    guarantee = np.zeros((count, width), np.int64)
    for name, amounts in tree.guarantees.items():
        _fill_row(guarantee[rows.row[name]], column, amounts)
    settings = {
        "limit": np.full((count, width), UNLIMITED, np.int64),
        "lending_limit": np.full((count, width), UNLIMITED, np.int64),
        "borrowing_limit": np.full((count, width), UNLIMITED, np.int64),
    }
    for row, spec in enumerate(rows.specs):
        if spec is _PLAIN:
            continue
        for setting, into in settings.items():
            _fill_row(into[row], column, parse_quantities_in_base_units(getattr(spec, setting)))
    shares = QueueTable(
        names=tuple(rows.names),
        parent=np.array(rows.parent, np.int64),
        guarantee=guarantee,
        limit=settings["limit"],
        lending=settings["lending_limit"],
        borrowing=settings["borrowing_limit"],
        weight=np.array([spec.weight for spec in rows.specs]),
        priority=np.array([spec.priority for spec in rows.specs], np.int64),
        usage=_own(rows, load.usage, np.zeros((count, width), np.int64)),
        request=_own(rows, load.request, np.zeros((count, width), np.int64)),
        history=_own(rows, load.history, np.zeros((count, width))),
        capacity=capacity.amounts,
        weighed=capacity.weighed,
    )
    _add_up(shares)
    return shares


def _fill_row(row: IntArray, column: Mapping[str, int], amounts: Mapping[str, int]) -> None:
    """Write the amounts of resources that nodes offer into a row [R]; `column` contains the index of each."""
    for resource, amount in amounts.items():
        if resource in column:
            row[column[resource]] = min(amount, UNLIMITED)


def resolve_policies(
    shares: QueueTable, default: SharingPolicy, chosen: Mapping[str, SharingPolicy]
) -> tuple[SharingPolicy, ...]:
    """Return the sharing policy of each queue; a queue that sets no policy inherits the policy of its parent.

    Args:
      shares: the queue table.
      default: the policy of the root, which queues without a parent inherit.
      chosen: policy objects by the name of the queue that sets them.
    """
    policies: list[SharingPolicy] = []
    for row, name in enumerate(shares.names):
        inherited = policies[int(shares.parent[row])] if row else default
        policies.append(chosen.get(name, inherited))
    return tuple(policies)


def _own(rows: _Rows, amounts: Mapping[str, NDArray[Number]], into: NDArray[Number]) -> NDArray[Number]:
    for name, amount in amounts.items():
        row = rows.row.get(f"{name}{OWN_PODGROUPS_SUFFIX}", rows.row.get(name))
        if row is not None:
            into[row] += amount
    return into


def _add_up(shares: QueueTable) -> None:
    """Add up usage and requests to the root, requests within limits."""
    for level in reversed(shares.rows_by_level()):
        parents = shares.parent[level]
        np.add.at(shares.usage, parents, shares.usage[level])
        np.add.at(shares.history, parents, shares.history[level])
        np.add.at(shares.request, parents, np.minimum(shares.request[level], shares.limit[level]))
