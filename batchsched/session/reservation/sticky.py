"""Sticky reservations: reservations of earlier sessions that later gangs must not delay.

With `backfill: easy`, each session determines the head again. If gangs are ordered by arrival, it stays the head until
it starts; if shorter gangs go first, a later gang may become the head, and the announced start does not hold. With
`backfill: kept`, no start is announced until the head has waited long in relation to its run time. From then on it
stays the head: later gangs of its tier and below start before it only if that does not delay it.
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
    """Decides which starts a session announces and keeps.

    Args:
      now: seconds since 1970.
      slowdown: (waited + run time) / run time from which a start is announced and kept; None announces all and
        keeps none.
      before: `namespace/name` of the gangs that had a reservation in the previous session.
    """

    now: float
    slowdown: float | None = None
    before: frozenset[str] = frozenset()

    @classmethod
    def of(cls, profile: Profile, told: Iterable[Reservation], now: float) -> Self:
        """Return the reservations to keep; `told` are those of the previous session's decision."""
        slowdown = profile.promise_slowdown if profile.backfill == "kept" else None
        return cls(now, slowdown, frozenset(one.pod_group for one in told))

    def due(self, gang: PendingGang) -> bool:
        """Return True if the reserved start of a gang is announced."""
        return self.slowdown is None or gang.key in self.before or self._slowdown(gang) >= self.slowdown

    def given(self, members: PodGroupState) -> bool:
        """Return True if an earlier session announced a start for a gang that has to be kept."""
        return self.slowdown is not None and members.key in self.before

    def in_front(
        self, line: OrderedGangs, turns: Iterator[int], tables: SessionTables, *, shared: bool
    ) -> tuple[OrderedGangs, Iterator[int]]:
        """Move gangs with a sticky reservation before all others of their tier, and exempt them from the room policy.

        Args:
          line: the pending gangs.
          turns: indexes into `line` in the order of turns.
          tables: for the tiers of the gangs.
          shared: True if queues have entitlements; a gang is then moved past gangs of its own queue only.
        """
        kept = {index for index, members in enumerate(line.members) if self.given(members)}
        if not kept:
            return line, turns
        room = line.room.copy()
        room[list(kept)] = 0.0
        places = list(turns)
        for index in [place for place in places if place in kept]:
            promised = line.members[index]
            tier = tables.pending_gang(promised).tier
            ahead = (line.members[place] for place in places[: places.index(index)])
            passed = (
                to
                for to, other in enumerate(ahead)
                if not self.given(other)
                and tables.pending_gang(other).tier >= tier
                and not (shared and other.queue != promised.queue)
            )
            places.insert(next(passed, places.index(index)), places.pop(places.index(index)))
        return replace(line, room=room), iter(places)

    def _slowdown(self, gang: PendingGang) -> float:
        run = DEFAULT_RUNTIME_SECONDS if math.isnan(gang.estimate) else gang.estimate
        return (self.now - gang.created + run) / max(run, SLOWDOWN_BOUND_SECONDS)
