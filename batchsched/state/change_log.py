"""The journal: what changed, generation by generation, so that a follower need not look at everything again."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

LENGTH: Final = 65_536
"""Changes that are kept: whoever is further behind lays the cluster out anew, which is no slower by then."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One object before and after: None before an addition, None after a removal.

    Args:
      field: the field of Snapshot that holds the object.
      key: `namespace/name`, or the name of an object without a namespace.
      before, after: as a Snapshot showed it and shows it now; a pod that is assumed has its node.
    """

    field: str
    key: str
    before: Any
    after: Any

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it concerns: the one that changed, or those on which a pod came, went or changed."""
        if self.field == "nodes":
            return (self.key,)
        if self.field != "pods":
            return ()
        names = [pod.node for pod in (self.before, self.after) if pod is not None and pod.node]
        return tuple(dict.fromkeys(names))


class ChangeLog:
    """The last changes, and the generation of the newest."""

    def __init__(self, length: int = LENGTH) -> None:
        self.generation = 0
        """Grows by one with every change."""
        self._changes: deque[Change] = deque(maxlen=length)

    def note(self, change: Change) -> int:
        """Take in a change; returns its generation."""
        self._changes.append(change)
        self.generation += 1
        return self.generation

    def since(self, generation: int) -> tuple[Change, ...] | None:
        """Return what changed after a generation, an object's changes as one; None when that is too long ago."""
        count = self.generation - generation
        if not 0 <= count <= len(self._changes):
            return None
        first = len(self._changes) - count
        return _folded(self._changes[at] for at in range(first, len(self._changes)))


def _folded(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Make one change of all of an object's; none of those that came to nothing."""
    found: dict[tuple[str, str], Change] = {}
    for one in changes:
        earlier = found.get((one.field, one.key))
        found[one.field, one.key] = (
            one if earlier is None else Change(one.field, one.key, earlier.before, one.after)
        )
    return tuple(one for one in found.values() if one.before is not one.after)
