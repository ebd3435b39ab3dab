"""The active queue: gangs and single pods that the next session may try, with one heap per namespace.

A session takes a limited number of entities. The heaps per namespace let the caller take entities of other namespaces
first, once a namespace has used its share of the session.
"""

import logging
import operator
from collections.abc import Callable, Container
from numbers import Real
from typing import Any, Final

from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.plugin_call import call_plugin, plugin_name
from batchsched.scheduling_queue.backoff import EntityHeap
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


class ActiveQueue:
    """The gangs and single pods that the next session may try, in the order of QueueSort."""

    def __init__(self) -> None:
        self._heaps: dict[str, EntityHeap] = {}

    def put(self, entity: Entity, key: Any) -> None:
        """Add a gang or single pod to the active queue with its QueueSort key, or change its key."""
        self._heaps.setdefault(entity.namespace, EntityHeap()).put(entity, key)

    def remove(self, entity: Entity) -> None:
        """Remove a gang or single pod from the active queue, if the queue contains it."""
        heap = self._heaps.get(entity.namespace)
        if heap is not None:
            heap.remove(entity)
            if heap.is_empty:
                del self._heaps[entity.namespace]

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a gang or single pod in the active queue."""
        return frozenset(self._heaps)

    def first_entity(self, after_others: Container[str] = ()) -> Entity | None:
        """Return the gang or single pod that is first in the order of QueueSort; None if the queue is empty.

        Args:
          after_others: entities in these namespaces come after entities of the same priority in other namespaces.
        """
        first = self._least(())
        if first is None or first.namespace not in after_others:
            return first
        other = self._least(after_others)
        # Equal priorities only: no share of a session lets a gang overtake a gang of a higher priority.
        overtakes = other is not None and other.highest_pod_priority == first.highest_pod_priority
        return other if overtakes else first

    def _least(self, excluded: Container[str]) -> Entity | None:
        """Return the first entity of all namespaces but the excluded ones, in the order of QueueSort."""
        entries = (
            heap.first_heap_entry() for namespace, heap in self._heaps.items() if namespace not in excluded
        )
        least = min(
            (entry for entry in entries if entry is not None), key=lambda entry: entry[:2], default=None
        )
        return None if least is None else least[-1]
