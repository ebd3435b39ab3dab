"""Log of node changes: a cached result is recomputed only for the nodes that changed since it was stored."""

from typing import Final

import numpy as np

from batchsched.framework.status import IndexArray

MIN_ENTRIES: Final = 64
"""Number of entries that a log may always have, besides two for each node."""
NO_NODE: Final = -1
"""Entry for a change of the node set: nodes were added, removed, or got other indexes."""

NONE: Final = np.zeros(0, np.int32)


class NodeChangeLog:
    """A log of changed nodes with a generation number. Old entries are dropped.

    Args:
      size: the number of nodes.
    """

    __slots__ = ("_from", "_latest", "_log", "_size", "generation")

    def __init__(self, size: int) -> None:
        self.generation = 0
        """Number of changes so far."""
        self._size = size
        self._log: list[int] = []
        self._from = 0
        self._latest = (-1, -1), NONE
        """The generations of the last question, and its answer: consecutive questions are often equal."""

    def note(self, node: int) -> None:
        """Log a change of a node."""
        self.generation += 1
        self._log.append(node)
        # A result older than the log is outdated for all nodes; after so long, most of them changed anyway.
        if len(self._log) > 2 * (self._size + MIN_ENTRIES):
            half = len(self._log) // 2
            del self._log[:half]
            self._from += half

    def since(self, generation: int) -> IndexArray:
        """[k] Return the nodes that changed after a generation, ascending and without duplicates."""
        if generation == self.generation:
            return NONE
        if generation < self._from:
            return np.arange(self._size, dtype=np.int32)
        key = generation, self.generation
        if self._latest[0] != key:  # classes ask the same, one after the other
            moved = set(self._log[generation - self._from :])
            moved.discard(NO_NODE)
            self._latest = key, np.asarray(sorted(moved), np.int32)
        return self._latest[1]

    def renumber(self, numbers: list[int], size: int) -> None:
        """Give the nodes other indexes: numbers[old] is the new index, NO_NODE for removed nodes and NO_NODE."""
        self._log = [numbers[one] for one in self._log]
        self._size = size
        self.note(NO_NODE)
