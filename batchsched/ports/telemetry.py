"""Telemetry of a session: where the time is spent. The core writes it and never reads it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Telemetry(Protocol):
    """Receives durations and progress. An implementation cannot change the decision."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Measure one stage of a session. Durations of equal names are added up; stages may nest."""
        ...

    def progress(self, done: int, total: int, what: str) -> None:
        """Report the progress of a long stage."""
        ...

    def call(self, plugin: str, point: str) -> AbstractContextManager[None]:
        """Measure one call of a plugin. Only a sample of all calls is measured."""
        ...


class Silence:
    """The default implementation, which records nothing."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Do nothing around a stage."""
        yield

    def progress(self, done: int, total: int, what: str) -> None:
        """Do nothing with the progress."""

    @contextmanager
    def call(self, plugin: str, point: str) -> Iterator[None]:
        """Do nothing around a call."""
        yield
