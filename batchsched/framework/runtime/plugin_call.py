"""The line around a plugin: what breaks inside comes out as a `PluginError` with the plugin's name.

One of the three places where everything is caught: a plugin is somebody else's code, and its breakage must fail
its pod alone.
"""

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from batchsched.errors import PluginError

P = ParamSpec("P")
T = TypeVar("T")


def ask(plugin: object, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a plugin.

    Raises:
      PluginError: the plugin raised; the cause is chained.
    """
    try:
        return call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(name_of(plugin), point, f"{type(error).__name__}: {error}") from error


def name_of(plugin: object) -> str:
    """Return a plugin's name, its class's where it states none."""
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) else type(plugin).__name__


async def awaited(
    plugin: object, point: str, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a plugin and await its answer.

    Raises:
      PluginError: the plugin raised; the cause is chained.
    """
    try:
        return await call(*args, **kwargs)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(name_of(plugin), point, f"{type(error).__name__}: {error}") from error
