"""A log of node changes, and a cache of values that are recomputed only for the nodes that changed.

`NodeChangeLog` numbers the changes. `NodeValueCache` keeps values that are computed from Node objects: after a
change of a Node object, an array of independent entries is recomputed for that node only.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np

from batchsched.framework.status import IndexArray

MIN_ENTRIES: Final = 64
"""Number of entries that a log may always have, besides two for each node."""
NO_NODE: Final = -1
"""Entry for a change of the node set: nodes were added, removed, or got other indexes."""

NONE: Final = np.zeros(0, np.int32)


class NodeChangeLog:
    """A log of the nodes that changed, in which each change has a generation number. Old entries are dropped.

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

    def record_node_change(self, node: int) -> None:
        """Record in the log that a node changed."""
        self.generation += 1
        self._log.append(node)
        # A result older than the log is outdated for all nodes; after so long, most of them changed anyway.
        if len(self._log) > 2 * (self._size + MIN_ENTRIES):
            half = len(self._log) // 2
            del self._log[:half]
            self._from += half

    def nodes_changed_since(self, generation: int) -> IndexArray:
        """Return the indexes of the nodes that changed after the given generation number, in ascending order.

        Each index occurs once.
        """
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

    def renumber_nodes(self, numbers: list[int], size: int) -> None:
        """Replace each node index `i` in the log by `numbers[i]`, which is NO_NODE for a removed node.

        NO_NODE stays NO_NODE.
        """
        self._log = [numbers[one] for one in self._log]
        self._size = size
        self.record_node_change(NO_NODE)


BYTES: Final = 8
"""Maximum size of an array's entry for one node."""

Array = np.ndarray[Any, np.dtype[Any]]


class NodeValueCache:
    """A cache of values that are computed from Node objects. Above the limit, the least recently used are dropped.

    Args:
      changes: log of the changes of Node objects.
      nodes: the number of nodes.
      most: approximate limit for the memory of all arrays, in bytes.
    """

    def __init__(self, changes: NodeChangeLog, nodes: int, most: int = 2**26) -> None:
        self._changes = changes
        self._room = max(64, most // (BYTES * max(1, nodes)))
        self._values: dict[Hashable, tuple[int, Any]] = {}
        self._arrays: dict[Hashable, tuple[int, Array]] = {}

    def cached_value(
        self, key: Hashable, build: Callable[[], Any], amend: Callable[[Any, IndexArray], Any]
    ) -> Any:
        """Return a cached value that is computed from Node objects on first use, and updated for changed nodes.

        `build` computes the value; `amend` updates it, given the indexes of the changed nodes.
        """
        return self._of(self._values, key, build, amend)

    def cached_array(self, key: Hashable, ask: Callable[[IndexArray | None], Array]) -> Array:
        """Return a cached array [N] that is computed from Node objects on first use, and updated for changed nodes.

        `ask` computes the entries of nodes by index, or of all nodes (None).

        Earlier arrays of the key are not changed.
        """

        def recompute_changed_nodes(old: Array, changed: IndexArray) -> Array:
            made = old.copy()
            if len(changed):
                made[changed] = ask(changed)
            return made

        entries: Array = self._of(self._arrays, key, lambda: ask(None), recompute_changed_nodes)
        return entries

    def _of(
        self,
        kept: dict[Hashable, tuple[int, Any]],
        key: Hashable,
        build: Callable[[], Any],
        amend: Callable[[Any, IndexArray], Any],
    ) -> Any:
        now = self._changes.generation
        stored = kept.pop(key, None)
        if stored is None:
            value = build()
        elif stored[0] == now:
            value = stored[1]
        else:
            value = amend(stored[1], self._changes.nodes_changed_since(stored[0]))
        kept[key] = (now, value)
        if len(kept) > self._room:
            del kept[next(iter(kept))]
        return value

    def forget_value(self, key: Hashable) -> None:
        """Drop a cached value, so that it is computed again on the next use."""
        self._values.pop(key, None)

    def adapt_to_new_node_indexes(self, source: IndexArray) -> None:
        """Reorder all cached arrays for new node indexes; `source` has each node's former index, -1 for new nodes.

        New nodes are also in the log of changes, so their entries are computed before use.
        """
        self._values.clear()
        self._arrays = {
            key: (since, reordered_array(array, source)) for key, (since, array) in self._arrays.items()
        }


def reordered_array(array: Array, source: IndexArray) -> Array:
    """Return a copy of an array [N, …] in a new order; `source` has each entry's former position.

    A position of -1 stands for a new entry, which is 0.
    """
    made = np.zeros((len(source), *array.shape[1:]), array.dtype)
    kept = source >= 0
    made[kept] = array[source[kept]]
    return made
