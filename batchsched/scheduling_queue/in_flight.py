"""Entities in flight, and the events that arrive during their scheduling cycles.

A refused entity was evaluated against a snapshot. An event that arrived since then may already help it, so the events
of a cycle are kept until it ends.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from batchsched.framework.events import ClusterEvent
from batchsched.scheduling_queue.entity import Entity


@dataclass(frozen=True, slots=True, eq=False)
class ObjectEvent:
    """A cluster event with the old and the new version of the changed object.

    If `identity` is set, only that entity is affected.
    """

    event: ClusterEvent
    old: Any = None
    new: Any = None
    identity: str = ""


class InFlightEntities:
    """The gangs and single pods in a scheduling cycle, and the cluster events since these cycles began."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Entity, int]] = {}
        self._log: deque[ObjectEvent] = deque()
        self._dropped = 0

    def find_entity(self, identity: str) -> Entity | None:
        """Return the queue entry of a gang that is in a scheduling cycle; None for any other gang."""
        entry = self._since.get(identity)
        return None if entry is None else entry[0]

    def begin_cycle(self, entity: Entity) -> None:
        """Record that the scheduling cycle of a gang or single pod begins."""
        self._since[entity.identity] = (entity, self._dropped + len(self._log))

    def record_event(self, occurrence: ObjectEvent) -> None:
        """Record a cluster event if it may concern a gang or single pod in a scheduling cycle."""
        if occurrence.identity in self._since if occurrence.identity else self._since:
            self._log.append(occurrence)

    def end_cycle(self, entity: Entity) -> Sequence[ObjectEvent] | None:
        """End the scheduling cycle of a gang or single pod, and return the cluster events since its beginning.

        Return None if the entity is not in flight.
        """
        entry = self._since.get(entity.identity)
        # Another entity of the same gang may be in flight by now.
        if entry is None or entry[0] is not entity:
            return None
        del self._since[entity.identity]
        events = [
            event
            for event in islice(self._log, entry[1] - self._dropped, None)
            if event.identity in ("", entity.identity)
        ]
        self._forget()
        return events

    def _forget(self) -> None:
        """Drop events from before the oldest cycle in flight. Cycles are kept in the order of their start."""
        oldest = next((start for _, start in self._since.values()), self._dropped + len(self._log))
        while self._dropped < oldest:
            self._log.popleft()
            self._dropped += 1
