"""Who wants to know what becomes of the objects of a collection."""

from collections.abc import Sequence
from typing import Protocol


class Sink(Protocol):
    """Takes what a reflector sees, as the API wrote it. It never raises for an object that it cannot use."""

    def replaced(self, objects: Sequence[bytes]) -> None:
        """Take all objects there are: whoever is not among them is gone."""
        ...

    def changed(self, raw: bytes) -> None:
        """Take an object that is new or has changed."""
        ...

    def gone(self, raw: bytes) -> None:
        """Take the last state of an object that is gone."""
        ...
