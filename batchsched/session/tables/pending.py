"""The backlog: all gangs that wait, as columns, so that a policy orders thousands in one go.

Gangs come and go one by one while columns stay arrays: a gang takes a slot, leaves it, and the holes are closed
when half of the slots are empty.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from batchsched.framework.status import BoolArray
from batchsched.queues.gang_order.policy import (
    FloatArray,
    GangColumns,
    HorizonPolicy,
    IntArray,
    Policy,
    order,
)
from batchsched.session.tables.gang import PendingGang, PodGroupState

_PRIORITY, _CREATED, _ESTIMATE, _SIZE, _SHARE, _STRANDED, _ARRIVAL = range(7)
_SMALLEST = 64
_NOBODY = (-math.inf, "", "")


@dataclass(frozen=True, slots=True, eq=False)
class OrderedGangs:
    """Waiting gangs in order, next first.

    Args:
      members: W gangs.
      needs: [W, R] what the gangs must still have, all pods up to the minimum together.
      columns: what policies know of them.
      stranded: [W] half bound gangs.
      room: [W] share of the cluster that must stay free when the gang starts, by the policy.
    """

    members: list[PodGroupState]
    needs: IntArray
    columns: GangColumns
    stranded: BoolArray
    room: FloatArray


class PendingGangs:
    """The waiting gangs. Columns are float64 [7, slots]; priorities and arrivals are exact below 2^53."""

    def __init__(self, resources: int) -> None:
        self._columns = np.zeros((7, _SMALLEST))
        self._needs = np.zeros((_SMALLEST, resources), np.int64)
        self._members: list[PodGroupState | None] = []
        self._seniority: list[tuple[float, str, str]] = []
        self._last = _NOBODY
        self._numbered = 0
        self._in_order = True
        """Numbers of arrival grow with seniority; else they are given anew before the next use."""
        self._alive = np.zeros(_SMALLEST, np.bool_)
        self._count = 0

    def __len__(self) -> int:
        """The number of waiting gangs."""
        return self._count

    def __iter__(self) -> Iterator[PodGroupState]:
        """The waiting gangs, in no order that means anything."""
        return (one for one in self._members if one is not None)

    def put(self, gang: PendingGang) -> None:
        """Add a gang, or bring its columns up to date."""
        members = gang.members
        if members.slot < 0:
            members.slot = self._slot(members)
        at = members.slot
        if self._seniority[at] != gang.seniority:
            self._seniority[at] = gang.seniority
            self._number(at)
        self._columns[:_ARRIVAL, at] = (
            gang.priority,
            gang.created,
            gang.estimate,
            gang.size,
            gang.share,
            members.partially_bound,
        )
        self._needs[at] = gang.needs

    def _number(self, at: int) -> None:
        """Give a gang its place among equals: the next number to one that is younger than all before it."""
        if self._seniority[at] > self._last:
            self._last = self._seniority[at]
            self._columns[_ARRIVAL, at] = self._numbered
            self._numbered += 1
        else:
            self._in_order = False

    def _number_anew(self, slots: IntArray) -> None:
        for number, at in enumerate(sorted(slots.tolist(), key=self._seniority.__getitem__)):
            self._columns[_ARRIVAL, at] = number
            self._last = self._seniority[at]
        self._numbered = len(slots)
        self._in_order = True

    def drop(self, members: PodGroupState) -> None:
        """Take a gang out."""
        if members.slot < 0:
            return
        self._members[members.slot] = None
        self._alive[members.slot] = False
        members.slot = -1
        self._count -= 1
        if len(self._members) > _SMALLEST and self._count * 2 < len(self._members):
            self._close_holes()

    def order(self, policy: Policy, now: float, among: Iterable[PodGroupState] | None = None) -> OrderedGangs:
        """Return the waiting gangs, next first: those that are half bound, then the others, each as the policy says.

        Args:
          policy: orders.
          now: seconds since 1970.
          among: waiting gangs, the only ones that are wanted; None for all.
        """
        slots = np.flatnonzero(self._alive[: len(self._members)])
        if not self._in_order:
            self._number_anew(slots)
        if among is not None:
            slots = np.array(sorted(one.slot for one in among), np.int64)
        columns = self._view(slots)
        places = order(policy, columns, now) if len(slots) else slots
        stranded = self._columns[_STRANDED, slots] > 0
        if stranded.any():
            places = places[np.argsort(~stranded[places], kind="stable")]
        room = (
            policy.room(columns, now)[places] if isinstance(policy, HorizonPolicy) else np.zeros(len(slots))
        )
        slots = slots[places]
        members = [one for at in slots.tolist() if (one := self._members[at]) is not None]
        return OrderedGangs(members, self._needs[slots], columns.at(places), stranded[places], room)

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

    def _slot(self, members: PodGroupState) -> int:
        at = len(self._members)
        if at == len(self._alive):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
            self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
            self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
        self._members.append(members)
        self._seniority.append(_NOBODY)
        self._alive[at] = True
        self._count += 1
        return at

    def _close_holes(self) -> None:
        kept = np.flatnonzero(self._alive[: len(self._members)])
        self._columns[:, : len(kept)] = self._columns[:, kept]
        self._needs[: len(kept)] = self._needs[kept]
        self._members = [self._members[at] for at in kept]
        self._seniority = [self._seniority[at] for at in kept]
        self._alive[:] = False
        self._alive[: len(kept)] = True
        for at, members in enumerate(self._members):
            if members is not None:
                members.slot = at
