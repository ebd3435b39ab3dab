"""Updates gauges such as the number of pending pods, from the scheduler's state, at each scrape."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import prometheus_client as metric

from batchsched.api.gang import is_single_pod_identity
from batchsched.kube.reflector import Reflector
from batchsched.observability.metrics import Metrics
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduling_queue.entity import QueueState
from batchsched.scheduling_queue.queue import QUEUES
from batchsched.state.cluster_state import NODES, PODS, ClusterState

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
LastTotals = dict[tuple[metric.Counter, tuple[str, ...]], float]


@dataclass(slots=True)
class MetricsCollector:
    """The component that updates the gauges from the scheduler's state at each scrape of /metrics.

    Args:
      metrics: The metrics to update.
      cache: The cluster state.
      reflectors: The list-and-watch clients, one for each kind.
    """

    metrics: Metrics
    cache: ClusterState
    reflectors: Sequence[Reflector]
    _counted: WeakKeyDictionary[object, LastTotals] = field(init=False, default_factory=WeakKeyDictionary)

    def update_gauges(self, profile_schedulers: Sequence[ProfileScheduler], now: float) -> None:
        """Update all gauges from the present state of the scheduler.

        Args:
          profile_schedulers: The schedulers of all profiles.
          now: The present time in seconds of the monotonic clock.
        """
        self._read_cache()
        self._read_reflectors(now)
        self._read_queues(profile_schedulers)
        self.metrics.queue_allocated.clear()
        self.metrics.queue_pending.clear()
        amounts = self.cache.queue_usage.usage_and_demand_by_queue_and_resource()
        for (queue, resource), (allocated, pending) in amounts.items():
            unit = _MILLI if resource == "cpu" else 1
            self.metrics.queue_allocated.labels(queue, resource).set(allocated / unit)
            self.metrics.queue_pending.labels(queue, resource).set(pending / unit)

    def _read_cache(self) -> None:
        sizes = {name: self.cache.count_objects(fields) for name, fields in _CACHED.items()}
        sizes["assumed_pods"] = len(self.cache.assumed_pods())
        for name, size in sizes.items():
            self.metrics.cache_size.labels(name).set(size)

    def _read_reflectors(self, now: float) -> None:
        metrics = self.metrics
        metrics.forbidden.clear()
        silence: dict[str, float] = {}
        for reflector in self.reflectors:
            name = reflector.resource.full_name
            if reflector.forbidden:
                metrics.forbidden.labels(name).set(1)
            self._grown(reflector, metrics.lists, reflector.lists, name)
            self._grown(reflector, metrics.events, reflector.events, name)
            self._grown(reflector, metrics.failures, reflector.failures, name)
            if reflector.last_event_at is not None and not reflector.is_missing:
                # Of several versions of one resource, the watch that is silent for the longest time counts.
                silence[name] = max(silence.get(name, 0.0), now - reflector.last_event_at)
        metrics.silence.clear()
        for name, seconds in silence.items():
            metrics.silence.labels(name).set(seconds)

    def _read_queues(self, profile_schedulers: Sequence[ProfileScheduler]) -> None:
        metrics = self.metrics
        pods: Counter[str] = Counter(dict.fromkeys(QUEUES.values(), 0))
        gangs: Counter[str] = Counter(dict.fromkeys(QUEUES.values(), 0))
        metrics.unschedulable_pods.clear()
        for profile_scheduler in profile_schedulers:
            self._read_scheduler(profile_scheduler, pods, gangs)
        for name in QUEUES.values():
            metrics.pending_pods.labels(name).set(pods[name])
            metrics.pending_gangs.labels(name).set(gangs[name])

    def _read_scheduler(
        self, profile_scheduler: ProfileScheduler, pods: Counter[str], gangs: Counter[str]
    ) -> None:
        metrics, profile = self.metrics, profile_scheduler.profile.scheduler_name
        refused: Counter[str] = Counter()
        for entity in profile_scheduler.queue.entities():
            name = QUEUES.get(entity.place)
            if name is None:
                continue
            pods[name] += len(entity.pods)
            gangs[name] += not is_single_pod_identity(entity.identity)
            if entity.place is QueueState.UNSCHEDULABLE:
                refused.update(dict.fromkeys(entity.refused_by, len(entity.pods)))
        for plugin, count in refused.items():
            metrics.unschedulable_pods.labels(plugin, profile).set(count)
        metrics.waiting_gangs.labels(profile).set(len(profile_scheduler.held))
        metrics.overdue_plugins.labels(profile).set(len(profile_scheduler.runner.overdue))
        self._grown(
            profile_scheduler, metrics.dropped_placements, profile_scheduler.dropped_placements, profile
        )
        for (queue, event), moved in profile_scheduler.queue.moved_pod_counts().items():
            self._grown(profile_scheduler, metrics.incoming_pods, moved, queue, event)
        for plugin, faults in profile_scheduler.queue.hint_failure_counts().items():
            self._grown(profile_scheduler, metrics.hint_faults, faults, plugin)

    def _grown(self, source: object, counter: metric.Counter, total: float, *labels: str) -> None:
        """Increase a counter by the growth of `total` since the last scrape.

        The totals of different sources add up: `source` may be replaced, for example by a reload of the
        configuration.
        """
        totals = self._counted.setdefault(source, {})
        counter.labels(*labels).inc(max(0.0, total - totals.get((counter, labels), 0.0)))
        totals[counter, labels] = total
