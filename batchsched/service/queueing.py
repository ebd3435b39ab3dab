"""What changed in the cache, told to the scheduling queue: who waits, and what may help."""

from typing import Final

from batchsched.cache.cache import PODS
from batchsched.cache.feed import GROUPS
from batchsched.cache.journal import Change
from batchsched.framework.events import Resource
from batchsched.model.kinds import ALL
from batchsched.session.scheduling_queue.queue import SchedulingQueue

_RESOURCES: Final = {
    kind.field: Resource(kind.name) for kind in ALL if kind.name in {one.value for one in Resource}
}
"""Kinds that no plugin waits for (PriorityClass, say) are not here."""


def tell(queue: SchedulingQueue, change: Change, now: float) -> None:
    """Tell a queue of one change; an assumed pod has its node."""
    if change.field == PODS:
        _tell_pod(queue, change, now)
    elif change.field == GROUPS:
        if change.after is None:
            queue.delete_group(change.key, now)
        else:
            queue.put_group(change.after, now)
    elif change.field in _RESOURCES:
        queue.cluster_changed(_RESOURCES[change.field], change.before, change.after, now)


def _tell_pod(queue: SchedulingQueue, change: Change, now: float) -> None:
    before, after = change.before, change.after
    if after is not None and not after.node:
        queue.add_pod(after, now)  # an update where it is known
        return
    placed = after is not None
    if before is not None and not before.node:
        queue.delete_pod(change.key, now, placed=placed)
        before = None
    if before is not None or placed:
        queue.cluster_changed(Resource.ASSIGNED_POD, before, after, now)
