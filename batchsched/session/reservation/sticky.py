"""Promises: reservations that earlier sessions told, and that are kept against gangs that come later.

Under EASY backfill the head is found anew in every session. Where the order is that of arrival it stays the head until
it starts; where shorter gangs go first, one that comes later may take its place, and what was told is not so. With
`backfill: kept` nothing is told, and nothing kept, until a gang at the head has waited long for its run time. Then it
stays at the head: who comes later starts before it only without delaying it. Higher tiers owe it nothing.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from batchsched.api.decision import Reservation
from batchsched.config.schema import Profile
from batchsched.queues.gang_order.batch import DEFAULT_RUNTIME_SECONDS
from batchsched.queues.gang_order.headroom import SLOWDOWN_BOUND_SECONDS
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables


@dataclass(frozen=True, slots=True)
class StickyReservations:
    """Whose start is told in a session.

    Args:
      now: seconds since 1970.
      slowdown: from which on a start is told, and kept; None: all are told, and found anew in every session.
      before: gangs whose start the session before told, by `namespace/name`.
    """

    now: float
    slowdown: float | None = None
    before: frozenset[str] = frozenset()

    @classmethod
    def of(cls, profile: Profile, told: Iterable[Reservation], now: float) -> Self:
        """Make the promises of a session; told: what the one before said."""
        slowdown = profile.promise_slowdown if profile.backfill == "kept" else None
        return cls(now, slowdown, frozenset(one.pod_group for one in told))

    def due(self, gang: PendingGang) -> bool:
        """Tell whether the start that is reserved for a gang is told."""
        return self.slowdown is None or gang.key in self.before or self._slowdown(gang) >= self.slowdown

    def given(self, members: PodGroupState) -> bool:
        """Tell whether a start was promised to a gang, and is to be kept."""
        return self.slowdown is not None and members.key in self.before

    def in_front(
        self, line: OrderedGangs, turns: Iterator[int], tables: SessionTables, *, shared: bool
    ) -> tuple[OrderedGangs, Iterator[int]]:
        """Return a line and its turns with promised gangs before all of their tier, held back by no policy.

        Args:
          line: who waits.
          turns: the places in the line in the order of turns.
          tables: says what tiers gangs are of.
          shared: queues take turns by what they are entitled to: a promise holds inside its queue alone.
        """
        given = {at for at, members in enumerate(line.members) if self.given(members)}
        if not given:
            return line, turns
        room = line.room.copy()
        room[list(given)] = 0.0
        places = list(turns)
        for at in [place for place in places if place in given]:
            mine = line.members[at]
            tier = tables.pending_gang(mine).tier
            ahead = (line.members[place] for place in places[: places.index(at)])
            passed = (
                to
                for to, other in enumerate(ahead)
                if not self.given(other)
                and tables.pending_gang(other).tier >= tier
                and not (shared and other.queue != mine.queue)
            )
            places.insert(next(passed, places.index(at)), places.pop(places.index(at)))
        return replace(line, room=room), iter(places)

    def _slowdown(self, gang: PendingGang) -> float:
        run = DEFAULT_RUNTIME_SECONDS if math.isnan(gang.estimate) else gang.estimate
        return (self.now - gang.created + run) / max(run, SLOWDOWN_BOUND_SECONDS)
