"""Passes changes of the cluster to the scheduling queue: pending pods, PodGroups, and events that may help a gang."""

from collections.abc import Iterable
from typing import Final

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.framework.events import Resource
from batchsched.scheduling_queue.queue import SchedulingQueue
from batchsched.state.change_log import Change
from batchsched.state.cluster_state import PODS
from batchsched.state.feed import GROUPS

_RESOURCES: Final = {
    kind.field: Resource(kind.name) for kind in OBJECT_KINDS if kind.name in {one.value for one in Resource}
}
"""The resource of each field of Snapshot, without kinds that have no events, such as PriorityClass."""


def tell(queue: SchedulingQueue, change: Change, now: float) -> None:
    """Pass one change to the queue. An assumed pod counts as bound."""
    if change.field == PODS:
        _tell_pod(queue, change, now)
    elif change.field == GROUPS:
        if change.after is None:
            queue.delete_group(change.key, now)
        else:
            queue.put_group(change.after, now)
    elif change.field in _RESOURCES:
        queue.cluster_changed(_RESOURCES[change.field], change.before, change.after, now)


def list_all(queue: SchedulingQueue, groups: Iterable[PodGroup], pending: Iterable[Pod], now: float) -> None:
    """Add all PodGroups and all pending pods to an empty queue."""
    for group in groups:
        queue.put_group(group, now)
    for pod in pending:
        if not pod.terminating:
            queue.add_pod(pod, now)


def _tell_pod(queue: SchedulingQueue, change: Change, now: float) -> None:
    before, after = change.before, change.after
    if after is not None and not after.node:
        if after.terminating:  # no session places it
            queue.delete_pod(change.key, now)
        else:
            queue.add_pod(after, now)  # an update where it is known
        if before is not None and before.node:  # its binding failed: the room is free again
            queue.cluster_changed(Resource.ASSIGNED_POD, before, None, now)
        return
    placed = after is not None
    if before is not None and not before.node:
        queue.delete_pod(change.key, now, placed=placed)
        before = None
    if before is not None or placed:
        queue.cluster_changed(Resource.ASSIGNED_POD, before, after, now)
