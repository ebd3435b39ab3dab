"""Queue limits: the amounts that each limit still allows, after the usage of running pods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.queues.entitlements import kept_guarantees
from batchsched.queues.queue_table import QueueUsageAndDemand, TotalCapacity, build_queue_table
from batchsched.queues.tree import NO_USER, QueueLimit
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.problem import UNLIMITED, IntArray
from batchsched.state.queue_usage import counts_against_queue

Owner = tuple[str, str]
"""The (queue, user) against which a gang counts; the user may be ""."""
BoolArray = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class QueueLimits:
    """The limits of all queues, with the amounts that each limit still allows.

    Args:
      limits: Q limits.
      remaining: [Q, R] amounts that may still be used, UNLIMITED without a limit. Negative is the usage beyond the
        limit when the session began, which happens if a limit is lowered.
      remaining_gangs: [Q] number of PodGroups that may still start, in the same way.
      finder: finds the limits that apply to a gang.
    """

    limits: tuple[QueueLimit, ...]
    remaining: IntArray
    remaining_gangs: IntArray
    finder: "QueueLimitIndex"

    @property
    def remaining_amounts(self) -> IntArray:
        """An array [Q, R] of what each queue limit still allows of each resource; 0 if none is left.

        Amounts without a limit are UNLIMITED.
        """
        return np.maximum(0, self.remaining)

    @property
    def remaining_gang_starts(self) -> IntArray:
        """An array [Q] of how many PodGroups each queue limit still allows to start; 0 if none is left.

        A limit without a maximum number of PodGroups has the value UNLIMITED.
        """
        return np.maximum(0, self.remaining_gangs)

    def mask_of_limits_by_gang(self, tables: SessionTables, owners: Sequence[Owner]) -> BoolArray:
        """Return a mask [Q, G] of queue limits and gangs: True where the limit applies to the gang.

        `owners` contains the (queue, user) of each gang.
        """
        rows_by_owner = {
            owner: self.finder.indexes_of_limits_that_may_refuse(tables, owner) for owner in set(owners)
        }
        member = np.zeros((len(self.limits), len(owners)), np.bool_)
        for column, owner in enumerate(owners):
            member[rows_by_owner[owner], column] = True
        return member

    def find_queue_with_exceeded_limit(
        self, tables: SessionTables, owner: Owner, requests: IntArray, gangs: int
    ) -> str:
        """Return the name of the first queue with a limit that added requests or gangs would exceed, else "".

        `requests` is an array by resource [R], and `gangs` a number of gangs.
        """
        if not self.limits:
            return ""
        rows = self.finder.indexes_of_limits_that_may_refuse(tables, owner)
        exceeded = ((requests > self.remaining[rows]) & (requests > 0)).any(axis=1)
        over = exceeded | ((gangs > self.remaining_gangs[rows]) & (gangs > 0))
        return next((self.limits[rows[row]].name for row in np.flatnonzero(over)), "")

    def after_placements(self, tables: SessionTables, placements: Sequence[GangPlacement]) -> Self:
        """Return the queue limits, reduced by the requests of the placed gangs."""
        if not self.limits or not placements:
            return self
        rows_by_gang = [
            self.finder.indexes_of_limits_that_may_refuse(tables, placement.gang.members.queue_and_user)
            for placement in placements
        ]
        times = [len(rows) for rows in rows_by_gang]
        rows = [row for gang_rows in rows_by_gang for row in gang_rows]
        used, started = np.zeros_like(self.remaining), np.zeros_like(self.remaining_gangs)
        np.add.at(
            used,
            rows,
            np.repeat([placement.total_requests(used.shape[1]) for placement in placements], times, axis=0),
        )
        np.add.at(
            started, rows, np.repeat([placement.gang.has_no_bound_pod for placement in placements], times)
        )
        return replace(
            self,
            remaining=_reduced(self.remaining, used),
            remaining_gangs=_reduced(self.remaining_gangs, started),
        )

    def after_evictions(self, tables: SessionTables, owner: Owner, freed: IntArray, gangs: int) -> Self:
        """Return the queue limits as they are after pods of one user in one queue are evicted.

        Each limit that applies to these pods then allows `freed` [R] and `gangs` gangs more.
        """
        if not self.limits:
            return self
        rows = np.zeros(len(self.limits), np.bool_)
        rows[self.finder.indexes_of_limits_that_may_refuse(tables, owner)] = True
        limited = (self.remaining < UNLIMITED) & rows[:, np.newaxis]
        return replace(
            self,
            remaining=np.where(limited, self.remaining + freed, self.remaining),
            remaining_gangs=np.where(
                (self.remaining_gangs < UNLIMITED) & rows, self.remaining_gangs + gangs, self.remaining_gangs
            ),
        )


def _reduced(remaining: IntArray, used: IntArray) -> IntArray:
    """Return balances less what was used; what exceeds a limit already is not added to by gangs that start."""
    return np.where(remaining < UNLIMITED, np.maximum(np.minimum(remaining, 0), remaining - used), remaining)


def compute_remaining_limits(tables: SessionTables, scheduler_name: str) -> QueueLimits:
    """Return the limits of all queues with the amounts that each limit still allows.

    Args:
      tables: the tables.
      scheduler_name: scheduler name of the profile; pods of other schedulers count against no queue.
    """
    limits = tables.queues.limits(
        ((members.queue, user) for members in tables.gangs.values() for user in members.users_of_pods),
        _kept_guarantees(tables),
    )
    free = np.full((len(limits), len(tables.node_table.resources)), UNLIMITED, np.int64)
    gangs = np.full(len(limits), UNLIMITED, np.int64)
    finder = QueueLimitIndex(limits)
    if not limits:
        return QueueLimits(limits, free, gangs, finder)
    for row, limit in enumerate(limits):
        for resource, amount in limit.resources.items():
            if resource in tables.node_table.column:
                free[row, tables.node_table.column[resource]] = amount
        if limit.pod_groups is not None:
            gangs[row] = limit.pod_groups
    used, running = _used(tables, finder, scheduler_name)
    remaining = np.where(free < UNLIMITED, free - used, free)
    kept = [row for row, limit in enumerate(limits) if limit.kept]
    if kept:
        remaining[kept] = _available_to_others(tables, limits, remaining, kept)
    remaining_gangs = np.where(gangs < UNLIMITED, gangs - running, gangs)
    return QueueLimits(limits, remaining, remaining_gangs, finder)


def total_capacity(tables: SessionTables) -> TotalCapacity:
    """Return the capacity that queues divide: the allocatable resources of all nodes."""
    table = tables.node_table
    return TotalCapacity(table.resources, table.allocatable.sum(axis=0), tables.share_resources)


def _kept_guarantees(tables: SessionTables) -> dict[str, dict[str, int]]:
    """Return the kept guarantees by queue and resource, without zeros."""
    if not tables.queues.has_kept_guarantees:
        return {}
    capacity = total_capacity(tables)
    # Without usage and requests, since guarantees depend on neither.
    shares = build_queue_table(tables.queues, capacity, QueueUsageAndDemand({}, {}))
    kept = kept_guarantees(shares)
    return {
        shares.names[row]: {capacity.resources[r]: int(kept[row, r]) for r in np.flatnonzero(kept[row])}
        for row in np.flatnonzero(kept[1:].any(axis=1)) + 1
    }


def _used(tables: SessionTables, finder: "QueueLimitIndex", scheduler_name: str) -> tuple[IntArray, IntArray]:
    """Return [Q, R] the usage and [Q] the number of running gangs that each limit measures."""
    used = np.zeros((len(finder.limits), len(tables.node_table.resources)), np.int64)
    running = np.zeros(len(finder.limits), np.int64)
    counted = counted_pods_by_queue_and_user(tables, scheduler_name)
    for owner, gangs in counted.items():
        used[finder.indexes_of_limits_counting_usage(tables, owner)] += sum_requests(
            tables, chain.from_iterable(gangs.values())
        )
    for queue, identities in running_gang_identities_by_queue(counted).items():
        # Only limits of all users together restrict the number of gangs.
        running[finder.indexes_of_limits_counting_usage(tables, (queue, ""))] += len(identities)
    return used, running


def counted_pods_by_queue_and_user(
    tables: SessionTables, scheduler_name: str
) -> dict[Owner, dict[str, list[Pod]]]:
    """Return the running pods that count as usage of queues, by (queue, user) and then by gang identity.

    Limits, entitlements and reports take the usage of the queues from here, so that it is the same in all of them.
    """
    by_owner: dict[Owner, dict[str, list[Pod]]] = {}
    for identity, members in tables.running.items():
        for pod, _ in members.bound.values():
            if counts_against_queue(pod, (scheduler_name,)):
                owner = members.queue_of_pod(pod), members.user_of_pod(pod)
                by_owner.setdefault(owner, {}).setdefault(identity, []).append(pod)
    return by_owner


def running_gang_identities_by_queue(
    counted: Mapping[Owner, Mapping[str, Sequence[Pod]]],
) -> dict[str, set[str]]:
    """Return the identities of the running gangs of each queue.

    A gang with pods of several users counts once.
    """
    by_queue: dict[str, set[str]] = {}
    for (queue, _), gangs in counted.items():
        by_queue.setdefault(queue, set()).update(gangs)
    return by_queue


def usage_by_queue(tables: SessionTables, scheduler_name: str) -> dict[str, IntArray]:
    """Return for each queue the total requests of its own bound pods, as an array by resource [R].

    Pods in queues below a queue do not count for it. Queues without bound pods are left out.
    """
    usage: dict[str, IntArray] = {}
    for (queue, _), gangs in counted_pods_by_queue_and_user(tables, scheduler_name).items():
        amount = sum_requests(tables, chain.from_iterable(gangs.values()))
        usage[queue] = usage[queue] + amount if queue in usage else amount
    return usage


def _available_to_others(
    tables: SessionTables, limits: Sequence[QueueLimit], remaining: IntArray, kept: Sequence[int]
) -> IntArray:
    """Return [K, R] what other queues may still use of the free resources, without what queues keep for themselves.

    Args:
      tables: the tables.
      limits: Q limits.
      remaining: [Q, R] the unused part of each limit; for a kept guarantee, the part still to be kept.
      kept: indexes of the K limits that keep a guarantee.
    """
    free_total = np.maximum(0, tables.free_resources()).sum(axis=0)
    unused = {
        limits[row].name: np.where(remaining[row] < UNLIMITED, np.maximum(0, remaining[row]), 0)
        for row in kept
    }
    available = [free_total - sum(unused[name] for name in limits[row].kept) for row in kept]
    limited = remaining[kept] < UNLIMITED
    return np.where(limited, np.maximum(0, available), UNLIMITED)


class QueueLimitIndex:
    """An index of the queue limits, by the queue and user of the gangs that they restrict.

    Args:
      limits: Q limits.
    """

    def __init__(self, limits: Sequence[QueueLimit]) -> None:
        self.limits = limits
        self._plain: dict[str, list[int]] = {}
        self._kept = [row for row, limit in enumerate(limits) if limit.kept]
        self._rows_of_owner: dict[Owner, list[int]] = {}
        for row, limit in enumerate(limits):
            if not limit.kept:
                self._plain.setdefault(limit.name, []).append(row)

    def indexes_of_limits_that_may_refuse(self, tables: SessionTables, owner: Owner) -> list[int]:
        """Return the indexes of the limits that may prevent gangs of a queue and user from starting."""
        rows = self._rows_of_owner.get(owner)
        if rows is None:
            chain = tables.queues.queue_and_ancestors(owner[0])
            # A kept guarantee restricts all queues but those for which it is kept.
            kept = [row for row in self._kept if set(self.limits[row].kept).isdisjoint(chain)]
            rows = self._rows_of_owner[owner] = sorted(self._of_queues(chain, owner[1]) + kept)
        return rows

    def indexes_of_limits_counting_usage(self, tables: SessionTables, owner: Owner) -> list[int]:
        """Return the indexes of the limits that count the running pods of a queue and user.

        Guarantees kept for the queue are among them.
        """
        chain = tables.queues.queue_and_ancestors(owner[0])
        kept = [row for row in self._kept if not set(self.limits[row].kept).isdisjoint(chain)]
        return self._of_queues(chain, owner[1]) + kept

    def _of_queues(self, chain: Sequence[str], user: str) -> list[int]:
        return [
            row
            for name in chain
            for row in self._plain.get(name, ())
            if self.limits[row].user in ("", user or NO_USER)
        ]


def sum_requests(tables: SessionTables, pods: Iterable[Pod]) -> IntArray:
    """Return the total requests of the given pods, as an array by resource [R]."""
    request_rows = [tables.request_vector(pod) for pod in pods]
    vectors = {id(vector): vector for vector in request_rows}
    total = np.zeros(len(tables.node_table.resources), np.int64)
    for vector, count in Counter(map(id, request_rows)).items():  # pods of one spec share one array
        total += vectors[vector] * count
    return total
