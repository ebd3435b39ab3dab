"""The queue tree as arrays, and the entitlements of every queue.

Rows are ordered level by level, parents before children, siblings by name. Row 0 is the implicit root; its
guarantee is the capacity of the cluster. If a queue has both children and PodGroups of its own, it gets an additional
child row named `{queue}/` with weight 1, to which these PodGroups belong. So every PodGroup belongs to a leaf,
`home(queue)`.

    QueueTable                   frozen: names [Q], parent [Q], guarantee, limit, lending, borrowing, usage [Q, R], ...
    table.home(queue) -> int     row of a queue's own PodGroups
    table.chain(row) -> [D]      row, its parent, ... without the root
    table.with_usage(usage)      the same table with another usage [Q, R]
    Entitlements                 guarantee, fair [Q, R]; lendable, floor, ceiling for policies
"""

from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.sibling_queues import BoolArray

ROOT = ""
"""Name of row 0."""
OWN_PODGROUPS_SUFFIX = "/"
"""Suffix of the row for the own PodGroups of a queue with children. A queue name never contains it."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTable:
    """The queue tree as arrays: Q rows, R resources, amounts in base units.

    Args:
      names: [Q] queue names; row 0 is the root.
      parent: [Q] row of the parent, in ascending order; -1 for the root.
      guarantee: [Q, R] the guarantee; for a queue without one, the sum of its children's guarantees.
      limit: [Q, R] the limit, UNLIMITED if unset.
      lending: [Q, R] the part of an unused guarantee that other queues may use; UNLIMITED if unset.
      borrowing: [Q, R] the amount that the queue may use above its guarantee; UNLIMITED if unset.
      weight: [Q] float.
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

    def spans(self) -> IntArray:
        """[Q, 2] the first child of each row, and the row after its last child."""
        rows = np.arange(len(self))
        return np.stack(
            [np.searchsorted(self.parent, rows, "left"), np.searchsorted(self.parent, rows, "right")], axis=1
        )

    def levels(self) -> list[slice]:
        """Rows by level, starting with the children of the root."""
        levels, begin, end = [], 1, int(np.searchsorted(self.parent, 1, "left"))
        while begin < end:
            levels.append(slice(begin, end))
            begin, end = end, int(np.searchsorted(self.parent, end, "left"))
        return levels

    def home(self, queue: str) -> int:
        """Return the row to which a queue's own PodGroups belong.

        Raises:
          KeyError: the queue does not exist.
        """
        return self._rows.get(f"{queue}{OWN_PODGROUPS_SUFFIX}") or self._rows[queue]

    def chain(self, row: int) -> IntArray:
        """Return [D] a row and its ancestors without the root."""
        rows = []
        while row > 0:
            rows.append(row)
            row = int(self.parent[row])
        return np.array(rows, np.int64)

    def with_usage(self, usage: IntArray) -> "QueueTable":
        """Return the same queues with another usage [Q, R]."""
        return replace(self, usage=usage)


@dataclass(frozen=True, slots=True, eq=False)
class Entitlements:
    """The entitlements of every row.

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
