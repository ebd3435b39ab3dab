"""Backoff: the delay after a failed scheduling cycle, and heaps of entities, one of them ordered by end of backoff."""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Backoff times in seconds: `podInitialBackoffSeconds` and `podMaxBackoffSeconds`; 0 disables backoff."""

    initial: float = 1.0
    most: float = 10.0

    def duration(self, failures: int) -> float:
        """Return the delay in seconds after a number of failures: doubled after each one, at most `most`."""
        if failures < 1 or self.most <= 0:
            return 0.0
        duration = self.initial
        for _ in range(failures - 1):
            if duration >= self.most:
                break
            duration *= 2
        return min(duration, self.most)

    def until(self, entity: Entity) -> float | None:
        """Return the whole second in which the backoff of an entity ends, or None without backoff.

        Source: `getBackoffTime` of kube-scheduler's backoff queue: after an error, only errors count.
        """
        failures = entity.errors or entity.refusals
        if failures < 1 or self.most <= 0:
            return None
        return float(math.floor(entity.queued + self.duration(failures)))

    def lasts(self, entity: Entity, now: float) -> bool:
        """Return whether an entity is still in backoff. The second in which the backoff ends is included."""
        until = self.until(entity)
        return until is not None and until >= math.floor(now)


class BackoffQueue:
    """Entities in backoff: one heap for refused entities, another for entities with errors.

    Refused entities with an end of backoff in the same second are ordered as in the active queue, because they may be
    popped from here if the active queue is empty.
    """

    def __init__(self, backoff: BackoffPolicy) -> None:
        self.backoff = backoff
        self._refused = EntityHeap()
        self._erred = EntityHeap()

    def put(self, entity: Entity, key: Any) -> None:
        """Add an entity, or change its key of the active queue."""
        until = self.backoff.until(entity) or 0.0
        if entity.rejection.everyone:
            self._refused.put(entity, (until, key))
        else:
            self._erred.put(entity, until)

    def remove(self, entity: Entity) -> None:
        """Remove an entity, if it is present."""
        self._refused.remove(entity)
        self._erred.remove(entity)

    def first(self) -> Entity | None:
        """Return the refused entity with the earliest end of backoff."""
        return self._refused.first()

    def completed(self, now: float) -> Iterable[Entity]:
        """Remove and return the entities with expired backoff, in the order of expiry."""
        for line in (self._refused, self._erred):
            while (entity := line.first()) is not None and not self.backoff.lasts(entity, now):
                line.remove(entity)
                yield entity

    def entities(self) -> Iterable[Entity]:
        """Return all entities in arbitrary order."""
        yield from self._refused.entities()
        yield from self._erred.entities()
