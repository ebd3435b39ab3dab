"""The periodic worker, which repeats work between the sessions, and continues after an error in a piece of work.

Forecasts of the policy `auto` and explanations of refusals are such work. Each piece runs in a thread of its own, and
paces itself, because sessions and the event loop use the same interpreter.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final, TypeVar

from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")


class PeriodicWorker:
    """The component that calls the function `run_once` periodically in the event loop, until it is stopped.

    Args:
      name: the name of the work in messages, such as `forecasts`.
      period_seconds: seconds between two runs.
      clock: the clock.
      run_once: does the work that is due.
    """

    def __init__(
        self, name: str, period_seconds: float, clock: Clock, run_once: Callable[[], Awaitable[None]]
    ) -> None:
        self._name = name
        self._period_seconds = period_seconds
        self._clock = clock
        self._run_once = run_once
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        self.is_stopped = False
        """Whether this replica stops, so that threads end their work."""

    def start(self) -> None:
        """Start the task that repeats the work."""
        self._task = asyncio.create_task(self.run(), name=self._name)

    def stop(self) -> None:
        """Stop the task that repeats the work. A thread that runs ends at its next check of `is_stopped`."""
        self.is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """Repeat the work of this worker until the task is cancelled."""
        while True:
            await self._clock.sleep(self._period_seconds)
            with self.log_and_ignore_errors(f"the {self._name} failed"):
                await self._run_once()

    @contextmanager
    def log_and_ignore_errors(self, failure: str) -> Iterator[None]:
        """Return a context manager that logs an exception in its block, and does not raise it again.

        Args:
          failure: names the work in the message, such as `the forecast of profile batchsched failed`.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a defect in one piece of work must not end the others
            self.report_failure(failure, error)

    def report_failure(self, failure: str, error: Exception) -> None:
        """Log that a piece of work failed; add the traceback to the first failure only."""
        traceback = None if self._has_failed else error
        _LOG.error("%s: a defect: %s", failure, error, exc_info=traceback)
        self._has_failed = True


def run_in_daemon_thread(name: str, work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Run a function in a new daemon thread, and return a future of the function's result.

    A daemon thread does not keep the process from exiting, even if a plugin in the thread never returns.
    """
    result: concurrent.futures.Future[T] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()

    def run_work_and_set_result() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the event loop
            result.set_exception(error)

    Thread(target=run_work_and_set_result, name=name, daemon=True).start()
    return result
