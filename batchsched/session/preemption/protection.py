"""Protected gangs: which running gangs may not be evicted, and the usage of these gangs by queue.

A PodGroup protects its gang with `preemptible: false`, and with `minRuntimeSeconds` for a time after its start. A queue
may bound that time by `maxMinRuntimeSeconds`. A protected gang is not evicted for a gang of its own queue, for a fair
share, or to be moved. With a reclaim for a guarantee, the protection holds only as long as the protected gangs of the
queue use no more than the queue's own guarantee. Otherwise users could borrow capacity and never give it back.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.framework.status import IntArray
from batchsched.queues.tree import QueueTree
from batchsched.session.tables.gang import GangState
from batchsched.session.tables.session_tables import SessionTables
from batchsched.state.queue_usage import counts_against_queue


def start_of_first_pod(pods: Iterable[Pod]) -> float:
    """Return the earliest start of the given pods in seconds since 1970; infinity if none has started."""
    return min((pod.start_time() for pod in pods), default=math.inf)


def is_pod_group_protected(
    group: PodGroup | None, max_min_runtime_seconds: int | None, pods: Iterable[Pod], now: float
) -> bool:
    """Return True if a PodGroup is not preemptible, or its pods have not run for its minimum run time.

    Args:
      group: the PodGroup; None for a pod without one, which is never protected.
      max_min_runtime_seconds: maxMinRuntimeSeconds of its queue, see `QueueTree.inherited_max_min_runtime_seconds`.
      pods: its bound pods.
      now: seconds since 1970.
    """
    if group is None:
        return False
    if not group.spec.preemptible:
        return True
    min_runtime: float = group.spec.min_runtime_seconds
    if max_min_runtime_seconds is not None:
        min_runtime = min(min_runtime, max_min_runtime_seconds)
    # A gang of which no pod has started yet has run for no time at all: its start is infinity.
    return min_runtime > 0 and now - start_of_first_pod(pods) < min_runtime


def is_gang_protected(members: GangState, queues: QueueTree, now: float) -> bool:
    """Return True if a running gang's PodGroup protects the gang from eviction at the time `now`."""
    group = members.group
    if group is None or (group.spec.preemptible and not group.spec.min_runtime_seconds):
        return False
    return is_pod_group_protected(
        group, queues.inherited_max_min_runtime_seconds(members.queue), members.bound_pods, now
    )


class ProtectedGangs:
    """The running gangs of a session that are protected from eviction, and the resources that they use by queue.

    Args:
      tables: the tables of the session.
      scheduler_name: scheduler name of the profile; pods of other schedulers count against no queue.
      now: seconds since 1970.
    """

    def __init__(self, tables: SessionTables, scheduler_name: str, now: float) -> None:
        self._tables = tables
        self._scheduler_name = scheduler_name
        self._now = now

    @cached_property
    def _gangs(self) -> Mapping[str, GangState]:
        return {
            identity: members
            for identity, members in self._tables.running.items()
            if is_gang_protected(members, self._tables.queues, self._now)
        }

    def __contains__(self, identity: str) -> bool:
        """Return whether a gang is protected."""
        return identity in self._gangs

    @cached_property
    def _usage(self) -> dict[str, IntArray]:
        """By queue, [R] requests of the pods of protected gangs, without pods that are being deleted."""
        usage: dict[str, IntArray] = {}
        for members in self._gangs.values():
            for pod in members.nonterminating_bound_pods:
                if counts_against_queue(pod, (self._scheduler_name,)):
                    self._add(usage, members.queue, self._tables.request_vector(pod))
        return usage

    def usage_of_protected_gangs(self, queue: str) -> IntArray:
        """Return the requests [R] of a queue's protected gangs, without the pods evicted so far."""
        return self._usage.get(queue, np.zeros(len(self._tables.node_table.resources), np.int64))

    def subtract_evicted_usage(self, members: GangState, amount: IntArray) -> None:
        """Subtract a gang's evicted requests from the usage of protected gangs, if the gang is protected."""
        if members.identity in self:
            self._add(self._usage, members.queue, -amount)

    @staticmethod
    def _add(usage: dict[str, IntArray], queue: str, amount: IntArray) -> None:
        usage[queue] = usage[queue] + amount if queue in usage else amount
