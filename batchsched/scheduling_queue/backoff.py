"""Backoff: the delay after a failed scheduling cycle, and the queue of the gangs and pods in backoff."""

import heapq
import math
from collections.abc import Iterable
from typing import Any, Final

from batchsched.scheduling_queue.entity import Entity

INITIAL_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 10.0
MAX_DOUBLINGS: Final = 30
"""Bounds the power of two; the delay has reached its maximum long before."""
_SLACK: Final = 64
"""Number of stale entries that are tolerated before the heap is rebuilt."""

HeapEntry = tuple[Any, int, int, Entity]
"""The sort key of an entity, its rank by arrival, the number of its `put`, and the entity."""


class EntityHeap:
    """A heap of entities of the scheduling queue (gangs and single pods), ordered by sort key, then by arrival."""

    def __init__(self) -> None:
        self._heap: list[HeapEntry] = []
        self._live: dict[str, int] = {}
        self._serial = 0

    def put(self, entity: Entity, key: Any) -> None:
        """Add a gang or single pod to the heap, or change its sort key."""
        self._serial += 1
        self._live[entity.identity] = self._serial
        heapq.heappush(self._heap, (key, entity.arrival, self._serial, entity))
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            # Rebuilding costs as much as the pushes since the last time, so `put` stays O(log n) on average.
            self._heap = [entry for entry in self._heap if self._live.get(entry[3].identity) == entry[2]]
            heapq.heapify(self._heap)

    def remove(self, entity: Entity) -> None:
        """Remove a gang or single pod from the heap, if the heap contains it."""
        self._live.pop(entity.identity, None)

    @property
    def is_empty(self) -> bool:
        """Whether the heap contains no gang and no single pod."""
        return not self._live

    def first_entity(self) -> Entity | None:
        """Return the gang or single pod with the smallest sort key; None if the heap is empty."""
        entry = self.first_heap_entry()
        return None if entry is None else entry[-1]

    def first_heap_entry(self) -> HeapEntry | None:
        """Return the heap entry with the smallest sort key without removing it, or None if the heap is empty."""
        while self._heap:
            entry = self._heap[0]
            if self._live.get(entry[-1].identity) == entry[2]:
                return entry
            heapq.heappop(self._heap)
        return None


def backoff_seconds(failures: int) -> float:
    """Return the backoff in seconds after the given number of failed scheduling cycles.

    The backoff doubles with each failure, up to `MAX_BACKOFF_SECONDS`.
    """
    doublings = min(failures - 1, MAX_DOUBLINGS)
    return min(INITIAL_BACKOFF_SECONDS * 2**doublings, MAX_BACKOFF_SECONDS) if failures > 0 else 0.0


def backoff_end(entity: Entity) -> float | None:
    """Return when the backoff of a gang or single pod ends, in whole seconds; None if no attempt has failed.

    Source: `getBackoffTime` of kube-scheduler's backoff queue: after an error, only errors count.
    """
    failures = entity.errors or entity.refusals
    # Whole seconds, as in kube-scheduler, so that entities of one second can be ordered by priority.
    return float(math.floor(entity.queued + backoff_seconds(failures))) if failures else None


def is_in_backoff(entity: Entity, now: float) -> bool:
    """Return whether a gang or single pod is still in backoff at the given time.

    The second in which the backoff ends is included.
    """
    end = backoff_end(entity)
    return end is not None and end >= math.floor(now)


class BackoffQueue:
    """The gangs and single pods in backoff, in two heaps: one after a refusal, the other after an error.

    Refused entities with an end of backoff in the same second are ordered as in the active queue, because they may be
    popped from here if the active queue is empty.
    """

    def __init__(self) -> None:
        self._refused = EntityHeap()
        self._erred = EntityHeap()

    def put(self, entity: Entity, key: Any) -> None:
        """Add a gang or single pod to the backoff queue, or update its sort key.

        Args:
          entity: the entity.
          key: its sort key in the active queue, which orders refused entities with equal ends of backoff.
        """
        end = backoff_end(entity) or 0.0
        if entity.refused_by:
            self._refused.put(entity, (end, key))
        else:
            self._erred.put(entity, end)

    def remove(self, entity: Entity) -> None:
        """Remove a gang or single pod from the backoff queue, if the queue contains it."""
        self._refused.remove(entity)
        self._erred.remove(entity)

    def first_refused_entity(self) -> Entity | None:
        """Return the refused gang or single pod with the earliest end of backoff; None if there is none."""
        return self._refused.first_entity()

    def pop_expired(self, now: float) -> Iterable[Entity]:
        """Remove and yield the gangs and single pods with expired backoff, in the order of expiry."""
        for heap in (self._refused, self._erred):
            while (entity := heap.first_entity()) is not None and not is_in_backoff(entity, now):
                heap.remove(entity)
                yield entity
