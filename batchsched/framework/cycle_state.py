"""Cycle state: values that plugins pass from one extension point to the next for one pod class."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class CloneableValue(Protocol):
    """A value of a cycle state that can be cloned for a dry run of preemption.

    In the dry run, AddPod and RemovePod change the clone, so that the original value does not change.
    """

    def clone(self) -> object:
        """Return an independent copy of this value of a cycle state."""


# No slots: typing stores the type argument on the instance, so `StateKey[int]("x")` would raise with slots.
@dataclass(frozen=True)
class StateKey(Generic[T]):
    """The typed key of a value in a cycle state. A plugin defines it as a constant; only this plugin writes it."""

    name: str


class CycleState:
    """The values that plugins keep for one pod class during one pass through the extension points.

    Args:
      below: another state, which is read if this one has no value for a key.
    """

    __slots__ = ("_below", "_values", "skip_filter", "skip_score")

    def __init__(self, below: "CycleState | None" = None) -> None:
        self._below = below
        self._values: dict[str, object] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()

    def write(self, key: StateKey[T], value: T) -> None:
        """Store a value in the cycle state under a typed key."""
        self._values[key.name] = value

    def read(self, key: StateKey[T]) -> T:
        """Return the value that the cycle state has under a key.

        Raises:
          KeyError: the key has no value, because a plugin reads it before writing it.
        """
        if self._below is not None and key.name not in self._values:
            return self._below.read(key)
        return cast(T, self._values[key.name])

    def has(self, key: StateKey[T]) -> bool:
        """Return True if the cycle state has a value under a key."""
        return key.name in self._values or (self._below is not None and self._below.has(key))

    def copy_values_from(self, other: "CycleState") -> None:
        """Copy the values of another cycle state into this one.

        Values that the other state only reads from the state below it are not copied. The copied values are shared, not
        cloned.
        """
        self._values.update(other._values)
        self.skip_filter |= other.skip_filter
        self.skip_score |= other.skip_score

    def clone(self) -> "CycleState":
        """Return a copy of the cycle state for a dry run.

        Values with `clone` are cloned, also inside a tuple; all others are shared.
        """
        copy = CycleState(None if self._below is None else self._below.clone())
        copy._values = {name: _cloned(value) for name, value in self._values.items()}
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        return copy


def _cloned(value: object) -> object:
    if type(value) is tuple:
        return tuple(_cloned(one) for one in value)
    return value.clone() if isinstance(value, CloneableValue) else value
