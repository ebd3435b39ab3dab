"""What queues still allow: limits less what runs, at every ancestor."""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.model.pod import POD_GROUP_LABEL, QUEUE_LABEL, Pod
from batchsched.ordering.tree import QueueLimit
from batchsched.session.frame import Frame
from batchsched.session.walk import Walked
from batchsched.solver.problem import UNLIMITED, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """The queues that limit anything, with what is left.

    Args:
      limits: Q queues.
      free: [Q, R] what may still be used, UNLIMITED where nothing is set.
      gangs: [Q] PodGroups that may still start, UNLIMITED where nothing is set.
      over: [Q, R] what was used beyond a limit as the session began: a limit can be lowered below it.
      over_gangs: [Q] PodGroups that ran beyond maxRunningPodGroups.
    """

    limits: tuple[QueueLimit, ...]
    free: IntArray
    gangs: IntArray
    over: IntArray
    over_gangs: IntArray

    def members(self, frame: Frame, queues: list[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
        """[Q, G] which of the gangs' queues lie in the subtree of each limiting queue."""
        chains = {name: frozenset(frame.queues.ancestry(name)) for name in set(queues)}
        rows = [[limit.name in chains[name] for name in queues] for limit in self.limits]
        return np.array(rows, np.bool_).reshape(len(self.limits), len(queues))

    def lacking(self, frame: Frame, queue: str, requests: IntArray, gangs: int) -> str:
        """Return the name of a queue that does not allow more requests [R] and gangs in `queue`, "" when all do."""
        if not self.limits:
            return ""
        member = self.members(frame, [queue])[:, 0]
        over = ((requests > self.free) & (requests > 0)).any(axis=1) | (gangs > self.gangs)
        return next((self.limits[at].name for at in np.flatnonzero(over & member)), "")


def quotas(frame: Frame, scheduler_name: str) -> Quotas:
    """Measure what every limiting queue still allows; only pods that are ours count against queues."""
    limits = frame.queues.limits()
    resources = len(frame.table.resources)
    free = np.full((len(limits), resources), UNLIMITED, np.int64)
    gangs = np.full(len(limits), UNLIMITED, np.int64)
    if not limits:
        return Quotas(limits, free, gangs, np.zeros_like(free), np.zeros_like(gangs))
    rows = {limit.name: at for at, limit in enumerate(limits)}
    for at, limit in enumerate(limits):
        for resource, amount in limit.resources.items():
            if resource in frame.table.column:
                free[at, frame.table.column[resource]] = amount
        if limit.pod_groups is not None:
            gangs[at] = limit.pod_groups
    used = np.zeros_like(free)
    running = np.zeros_like(gangs)
    for members in frame.gangs.values():
        ours = [pod for pod, _ in members.bound.values() if _ours(pod, scheduler_name)]
        if not ours:
            continue
        above = [rows[name] for name in frame.queues.ancestry(members.queue) if name in rows]
        if above:
            running[above] += 1
            for vector, _ in (frame.vectors(pod) for pod in ours):
                used[above] += vector
    left = np.where(free < UNLIMITED, free - used, free)
    left_gangs = np.where(gangs < UNLIMITED, gangs - running, gangs)
    return Quotas(
        limits,
        np.maximum(0, left),
        np.maximum(0, left_gangs),
        np.maximum(0, -left),
        np.maximum(0, -left_gangs),
    )


def spend(quotas: Quotas, frame: Frame, walked: Walked) -> Quotas:
    """Return what queues still allow after a gang was placed."""
    if not quotas.limits:
        return quotas
    member = quotas.members(frame, [walked.gang.queue])[:, 0]
    used = np.sum([frame.vectors(placed.pod)[0] for placed in walked.placed], axis=0)
    free = np.where(
        (quotas.free < UNLIMITED) & member[:, np.newaxis], np.maximum(0, quotas.free - used), quotas.free
    )
    fresh = int(walked.gang.fresh)
    gangs = np.where((quotas.gangs < UNLIMITED) & member, np.maximum(0, quotas.gangs - fresh), quotas.gangs)
    return replace(quotas, free=free, gangs=gangs)


def _ours(pod: Pod, scheduler_name: str) -> bool:
    return (
        pod.spec.scheduler_name == scheduler_name
        or POD_GROUP_LABEL in pod.labels
        or QUEUE_LABEL in pod.labels
    )
