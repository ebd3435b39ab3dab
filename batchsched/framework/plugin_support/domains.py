"""Domains of a topology key as arrays: sums over them, and how they become the domains of a row."""

from dataclasses import dataclass

import numpy as np

from batchsched.framework.constrain import EVERY_NODE, Batch
from batchsched.framework.status import IndexArray, IntArray
from batchsched.solver.problem import UNLIMITED


def by_domain(codes: IndexArray, counts: IntArray, domains: int) -> IntArray:
    """[D+1] counts of nodes summed by domain; the last for code -1, so that `sums[codes]` is right for all nodes."""
    return np.bincount(codes % (domains + 1), weights=counts, minlength=domains + 1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RowDomains:
    """A topology key's domains as those of a row.

    Args:
      partition: EVERY_NODE where each domain is one node, else a number from the batch.
      codes: [rows] the domain of each row, -1 where the row is of a node in no domain.
    """

    partition: int
    codes: IndexArray

    @classmethod
    def of(cls, batch: Batch, codes: IndexArray) -> "RowDomains":
        """Make them of [N] domains of the nodes, -1 for nodes that do not count."""
        inside = codes[codes >= 0]
        used, sizes = np.unique(inside, return_counts=True)
        if len(used) and int(sizes.max()) == 1:
            return cls(EVERY_NODE, codes)
        place = np.full(int(codes.max(initial=-1)) + 2, -1, np.int32)
        place[used] = np.arange(len(used), dtype=np.int32)
        return cls(batch.partition(place[codes]), used.astype(np.int32))

    def right(self, values: IntArray, elsewhere: int = UNLIMITED) -> IntArray:
        """[rows] a value of each domain [≥ D], and what is stated for nodes in no domain."""
        filled = np.append(values, elsewhere)
        return filled[np.where(self.codes < 0, len(values), self.codes)]
