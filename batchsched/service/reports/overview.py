"""Who stands where: the gangs that wait in each queue, one behind the other, and what each queue holds in all."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from batchsched.cache.cache import PODS, Cache
from batchsched.cache.feed import GROUPS
from batchsched.framework.status import IntArray
from batchsched.model.pod import Pod
from batchsched.model.podgroup import PodGroup
from batchsched.model.relations import misplaced_queues
from batchsched.ordering.entitlements import entitlements
from batchsched.ordering.layout import Capacity, Load, lay_out
from batchsched.ordering.tree import QueueTree
from batchsched.service.reports.status import Held
from batchsched.service.reports.tally import Standing, Tally
from batchsched.session.entitled import QueuePolicies
from batchsched.session.frame import weighed
from batchsched.settings.schema import PolicySettings


def positions(tally: Tally, cache: Cache) -> dict[str, int]:
    """Number the PodGroups that wait in each queue, the first to start at 1: by priority, then by age."""
    line: list[tuple[int, float, str, str]] = []
    for key, standing in tally.gangs.items():
        group: PodGroup | None = cache.get(GROUPS, key)
        if standing.pending and group is not None:
            line.append((-_priority(cache, standing), group.created, key, standing.queue))
    line.sort()
    count: Counter[str] = Counter()
    found = {}
    for _, _, key, queue in line:
        count[queue] += 1
        found[key] = count[queue]
    return found


def _priority(cache: Cache, standing: Standing) -> int:
    pod: Pod | None = cache.get(PODS, min(standing.waiting))
    return (pod.spec.priority or 0) if pod is not None else 0


def holdings(tally: Tally, queue_policy: PolicySettings | None = None) -> Mapping[str, Held]:
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
        name: Held(usage[name], pending[name], misplaced.get(name, ""), fair.get(name)) for name in queues
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
    capacity = Capacity(resources, row(tally.capacity), weighed(resources))
    shares = lay_out(tree, capacity, Load(used, request))
    fair = entitlements(shares, policies.of(shares)).fair
    return {
        name: dict(zip(resources, fair[at].tolist(), strict=True)) for at, name in enumerate(shares.names)
    }
