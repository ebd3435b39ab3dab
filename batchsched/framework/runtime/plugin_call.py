"""Calls of plugins: every exception becomes a `PluginError` with the plugin's name.

This is one of three places with a broad catch: a plugin is foreign code, and its failure must fail only the pods of
the call.
"""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from batchsched.errors import PluginError

P = ParamSpec("P")
T = TypeVar("T")


def ask(plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a plugin.

    Raises:
      PluginError: the plugin raised an exception, which is chained.
    """
    # No frame between caller and plugin but this one: a pod needs about twenty calls.
    try:
        return call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(name_of(plugin), point, f"{type(error).__name__}: {error}") from error


def name_of(plugin: object) -> str:
    """Return a plugin's name; that of its class if it has none."""
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) else type(plugin).__name__


async def awaited(
    plugin: object, point: str, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a plugin and await its answer.

    Raises:
      PluginError: the plugin raised an exception, which is chained.
    """
    try:
        return await call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(name_of(plugin), point, f"{type(error).__name__}: {error}") from error
