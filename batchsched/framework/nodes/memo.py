"""The memo of a node table: what was worked out of Node objects, kept while these stay.

When a Node object changes, what is said node by node is asked again of that node alone; anything else is made anew.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np

from batchsched.framework.nodes.change_log import NodeChangeLog
from batchsched.framework.status import IndexArray

BYTES: Final = 8
"""What an array takes for each node, at most."""

Array = np.ndarray[Any, np.dtype[Any]]


class Memo:
    """Values by key, the newest ones.

    Args:
      changes: of the Node objects.
      nodes: how many there are.
      most: bytes of arrays that are kept, more or less.
    """

    def __init__(self, changes: NodeChangeLog, nodes: int, most: int = 2**26) -> None:
        self._changes = changes
        self._room = max(64, most // (BYTES * max(1, nodes)))
        self._values: dict[Hashable, tuple[int, Any]] = {}
        self._arrays: dict[Hashable, tuple[int, Array]] = {}

    def value(self, key: Hashable, build: Callable[[], Any], amend: Callable[[Any, IndexArray], Any]) -> Any:
        """Return what was built when it was first asked for, amended for the nodes that changed since."""
        return self._of(self._values, key, build, amend)

    def array(self, key: Hashable, ask: Callable[[IndexArray | None], Array]) -> Array:
        """[N] Return what is said of each node; `ask` says it of some of them, or of all (None).

        What was returned before is not changed.
        """

        def amend(known: Array, changed: IndexArray) -> Array:
            made = known.copy()
            if len(changed):
                made[changed] = ask(changed)
            return made

        found: Array = self._of(self._arrays, key, lambda: ask(None), amend)
        return found

    def _of(
        self,
        kept: dict[Hashable, tuple[int, Any]],
        key: Hashable,
        build: Callable[[], Any],
        amend: Callable[[Any, IndexArray], Any],
    ) -> Any:
        now = self._changes.generation
        known = kept.pop(key, None)
        if known is None:
            value = build()
        elif known[0] == now:
            value = known[1]
        else:
            value = amend(known[1], self._changes.since(known[0]))
        kept[key] = (now, value)
        if len(kept) > self._room:
            del kept[next(iter(kept))]
        return value

    def lay_out(self, source: IndexArray) -> None:
        """Take in that nodes have other places: node j was at source[j] before, -1 where it was not there.

        Those that were not there have changed, too: they are asked about before anybody sees them.
        """
        self._values.clear()
        self._arrays = {key: (since, placed(array, source)) for key, (since, array) in self._arrays.items()}


def placed(array: Array, source: IndexArray) -> Array:
    """[N, …] Return the rows of nodes that are at other places now: row j was at source[j], zeros where that is -1."""
    made = np.zeros((len(source), *array.shape[1:]), array.dtype)
    known = source >= 0
    made[known] = array[source[known]]
    return made
