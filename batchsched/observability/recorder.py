"""Updates counters and histograms when events happen, such as sessions, plugin calls and bindings.

The recorder only receives callbacks; no other component depends on its state.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision
from batchsched.api.gang import gang_key_from_identity
from batchsched.controllers.policy_worker import ForecastOutcome
from batchsched.observability.metrics import Metrics
from batchsched.ports.external import Telemetry
from batchsched.runner.refusal_explanations import ExplanationOutcome
from batchsched.scheduling_queue.entity import Entity

ROUND_STAGE: Final = "choose"
"""The stage with which each round of the solver begins."""
_SUCCESS: Final = "Success"
_ERROR: Final = "Error"
_MAX_ATTEMPTS_LABEL: Final = 15
"""Attempts above this number share the label `15+`, as in kube-scheduler."""


class MetricsTelemetry(Telemetry):
    """The telemetry of one profile, which measures how long stages and plugin calls of its sessions take.

    Its methods are called in the thread of the session.

    Args:
      metrics: The metrics to update.
      profile: The scheduler name.
    """

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self._metrics = metrics
        self._profile = profile
        self._point = ""
        self._spent, self._status = 0.0, _SUCCESS
        self.stages: dict[str, float] = {}
        """Seconds by stage, of the running session or the last one."""
        self.gangs: dict[str, float] = {}
        """Seconds by gang (`namespace/name`), of the running session or the last one."""

    def clear_session_durations(self) -> None:
        """Clear the durations of the last session's stages and gangs, before the next session starts."""
        self.stages, self.gangs = {}, {}

    @override
    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        if name == ROUND_STAGE:
            self._metrics.solver_rounds.labels(self._profile).inc()
        try:
            yield
        finally:
            spent = perf_counter() - begun
            self.stages[name] = self.stages.get(name, 0.0) + spent
            self._metrics.stage_duration.labels(name).inc(spent)

    @override
    @contextmanager
    def gang_span(self, pod_group: str) -> Iterator[None]:
        begun = perf_counter()
        try:
            yield
        finally:
            self.gangs[pod_group] = self.gangs.get(pod_group, 0.0) + perf_counter() - begun

    @override
    def on_progress(self, done: int, total: int, unit: str) -> None:
        """Do nothing, because a running scheduler does not display the progress of a session."""

    @override
    @contextmanager
    def plugin_span(self, plugin: str, point: str) -> Iterator[None]:
        begun, status = perf_counter(), _ERROR
        try:
            yield
            status = _SUCCESS
        finally:
            spent = perf_counter() - begun
            self._metrics.cached_time_series(self._metrics.plugin_duration, plugin, point, status).observe(
                spent
            )
            if point != self._point:
                self.observe_extension_point_duration()
            self._point = point
            self._spent += spent
            self._status = _ERROR if status == _ERROR else self._status

    def observe_extension_point_duration(self) -> None:
        """Add the total duration of the plugin calls at the present extension point to a histogram."""
        if self._point:
            labels = (self._point, self._status, self._profile)
            self._metrics.point_duration.labels(*labels).observe(self._spent)
        self._point, self._spent, self._status = "", 0.0, _SUCCESS


class MetricsRecorder:
    """The component that updates counters and histograms after each session, binding and API request.

    Args:
      metrics: The metrics to update.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._binding: dict[tuple[str, str], tuple[str, float, float | None, int]] = {}
        """For each pod that is being bound, by key and UID, because a new pod may have the name of a deleted one:
        profile, session start, first attempt (seconds since 1970), attempts."""

    def record_request_metrics(self, method: str, status: str, seconds: float) -> None:
        """Update the metrics of requests to the API server after a request."""
        metrics = self._metrics
        metrics.cached_time_series(metrics.requests, status, method).inc()
        metrics.cached_time_series(metrics.request_duration, method).observe(seconds)

    def record_session_metrics(
        self, profile: str, entities: tuple[Entity, ...], begun: float, decision: Decision, took: float
    ) -> None:
        """Update the metrics of sessions, gangs, pods and refusals after a session.

        Args:
          profile: The scheduler name.
          entities: The gangs and single pods that took part.
          begun: The start of the session, by `Clock.steady_now`.
          decision: The decision.
          took: The duration of the session, seconds.
        """
        metrics, solver = self._metrics, decision.solver
        metrics.algorithm_duration.observe(took)
        metrics.session_duration.labels(profile).observe(took)
        metrics.session_pods.labels(profile).observe(sum(len(item.popped) for item in entities))
        metrics.solver_gap.labels(profile).set(solver.gap)
        metrics.solver_guards.labels(profile).inc(solver.guard)
        self._victims(decision)
        placed = {item.pod_key for item in decision.assignments}
        waiting = {item.pod_group for item in decision.waiting}
        results: Counter[str] = Counter()
        for entity in entities:
            results[self._entity(profile, entity, begun, took, placed, waiting)] += 1
        for result, count in results.items():
            metrics.gangs.labels(result, profile).inc(count)
        for reason, count in Counter(item.reason for item in decision.refusals).items():
            metrics.refusals.labels(reason, profile).inc(count)

    def _entity(
        self, profile: str, entity: Entity, begun: float, took: float, placed: set[str], waiting: set[str]
    ) -> str:
        """Count the pods of one gang by result, and return the result: `placed`, `waiting` or `refused`."""
        refused = [pod.key for pod in entity.popped if pod.key not in placed]
        for pod in entity.popped:
            if pod.key in placed:
                binding = (profile, begun, entity.first_attempt, entity.attempts)
                self._binding[pod.key, pod.metadata.uid] = binding
        if gang_key_from_identity(entity.identity) in waiting:
            return "waiting"
        if refused:
            duration = self._metrics.attempt_duration.labels("unschedulable", profile)
            self._metrics.schedule_attempts.labels("unschedulable", profile).inc(len(refused))
            for _ in refused:
                duration.observe(took)
        return "placed" if len(refused) < len(entity.popped) else "refused"

    def _victims(self, decision: Decision) -> None:
        victims = Counter(eviction.for_ for eviction in decision.evictions)
        self._metrics.preemption_attempts.inc(len(victims))
        for count in victims.values():
            self._metrics.preemption_victims.observe(count)

    def record_explanation_metrics(self, outcome: ExplanationOutcome) -> None:
        """Update the metrics of explanations after an explanation of a refused gang ended."""
        labels = (outcome.result.value, outcome.profile)
        self._metrics.explanations.labels(*labels).inc()
        self._metrics.explanation_seconds.labels(*labels).inc(outcome.seconds)

    def record_forecast_metrics(self, outcome: ForecastOutcome) -> None:
        """Update the metrics of the policy `auto` after a forecast ended."""
        metrics, choice = self._metrics, outcome.choice
        metrics.forecast_seconds.labels(outcome.profile).inc(outcome.seconds)
        for policy in choice.forecasts:
            metrics.policy_chosen.labels(policy, outcome.profile).set(float(policy == choice.policy))
        metrics.policy_changes.labels(outcome.profile).inc(float(choice.changes_gang_order))

    def record_binding_metrics(self, pod: Pod, problem: str, now: float, seconds: float) -> None:
        """Update the metrics of bindings and scheduling attempts after the binding of a pod succeeded or failed.

        Args:
          pod: The pod.
          problem: Why the binding failed, "" after success.
          now: The present time by `Clock.steady_now`.
          seconds: The duration of PreBind, Bind and PostBind.
        """
        metrics, result = self._metrics, "error" if problem else "scheduled"
        metrics.cached_time_series(metrics.bind_duration, result).observe(seconds)
        session = self._binding.pop((pod.key, pod.metadata.uid), None)
        if session is None:
            return
        profile, begun, first, attempts = session
        metrics.cached_time_series(metrics.schedule_attempts, result, profile).inc()
        metrics.cached_time_series(metrics.attempt_duration, result, profile).observe(max(0.0, now - begun))
        if not problem:
            label = str(attempts) if attempts <= _MAX_ATTEMPTS_LABEL else f"{_MAX_ATTEMPTS_LABEL}+"
            since = begun if first is None else first
            metrics.cached_time_series(metrics.sli_duration, label).observe(max(0.0, now - since))
            metrics.pod_attempts.observe(attempts)
