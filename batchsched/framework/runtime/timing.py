"""Timings of plugin calls in a sample: one cycle in ten is measured.

A cycle is one pass of a class or a pod through the pipeline. The session's seed decides which cycles are measured.
The telemetry port reads the clock, so that the core does not.

Source: `pluginMetricsSamplePercent` of kube-scheduler's schedule_one.go.
"""

from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, TypeVar

import numpy as np

from batchsched.framework.runtime.plugin_call import ask, name_of
from batchsched.ports.external import Telemetry

P = ParamSpec("P")
T = TypeVar("T")

SHARE: Final = 0.1


class TimedCall(Protocol):
    """Signature of `plugin_call.ask`."""

    def __call__(
        self, plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a plugin.

        Raises:
          PluginError: the plugin raised an exception, which is chained.
        """
        ...


class SampledTimings:
    """Calls plugins and measures every call."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def ask(self, plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plugin and measure the call, even if the plugin fails."""
        with self._telemetry.call(name_of(plugin), point):
            return ask(plugin, point, call, *args, **kwargs)


class PluginTimings:
    """Calls plugins and measures the calls of one cycle in ten.

    Args:
      telemetry: receives the timings; None: nothing is measured.
      seed: decides which cycles are measured.
    """

    def __init__(self, telemetry: Telemetry | None = None, seed: int = 0) -> None:
        self._telling = None if telemetry is None else SampledTimings(telemetry)
        self._random = np.random.default_rng(seed)
        self.ask: TimedCall = ask
        """Calls a plugin in this cycle.

        In other cycles it is `plugin_call.ask` itself, because a pod needs about twenty calls.
        """

    def cycle(self) -> None:
        """Begin a cycle."""
        # Without telemetry no random number is drawn, and `ask` stays the plain function.
        if self._telling is not None:
            self.ask = self._telling.ask if self._random.random() < SHARE else ask
