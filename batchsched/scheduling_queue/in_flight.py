"""Flights: what happens in the cluster while entities are in their cycles, kept for when they come back.

An entity that is refused was judged by a snapshot; an event that came in since may have helped it already.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from batchsched.framework.events import ClusterEvent
from batchsched.scheduling_queue.entity import Entity


@dataclass(frozen=True, slots=True, eq=False)
class InFlightEvent:
    """An event with the object before and after; `identity`: it concerns this entity alone."""

    event: ClusterEvent
    old: Any = None
    new: Any = None
    identity: str = ""


class InFlightEntities:
    """The entities in flight, and what happened since the first of them took off."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Entity, int]] = {}
        self._log: deque[InFlightEvent] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        """The number of entities in flight."""
        return len(self._since)

    def get(self, identity: str) -> Entity | None:
        """Return an entity in flight, None when it is not."""
        found = self._since.get(identity)
        return None if found is None else found[0]

    def begin(self, entity: Entity) -> None:
        """Take note that an entity begins its cycle."""
        self._since[entity.identity] = (entity, self._dropped + len(self._log))

    def note(self, occurrence: InFlightEvent) -> None:
        """Keep what happened, if it concerns anybody in flight."""
        if occurrence.identity in self._since if occurrence.identity else self._since:
            self._log.append(occurrence)

    def end(self, entity: Entity) -> Sequence[InFlightEvent] | None:
        """Return what happened during an entity's cycle, None where it is not in flight."""
        found = self._since.get(entity.identity)
        if found is None or found[0] is not entity:
            return None
        del self._since[entity.identity]
        happened = [
            one
            for one in islice(self._log, found[1] - self._dropped, None)
            if one.identity in ("", entity.identity)
        ]
        self._forget()
        return happened

    def _forget(self) -> None:
        """Drop what came before the cycles that go on; they began in the order in which they are kept."""
        oldest = next((start for _, start in self._since.values()), self._dropped + len(self._log))
        while self._dropped < oldest:
            self._log.popleft()
            self._dropped += 1
