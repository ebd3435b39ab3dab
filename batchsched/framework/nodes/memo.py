"""Cache of values that are computed from Node objects, for one node table.

After a change of a Node object, an array of independent entries is recomputed for that node only.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np

from batchsched.framework.nodes.change_log import NodeChangeLog
from batchsched.framework.status import IndexArray

BYTES: Final = 8
"""Maximum size of an array's entry for one node."""

Array = np.ndarray[Any, np.dtype[Any]]


class Memo:
    """Computed values by key. Above the memory limit, the values with the oldest use are dropped.

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

    def value(self, key: Hashable, build: Callable[[], Any], amend: Callable[[Any, IndexArray], Any]) -> Any:
        """Return the value of a key: built on first use, then updated by `amend` for the nodes that changed."""
        return self._of(self._values, key, build, amend)

    def array(self, key: Hashable, ask: Callable[[IndexArray | None], Array]) -> Array:
        """[N] Return one entry for each node; `ask` computes the entries of some nodes, or of all (None).

        Earlier arrays of the key are not changed.
        """

        def amend(old: Array, changed: IndexArray) -> Array:
            made = old.copy()
            if len(changed):
                made[changed] = ask(changed)
            return made

        entries: Array = self._of(self._arrays, key, lambda: ask(None), amend)
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
            value = amend(stored[1], self._changes.since(stored[0]))
        kept[key] = (now, value)
        if len(kept) > self._room:
            del kept[next(iter(kept))]
        return value

    def lay_out(self, source: IndexArray) -> None:
        """Give the nodes other indexes: node j had index source[j], or is new if that is -1.

        New nodes are also in the log of changes, so their entries are computed before use.
        """
        self._values.clear()
        self._arrays = {key: (since, placed(array, source)) for key, (since, array) in self._arrays.items()}


def placed(array: Array, source: IndexArray) -> Array:
    """[N, …] Return rows in a new order: row j was at source[j]; it is zero where source[j] is -1."""
    made = np.zeros((len(source), *array.shape[1:]), array.dtype)
    kept = source >= 0
    made[kept] = array[source[kept]]
    return made
