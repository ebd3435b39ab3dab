"""The receiver of the watch events of one kind of object."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Receives the objects of a reflector, as JSON of the API or decoded. An invalid object must not raise."""

    def replaced(self, objects: Sequence[T_contra]) -> None:
        """Replace all objects. An object that is not in the list was deleted."""
        ...

    def changed(self, item: T_contra) -> None:
        """Add or update an object."""
        ...

    def gone(self, item: T_contra) -> None:
        """Remove an object; its last known state is the argument."""
        ...
