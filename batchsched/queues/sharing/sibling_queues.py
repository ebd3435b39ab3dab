"""The input of sharing policies: the children of one queue as arrays, and reclaim requests among them.

Letters: S siblings, R resources. Amounts are int64 in base units. Amounts of different resources are compared only
after `capacity_shares` has divided them by the capacity of the cluster.
"""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchsched.queues.gang_order import FloatArray, IntArray

BoolArray = NDArray[np.bool_]

UNLIMITED: Final = np.iinfo(np.int64).max // 4
"""The value of an unset amount. It equals that of the solver and is small enough to be summed up without overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class SiblingQueues:
    """The children of one queue as arrays, which are the input of a sharing policy.

    Args:
      names: names of the S queues.
      weight: [S] float, 0 or more.
      priority: [S] a higher value is served first.
      guarantee: [S, R] effective guarantees, scaled down to the parent's.
      floor: [S, R] the part of the guarantee that is demanded or not lent, assigned before any surplus is divided.
      ceiling: [S, R] the maximum that each can use: the minimum of request, limit and borrowing limit; floor <=
        ceiling.
      limit: [S, R] the queue's own limit, UNLIMITED if unset.
      usage: [S, R] requests of the bound and assumed pods in the subtree.
      history: [S, R] float, decayed usage in base units; zeros without history.
      fair: [S, R] the fair share; equal to the floor while the surplus is being divided.
      head: [S] float, position of each sibling's next gang in the order of gangs of this subtree: 0 is first, inf for
        a sibling without pending gangs.
      lendable: [R] the amount that the parent can use: its own, and what it may borrow.
      capacity: [R] capacity of all nodes.
      weighed: [R] bool, the resources that dominant shares consider; limits and guarantees hold for all resources.
    """

    names: tuple[str, ...]
    weight: FloatArray
    priority: IntArray
    guarantee: IntArray
    floor: IntArray
    ceiling: IntArray
    limit: IntArray
    usage: IntArray
    history: FloatArray
    fair: IntArray
    head: FloatArray
    lendable: IntArray
    capacity: IntArray
    weighed: BoolArray

    def __len__(self) -> int:
        """Return the number of siblings."""
        return len(self.names)

    @property
    def surplus_demand(self) -> IntArray:
        """The part of the surplus that each sibling queue can use in addition to its floor, by resource.

        The floor is the part of the guarantee that the queue demands or does not lend. The array is [S, R].
        """
        return self.ceiling - self.floor

    def select_siblings(self, indexes: IntArray) -> "SiblingQueues":
        """Return the arrays of only the sibling queues with these indexes."""
        return self._with_rows(indexes, tuple(self.names[index] for index in indexes.tolist()))

    def copies_of_sibling(self, index: int, usage: IntArray, head: FloatArray) -> "SiblingQueues":
        """Return copies of one sibling queue that differ only in usage and in the position of the next gang.

        Args:
          index: the index of the queue.
          usage: [N, R] the usage of each copy.
          head: [N] the position of the next gang of each copy in the order of gangs.
        """
        count = len(usage)
        # Copying few rows costs less than broadcasting one.
        rows = np.full(count, index) if count > 1 else slice(index, index + 1)
        return self._with_rows(rows, self.names[index : index + 1] * count, usage=usage, head=head)

    def _with_rows(
        self, rows: IntArray | slice, names: tuple[str, ...], **other: IntArray | FloatArray
    ) -> "SiblingQueues":
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, names=names, **(columns | other))


COLUMNS: Final = tuple(
    field.name
    for field in fields(SiblingQueues)
    if field.name not in {"names", "lendable", "capacity", "weighed"}
)
"""The arrays of `SiblingQueues` with one row per sibling. The others belong to the parent or to the cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class ReclaimRequest:
    """A request to evict a workload of one queue for a pending gang of another queue.

    Args:
      reclaimer: the queue that gains: its row in the queue table (`table.own_gangs_row`), or its index among siblings.
      victim: the queue that loses, in the same numbering.
      gains: [R] requests of the gang, in base units.
      loses: [R] requests of the workload, in base units.
    """

    reclaimer: int
    victim: int
    gains: IntArray
    loses: IntArray

    @property
    def affected_resources(self) -> BoolArray:
        """For each resource, whether both the pending gang and the workload to evict request it."""
        return (self.gains > 0) & (self.loses > 0)


def capacity_shares(amounts: IntArray | FloatArray, capacity: IntArray, weighed: BoolArray) -> FloatArray:
    """Convert amounts to fractions of the capacity; amounts of resources that are not in `weighed` become 0.

    Any amount of a resource that the cluster does not have becomes infinite. The amounts and the result are [..., R].
    """
    has_capacity = capacity > 0
    if has_capacity.all():
        return np.where(weighed, amounts / capacity, 0.0)
    parts = np.divide(amounts, capacity, out=np.zeros(np.shape(amounts)), where=has_capacity)
    parts = np.where(has_capacity | (np.asarray(amounts) <= 0), parts, np.inf)
    return np.where(weighed, parts, 0.0)


def dominant_shares(amounts: IntArray | FloatArray, capacity: IntArray, weighed: BoolArray) -> FloatArray:
    """Return the dominant share of the amounts in each row: the largest of their fractions of the capacity.

    Only the resources in `weighed` are considered. The amounts are [..., R].
    """
    share: FloatArray = capacity_shares(amounts, capacity, weighed).max(axis=-1, initial=0.0)
    return share


def dominant_shares_with_unweighed_fallback(
    amounts: IntArray, capacity: IntArray, weighed: BoolArray
) -> FloatArray:
    """Return the dominant share of each queue, over all resources if it has none of those in `weighed`.

    Thus each queue with an amount above 0 has a share above 0.
    """
    share = dominant_shares(amounts, capacity, weighed)
    return np.where(share > 0, share, dominant_shares(amounts, capacity, np.ones_like(weighed)))


def shares_per_weight(share: FloatArray, weight: FloatArray) -> FloatArray:
    """Return each queue's share divided by its weight; with weight 0, a share above 0 becomes infinite.

    A share of 0 remains 0.
    """
    weighted = weight > 0
    if weighted.all():
        return share / weight
    return np.where(
        weighted,
        np.divide(share, weight, out=np.zeros_like(share), where=weighted),
        np.where(share > 0, np.inf, 0.0),
    )
