"""Who stands where: the gangs that wait in each queue, one behind the other, and what each queue holds in all."""

from collections import Counter
from collections.abc import Mapping

from batchsched.cache.cache import PODS, Cache
from batchsched.cache.feed import GROUPS
from batchsched.model.pod import Pod
from batchsched.model.podgroup import PodGroup
from batchsched.model.relations import misplaced_queues
from batchsched.ordering.tree import QueueTree
from batchsched.service.reports.status import Held
from batchsched.service.reports.tally import Standing, Tally


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


def holdings(tally: Tally) -> Mapping[str, Held]:
    """Work out what each queue holds, with its descendants; one without a place in the tree holds its own."""
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
    return {name: Held(usage[name], pending[name], misplaced.get(name, "")) for name in queues}
