"""Who stands where: the gangs that wait in each queue, one behind the other, and what each queue holds in all."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import requests
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.cross_checks import misplaced_queues
from batchsched.config.schema import PolicySettings, Profile
from batchsched.controllers.status.desired_status import QueueAllocation
from batchsched.controllers.status.tally import GangCounts, Tally
from batchsched.framework.status import IntArray
from batchsched.queues.entitlements import entitlements
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.gang_order.policy import GangColumns, Policy, make, order
from batchsched.queues.table_builder import QueueDemand, TotalCapacity, lay_out
from batchsched.queues.tree import QueueTree
from batchsched.session.gangs.order import QueuePolicies
from batchsched.session.tables.session_tables import share_resources
from batchsched.state.cluster_state import PODS, ClusterState
from batchsched.state.feed import GROUPS


def positions(
    tally: Tally, cache: ClusterState, profile: Profile | None = None, now: float = 0.0
) -> dict[str, int]:
    """Number the PodGroups that wait in each queue, the first to start at 1, as sessions put them in order.

    Args:
      tally: what is counted.
      cache: the objects.
      profile: how sessions schedule; the first one's.
      now: seconds since 1970.
    """
    profile = profile or Profile()
    line = [
        (key, group, standing)
        for key, standing in sorted(tally.gangs.items())
        if standing.pending and (group := cache.get(GROUPS, key)) is not None
    ]
    if not line:
        return {}
    columns = _columns(tally, cache, line)
    orders = QueuePositions(tally, profile)
    found: dict[str, int] = {}
    by_policy: dict[int, tuple[Policy, list[int]]] = {}
    for at, (_, _, standing) in enumerate(line):
        policy = orders.of(standing.queue)
        by_policy.setdefault(id(policy), (policy, []))[1].append(at)
    count: Counter[str] = Counter()
    stranded = np.array([bool(standing.placed) for _, _, standing in line], np.bool_)
    for policy, some in by_policy.values():
        mine = GangColumns(*(getattr(columns, one.name)[some] for one in fields(GangColumns)))
        rank = np.empty(len(some), np.int64)
        rank[order(policy, mine, now)] = np.arange(len(some))
        urgency = -mine.priority if orders.by_priority else np.zeros(len(some), np.int64)
        for at in np.lexsort((rank, urgency, ~stranded[some])).tolist():
            key, _, standing = line[some[at]]
            count[standing.queue] += 1
            found[key] = count[standing.queue]
    return found


class QueuePositions:
    """The order of the PodGroups of each queue: its own, or that of a queue above it, or the profile's.

    Args:
      tally: has the queues.
      profile: how sessions schedule.
    """

    def __init__(self, tally: Tally, profile: Profile) -> None:
        self._default = make(profile.policy.name, profile.policy.args, POLICIES)
        self._known: dict[str, Policy] = {}
        misplaced = misplaced_queues(tuple(tally.queues.values()))
        tree = QueueTree(queue for name, queue in tally.queues.items() if name not in misplaced)
        policies = QueuePolicies.between(tree, profile)
        self.by_priority = policies is not None or profile.selection == "weight"
        """Whether priorities come before the order; under ordered selection without entitlements they do not."""
        if policies is not None:
            nothing = np.zeros(0, np.int64)
            shares = lay_out(tree, TotalCapacity((), nothing, np.zeros(0, np.bool_)), QueueDemand({}, {}))
            chosen = policies.of(shares)
            for name in tree.queues:
                self._known[name] = chosen[shares.home(name)].gangs or self._default

    def of(self, queue: str) -> Policy:
        """Return the order of a queue."""
        return self._known.get(queue, self._default)


def _columns(
    tally: Tally, cache: ClusterState, line: Sequence[tuple[str, PodGroup, GangCounts]]
) -> GangColumns:
    """Return what policies may know of gangs; the pods of one are taken to ask for what the first of them does."""
    classes = {one.metadata.name: one.value for one in cache.every("priority_classes")}
    pods: list[Pod | None] = [cache.get(PODS, min(standing.waiting)) for _, _, standing in line]
    priority = [
        classes.get(group.spec.priority_class_name, (pod.spec.priority or 0) if pod is not None else 0)
        for (_, group, _), pod in zip(line, pods, strict=True)
    ]
    created = np.array([group.created for _, group, _ in line], np.float64)
    estimates = [group.spec.expected_runtime_seconds for _, group, _ in line]
    size = np.array([len(standing.waiting) for _, _, standing in line], np.float64)
    arrival = np.empty(len(line), np.int64)
    arrival[np.argsort(created, kind="stable")] = np.arange(len(line))  # the line is by name
    return GangColumns(
        priority=np.array(priority, np.int64),
        created=created,
        estimate=np.array([math.nan if one is None else one for one in estimates], np.float64),
        size=size,
        share=size * [_share(tally, pod) for pod in pods],
        arrival=arrival,
    )


def _share(tally: Tally, pod: Pod | None) -> float:
    """Return the dominant share of a pod."""
    asked = requests(pod) if pod is not None else {}
    counted = (
        amount / tally.capacity[resource]
        for (resource, amount), weighs in zip(asked.items(), share_resources(asked), strict=True)
        if weighs and tally.capacity[resource] > 0
    )
    return max(counted, default=0.0)


def holdings(tally: Tally, queue_policy: PolicySettings | None = None) -> Mapping[str, QueueAllocation]:
    """Work out what each queue holds, with its descendants; one without a place in the tree holds its own.

    Args:
      tally: what is counted.
      queue_policy: for queues without a parent, None for the usual one.
    """
    queues = tally.queues
    misplaced = misplaced_queues(tuple(queues.values()))
    tree = QueueTree(queue for name, queue in queues.items() if name not in misplaced)
    usage: dict[str, Counter[str]] = {name: Counter() for name in queues}
    pending: Counter[str] = Counter()
    for name in {*tally.usage, *tally.pending}:
        for above in tree.ancestry(name):
            if above in usage:
                pending[above] += tally.pending[name]
                for resource, amount in tally.usage.get(name, {}).items():
                    usage[above][resource] += amount
    fair = _fair_shares(tally, tree, queue_policy)
    return {
        name: QueueAllocation(usage[name], pending[name], misplaced.get(name, ""), fair.get(name))
        for name in queues
    }


def _fair_shares(
    tally: Tally, tree: QueueTree, queue_policy: PolicySettings | None
) -> Mapping[str, Mapping[str, int]]:
    """By queue, what it is entitled to; nothing while policies look at what was used lately: sessions know that."""
    policies = QueuePolicies(tree, queue_policy)
    if policies.remember:
        return {}
    resources = tuple(sorted(resource for resource, amount in tally.capacity.items() if amount > 0))

    def row(amounts: Mapping[str, int]) -> IntArray:
        return np.array([amounts.get(resource, 0) for resource in resources], np.int64)

    used = {name: row(amounts) for name, amounts in tally.usage.items()}
    asked = {name: row(amounts) for name, amounts in tally.wanted.items()}
    nothing = row({})
    request = {name: used.get(name, nothing) + asked.get(name, nothing) for name in {*used, *asked}}
    capacity = TotalCapacity(resources, row(tally.capacity), share_resources(resources))
    shares = lay_out(tree, capacity, QueueDemand(used, request))
    fair = entitlements(shares, policies.of(shares)).fair
    return {
        name: dict(zip(resources, fair[at].tolist(), strict=True)) for at, name in enumerate(shares.names)
    }
