"""The change log: the latest changes by generation, so that a reader does not compare all objects."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_LENGTH: Final = 65_536
"""Changes that are kept. A reader that is further behind starts from a Snapshot, which costs no more by then."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One object before and after a change.

    Args:
      field: The field of Snapshot that has the object.
      key: `namespace/name`, or the name of an object without a namespace.
      before, after: The object as a Snapshot shows it, an assumed pod with its node. `before` is None for an
        addition, `after` is None for a removal.
    """

    field: str
    key: str
    before: Any
    after: Any

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the change affects: the node itself, or the nodes of the pod before and after."""
        if self.field == "nodes":
            return (self.key,)
        if self.field != "pods":
            return ()
        names = [pod.node for pod in (self.before, self.after) if pod is not None and pod.node]
        return tuple(dict.fromkeys(names))


class ChangeLog:
    """The latest changes, and the generation of the newest one."""

    def __init__(self, length: int = DEFAULT_LENGTH) -> None:
        self.generation = 0
        """Grows by one with every change."""
        self._changes: deque[Change] = deque(maxlen=length)

    def note(self, change: Change) -> int:
        """Append a change and return its generation."""
        self._changes.append(change)
        self.generation += 1
        return self.generation

    def since(self, generation: int) -> tuple[Change, ...] | None:
        """Return the changes after a generation, one for each object; None if the log does not reach back so far."""
        count = self.generation - generation
        if not 0 <= count <= len(self._changes):
            return None
        first = len(self._changes) - count
        return _folded(self._changes[at] for at in range(first, len(self._changes)))


def _folded(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Merge the changes of each object into one, and drop those that cancel out."""
    merged: dict[tuple[str, str], Change] = {}
    for change in changes:
        earlier = merged.get((change.field, change.key))
        merged[change.field, change.key] = (
            change if earlier is None else Change(change.field, change.key, earlier.before, change.after)
        )
    return tuple(change for change in merged.values() if change.before is not change.after)
