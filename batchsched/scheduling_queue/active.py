"""A line of entities with keys: the smallest first, any of them removable."""

import heapq
from collections.abc import Iterable
from typing import Any, Final

from batchsched.scheduling_queue.entity import Entity

_SLACK: Final = 64
"""So many removed entries are no burden."""


class EntityHeap:
    """Entities by key, then by arrival. Whoever is removed or put anew leaves an entry behind that is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, int, Entity]] = []
        self._live: dict[str, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        """The number of entities."""
        return len(self._live)

    def put(self, entity: Entity, key: Any) -> None:
        """Add an entity, or give it another key."""
        self._serial += 1
        self._live[entity.identity] = self._serial
        heapq.heappush(self._heap, (key, entity.arrival, self._serial, entity))
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = [entry for entry in self._heap if self._live.get(entry[3].identity) == entry[2]]
            heapq.heapify(self._heap)

    def remove(self, entity: Entity) -> None:
        """Take an entity out; nothing happens when it is not there."""
        self._live.pop(entity.identity, None)

    def first(self) -> Entity | None:
        """Return the first, None when there is nobody."""
        while self._heap:
            _, _, serial, entity = self._heap[0]
            if self._live.get(entity.identity) == serial:
                return entity
            heapq.heappop(self._heap)
        return None

    def entities(self) -> Iterable[Entity]:
        """All entities, in no order that means anything."""
        return (entry[3] for entry in self._heap if self._live.get(entry[3].identity) == entry[2])
