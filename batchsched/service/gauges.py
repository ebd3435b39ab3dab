"""What can be read off the scheduler's tables, read when somebody asks for the metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import prometheus_client as metric

from batchsched.cache.cache import NODES, PODS, Cache
from batchsched.kube.reflector import Reflector
from batchsched.model.pod import POD_GROUP_LABEL, QUEUE_LABEL, Pod
from batchsched.model.podgroup import DEFAULT_QUEUE
from batchsched.model.requests import requests
from batchsched.model.snapshot import Snapshot
from batchsched.service.metrics import Metrics
from batchsched.service.planner import Planner
from batchsched.session.gang import ALONE
from batchsched.session.scheduling_queue.places import Place
from batchsched.session.scheduling_queue.queue import QUEUES

_CACHED: Final = {
    "nodes": NODES,
    "pods": PODS,
    "pod_groups": "pod_groups",
    "queues": "queues",
    "topologies": "topologies",
    "persistent_volumes": "persistent_volumes",
    "persistent_volume_claims": "persistent_volume_claims",
}
_MILLI: Final = 1000
Counted = dict[tuple[metric.Counter, tuple[str, ...]], float]
Usage = Mapping[tuple[str, str], tuple[int, int]]
"""(queue, resource) → what bound and what waiting pods request, in base units."""


@dataclass(slots=True)
class Gauges:
    """Brings the metrics up to date.

    Args:
      metrics: take it down.
      cache: what is known of the cluster.
      reflectors: follow it.
    """

    metrics: Metrics
    cache: Cache
    reflectors: Sequence[Reflector]
    _counted: WeakKeyDictionary[object, Counted] = field(init=False, default_factory=WeakKeyDictionary)

    def read(self, planners: Sequence[Planner], usage: Usage, now: float) -> None:
        """Read everything; `now` by the monotonic clock."""
        self._read_cache()
        self._read_reflectors(now)
        self._read_queues(planners)
        self.metrics.queue_allocated.clear()
        self.metrics.queue_pending.clear()
        for (queue, resource), (allocated, pending) in usage.items():
            unit = _MILLI if resource == "cpu" else 1
            self.metrics.queue_allocated.labels(queue, resource).set(allocated / unit)
            self.metrics.queue_pending.labels(queue, resource).set(pending / unit)

    def _read_cache(self) -> None:
        sizes = {name: self.cache.size(fields) for name, fields in _CACHED.items()}
        sizes["assumed_pods"] = len(self.cache.assumed())
        for name, size in sizes.items():
            self.metrics.cache_size.labels(name).set(size)

    def _read_reflectors(self, now: float) -> None:
        metrics = self.metrics
        metrics.forbidden.clear()
        for one in self.reflectors:
            name = one.resource.plural
            if one.forbidden:
                metrics.forbidden.labels(one.resource.full_name).set(1)
            self._grown(one, metrics.lists, one.lists, name)
            self._grown(one, metrics.events, one.events, name)
            self._grown(one, metrics.failures, one.failures, name)
            if one.heard_at is not None:
                metrics.silence.labels(name).set(max(0.0, now - one.heard_at))

    def _read_queues(self, planners: Sequence[Planner]) -> None:
        metrics = self.metrics
        pods: Counter[str] = Counter(dict.fromkeys(QUEUES.values(), 0))
        gangs: Counter[str] = Counter(dict.fromkeys(QUEUES.values(), 0))
        metrics.unschedulable_pods.clear()
        for planner in planners:
            self._read_planner(planner, pods, gangs)
        for name in QUEUES.values():
            metrics.pending_pods.labels(name).set(pods[name])
            metrics.pending_gangs.labels(name).set(gangs[name])

    def _read_planner(self, planner: Planner, pods: Counter[str], gangs: Counter[str]) -> None:
        metrics, profile = self.metrics, planner.profile.scheduler_name
        refused: Counter[str] = Counter()
        for entity in planner.queue.entities():
            name = QUEUES.get(entity.place)
            if name is None:
                continue
            pods[name] += len(entity.pods)
            gangs[name] += not entity.identity.startswith(ALONE)
            if entity.place is Place.UNSCHEDULABLE:
                refused.update(dict.fromkeys(entity.rejection.everyone, len(entity.pods)))
        for plugin, count in refused.items():
            metrics.unschedulable_pods.labels(plugin, profile).set(count)
        metrics.waiting_gangs.labels(profile).set(len(planner.held))
        metrics.overdue_plugins.labels(profile).set(len(planner.world.overdue))
        for (queue, event), moved in planner.queue.moved().items():
            self._grown(planner, metrics.incoming_pods, moved, queue, event)
        for plugin, faults in planner.queue.faults().items():
            self._grown(planner, metrics.hint_faults, faults, plugin)

    def _grown(self, of: object, counter: metric.Counter, total: float, *labels: str) -> None:
        """Let a counter grow by what was added to a total since the last time; totals of several objects add up."""
        known = self._counted.setdefault(of, {})
        counter.labels(*labels).inc(max(0.0, total - known.get((counter, labels), 0.0)))
        known[counter, labels] = total


def usage(snapshot: Snapshot, scheduler_names: frozenset[str]) -> Usage:
    """Add up what pods request by queue. It may run in another thread.

    Pods without a PodGroup count for the queue that their label names; those of other schedulers do not count.
    """
    queue_of = {group.key: group.spec.queue for group in snapshot.pod_groups}
    known: dict[int, dict[str, int]] = {}
    found: dict[tuple[str, str], list[int]] = {}
    for pod in snapshot.pods:
        if pod.spec.scheduler_name not in scheduler_names:
            continue
        queue = _queue(pod, queue_of)
        wants = known.get(id(pod.spec))
        if wants is None:
            wants = known[id(pod.spec)] = {"pods": 1, **requests(pod)}
        for resource, amount in wants.items():
            sums = found.setdefault((queue, resource), [0, 0])
            sums[0 if pod.node else 1] += amount
    return {key: (allocated, pending) for key, (allocated, pending) in found.items()}


def _queue(pod: Pod, queue_of: Mapping[str, str]) -> str:
    labels = pod.labels
    group = labels.get(POD_GROUP_LABEL)
    if group:
        return queue_of.get(f"{pod.namespace}/{group}", DEFAULT_QUEUE)
    return labels.get(QUEUE_LABEL, DEFAULT_QUEUE)
