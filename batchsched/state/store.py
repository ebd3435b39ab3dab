"""A shelf: the objects of one kind, by key, and frozen in the order of their keys."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Store(Generic[T]):
    """Objects by key. Freezing is free while nothing changed, and a plain copy unless keys were added out of order.

    The order of keys is what a fresh list of the API has; the order of events would be nobody's.
    """

    __slots__ = ("_by_key", "_frozen", "_sorted")

    def __init__(self) -> None:
        self._by_key: dict[str, T] = {}
        self._frozen: tuple[T, ...] | None = ()
        self._sorted = True

    def __len__(self) -> int:
        """The number of objects."""
        return len(self._by_key)

    def __contains__(self, key: str) -> bool:
        """Tell whether an object is there."""
        return key in self._by_key

    def __iter__(self) -> Iterator[str]:
        """The keys, in no order that means anything."""
        return iter(self._by_key)

    def get(self, key: str) -> T | None:
        """Return an object, or None."""
        return self._by_key.get(key)

    def put(self, key: str, value: T) -> None:
        """Add an object, or replace the one of its key."""
        if self._sorted and key not in self._by_key:
            self._sorted = not self._by_key or next(reversed(self._by_key)) < key
        self._by_key[key] = value
        self._frozen = None

    def pop(self, key: str) -> T | None:
        """Take an object away, and return it; None where there was none."""
        value = self._by_key.pop(key, None)
        if value is not None:
            self._frozen = None
        return value

    def freeze(self) -> tuple[T, ...]:
        """Return the objects by key: the same tuple as before while nothing changed."""
        if self._frozen is None:
            if not self._sorted:
                self._by_key = {key: self._by_key[key] for key in sorted(self._by_key)}
                self._sorted = True
            self._frozen = tuple(self._by_key.values())
        return self._frozen
