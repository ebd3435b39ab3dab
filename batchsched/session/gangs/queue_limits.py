"""What queues still allow: limits less what runs, at every ancestor."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.pod import USER_LABEL, Pod
from batchsched.queues.tree import QueueLimit
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.problem import UNLIMITED, IntArray
from batchsched.state.queue_usage import counts_against_queue, queue_of

Owner = tuple[str, str]
"""Against whom a gang counts: its queue, and its user or ""."""
BoolArray = np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class QueueLimits:
    """All that queues limit, with what is left.

    Args:
      limits: Q limits.
      free: [Q, R] what may still be used, UNLIMITED where nothing is set.
      gangs: [Q] PodGroups that may still start, UNLIMITED where nothing is set.
      over: [Q, R] what was used beyond a limit as the session began: a limit can be lowered below it.
      over_gangs: [Q] PodGroups that ran beyond maxRunningPodGroups.
      finder: finds the limits that are about a gang.
    """

    limits: tuple[QueueLimit, ...]
    free: IntArray
    gangs: IntArray
    over: IntArray
    over_gangs: IntArray
    finder: "LimitIndex"

    def members(self, tables: SessionTables, owners: Sequence[Owner]) -> BoolArray:
        """[Q, G] which gangs each limit is about, by the (queue, user) of the gangs."""
        about = {owner: self.finder.rows(tables, owner) for owner in set(owners)}
        member = np.zeros((len(self.limits), len(owners)), np.bool_)
        for at, owner in enumerate(owners):
            member[about[owner], at] = True
        return member

    def lacking(self, tables: SessionTables, owner: Owner, requests: IntArray, gangs: int) -> str:
        """Return the name of a queue that does not allow an owner more requests [R] and gangs, "" when all do."""
        if not self.limits:
            return ""
        about = self.finder.rows(tables, owner)
        over = ((requests > self.free[about]) & (requests > 0)).any(axis=1) | (gangs > self.gangs[about])
        return next((self.limits[about[at]].name for at in np.flatnonzero(over)), "")


def measure_limits(tables: SessionTables, scheduler_name: str) -> QueueLimits:
    """Measure what every limit still allows; only pods that are ours count against queues."""
    limits = tables.queues.limits(members.owner for members in tables.gangs.values())
    free = np.full((len(limits), len(tables.node_table.resources)), UNLIMITED, np.int64)
    gangs = np.full(len(limits), UNLIMITED, np.int64)
    finder = LimitIndex(limits)
    if not limits:
        return QueueLimits(limits, free, gangs, np.zeros_like(free), np.zeros_like(gangs), finder)
    for at, limit in enumerate(limits):
        for resource, amount in limit.resources.items():
            if resource in tables.node_table.column:
                free[at, tables.node_table.column[resource]] = amount
        if limit.pod_groups is not None:
            gangs[at] = limit.pod_groups
    used, running = _used(tables, finder, scheduler_name)
    left = np.where(free < UNLIMITED, free - used, free)
    kept = [at for at, limit in enumerate(limits) if limit.kept]
    if kept:
        left[kept] = _beside(tables, limits, left, kept)
    left_gangs = np.where(gangs < UNLIMITED, gangs - running, gangs)
    return QueueLimits(
        limits,
        np.maximum(0, left),
        np.maximum(0, left_gangs),
        np.maximum(0, -left),
        np.maximum(0, -left_gangs),
        finder,
    )


def _used(tables: SessionTables, finder: "LimitIndex", scheduler_name: str) -> tuple[IntArray, IntArray]:
    """[Q, R] what pods in the subtrees hold, and [Q] how many gangs they are."""
    used = np.zeros((len(finder.limits), len(tables.node_table.resources)), np.int64)
    running = np.zeros(len(finder.limits), np.int64)
    there: dict[Owner, list[Pod]] = {}
    gangs: Counter[Owner] = Counter()
    for members in tables.running.values():
        owners = set()
        for pod, _ in members.bound.values():
            if counts_against_queue(pod, (scheduler_name,)):
                owner = members.owner if members.group is not None else _owner_without_group(pod)
                there.setdefault(owner, []).append(pod)
                owners.add(owner)
        gangs.update(owners)
    for owner, pods in there.items():
        above = finder.inside(tables, owner)
        running[above] += gangs[owner]
        used[above] += sum_requests(tables, pods)
    return used, running


def _beside(
    tables: SessionTables, limits: Sequence[QueueLimit], left: IntArray, kept: Sequence[int]
) -> IntArray:
    """[K, R] what everybody else may still use beside what queues keep for themselves.

    Args:
      tables: the tables.
      limits: Q limits.
      left: [Q, R] of what queues keep, what they do not use yet.
      kept: the K limits that keep something.
    """
    there = np.maximum(0, tables.free_resources()).sum(axis=0)
    unused = {limits[at].name: np.where(left[at] < UNLIMITED, np.maximum(0, left[at]), 0) for at in kept}
    beside = [there - sum(unused[name] for name in limits[at].kept) for at in kept]
    stated = left[kept] < UNLIMITED
    return np.where(stated, np.maximum(0, beside), UNLIMITED)


def _owner_without_group(pod: Pod) -> Owner:
    """Return the queue and the user that a pod counts against if no PodGroup says so."""
    return queue_of(pod, None), pod.labels.get(USER_LABEL, "")


class LimitIndex:
    """Finds the limits that are about a gang.

    Args:
      limits: Q limits.
    """

    def __init__(self, limits: Sequence[QueueLimit]) -> None:
        self.limits = limits
        self._plain: dict[str, list[int]] = {}
        self._kept = [at for at, limit in enumerate(limits) if limit.kept]
        self._found: dict[Owner, list[int]] = {}
        for at, limit in enumerate(limits):
            if not limit.kept:
                self._plain.setdefault(limit.name, []).append(at)

    def rows(self, tables: SessionTables, owner: Owner) -> list[int]:
        """Return the numbers of the limits that gangs of an owner count against."""
        known = self._found.get(owner)
        if known is None:
            chain = tables.queues.ancestry(owner[0])
            kept = [at for at in self._kept if set(self.limits[at].kept).isdisjoint(chain)]
            known = self._found[owner] = sorted(self._of_queues(chain, owner[1]) + kept)
        return known

    def inside(self, tables: SessionTables, owner: Owner) -> list[int]:
        """Return the numbers of the limits that measure what gangs of an owner hold, kept guarantees included."""
        chain = tables.queues.ancestry(owner[0])
        kept = [at for at in self._kept if not set(self.limits[at].kept).isdisjoint(chain)]
        return self._of_queues(chain, owner[1]) + kept

    def _of_queues(self, chain: Sequence[str], user: str) -> list[int]:
        return [
            at for name in chain for at in self._plain.get(name, ()) if self.limits[at].user in ("", user)
        ]


def spend(limits: QueueLimits, tables: SessionTables, *walked: GangPlacement) -> QueueLimits:
    """Return what queues still allow after gangs were placed, one after the other."""
    if not limits.limits or not walked:
        return limits
    about = [limits.finder.rows(tables, one.gang.members.owner) for one in walked]
    times = [len(rows) for rows in about]
    rows = [at for found in about for at in found]
    used, started = np.zeros_like(limits.free), np.zeros_like(limits.gangs)
    np.add.at(used, rows, np.repeat([one.total(used.shape[1]) for one in walked], times, axis=0))
    np.add.at(started, rows, np.repeat([one.gang.fresh for one in walked], times))
    free = np.where(limits.free < UNLIMITED, np.maximum(0, limits.free - used), limits.free)
    gangs = np.where(limits.gangs < UNLIMITED, np.maximum(0, limits.gangs - started), limits.gangs)
    return replace(limits, free=free, gangs=gangs)


def sum_requests(tables: SessionTables, pods: Iterable[Pod]) -> IntArray:
    """[R] what pods ask for together."""
    found = [tables.request_vectors(pod)[0] for pod in pods]
    vectors = {id(vector): vector for vector in found}
    total = np.zeros(len(tables.node_table.resources), np.int64)
    for vector, count in Counter(map(id, found)).items():  # most are one and the same array
        total += vectors[vector] * count
    return total
