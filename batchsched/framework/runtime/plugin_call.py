"""Calls of plugins: every exception becomes a `PluginError` with the plugin's name.

This is one of three places with a broad catch: a plugin is foreign code, and its failure must fail only the pods of
the call.

Timings are a sample: one cycle in ten is measured. A cycle is one pass of a class or a pod through the pipeline. The
session's seed decides which cycles are measured. The telemetry port reads the clock, so that the core does not.

Source: `pluginMetricsSamplePercent` of kube-scheduler's schedule_one.go.
"""

from collections.abc import Awaitable, Callable
from traceback import walk_tb
from typing import Final, ParamSpec, TypeVar

import numpy as np

from batchsched.errors import PluginError
from batchsched.ports.external import Telemetry

P = ParamSpec("P")
T = TypeVar("T")


def call_plugin(plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function for a plugin and return its result; raise its exceptions as a `PluginError`.

    The function is a method of the plugin, or processes an answer of the plugin.

    Raises:
      PluginError: the plugin raised an exception, which is chained.
    """
    # No frame between caller and plugin but this one: a pod needs about twenty calls.
    try:
        return call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            plugin_name(plugin), point, f"{type(error).__name__}: {error}", _raised_at(error, plugin)
        ) from error


def plugin_name(plugin: object) -> str:
    """Return the name of a plugin, or the name of its class if the plugin has none."""
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) else type(plugin).__name__


def _raised_at(error: BaseException, plugin: object) -> str:
    """Return file and line in the module of an external plugin, such as `acme/quota.py, line 12`; "" if there is none.

    The path begins at the package, so that a recorded decision does not depend on the place of installation.
    """
    module = type(plugin).__module__
    if module.partition(".")[0] == "batchsched":
        return ""
    lines = [
        line for frame, line in walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == module
    ]
    return f"{module.replace('.', '/')}.py, line {lines[-1]}" if lines else ""


async def await_plugin(
    plugin: object, point: str, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Await an asynchronous method of a plugin and return its answer; an exception becomes a `PluginError`.

    Raises:
      PluginError: the plugin raised an exception, which is chained.
    """
    try:
        return await call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            plugin_name(plugin), point, f"{type(error).__name__}: {error}", _raised_at(error, plugin)
        ) from error


SHARE: Final = 0.1


class PluginCallSampler:
    """A caller of plugins that measures the duration of calls in a random tenth of the scheduling cycles.

    Args:
      telemetry: receives the timings; None: nothing is measured.
      seed: decides which cycles are measured.
    """

    def __init__(self, telemetry: Telemetry | None = None, seed: int = 0) -> None:
        self._telemetry = telemetry
        self._random = np.random.default_rng(seed)
        # A pod needs about twenty calls, so that outside of a measured cycle `call_plugin` is the plain function.
        self.ask = call_plugin
        """Calls a plugin in this cycle."""

    def begin_cycle(self) -> None:
        """Begin a scheduling cycle: decide at random whether its plugin calls are measured."""
        # Without telemetry no random number is drawn.
        if self._telemetry is not None:
            self.ask = self._ask_measured if self._random.random() < SHARE else call_plugin

    def _ask_measured(
        self, plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a plugin and measure the call, even if the plugin fails."""
        assert self._telemetry is not None
        with self._telemetry.plugin_span(plugin_name(plugin), point):
            return call_plugin(plugin, point, call, *args, **kwargs)
