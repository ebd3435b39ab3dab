"""The backlog: all gangs that wait, as columns, so that a policy orders thousands in one go.

Gangs come and go one by one while columns stay arrays: a gang takes a slot, leaves it, and the holes are closed
when half of the slots are empty.
"""

import numpy as np

from batchsched.ordering.policy import GangColumns, IntArray, Policy, order
from batchsched.session.gang import Gang, Members

_PRIORITY, _CREATED, _ESTIMATE, _SIZE, _SHARE, _ARRIVAL = range(6)
_SMALLEST = 64


class Backlog:
    """The waiting gangs. Columns are float64 [6, slots]; priorities and arrivals are exact below 2^53."""

    def __init__(self) -> None:
        self._columns = np.zeros((6, _SMALLEST))
        self._members: list[Members | None] = []
        self._alive = np.zeros(_SMALLEST, np.bool_)
        self._count = 0

    def __len__(self) -> int:
        """The number of waiting gangs."""
        return self._count

    def put(self, gang: Gang) -> None:
        """Add a gang, or bring its columns up to date."""
        members = gang.members
        if members.slot < 0:
            members.slot = self._slot(members)
        self._columns[:, members.slot] = (
            gang.priority,
            gang.created,
            gang.estimate,
            gang.size,
            gang.share,
            members.arrival,
        )

    def drop(self, members: Members) -> None:
        """Take a gang out."""
        if members.slot < 0:
            return
        self._members[members.slot] = None
        self._alive[members.slot] = False
        members.slot = -1
        self._count -= 1
        if len(self._members) > _SMALLEST and self._count * 2 < len(self._members):
            self._close_holes()

    def order(self, policy: Policy, now: float) -> list[Members]:
        """Return the waiting gangs, next first."""
        slots = np.flatnonzero(self._alive[: len(self._members)])
        if not len(slots):
            return []
        places: IntArray = slots[order(policy, self._view(slots), now)]
        return [one for at in places if (one := self._members[at]) is not None]

    def youngest(self) -> float:
        """Return when the youngest waiting gang was submitted, 0 when there is none."""
        alive = self._alive[: len(self._members)]
        return float(self._columns[_CREATED, : len(self._members)][alive].max(initial=0.0))

    def _view(self, slots: IntArray) -> GangColumns:
        picked = self._columns[:, slots]
        return GangColumns(
            priority=picked[_PRIORITY].astype(np.int64),
            created=picked[_CREATED],
            estimate=picked[_ESTIMATE],
            size=picked[_SIZE],
            share=picked[_SHARE],
            arrival=picked[_ARRIVAL].astype(np.int64),
        )

    def _slot(self, members: Members) -> int:
        at = len(self._members)
        if at == len(self._alive):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
            self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
        self._members.append(members)
        self._alive[at] = True
        self._count += 1
        return at

    def _close_holes(self) -> None:
        kept = np.flatnonzero(self._alive[: len(self._members)])
        self._columns[:, : len(kept)] = self._columns[:, kept]
        self._members = [self._members[at] for at in kept]
        self._alive[:] = False
        self._alive[: len(kept)] = True
        for at, members in enumerate(self._members):
            if members is not None:
                members.slot = at
