"""The clock beside a session: a plugin that hangs is given up, and the session is decided again without it.

A call cannot be stopped in process, and what hangs may still change what it was handed. So the whole session is given
up, on its own thread, and decided anew from the snapshot with that one call known to be overdue: decisions repeat, so
the same call comes again, fails its pod, and the plugin is asked no more. Until then nothing is slower than without a
clock: calls are counted, and one thread looks from time to time which of them goes on.

A plugin that keeps the interpreter to itself (a long loop in C that never lets go of it) cannot be seen.
"""

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic
from typing import Final, Generic, TypeVar

from batchsched.framework.runtime.deadline import DeadlineKeeper, DisabledPlugin
from batchsched.ports.plugin_deadline import DeadlineExceeded

T = TypeVar("T")
LOOKS: Final = 8
"""How often the clock is read in the time of one deadline."""
LONGEST_LOOK: Final = 0.5


def minded(
    work: Callable[[DeadlineKeeper], T], seconds: float, known: tuple[DeadlineExceeded, ...] = ()
) -> tuple[T, tuple[DeadlineExceeded, ...]]:
    """Do work that asks plugins through a watchdog, and do it again for each plugin that hangs.

    Args:
      work: starts anew each time, and shares nothing that it changes with the time before.
      seconds: that one call may take.
      known: calls that are overdue already.

    Returns: what came of the work, and the calls that are overdue now.
    """
    while True:
        found, late = once(work, seconds, known)
        if late is None:
            return found[0], known
        known = (*known, late)


def once(
    work: Callable[[DeadlineKeeper], T], seconds: float, known: tuple[DeadlineExceeded, ...] = ()
) -> tuple[list[T], DeadlineExceeded | None]:
    """Do work that asks plugins through a watchdog, and give it up when one of them hangs.

    Returns: what came of the work, nothing when it was given up, and the call that hangs.
    """
    minder = DeadlineKeeper(known)
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
        # A daemon: nobody can wait for a plugin that never comes back, the end of the process neither.
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
        """Wait for the end, or for a call that takes too long."""
        look = min(seconds / LOOKS, LONGEST_LOOK)
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
        """Return what came of it, or raise what broke it."""
        if self._error is not None:
            raise self._error
        return self._result
