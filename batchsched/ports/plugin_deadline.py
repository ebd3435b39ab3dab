"""Who minds the time of plugins: nobody below the shell has a clock.

A plugin that hangs cannot be killed in process. The shell that finds a call overdue gives the session up and decides
it again with that call known to be overdue; so does a replay. Decisions repeat, so the same call comes again, and this
time it is not made: its pod is refused, and the plugin is asked nothing more.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class DeadlineExceeded(msgspec.Struct, frozen=True):
    """A call that took longer than the profile allows.

    Args:
      plugin: its name.
      point: the extension point.
      call: which of the session's calls of watched plugins it is, from 1; 0: it was in an earlier session.
      seconds: the deadline that passed.
    """

    plugin: str
    point: str
    call: int
    seconds: float

    @property
    def problem(self) -> str:
        """What is told of it."""
        return f"took longer than {self.seconds:g} s (pluginDeadlineSeconds); it is left out until the next start"


class PluginDeadline(Protocol):
    """Minds calls of plugins that come from other packages."""

    def overdue(self, plugin: str) -> DeadlineExceeded | None:
        """Return why a plugin is not to be asked at all, None when it is."""
        ...

    def watch(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        """Make a call, and know that it goes on.

        Raises:
          PluginOverdue: the call is overdue; nothing of it is used, and the plugin is asked no more.
        """
        ...
