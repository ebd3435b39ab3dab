"""Backoff: how long an entity has to wait after its cycle failed, and the queue in which it does."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from batchsched.scheduling_queue.active import EntityHeap
from batchsched.scheduling_queue.entity import Entity


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The waiting times, in seconds: `podInitialBackoffSeconds` and `podMaxBackoffSeconds`; 0 at most: none."""

    initial: float = 1.0
    most: float = 10.0

    def duration(self, failures: int) -> float:
        """Return the seconds to wait after so many failures: the initial ones, doubling, at most `most`."""
        if failures < 1 or self.most <= 0:
            return 0.0
        duration = self.initial
        for _ in range(failures - 1):
            if duration >= self.most:
                break
            duration *= 2
        return min(duration, self.most)

    def until(self, entity: Entity) -> float | None:
        """Return the whole second in which the wait ends, None when there is none.

        Source: `getBackoffTime` of kube-scheduler's backoff queue: after an error only errors count.
        """
        failures = entity.errors or entity.refusals
        if failures < 1 or self.most <= 0:
            return None
        return float(math.floor(entity.queued + self.duration(failures)))

    def lasts(self, entity: Entity, now: float) -> bool:
        """Tell whether an entity has to wait still: the second in which its wait ends belongs to it."""
        until = self.until(entity)
        return until is not None and until >= math.floor(now)


class BackoffQueue:
    """Those that back off: after refusals in one line, after errors in another.

    Within a second refused ones stand as in the active queue, since they may be taken from here when that is empty.
    """

    def __init__(self, backoff: BackoffPolicy) -> None:
        self.backoff = backoff
        self._refused = EntityHeap()
        self._erred = EntityHeap()

    def put(self, entity: Entity, key: Any) -> None:
        """Add an entity, or give it another key of the active queue."""
        until = self.backoff.until(entity) or 0.0
        if entity.rejection.everyone:
            self._refused.put(entity, (until, key))
        else:
            self._erred.put(entity, until)

    def remove(self, entity: Entity) -> None:
        """Take an entity out; nothing happens when it is not there."""
        self._refused.remove(entity)
        self._erred.remove(entity)

    def first(self) -> Entity | None:
        """Return the refused one whose wait ends first."""
        return self._refused.first()

    def completed(self, now: float) -> Iterable[Entity]:
        """Take out those whose wait is over, the first to end first."""
        for line in (self._refused, self._erred):
            while (entity := line.first()) is not None and not self.backoff.lasts(entity, now):
                line.remove(entity)
                yield entity

    def entities(self) -> Iterable[Entity]:
        """All of them, in no order that means anything."""
        yield from self._refused.entities()
        yield from self._erred.entities()
