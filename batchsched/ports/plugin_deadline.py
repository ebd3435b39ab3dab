"""Deadlines for calls of plugins. The core has no clock, so a package above it measures the time.

A hanging plugin cannot be killed inside the process. If a call exceeds its deadline, the session is abandoned and
decided again, with that call marked as overdue. Decisions repeat, so the same call occurs again. This time it is not
made: its pod is refused, and the plugin is not called again. A replay repeats the same steps.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class DeadlineExceeded(msgspec.Struct, frozen=True):
    """A call that took longer than `pluginDeadlineSeconds` of the profile.

    Args:
      plugin: the name of the plugin.
      point: the extension point.
      call: the number of the call among all calls with a deadline in the session, from 1; 0: an earlier session.
      seconds: the deadline.
    """

    plugin: str
    point: str
    call: int
    seconds: float

    @property
    def problem(self) -> str:
        """The sentence about the exceeded deadline, as it appears in the refusal of the pod."""
        return f"took longer than {self.seconds:g} s (pluginDeadlineSeconds); it is left out until the next start"


class PluginDeadline(Protocol):
    """Calls plugins of other packages and enforces their deadline."""

    def overdue(self, plugin: str) -> DeadlineExceeded | None:
        """Return the exceeded deadline because of which a plugin must not be called, or None."""
        ...

    def watch(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        """Make a call and measure its time.

        Raises:
          PluginOverdue: the call exceeded its deadline. Its result is discarded, and the plugin is not called again.
        """
        ...
