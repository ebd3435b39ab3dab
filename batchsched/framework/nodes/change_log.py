"""Moves: which nodes something happened to, so that whoever kept an answer asks again about these alone."""

from typing import Final

import numpy as np

from batchsched.framework.status import IndexArray

SHORT: Final = 64
"""A log of so many moves is no burden."""
NOBODY: Final = -1
"""A move of the whole that happened to no node in particular: nodes joined, left or changed places."""

NONE: Final = np.zeros(0, np.int32)


class NodeChangeLog:
    """A log of moves; what is too long ago is forgotten.

    Args:
      size: how many nodes there are.
    """

    __slots__ = ("_from", "_latest", "_log", "_size", "generation")

    def __init__(self, size: int) -> None:
        self.generation = 0
        """Counts the moves."""
        self._size = size
        self._log: list[int] = []
        self._from = 0
        self._latest = (-1, -1), NONE
        """Between which generations was asked last, and the answer."""

    def note(self, node: int) -> None:
        """Take in that something happened to a node."""
        self.generation += 1
        self._log.append(node)
        # Whoever asks from so far back is told that every node moved; asking about all is no dearer then.
        if len(self._log) > 2 * (self._size + SHORT):
            half = len(self._log) // 2
            del self._log[:half]
            self._from += half

    def since(self, generation: int) -> IndexArray:
        """[k] the nodes to which something happened after a generation; ascending, each once."""
        if generation == self.generation:
            return NONE
        if generation < self._from:
            return np.arange(self._size, dtype=np.int32)
        asked = generation, self.generation
        if self._latest[0] != asked:  # classes ask the same, one after the other
            moved = set(self._log[generation - self._from :])
            moved.discard(NOBODY)
            self._latest = asked, np.asarray(sorted(moved), np.int32)
        return self._latest[1]

    def renumber(self, numbers: list[int], size: int) -> None:
        """Give nodes other numbers: numbers[old] is the new one, NOBODY of those that are gone, as of NOBODY itself."""
        self._log = [numbers[one] for one in self._log]
        self._size = size
        self.note(NOBODY)
