"""A heap of entities with keys, from which any entity can be removed."""

import heapq
from collections.abc import Iterable
from typing import Any, Final

from batchsched.scheduling_queue.entity import Entity

_SLACK: Final = 64
"""Number of stale entries that are tolerated before the heap is rebuilt."""


class EntityHeap:
    """Entities ordered by key, then by arrival. Stale entries of removed entities are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, int, Entity]] = []
        self._live: dict[str, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        """Return the number of entities."""
        return len(self._live)

    def put(self, entity: Entity, key: Any) -> None:
        """Add an entity, or change its key."""
        self._serial += 1
        self._live[entity.identity] = self._serial
        heapq.heappush(self._heap, (key, entity.arrival, self._serial, entity))
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = [entry for entry in self._heap if self._live.get(entry[3].identity) == entry[2]]
            heapq.heapify(self._heap)

    def remove(self, entity: Entity) -> None:
        """Remove an entity, if it is present."""
        self._live.pop(entity.identity, None)

    def first(self) -> Entity | None:
        """Return the entity with the smallest key, or None if the heap is empty."""
        while self._heap:
            _, _, serial, entity = self._heap[0]
            if self._live.get(entity.identity) == serial:
                return entity
            heapq.heappop(self._heap)
        return None

    def entities(self) -> Iterable[Entity]:
        """Return all entities in arbitrary order."""
        return (entry[3] for entry in self._heap if self._live.get(entry[3].identity) == entry[2])
