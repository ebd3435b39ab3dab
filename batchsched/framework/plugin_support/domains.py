"""Domains of a topology key as arrays: sums by domain, and the domains of a solver row."""

from dataclasses import dataclass

import numpy as np

from batchsched.framework.constrain import EVERY_NODE, Batch
from batchsched.framework.status import IndexArray, IntArray
from batchsched.solver.problem import UNLIMITED


def by_domain(codes: IndexArray, counts: IntArray, domains: int) -> IntArray:
    """[D+1] Return the sums of node counts by domain; the last entry is for nodes without a domain (code -1)."""
    return np.bincount(codes % (domains + 1), weights=counts, minlength=domains + 1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RowDomains:
    """The domains of a topology key in a solver row.

    Args:
      partition: EVERY_NODE if each domain is one node, else a number of the batch's partition.
      codes: [rows] the domain of each row, -1 if the row is for a node without a domain.
    """

    partition: int
    codes: IndexArray

    @classmethod
    def of(cls, batch: Batch, codes: IndexArray) -> "RowDomains":
        """Create the row domains of [N] domains of the nodes, -1 for nodes that do not count."""
        inside = codes[codes >= 0]
        used, sizes = np.unique(inside, return_counts=True)
        if len(used) and int(sizes.max()) == 1:
            return cls(EVERY_NODE, codes)
        place = np.full(int(codes.max(initial=-1)) + 2, -1, np.int32)
        place[used] = np.arange(len(used), dtype=np.int32)
        return cls(batch.partition(place[codes]), used.astype(np.int32))

    def right(self, values: IntArray, elsewhere: int = UNLIMITED) -> IntArray:
        """[rows] Return the value of each row's domain, and a given value for nodes without a domain."""
        filled = np.append(values, elsewhere)
        return filled[np.where(self.codes < 0, len(values), self.codes)]
