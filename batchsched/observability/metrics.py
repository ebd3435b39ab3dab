"""The metrics: kube-scheduler's names where the meaning is the same, and our own for sessions, gangs and the solver.

What is declared here stands on the documentation's page of metrics. Who counts is `service.counting`; what can be read
off the scheduler's tables is read when somebody asks, by `service.gauges`.

Source: the names and buckets of kube-scheduler's pkg/scheduler/metrics, 1.36, and of client-go's rest client.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

M = TypeVar("M", bound=MetricWrapperBase)


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper ends of buckets, each so many times the one before."""
    return tuple(first * factor**power for power in range(count))


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.declared: list[MetricWrapperBase] = []
        """In the order of the documentation."""
        self._known: dict[tuple[Any, ...], Any] = {}
        self._attempts()
        self._plugins()
        self._queues()
        self._sessions()
        self._cluster()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def under(self, metric: M, *labels: str) -> M:
        """Return a metric under its labels, looked for once: for what is counted pod by pod, and never cleared."""
        key = (metric, *labels)
        found: M | None = self._known.get(key)
        if found is None:
            found = self._known[key] = metric.labels(*labels)
        return found

    def text(self) -> bytes:
        """Write all of them as Prometheus reads them."""
        return generate_latest(self.registry)

    def _attempts(self) -> None:
        self.schedule_attempts = self._counter(
            "scheduler_schedule_attempts",
            "Pods that were tried: scheduled (bound), unschedulable (refused), error (the binding failed).",
            "result",
            "profile",
        )
        self.attempt_duration = self._histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "From the beginning of a pod's session to its binding, or to its refusal.",
            exponential(0.001, 2, 15),
            "result",
            "profile",
        )
        self.algorithm_duration = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "How long sessions took to decide; kube-scheduler has one for each pod.",
            exponential(0.001, 2, 15),
        )
        self.sli_duration = self._histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the time at which a pod could first be tried to its binding, over all attempts.",
            exponential(0.01, 2, 20),
            "attempts",
        )
        self.pod_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts",
            "Sessions that a pod took part in until it was bound.",
            exponential(1, 2, 5),
        )
        self.preemption_attempts = self._counter(
            "scheduler_preemption_attempts", "Gangs, or pods alone, that others are evicted for."
        )
        self.preemption_victims = self._histogram(
            "scheduler_preemption_victims", "Pods that are evicted for one gang.", exponential(1, 2, 7)
        )

    def _plugins(self) -> None:
        self.plugin_duration = self._histogram(
            "scheduler_plugin_execution_duration_seconds",
            "One call of a plugin, over all nodes at once; in a tenth of the cycles.",
            exponential(0.00001, 1.5, 20),
            "plugin",
            "extension_point",
            "status",
        )
        self.point_duration = self._histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "All plugins of an extension point, one after the other; in a tenth of the cycles.",
            exponential(0.0001, 2, 12),
            "extension_point",
            "status",
            "profile",
        )

    def _queues(self) -> None:
        self.pending_pods = self._gauge(
            "scheduler_pending_pods", "Pods that wait: active, backoff, unschedulable or gated.", "queue"
        )
        self.unschedulable_pods = self._gauge(
            "scheduler_unschedulable_pods",
            "Pods that wait since a plugin, or the session for a reason of its own, refused them.",
            "plugin",
            "profile",
        )
        self.incoming_pods = self._counter(
            "scheduler_queue_incoming_pods",
            "Pods that came into a queue, by what brought them.",
            "queue",
            "event",
        )
        self.hint_faults = self._counter(
            "batchsched_queueing_hint_errors", "Queueing hints that broke; the pod was tried again.", "plugin"
        )
        self.pending_gangs = self._gauge(
            "batchsched_pending_gangs",
            "Gangs that wait, pods alone not counted, by queue of the scheduler.",
            "queue",
        )
        self.waiting_gangs = self._gauge(
            "batchsched_waiting_gangs", "Gangs that a Permit plugin keeps waiting.", "profile"
        )
        self.queue_allocated = self._gauge(
            "batchsched_queue_allocated",
            "What the bound pods of a Queue request: cores, bytes, devices.",
            "queue",
            "resource",
        )
        self.queue_pending = self._gauge(
            "batchsched_queue_pending",
            "What the waiting pods of a Queue request: cores, bytes, devices.",
            "queue",
            "resource",
        )

    def _sessions(self) -> None:
        self.session_duration = self._histogram(
            "batchsched_session_duration_seconds",
            "How long a session took to decide.",
            exponential(0.001, 2, 16),
            "profile",
        )
        self.session_pods = self._histogram(
            "batchsched_session_pods", "Pods that took part in a session.", exponential(1, 4, 9), "profile"
        )
        self.stage_duration = self._counter(
            "batchsched_session_stage_seconds", "Seconds spent in a stage of sessions.", "stage"
        )
        self.gangs = self._counter(
            "batchsched_gangs",
            "Gangs that sessions decided on: placed, waiting (at Permit) or refused. A pod alone is a gang of one.",
            "result",
            "profile",
        )
        self.refusals = self._counter(
            "batchsched_refusals", "Refusals of gangs, by reason.", "reason", "profile"
        )
        self.solver_gap = self._gauge(
            "batchsched_solver_gap",
            "Relative distance of the last session's objective to its bound.",
            "profile",
        )
        self.solver_rounds = self._counter(
            "batchsched_solver_rounds", "Rounds of the solver: chosen, realised on nodes, cut.", "profile"
        )
        self.solver_guards = self._counter(
            "batchsched_solver_guards",
            "Sessions in which the wall-clock guard stopped the solver.",
            "profile",
        )
        self.set_aside = self._gauge(
            "batchsched_set_aside", "Objects that cannot be used, and what sessions go on without."
        )
        self.overdue_plugins = self._gauge(
            "batchsched_plugins_left_out",
            "Plugins that hung, and are asked no more until the next start.",
            "profile",
        )

    def _cluster(self) -> None:
        self.bind_duration = self._histogram(
            "batchsched_bind_duration_seconds",
            "PreBind, Bind and PostBind of a pod, the wait for a free request included.",
            exponential(0.001, 2, 15),
            "result",
        )
        self.cache_size = self._gauge(
            "scheduler_cache_size", "Objects in the cache: nodes, pods, assumed_pods and others.", "type"
        )
        self.lists = self._counter(
            "batchsched_reflector_lists",
            "Lists of a whole collection: one at the start, others after a 410.",
            "resource",
        )
        self.failures = self._counter(
            "batchsched_reflector_failures", "Lists and watches that failed.", "resource"
        )
        self.events = self._counter("batchsched_reflector_events", "Events that watches brought.", "resource")
        self.forbidden = self._gauge(
            "batchsched_reflector_forbidden",
            "1 for a kind that we lack the right to list or watch; its name as kubectl takes it.",
            "resource",
        )
        self.silence = self._gauge(
            "batchsched_reflector_silence_seconds",
            "Seconds since a watch brought an event or a bookmark, which comes once a minute.",
            "resource",
        )
        self.requests = self._counter(
            "rest_client_requests", "Requests to the API server; code <error>: no answer.", "code", "method"
        )
        self.request_duration = self._histogram(
            "rest_client_request_duration_seconds",
            "How long requests to the API server took; watches are not counted.",
            (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
            "verb",
        )
        self.leader = self._gauge(
            "leader_election_master_status", "1 for the process that schedules, 0 for one that waits.", "name"
        )
        self.reloads = self._counter(
            "batchsched_config_reloads",
            "Times the configuration was read again: success or failure.",
            "result",
        )
        self.reload_ok = self._gauge(
            "batchsched_config_last_reload_successful", "1 while the configuration file is the one in force."
        )
        self.build = self._gauge("batchsched_build_info", "Always 1; which batchsched this is.", "version")

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return self._declare(Counter(name, meaning, labels, registry=self.registry))

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return self._declare(Gauge(name, meaning, labels, registry=self.registry))

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return self._declare(Histogram(name, meaning, labels, buckets=buckets, registry=self.registry))

    def _declare(self, made: M) -> M:
        self.declared.append(made)
        return made
