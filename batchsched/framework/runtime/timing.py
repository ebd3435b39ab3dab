"""Timings of plugins, sampled: in one cycle of ten every call is told to a listener, in the others none.

A cycle is one way of a class, or of a pod, through the pipeline. Which cycles it is follows from the session's seed;
what the listener makes of it, and whose clock it reads, is its own business.

Source: `pluginMetricsSamplePercent` of kube-scheduler's schedule_one.go.
"""

from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, TypeVar

import numpy as np

from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.ports.telemetry import Telemetry

P = ParamSpec("P")
T = TypeVar("T")

SHARE: Final = 0.1


class TimedCall(Protocol):
    """Calls a plugin, as `guard.ask` does."""

    def __call__(
        self, plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a plugin.

        Raises:
          PluginError: the plugin raised; the cause is chained.
        """
        ...


class SampledTimings:
    """Asks plugins, and tells of every call."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def ask(self, plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plugin and tell of it, also of one that raised."""
        with self._telemetry.call(name_of(plugin), point):
            return ask(plugin, point, call, *args, **kwargs)


class PluginTimings:
    """Asks plugins, and tells of a tenth of it.

    Args:
      telemetry: is told; None: nobody is.
      seed: of the draw.
    """

    def __init__(self, telemetry: Telemetry | None = None, seed: int = 0) -> None:
        self._telling = None if telemetry is None else SampledTimings(telemetry)
        self._random = np.random.default_rng(seed)
        self.ask: TimedCall = ask
        """Calls a plugin in this cycle; the guard's own where nobody is told: a pod makes some twenty calls."""

    def cycle(self) -> None:
        """Begin a cycle."""
        if self._telling is not None:
            self.ask = self._telling.ask if self._random.random() < SHARE else ask
