"""Who wants to know what becomes of the objects of a collection."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Takes what a reflector sees, as the API wrote it, or as it was read. It never raises for an object."""

    def replaced(self, objects: Sequence[T_contra]) -> None:
        """Take all objects there are: whoever is not among them is gone."""
        ...

    def changed(self, found: T_contra) -> None:
        """Take an object that is new or has changed."""
        ...

    def gone(self, found: T_contra) -> None:
        """Take the last state of an object that is gone."""
        ...
