"""The deadline of plugin calls: a session in which a call hangs is abandoned and decided again without that plugin.

Python cannot stop a call in its own process, and a call that hangs may still change its arguments. So the whole
session is abandoned with its thread, and decided again from the snapshot. Decisions are deterministic: the same call
comes again, is known to be overdue, fails its pod, and the plugin is disabled. Before that, the deadline costs
nothing but a counter: one thread checks from time to time whether the current call is still the same.

A plugin that never releases the interpreter lock, such as a long loop in C, is not detected.
"""

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic
from typing import Final, Generic, TypeVar

from batchsched.framework.runtime.deadline import DeadlineKeeper, DisabledPlugin
from batchsched.ports.external import DeadlineExceeded

T = TypeVar("T")
CHECKS_PER_DEADLINE: Final = 8
"""Checks within the time of one deadline."""
MAX_CHECK_SECONDS: Final = 0.5


def run_with_deadline(
    work: Callable[[DeadlineKeeper], T], seconds: float, overdue: tuple[DeadlineExceeded, ...] = ()
) -> tuple[T, tuple[DeadlineExceeded, ...]]:
    """Run work that calls plugins under a deadline, and run it again for each plugin that hangs.

    Args:
      work: The work. It starts from the beginning each time and shares no mutable state with earlier runs.
      seconds: The time that one call may take.
      overdue: The calls that are already overdue.

    Returns: The result of the work, and the calls that are overdue now.
    """
    while True:
        results, late = run_until_deadline(work, seconds, overdue)
        if late is None:
            return results[0], overdue
        overdue = (*overdue, late)


def run_until_deadline(
    work: Callable[[DeadlineKeeper], T], seconds: float, overdue: tuple[DeadlineExceeded, ...] = ()
) -> tuple[list[T], DeadlineExceeded | None]:
    """Run work that calls plugins under a deadline, and abandon it when a call hangs.

    Returns: The result of the work, None if it was abandoned, and the call that hangs.
    """
    minder = DeadlineKeeper(overdue)
    attempt = _Attempt(work, minder)
    late = attempt.wait(seconds)
    if late is None:
        return attempt.result(), None
    minder.abandoned = True
    return [], late


class _Attempt(Generic[T]):
    def __init__(self, work: Callable[[DeadlineKeeper], T], minder: DeadlineKeeper) -> None:
        self._work = work
        self._minder = minder
        self._done = Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        # A daemon thread, so that a plugin that never returns does not block the end of the process.
        Thread(target=self._run, name="session", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result.append(self._work(self._minder))
        except DisabledPlugin:
            return
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> DeadlineExceeded | None:
        """Wait until the work ends or a call takes too long."""
        look = min(seconds / CHECKS_PER_DEADLINE, MAX_CHECK_SECONDS)
        seen, since = self._minder.current, monotonic()
        while not self._done.wait(look):
            current, now = self._minder.current, monotonic()
            if current is None or current != seen:
                seen, since = current, now
            elif now - since >= seconds:
                call, plugin, point = current
                return DeadlineExceeded(plugin, point, call, seconds)
        return None

    def result(self) -> list[T]:
        """Return the result of the work, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._result
