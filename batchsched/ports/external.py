"""What a session may ask of the world while it decides; a session file holds the answers."""

from dataclasses import dataclass, field

from batchsched.ports.extender import Extenders, OutOfReach
from batchsched.ports.plugin_deadline import PluginDeadline


@dataclass(frozen=True, slots=True)
class ExternalCalls:
    """The ports of a session.

    Args:
      extenders: reaches extenders.
      watchdog: minds plugins of other packages; None: nobody does, and they are asked directly.
    """

    extenders: Extenders = field(default_factory=OutOfReach)
    watchdog: PluginDeadline | None = None


NOBODY = ExternalCalls()
"""No extender is reached, and nobody minds the time."""
