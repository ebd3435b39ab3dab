"""What the core tells of its own running: where the time goes. It never reads anything back."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Telemetry(Protocol):
    """A listener that the shell hands to the core; whatever it does, the decision stays the same."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time one stage of a session; stages of one name add up, and stages may nest."""
        ...

    def progress(self, done: int, total: int, what: str) -> None:
        """Tell how far a long stage has come."""
        ...

    def call(self, plugin: str, point: str) -> AbstractContextManager[None]:
        """Time one call of a plugin; only a sample of all calls is told of."""
        ...


class Silence:
    """The listener that hears nothing: the default below the shell."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Do nothing around a stage."""
        yield

    def progress(self, done: int, total: int, what: str) -> None:
        """Do nothing with a step."""

    @contextmanager
    def call(self, plugin: str, point: str) -> Iterator[None]:
        """Do nothing around a call."""
        yield
