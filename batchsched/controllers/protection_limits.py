"""Finds protected gangs that may be evicted nevertheless, for the condition `ProtectionLimited`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from batchsched.api.core.quantity import format_quantity
from batchsched.api.core.requests import pod_requests
from batchsched.controllers.queue_status_inputs import (
    all_queues_by_name,
    current_queue_table,
    queue_tree_and_misplaced_queues,
)
from batchsched.queues.entitlements import effective_guarantees
from batchsched.queues.tree import QueueTree
from batchsched.session.preemption.protection import is_pod_group_protected
from batchsched.state.cluster_state import ClusterState
from batchsched.state.podgroup_state import GangPods
from batchsched.state.queue_usage import POD_COUNT


def protection_limited_reasons_by_gang(state: ClusterState, now: float) -> Mapping[str, tuple[str, str]]:
    """Return a reason and a message for each running PodGroup with limited protection from eviction.

    These PodGroups get the condition `ProtectionLimited`. The result has them by `namespace/name`.

    Args:
      state: The cluster.
      now: Seconds since 1970.
    """
    running = [
        (gang.group, gang)
        for gang in state.gangs
        if gang.group is not None
        and gang.bound
        and (not gang.group.spec.preemptible or gang.group.spec.min_runtime_seconds)
    ]
    if not running:
        return {}
    tree, _ = queue_tree_and_misplaced_queues(all_queues_by_name(state))
    protected: dict[str, list[GangPods]] = {}
    limited: dict[str, tuple[str, str]] = {}
    for group, gang in running:
        queue = state.queue_of_gang(gang)
        maximum, minimum = tree.inherited_max_min_runtime_seconds(queue), group.spec.min_runtime_seconds
        if maximum is not None and minimum > maximum:
            message = (
                f"minRuntimeSeconds is {minimum}, but queue {queue} allows at most {maximum}, which applies; "
                "lower it, or raise maxMinRuntimeSeconds of the queue"
            )
            limited[group.key] = ("RuntimeAboveMaximum", message)
        if is_pod_group_protected(group, maximum, gang.bound.values(), now):
            protected.setdefault(queue, []).append(gang)
    return {**limited, **_above_guarantees(state, tree, protected)}


def _above_guarantees(
    state: ClusterState, tree: QueueTree, protected: Mapping[str, Sequence[GangPods]]
) -> Mapping[str, tuple[str, str]]:
    """Return why the protected gangs of a queue may be evicted, for queues that exceed their guarantee by them."""
    if not any(queue.spec.guarantee for queue in tree.queues.values()):
        return {}  # no queue can claim a guarantee
    resources, table = current_queue_table(state, tree)
    guarantees = effective_guarantees(table)
    limited: dict[str, tuple[str, str]] = {}
    for name, gangs in protected.items():
        if name not in tree:
            continue
        guarantee = dict(zip(resources, guarantees[table.own_gangs_row(name)].tolist(), strict=True))
        usage: Counter[str] = Counter()
        for gang in gangs:
            for pod in gang.placed_pods():
                usage.update(pod_requests(pod))
        above = [
            f"{resource} {format_quantity(resource, usage[resource])}, guarantee "
            f"{format_quantity(resource, guarantee[resource])}"
            for resource in resources
            if resource != POD_COUNT and usage[resource] > guarantee[resource]
        ]
        message = (
            f"the protected gangs of queue {name} use more than its guarantee ({'; '.join(above)}), so another queue "
            "that needs its own guarantee may evict this gang; use a queue with a larger guarantee"
        )
        if above:
            limited.update({gang.identity: ("UsageAboveGuarantee", message) for gang in gangs})
    return limited
