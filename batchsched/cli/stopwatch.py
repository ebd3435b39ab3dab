"""Telemetry for the terminal: the duration of each stage, and a progress bar."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from typing_extensions import override

from batchsched.ports.telemetry import Telemetry

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_BAR_DELAY_SECONDS = 0.5
"""Seconds before a progress bar appears; shorter work shows none."""
_DIGITS = 6


class Stopwatch(Telemetry):
    """Adds up the seconds of each stage, and draws a progress bar if standard error is a terminal.

    The time of a nested stage counts for both stages.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._begun = perf_counter()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._open = ExitStack()
        self.calls: dict[tuple[str, str], tuple[int, float]] = {}
        """By plugin and point: the number of sampled calls, and their duration in seconds."""

    @property
    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order in which the stages first ended."""
        return {name: round(seconds, _DIGITS) for name, seconds in self._seconds.items()}

    def seconds(self, stage: str) -> float:
        """Return the seconds of one stage, 0 if the stage did not run."""
        return round(self._seconds.get(stage, 0.0), _DIGITS)

    @override
    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + perf_counter() - begun

    @override
    def progress(self, done: int, total: int, what: str) -> None:
        if self._bar is None:
            if not sys.stderr.isatty() or perf_counter() - self._begun < _BAR_DELAY_SECONDS:
                return
            self._bar = self._open.enter_context(_bar())
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total or None)
        self._bar.update(self._tasks[what], completed=done, total=total or None)

    @override
    @contextmanager
    def call(self, plugin: str, point: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            calls, seconds = self.calls.get((plugin, point), (0, 0.0))
            self.calls[plugin, point] = (calls + 1, seconds + perf_counter() - begun)

    def close(self) -> None:
        """Remove the progress bar."""
        self._open.close()
        self._bar = None


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
