"""Shares: the queue tree as arrays, and what it entitles every queue to.

Rows stand level by level, siblings by name, parents before children; row 0 is the implicit root, whose guarantee is
the cluster. A queue that has children *and* PodGroups of its own gets one row more among its children, named
`{queue}/`, in which these PodGroups stand with weight 1: so every PodGroup stands at a leaf, `home(queue)`.

    Shares                       frozen: names [Q], parent [Q], guarantee, limit, lending, borrowing, usage [Q, R], ...
    shares.home(queue) -> int    row of a queue's own PodGroups
    shares.chain(row) -> [D]     row, its parent, ... without the root
    shares.with_usage(usage)     the same with another usage [Q, R]
    Entitlements                 guarantee, fair [Q, R]; lendable, floor, ceiling for policies
"""

from dataclasses import dataclass, field, replace

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, IntArray
from batchsched.queues.sharing.sibling_queues import BoolArray

ROOT = ""
"""The name of row 0."""
OWN = "/"
"""Behind the name of a queue with children: the row of its own PodGroups. No queue's name has it."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTable:
    """The queue tree as arrays: Q rows, R resources, amounts in base units.

    Args:
      names: [Q] queues; row 0 is the root.
      parent: [Q] row of the parent, never decreasing; -1 for the root.
      guarantee: [Q, R] what each may always have; where a queue states none, what its children's come to.
      limit: [Q, R] UNLIMITED where unset.
      lending: [Q, R] how much of an unused guarantee others may use; UNLIMITED where unset: all of it.
      borrowing: [Q, R] how much above the guarantee it may use; UNLIMITED where unset.
      weight: [Q] float.
      priority: [Q] the higher the sooner.
      usage: [Q, R] what runs in the subtree.
      request: [Q, R] what runs and what waits, in the subtree; only that of leaves is read.
      history: [Q, R] float, decayed usage of the subtree; zeros when there is none.
      capacity: [R] what all nodes have.
      weighed: [R] bool, the resources by which shares are measured.
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
        """The number of rows."""
        return len(self.names)

    def spans(self) -> IntArray:
        """[Q, 2] first child and the row after the last."""
        rows = np.arange(len(self))
        return np.stack(
            [np.searchsorted(self.parent, rows, "left"), np.searchsorted(self.parent, rows, "right")], axis=1
        )

    def levels(self) -> list[slice]:
        """Rows level by level, the root's children first."""
        found, begin, end = [], 1, int(np.searchsorted(self.parent, 1, "left"))
        while begin < end:
            found.append(slice(begin, end))
            begin, end = end, int(np.searchsorted(self.parent, end, "left"))
        return found

    def home(self, queue: str) -> int:
        """Return the row in which a queue's own PodGroups stand.

        Raises:
          KeyError: there is no such queue.
        """
        return self._rows.get(f"{queue}{OWN}") or self._rows[queue]

    def chain(self, row: int) -> IntArray:
        """[D] a row and those above it, the root left out."""
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
    """What the tree entitles every row to.

    Args:
      guarantee: [Q, R] guarantees in effect: within limits, scaled where children's come to more than the parent has.
      fair: [Q, R] fair shares: the guarantee as far as it is wanted or not lent, and the part of the surplus.
        The root's is the capacity.
      floor: [Q, R] the part of `fair` that no policy touches.
      ceiling: [Q, R] the most that each can use: request, limit, borrowing limit.
      lendable: [Q, R] what the children of a row can reach: its own, and what it may borrow from above.
    """

    guarantee: IntArray
    fair: IntArray
    floor: IntArray
    ceiling: IntArray
    lendable: IntArray
