"""The calls that a session may make to the outside while it decides. A session file records their answers."""

from dataclasses import dataclass, field

from batchsched.ports.extender import Extenders, OutOfReach
from batchsched.ports.plugin_deadline import PluginDeadline


@dataclass(frozen=True, slots=True)
class ExternalCalls:
    """The ports of a session.

    Args:
      extenders: reaches extenders.
      watchdog: calls plugins of other packages with a deadline. None: they are called without a deadline.
    """

    extenders: Extenders = field(default_factory=OutOfReach)
    watchdog: PluginDeadline | None = None


NOBODY = ExternalCalls()
"""No extender is called, and plugins have no deadline."""
