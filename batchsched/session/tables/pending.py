"""The table of pending gangs, stored as columns so that a policy orders thousands of gangs at once.

A gang takes a slot when it becomes pending and leaves it when it is placed or deleted. The columns are compacted when
half of the slots are empty.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from batchsched.framework.status import BoolArray
from batchsched.queues.gang_order import (
    FloatArray,
    GangColumns,
    GangOrderPolicy,
    HeadroomPolicy,
    IntArray,
    gang_indexes_in_order,
)
from batchsched.session.tables.gang import GangState, PendingGang

_PRIORITY, _CREATED, _ESTIMATE, _SIZE, _SHARE, _PARTIALLY_BOUND, _ARRIVAL = range(7)
_MIN_SLOTS = 64
_NO_SENIORITY = (-math.inf, "", "")


@dataclass(frozen=True, slots=True, eq=False)
class OrderedGangs:
    """Pending gangs in the order in which they are tried, the next one first.

    Args:
      members: W gangs.
      needs: [W, R] the least that the pods up to the minimum request together.
      columns: the gangs' attributes that policies read.
      partially_bound: [W] gangs with some pods bound, but fewer than the minimum.
      room: [W] the share of the cluster that must still be free after the gang has started, as the policy states.
    """

    members: list[GangState]
    needs: IntArray
    columns: GangColumns
    partially_bound: BoolArray
    room: FloatArray


class PendingGangs:
    """All pending gangs of a session, with the attributes by which policies order them.

    The attributes are float64 columns [7, slots]; priorities and arrival numbers are exact below 2^53.

    Args:
      resources: number of resources.
    """

    def __init__(self, resources: int) -> None:
        self._columns = np.zeros((7, _MIN_SLOTS))
        self._needs = np.zeros((_MIN_SLOTS, resources), np.int64)
        self._members: list[GangState | None] = []
        """By slot; None for an empty slot."""
        self._seniority: list[tuple[float, str, str]] = []
        self._highest_seniority = _NO_SENIORITY
        self._next_arrival = 0
        self._arrivals_in_order = True
        """Arrival numbers grow with seniority. If not, all are assigned again before the next use."""
        self._used_slots = np.zeros(_MIN_SLOTS, np.bool_)
        self._count = 0

    def __len__(self) -> int:
        """Return the number of pending gangs."""
        return self._count

    def __iter__(self) -> Iterator[GangState]:
        """Iterate over the pending gangs, in arbitrary order."""
        return (members for members in self._members if members is not None)

    def put_gang(self, gang: PendingGang) -> None:
        """Add a gang to the table of pending gangs, or update the attributes of the gang."""
        members = gang.members
        if members.slot < 0:
            members.slot = self._take_slot(members)
        slot = members.slot
        if self._seniority[slot] != gang.submission_sort_key:
            self._seniority[slot] = gang.submission_sort_key
            self._assign_arrival(slot)
        self._columns[:_ARRIVAL, slot] = (
            gang.priority,
            gang.created,
            gang.estimate,
            gang.pending_pod_count,
            gang.share,
            members.is_partially_bound,
        )
        self._needs[slot] = gang.needs

    def _assign_arrival(self, slot: int) -> None:
        """Give a gang the next arrival number if it is younger than all before it, as is usual."""
        if self._seniority[slot] > self._highest_seniority:
            self._highest_seniority = self._seniority[slot]
            self._columns[_ARRIVAL, slot] = self._next_arrival
            self._next_arrival += 1
        else:
            self._arrivals_in_order = False

    def _assign_all_arrivals(self, slots: IntArray) -> None:
        for arrival, slot in enumerate(sorted(slots.tolist(), key=self._seniority.__getitem__)):
            self._columns[_ARRIVAL, slot] = arrival
            self._highest_seniority = self._seniority[slot]
        self._next_arrival = len(slots)
        self._arrivals_in_order = True

    def remove_gang(self, members: GangState) -> None:
        """Remove a gang from the table of pending gangs, if the table contains it."""
        if members.slot < 0:
            return
        # The slot stays empty until the next compaction: to move others now would cost a pass for each gang.
        self._members[members.slot] = None
        self._used_slots[members.slot] = False
        members.slot = -1
        self._count -= 1
        if len(self._members) > _MIN_SLOTS and self._count * 2 < len(self._members):
            self._compact()

    def order_by_policy(
        self, policy: GangOrderPolicy, now: float, among: Iterable[GangState] | None = None
    ) -> OrderedGangs:
        """Return pending gangs in the order of a policy, except that partially bound gangs come first.

        Args:
          policy: the gang order.
          now: seconds since 1970.
          among: the pending gangs to return; None for all.
        """
        slots = np.flatnonzero(self._used_slots[: len(self._members)])
        # A gang older than the last one appears after a restart or a requeue; renumbering is rare and done once.
        if not self._arrivals_in_order:
            self._assign_all_arrivals(slots)
        if among is not None:
            # Sorted: the order of slots decides between gangs that the policy and the arrival number hold equal.
            slots = np.array(sorted(members.slot for members in among), np.int64)
        columns = self._policy_columns(slots)
        positions = gang_indexes_in_order(policy, columns, now) if len(slots) else slots
        partially_bound = self._columns[_PARTIALLY_BOUND, slots] > 0
        if partially_bound.any():
            positions = positions[np.argsort(~partially_bound[positions], kind="stable")]
        room = (
            policy.required_free_share(columns, now)[positions]
            if isinstance(policy, HeadroomPolicy)
            else np.zeros(len(slots))
        )
        slots = slots[positions]
        members = [members for slot in slots.tolist() if (members := self._members[slot]) is not None]
        return OrderedGangs(
            members, self._needs[slots], columns.select_gangs(positions), partially_bound[positions], room
        )

    def latest_submission_time(self) -> float:
        """Return the latest submission time of all pending gangs, in seconds since 1970; 0 if no gang is pending."""
        used_slots = self._used_slots[: len(self._members)]
        return float(self._columns[_CREATED, : len(self._members)][used_slots].max(initial=0.0))

    def _policy_columns(self, slots: IntArray) -> GangColumns:
        columns = self._columns[:, slots]
        return GangColumns(
            priority=columns[_PRIORITY].astype(np.int64),
            created=columns[_CREATED],
            estimate=columns[_ESTIMATE],
            size=columns[_SIZE],
            share=columns[_SHARE],
            arrival=columns[_ARRIVAL].astype(np.int64),
        )

    def _take_slot(self, members: GangState) -> int:
        """Return a new slot at the end of the columns, which double their length when they are full."""
        slot = len(self._members)
        if slot == len(self._used_slots):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
            self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
            self._used_slots = np.concatenate([self._used_slots, np.zeros_like(self._used_slots)])
        self._members.append(members)
        self._seniority.append(_NO_SENIORITY)
        self._used_slots[slot] = True
        self._count += 1
        return slot

    def _compact(self) -> None:
        """Move used slots to the front; their order stays."""
        used = np.flatnonzero(self._used_slots[: len(self._members)])
        self._columns[:, : len(used)] = self._columns[:, used]
        self._needs[: len(used)] = self._needs[used]
        self._members = [self._members[slot] for slot in used]
        self._seniority = [self._seniority[slot] for slot in used]
        self._used_slots[:] = False
        self._used_slots[: len(used)] = True
        for slot, members in enumerate(self._members):
            if members is not None:
                members.slot = slot
