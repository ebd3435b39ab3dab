"""Declares all Prometheus metrics, with the names of kube-scheduler if the meaning is the same.

All other names begin with `batchsched_`.

The documentation's page of metrics is generated from these declarations. `recorder` counts events as they happen;
`collector` reads the gauges at each scrape.

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


def exponential_buckets(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of `count` histogram buckets: `first`, `first · factor` and so on."""
    return tuple(first * factor**power for power in range(count))


class Metrics:
    """All Prometheus metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.declared: list[MetricWrapperBase] = []
        """The metrics, in the order in which the documentation lists them."""
        self._children: dict[tuple[Any, ...], Any] = {}
        self._attempts()
        self._plugins()
        self._queues()
        self._sessions()
        self._cluster()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def cached_time_series(self, metric: M, *labels: str) -> M:
        """Return the time series of a metric for the given label values, from a cache.

        Use it for metrics that are updated for each pod or call. It must not be used for metrics that are cleared:
        the cached child would no longer be exported.
        """
        key = (metric, *labels)
        child: M | None = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def prometheus_text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def _attempts(self) -> None:
        self.schedule_attempts = self._counter(
            "scheduler_schedule_attempts",
            "Scheduling attempts of pods by result: scheduled, unschedulable, or error (the binding failed).",
            "result",
            "profile",
        )
        self.attempt_duration = self._histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Seconds from the start of a session to the binding or refusal of a pod.",
            exponential_buckets(0.001, 2, 15),
            "result",
            "profile",
        )
        self.algorithm_duration = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of the decision of a session. kube-scheduler observes one value for each pod instead.",
            exponential_buckets(0.001, 2, 15),
        )
        self.sli_duration = self._histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from the first time at which a pod was schedulable to its binding, over all attempts.",
            exponential_buckets(0.01, 2, 20),
            "attempts",
        )
        self.pod_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of sessions until a pod was bound.",
            exponential_buckets(1, 2, 5),
        )
        self.preemption_attempts = self._counter(
            "scheduler_preemption_attempts", "Gangs and single pods for which other pods were evicted."
        )
        self.preemption_victims = self._histogram(
            "scheduler_preemption_victims",
            "Number of pods evicted for one gang or single pod.",
            exponential_buckets(1, 2, 7),
        )

    def _plugins(self) -> None:
        self.plugin_duration = self._histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of one plugin call, for all nodes together; sampled in 10 % of the scheduling cycles.",
            exponential_buckets(0.00001, 1.5, 20),
            "plugin",
            "extension_point",
            "status",
        )
        self.point_duration = self._histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of all plugins of an extension point; sampled in 10 % of the scheduling cycles.",
            exponential_buckets(0.0001, 2, 12),
            "extension_point",
            "status",
            "profile",
        )

    def _queues(self) -> None:
        self.pending_pods = self._gauge(
            "scheduler_pending_pods",
            "Pending pods by part of the scheduling queue: active, backoff, unschedulable or gated.",
            "queue",
        )
        self.unschedulable_pods = self._gauge(
            "scheduler_unschedulable_pods",
            "Unschedulable pods by the plugin that refused them, or by the session's own reason.",
            "plugin",
            "profile",
        )
        self.incoming_pods = self._counter(
            "scheduler_queue_incoming_pods",
            "Pods added to a part of the scheduling queue, by the event that moved them.",
            "queue",
            "event",
        )
        self.hint_faults = self._counter(
            "batchsched_queueing_hint_errors",
            "Queueing hints that failed. The pod is queued again in this case.",
            "plugin",
        )
        self.pending_gangs = self._gauge(
            "batchsched_pending_gangs",
            "Pending gangs by part of the scheduling queue, without single pods.",
            "queue",
        )
        self.waiting_gangs = self._gauge("batchsched_waiting_gangs", "Gangs that wait at Permit.", "profile")
        self.queue_allocated = self._gauge(
            "batchsched_queue_allocated",
            "Requests of the bound pods of a Queue, in cores, bytes or devices.",
            "queue",
            "resource",
        )
        self.queue_pending = self._gauge(
            "batchsched_queue_pending",
            "Requests of the pending pods of a Queue, in cores, bytes or devices.",
            "queue",
            "resource",
        )

    def _sessions(self) -> None:
        self.session_duration = self._histogram(
            "batchsched_session_duration_seconds",
            "Duration of the decision of a session.",
            exponential_buckets(0.001, 2, 16),
            "profile",
        )
        self.session_pods = self._histogram(
            "batchsched_session_pods", "Number of pods in a session.", exponential_buckets(1, 4, 9), "profile"
        )
        self.stage_duration = self._counter(
            "batchsched_session_stage_seconds", "Total seconds spent in each stage of sessions.", "stage"
        )
        self.long_session_gang = self._gauge(
            "batchsched_long_session_gang_seconds",
            "Seconds spent on the gang that took the most time of the latest session of more than 5 seconds, with the "
            "stage that took the most. The series is removed after 10 minutes.",
            "profile",
            "stage",
            "pod_group",
        )
        self.gangs = self._counter(
            "batchsched_gangs",
            "Gangs by result of the session: placed, waiting (at Permit) or refused. A single pod counts as a gang.",
            "result",
            "profile",
        )
        self.refusals = self._counter(
            "batchsched_refusals", "Refusals of gangs, by reason.", "reason", "profile"
        )
        self.explanations = self._counter(
            "batchsched_explanations",
            "Explanations of refused gangs by result: verified, partial (their budget was spent), outdated (the gang "
            "took part in a newer session, or sessions interrupted it too often) or failed (a defect).",
            "result",
            "profile",
        )
        self.explanation_seconds = self._counter(
            "batchsched_explanation_seconds",
            "Total seconds of CPU time of explanations, between sessions.",
            "result",
            "profile",
        )
        self.policy_chosen = self._gauge(
            "batchsched_policy_chosen",
            "1 for the candidate that the policy auto uses, 0 for its other candidates.",
            "policy",
            "profile",
        )
        self.policy_changes = self._counter(
            "batchsched_policy_changes", "Changes of the candidate that the policy auto uses.", "profile"
        )
        self.forecast_seconds = self._counter(
            "batchsched_policy_forecast_seconds",
            "Total seconds of CPU time of the forecasts of the policy auto.",
            "profile",
        )
        self.dropped_placements = self._counter(
            "batchsched_placements_dropped",
            "Gangs that were placed but not bound, because other pods had filled one of their nodes meanwhile.",
            "profile",
        )
        self.solver_gap = self._gauge(
            "batchsched_solver_gap",
            "Relative gap between the objective of the last session and its upper bound.",
            "profile",
        )
        self.solver_rounds = self._counter(
            "batchsched_solver_rounds",
            "Rounds of the solver: select gangs, place their pods on nodes, add cuts.",
            "profile",
        )
        self.solver_guards = self._counter(
            "batchsched_solver_guards",
            "Sessions in which the wall-clock limit stopped the solver.",
            "profile",
        )
        self.set_aside = self._gauge(
            "batchsched_set_aside",
            "Objects that are invalid and therefore ignored, and parts that sessions leave out.",
        )
        self.overdue_plugins = self._gauge(
            "batchsched_plugins_left_out",
            "Plugins that exceeded their deadline and are disabled until the next start or a changed configuration.",
            "profile",
        )

    def _cluster(self) -> None:
        self.bind_duration = self._histogram(
            "batchsched_bind_duration_seconds",
            "Duration of PreBind, Bind and PostBind of a pod, including the wait for a request slot.",
            exponential_buckets(0.001, 2, 15),
            "result",
        )
        self.cache_size = self._gauge(
            "scheduler_cache_size",
            "Objects in the cache by type: nodes, pods, assumed_pods and others.",
            "type",
        )
        self.lists = self._counter(
            "batchsched_reflector_lists",
            "List requests of a whole collection, named as for kubectl: one at the start, and one after each 410 "
            "response.",
            "resource",
        )
        self.failures = self._counter(
            "batchsched_reflector_failures",
            "List and watch requests that failed, by resource, named as for kubectl.",
            "resource",
        )
        self.events = self._counter(
            "batchsched_reflector_events",
            "Watch events received, by resource, named as for kubectl.",
            "resource",
        )
        self.forbidden = self._gauge(
            "batchsched_reflector_forbidden",
            "1 for each resource that the scheduler is not allowed to list or watch, named as for kubectl.",
            "resource",
        )
        self.silence = self._gauge(
            "batchsched_reflector_silence_seconds",
            "Seconds since the last event or bookmark of the watch of a resource, named as for kubectl. The API server "
            "sends a bookmark about once a minute. Kinds that are not installed have no series.",
            "resource",
        )
        self.requests = self._counter(
            "rest_client_requests",
            "Requests to the API server by status code; <error> if there was no response.",
            "code",
            "method",
        )
        self.request_duration = self._histogram(
            "rest_client_request_duration_seconds",
            "Duration of requests to the API server, without watches.",
            (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
            "verb",
        )
        self.leader = self._gauge(
            "leader_election_master_status", "1 for the leader, 0 for a standby replica.", "name"
        )
        self.name_conflicts = self._gauge(
            "batchsched_scheduler_name_conflict",
            "1 while another deployment schedules pods with the same scheduler name; the label names its Lease.",
            "profile",
            "deployment",
        )
        self.reloads = self._counter(
            "batchsched_config_reloads",
            "Reloads of the configuration by result: success or failure.",
            "result",
        )
        self.reload_ok = self._gauge(
            "batchsched_config_last_reload_successful",
            "1 if the last reload of the configuration file succeeded, otherwise 0.",
        )
        self.build = self._gauge(
            "batchsched_build_info", "Always 1; the label has the version of batchsched.", "version"
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return self._declare(Counter(name, meaning, labels, registry=self.registry))

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return self._declare(Gauge(name, meaning, labels, registry=self.registry))

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return self._declare(Histogram(name, meaning, labels, buckets=buckets, registry=self.registry))

    def _declare(self, declared_metric: M) -> M:
        self.declared.append(declared_metric)
        return declared_metric
