"""Computes the positions of PodGroups in their queues, and the usage of queues, for the status of both."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from batchsched.api.core.metadata import parse_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.validation import excluded_queue_reasons
from batchsched.api.gang import gang_key_from_identity, gang_namespace
from batchsched.api.priority import PriorityTable
from batchsched.config.schema import PolicySettings, Profile
from batchsched.controllers.desired_status import QueueStatusInput
from batchsched.framework.status import IntArray
from batchsched.queues.entitlements import compute_entitlements
from batchsched.queues.gang_order import GangColumns, GangOrderPolicy, make_gang_order_policy
from batchsched.queues.queue_table import QueueTable, QueueUsageAndDemand, TotalCapacity, build_queue_table
from batchsched.queues.tree import QueueTree
from batchsched.session.gangs.fair_share_order import GangPositions
from batchsched.session.gangs.order import QueueSharingPolicies, orders_gangs_by_priority_first
from batchsched.session.tables.session_tables import mask_dominant_share_resources
from batchsched.state.cluster_state import QUEUES, ClusterState
from batchsched.state.podgroup_state import GangPods
from batchsched.state.queue_usage import POD_COUNT

_NO_CAPACITY: Final = TotalCapacity((), np.zeros(0, np.int64), np.zeros(0, np.bool_))


def queue_positions(state: ClusterState, profile: Profile | None = None, now: float = 0.0) -> dict[str, int]:
    """Return the position of each pending PodGroup in its queue; 1 for the PodGroup that is tried first.

    Pending pods without a PodGroup have positions as well, and are not returned.

    Args:
      state: The cluster.
      profile: The first profile; None for the defaults.
      now: Seconds since 1970.

    Returns:
      The position by `namespace/name` of the PodGroup.
    """
    profile = profile or Profile()
    pending = [gang for gang in state.gangs if _is_demand(state, gang)]
    if not any(gang.group is not None for gang in pending):
        return {}
    tree, _ = queue_tree_and_misplaced_queues(all_queues_by_name(state))
    policies = QueueSharingPolicies.from_tree(tree, profile.queue_policy)
    orders_by_queue: Mapping[str, GangOrderPolicy | None] = {}
    if policies is not None:
        table = build_queue_table(tree, _NO_CAPACITY, QueueUsageAndDemand({}, {}))
        orders_by_queue = policies.gang_orders_by_queue(table, tree.queues)
    orders = GangPositions(
        _columns(state, pending),
        np.array([bool(gang.placed_pods()) for gang in pending], np.bool_),
        make_gang_order_policy(profile.policy.name, profile.policy.args),
        now,
        by_priority=orders_gangs_by_priority_first(profile, policies),
    )
    positions = orders.positions_in_queues([state.queue_of_gang(gang) for gang in pending], orders_by_queue)
    return {
        gang.identity: position
        for gang, position in zip(pending, positions, strict=True)
        if gang.group is not None
    }


def _is_demand(state: ClusterState, gang: GangPods) -> bool:
    """Return whether a gang is pending in a queue that selects its namespace; others have no place in the queue."""
    return gang.has_pending_pods_and_lacks_minimum and state.queue_access().allows_namespace(
        state.queue_of_gang(gang), gang_namespace(gang.identity)
    )


def all_queues_by_name(state: ClusterState) -> dict[str, Queue]:
    """Return all queues by name, including the invalid queues, which no Snapshot contains."""
    return {queue.name: queue for queue in state.list_objects(QUEUES)}


def queue_tree_and_misplaced_queues(queues: Mapping[str, Queue]) -> tuple[QueueTree, Mapping[str, str]]:
    """Return the tree of all valid queues, and for each queue that cannot be in the tree, the reason."""
    misplaced = excluded_queue_reasons(tuple(queues.values()))
    return QueueTree(queue for name, queue in queues.items() if name not in misplaced), misplaced


def _columns(state: ClusterState, pending: Sequence[GangPods]) -> GangColumns:
    """Return what gang policies may read, as sessions compute it from their tables."""
    priorities = PriorityTable(state.list_objects("priority_classes"))
    pods_of = [gang.nonterminating_pending_pods() for gang in pending]
    created = [
        min((parse_timestamp(pod.metadata.creation_timestamp) for pod in pods), default=0.0)
        if gang.group is None
        else gang.group.creation_time
        for gang, pods in zip(pending, pods_of, strict=True)
    ]
    estimates = [None if gang.group is None else gang.group.spec.expected_runtime_seconds for gang in pending]
    seniority = [
        (time, gang_key_from_identity(gang.identity), gang.identity)
        for time, gang in zip(created, pending, strict=True)
    ]
    arrival = np.empty(len(pending), np.int64)
    arrival[sorted(range(len(pending)), key=seniority.__getitem__)] = np.arange(len(pending))
    return GangColumns(
        priority=np.array(
            [priorities.gang_priority(gang.group, pods) for gang, pods in zip(pending, pods_of, strict=True)],
            np.int64,
        ),
        created=np.array(created, np.float64),
        estimate=np.array([math.nan if seconds is None else seconds for seconds in estimates], np.float64),
        size=np.array([len(pods) for pods in pods_of], np.float64),
        share=np.array([_total_share(state, pods) for pods in pods_of], np.float64),
        arrival=arrival,
    )


def _total_share(state: ClusterState, pods: Sequence[Pod]) -> float:
    """Return the sum over pods of the largest share of the cluster that a pod requests of one resource."""
    counts = Counter(id(pod.spec) for pod in pods)
    distinct = {id(pod.spec): pod for pod in pods}
    return math.fsum(_dominant_share(state, distinct[spec]) * count for spec, count in counts.items())


def _dominant_share(state: ClusterState, pod: Pod) -> float:
    """Return the largest share of the cluster that a pod requests of one resource."""
    requested = pod_requests(pod)
    shares = (
        amount / state.capacity[resource]
        for (resource, amount), counts in zip(
            requested.items(), mask_dominant_share_resources(requested), strict=True
        )
        if counts and state.capacity[resource] > 0
    )
    return max(shares, default=0.0)


def queue_status_inputs(
    state: ClusterState, queue_policy: PolicySettings | None = None
) -> Mapping[str, QueueStatusInput]:
    """Return the fair share, the usage and the number of pending gangs of each queue, by queue name.

    The usage and the pending gangs of a queue include those of all queues below it.

    Args:
      state: The cluster.
      queue_policy: The policy of queues without a parent; None for the default policy.
    """
    queues = all_queues_by_name(state)
    tree, misplaced = queue_tree_and_misplaced_queues(queues)
    allocated = _usage_with_descendants(state, tree)
    for amounts in allocated.values():
        # The status has amounts of resources; the number of pods is in the status of PodGroups.
        del amounts[POD_COUNT]
    pending: Counter[str] = Counter()
    own_pending = Counter(state.queue_of_gang(gang) for gang in state.gangs if _is_demand(state, gang))
    for queue, count in own_pending.items():
        for name in tree.queue_and_ancestors(queue):
            pending[name] += count
    fair = _fair_shares(state, tree, queue_policy)
    return {
        name: QueueStatusInput(allocated[name], pending[name], misplaced.get(name, ""), fair.get(name))
        for name in queues
    }


def _usage_with_descendants(state: ClusterState, tree: QueueTree) -> defaultdict[str, Counter[str]]:
    """Return the usage of each queue and its descendants by resource, and the number of their pods."""
    usage: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for queue, amounts in state.queue_usage.allocated_by_queue.items():
        for name in tree.queue_and_ancestors(queue):
            usage[name].update(amounts)
    return usage


class RemainingQueueLimits:
    """The amounts of resources that further pods may use within the limits of queues.

    The amounts are those of the last call of `refresh`. Limits per user are not considered, because only sessions know
    the usage of each user.

    Args:
      state: The cluster.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._queues: tuple[Queue, ...] | None = None
        self._tree = QueueTree(())
        self._limits: dict[str, Mapping[str, int]] = {}
        self._used: Mapping[str, Counter[str]] = {}

    def refresh(self) -> None:
        """Read the current limits and the current usage of all queues from the cluster state."""
        queues = self._state.list_objects(QUEUES)
        # The state returns the same tuple until a Queue changes. With 1,000 queues, their tree takes 20 milliseconds.
        if queues is not self._queues:
            self._queues = queues
            self._tree, _ = queue_tree_and_misplaced_queues(all_queues_by_name(self._state))
            self._limits = {limit.name: limit.resources for limit in self._tree.limits() if limit.resources}
        self._used = _usage_with_descendants(self._state, self._tree) if self._limits else {}

    def find_full_queue(self, gang: GangPods) -> str:
        """Return the name of a queue with a limit that allows no more pods of the gang; "" if there is none.

        The queues are searched from the gang's queue up to the root, and the first such queue is returned.
        """
        if not self._limits:
            return ""
        pods = [pod_requests(pod) for pod in gang.nonterminating_pending_pods()]
        for name in self._tree.queue_and_ancestors(self._state.queue_of_gang(gang)):
            if name in self._limits and not any(
                _fits(requests, self._limits[name], self._used[name]) for requests in pods
            ):
                return name
        return ""


def _fits(requests: Mapping[str, int], limit: Mapping[str, int], used: Mapping[str, int]) -> bool:
    """Return whether a pod with these requests stays within a limit."""
    counted = {POD_COUNT: 1, **requests}
    return all(
        amount == 0 or used.get(resource, 0) + amount <= limit[resource]
        for resource, amount in counted.items()
        if resource in limit
    )


def _fair_shares(
    state: ClusterState, tree: QueueTree, queue_policy: PolicySettings | None
) -> Mapping[str, Mapping[str, int]]:
    """Return the fair share of each queue.

    It is empty if queues do not divide the cluster, or if a policy reads past usage, which only sessions have.
    """
    policies = QueueSharingPolicies.from_tree(tree, queue_policy)
    if policies is None or policies.reads_past_usage:
        return {}
    resources, table = current_queue_table(state, tree)
    fair = compute_entitlements(table, policies.policies_by_table_row(table)).fair
    return {
        name: dict(zip(resources, fair[index].tolist(), strict=True))
        for index, name in enumerate(table.names)
    }


def current_queue_table(state: ClusterState, tree: QueueTree) -> tuple[tuple[str, ...], QueueTable]:
    """Return the resources that nodes offer, and a queue table with the usage and demand of queues."""
    resources = tuple(sorted(resource for resource, amount in state.capacity.items() if amount > 0))

    def resource_vector(amounts: Mapping[str, int]) -> IntArray:
        return np.array(
            [amounts.get(resource, 0) if resource != POD_COUNT else 0 for resource in resources], np.int64
        )

    allocated = {
        name: resource_vector(amounts) for name, amounts in state.queue_usage.allocated_by_queue.items()
    }
    requested = {
        name: resource_vector(amounts)
        for name, amounts in state.queue_usage.pending_requests_by_queue.items()
    }
    nothing = resource_vector({})
    demand = {
        name: allocated.get(name, nothing) + requested.get(name, nothing) for name in {*allocated, *requested}
    }
    capacity = np.array([state.capacity[resource] for resource in resources], np.int64)
    table = build_queue_table(
        tree,
        TotalCapacity(resources, capacity, mask_dominant_share_resources(resources)),
        QueueUsageAndDemand(allocated, demand),
    )
    return resources, table
