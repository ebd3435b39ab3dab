"""The active queue: gangs and single pods that the next session may try, with one heap per namespace.

A session takes a limited number of entities. The heaps per namespace let the caller take entities of other namespaces
first, once a namespace has used its share of the session.
"""

from collections.abc import Container
from typing import Any

from batchsched.scheduling_queue.backoff import EntityHeap
from batchsched.scheduling_queue.entity import Entity


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
