"""Keys of QueueSort plugins from other packages, which need not be comparable with one another."""

import logging
import operator
from collections.abc import Callable
from numbers import Real
from typing import Any, Final

from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.scheduling_queue.entity import Entity

_LOG: Final = logging.getLogger(__name__)


class ExternalSortKey:
    """A key of an external QueueSort plugin that can be compared with each other key of the plugin.

    If the plugin's own keys cannot be compared, numbers come first, other values after them, and None last. Keys of
    the same kind are then ordered by the arrival of their entities. The gang or single pod that comes last of the two
    is logged.

    Args:
      key: the key that the plugin returned.
      entity: the gang or single pod.
      plugin: the plugin.
    """

    __slots__ = ("_entity", "_is_logged", "_key", "_plugin")

    def __init__(self, key: Any, entity: Entity, plugin: object) -> None:
        self._key = key
        self._entity = entity
        self._plugin = plugin
        self._is_logged = False

    @override
    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, ExternalSortKey) and self._compare(operator.eq, other)
        except PluginError:
            return False

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: "ExternalSortKey") -> bool:
        try:
            return self._compare(operator.lt, other)
        except PluginError:
            is_less = self._order_by_kind() < other._order_by_kind()
            first, last = (self, other) if is_less else (other, self)
            last._log_once(first)
            return is_less

    def _compare(self, operation: Callable[[Any, Any], Any], other: "ExternalSortKey") -> bool:
        # The truth value of an answer may raise too, such as that of an array.
        return call_plugin(self._plugin, "QueueSort", lambda: bool(operation(self._key, other._key)))

    def _order_by_kind(self) -> tuple[tuple[int, ...], int]:
        return _kinds(self._key), self._entity.arrival

    def _log_once(self, other: "ExternalSortKey") -> None:
        if not self._is_logged:
            self._is_logged = True
            _LOG.warning(
                "plugin %s failed in QueueSort for %s: expected a key that can be compared with %.60r, the key of %s, "
                "not %.60r",
                plugin_name(self._plugin),
                self._entity.identity,
                other._key,
                other._entity.identity,
                self._key,
            )


def _kinds(key: Any) -> tuple[int, ...]:
    """Return 0 for a number, 2 for None and 1 for another value; for a tuple, 1 and the numbers of its elements."""
    if isinstance(key, tuple):
        return (1, *(kind for element in key for kind in _kinds(element)))
    return (0,) if isinstance(key, Real) else (2,) if key is None else (1,)
