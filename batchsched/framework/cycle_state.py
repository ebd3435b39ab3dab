"""The memory of one pod's way through the points: written by its owner, read by whoever knows the key."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Cloneable(Protocol):
    """A value that AddPod and RemovePod change: it can be copied, so that a trial leaves the original as it is."""

    def clone(self) -> object:
        """Return a copy that changes by itself."""
        ...


# No slots: with them, `StateKey[int]("x")` raises, since typing notes the type on the instance.
@dataclass(frozen=True)
class StateKey(Generic[T]):
    """A typed key; a plugin makes one as a module constant and does not share what it writes under it."""

    name: str


class CycleState:
    """What plugins keep between the points of one pod class. It lives for one pass through the pipeline.

    Args:
      below: is read where nothing was written here.
    """

    __slots__ = ("_below", "_values", "skip_filter", "skip_score")

    def __init__(self, below: "CycleState | None" = None) -> None:
        self._below = below
        self._values: dict[str, object] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()

    def write(self, key: StateKey[T], value: T) -> None:
        """Keep a value."""
        self._values[key.name] = value

    def read(self, key: StateKey[T]) -> T:
        """Return a value that was kept.

        Raises:
          KeyError: nothing was kept under the key: a plugin read before it wrote.
        """
        if self._below is not None and key.name not in self._values:
            return self._below.read(key)
        return cast(T, self._values[key.name])

    def has(self, key: StateKey[T]) -> bool:
        """Tell whether something was kept."""
        return key.name in self._values or (self._below is not None and self._below.has(key))

    def take(self, other: "CycleState") -> None:
        """Write what was written to another state, not what is below that one; values are shared."""
        self._values.update(other._values)
        self.skip_filter |= other.skip_filter
        self.skip_score |= other.skip_score

    def clone(self) -> "CycleState":
        """Return a copy for a trial: values that can be cloned are, alone or in a tuple; all others are shared."""
        copy = CycleState(None if self._below is None else self._below.clone())
        copy._values = {name: _cloned(value) for name, value in self._values.items()}
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        return copy


def _cloned(value: object) -> object:
    if type(value) is tuple:
        return tuple(_cloned(one) for one in value)
    return value.clone() if isinstance(value, Cloneable) else value
