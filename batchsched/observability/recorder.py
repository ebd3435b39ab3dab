"""What happens, counted: sessions and what they decided, stages and plugins, bindings, requests.

Counting hears of things; it asks nobody, and nothing depends on it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision
from batchsched.api.gang_identity import key_of
from batchsched.observability.metrics import Metrics
from batchsched.ports.telemetry import Telemetry
from batchsched.scheduling_queue.entity import Entity

ROUND: Final = "choose"
"""The stage that every round of the solver begins with."""
_SUCCESS: Final = "Success"
_ERROR: Final = "Error"
_MOST_ATTEMPTS: Final = 15
"""As in kube-scheduler, more attempts than this are told as `15+`."""


class TimedStage(Telemetry):
    """Hears where the time of one profile's sessions goes; called in the thread that decides.

    Args:
      metrics: take it down.
      profile: the scheduler name.
    """

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self._metrics = metrics
        self._profile = profile
        self._point = ""
        self._spent, self._status = 0.0, _SUCCESS
        self.stages: dict[str, float] = {}
        """Seconds by stage of the session that runs, or ran last."""

    def begin(self) -> None:
        """Begin a session."""
        self.stages = {}

    @override
    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        if name == ROUND:
            self._metrics.solver_rounds.labels(self._profile).inc()
        try:
            yield
        finally:
            spent = perf_counter() - begun
            self.stages[name] = self.stages.get(name, 0.0) + spent
            self._metrics.stage_duration.labels(name).inc(spent)

    @override
    def progress(self, done: int, total: int, what: str) -> None:
        """Nobody waits for it."""

    @override
    @contextmanager
    def call(self, plugin: str, point: str) -> Iterator[None]:
        begun, status = perf_counter(), _ERROR
        try:
            yield
            status = _SUCCESS
        finally:
            spent = perf_counter() - begun
            self._metrics.under(self._metrics.plugin_duration, plugin, point, status).observe(spent)
            if point != self._point:
                self.flush()
            self._point = point
            self._spent += spent
            self._status = _ERROR if status == _ERROR else self._status

    def flush(self) -> None:
        """End the run of calls of one extension point."""
        if self._point:
            labels = (self._point, self._status, self._profile)
            self._metrics.point_duration.labels(*labels).observe(self._spent)
        self._point, self._spent, self._status = "", 0.0, _SUCCESS


class MetricsRecorder:
    """Counts for one process.

    Args:
      metrics: take it down.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._binding: dict[str, tuple[str, float, float | None, int]] = {}
        """By pod that is being bound: profile, when its session began, when it was first tried, and how often."""

    def asked(self, method: str, status: str, seconds: float) -> None:
        """Hear of a request to the API server."""
        metrics = self._metrics
        metrics.under(metrics.requests, status, method).inc()
        metrics.under(metrics.request_duration, method).observe(seconds)

    def decided(
        self, profile: str, entities: tuple[Entity, ...], begun: float, decision: Decision, took: float
    ) -> None:
        """Hear of a session.

        Args:
          profile: the scheduler name.
          entities: who took part.
          begun: seconds since 1970.
          decision: what came of it.
          took: seconds.
        """
        metrics, account = self._metrics, decision.solver
        metrics.algorithm_duration.observe(took)
        metrics.session_duration.labels(profile).observe(took)
        metrics.session_pods.labels(profile).observe(sum(len(one.popped) for one in entities))
        metrics.solver_gap.labels(profile).set(account.gap)
        metrics.solver_guards.labels(profile).inc(account.guard)
        self._victims(decision)
        placed = {f"{one.namespace}/{one.pod}" for one in decision.assignments}
        waiting = {one.pod_group for one in decision.waiting}
        results: Counter[str] = Counter()
        for entity in entities:
            results[self._entity(profile, entity, begun, took, placed, waiting)] += 1
        for result, count in results.items():
            metrics.gangs.labels(result, profile).inc(count)
        for reason, count in Counter(one.reason for one in decision.refusals).items():
            metrics.refusals.labels(reason, profile).inc(count)

    def _entity(
        self, profile: str, entity: Entity, begun: float, took: float, placed: set[str], waiting: set[str]
    ) -> str:
        """Count one gang; returns what became of it."""
        refused = [pod.key for pod in entity.popped if pod.key not in placed]
        for pod in entity.popped:
            if pod.key in placed:
                self._binding[pod.key] = (profile, begun, entity.first_attempt, entity.attempts)
        if key_of(entity.identity) in waiting:
            return "waiting"
        if refused:
            duration = self._metrics.attempt_duration.labels("unschedulable", profile)
            self._metrics.schedule_attempts.labels("unschedulable", profile).inc(len(refused))
            for _ in refused:
                duration.observe(took)
        return "placed" if len(refused) < len(entity.popped) else "refused"

    def _victims(self, decision: Decision) -> None:
        victims = Counter(one.for_ for one in decision.evictions)
        self._metrics.preemption_attempts.inc(len(victims))
        for count in victims.values():
            self._metrics.preemption_victims.observe(count)

    def bound(self, pod: Pod, problem: str, now: float) -> None:
        """Hear that a pod was bound, or what went wrong; `now` in seconds since 1970."""
        known = self._binding.pop(pod.key, None)
        if known is None:
            return
        profile, begun, first, attempts = known
        metrics, result = self._metrics, "error" if problem else "scheduled"
        metrics.under(metrics.schedule_attempts, result, profile).inc()
        metrics.under(metrics.attempt_duration, result, profile).observe(max(0.0, now - begun))
        if not problem:
            told = str(attempts) if attempts <= _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
            since = begun if first is None else first
            metrics.under(metrics.sli_duration, told).observe(max(0.0, now - since))
            metrics.pod_attempts.observe(attempts)
