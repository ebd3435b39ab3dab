"""The component that records what a scheduler does, in metrics, in the log and in a history of sessions.

A kept session has its complete input, for download and for `batchsched replay`.
"""

import asyncio
import datetime as dt
import logging
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from batchsched import __version__
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Refusal
from batchsched.api.gang import gang_key_from_identity
from batchsched.config.schema import Profile
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.logs import log_info, log_warning
from batchsched.observability.metrics import Metrics
from batchsched.observability.recorder import MetricsRecorder, MetricsTelemetry
from batchsched.ports.cluster import Clock
from batchsched.record.external_answers import ExternalAnswers
from batchsched.record.file import SessionRecord, encode_session_file
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.refusal_explanations import ExplanationOutcome
from batchsched.runner.session_runner import SessionInput
from batchsched.scheduler.app import SchedulerApp


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A finished session with its complete input and its decision, for download and replay.

    Args:
      number: The number of the session in this process, from 1.
      profile: The profile that the session ran with.
      session_input: The input of the session.
      decision: The decision, with telemetry.
      answers: The answers of extenders, and plugin calls that exceeded their deadline.
    """

    number: int
    profile: Profile
    session_input: SessionInput
    decision: Decision
    answers: ExternalAnswers

    def encode_as_session_file(self) -> bytes:
        """Return this session as the bytes of a session file, which `batchsched replay` reads."""
        session_input = self.session_input
        content, _ = encode_session_file(
            SessionRecord(
                session_input.snapshot,
                self.profile,
                session_input.now,
                session_input.seed,
                self.decision,
                answers=self.answers,
            )
        )
        return content


class SessionSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The summary of a recorded session that the list at `/debug/sessions` shows."""

    id: int
    profile: str
    time: str
    seconds: float
    pods_placed: int
    gangs_refused: int
    gangs_waiting: int
    evictions: int
    gap: float


class SessionHistory:
    """The most recent sessions of the process, up to a maximum number.

    Args:
      most: The maximum number of sessions to keep.
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[RecordedSession] = deque(maxlen=most)

    def set_max_sessions(self, most: int) -> None:
        """Change the maximum number of recorded sessions; drop the oldest sessions if there are more."""
        if most != self._kept.maxlen:
            self._kept = deque(self._kept, maxlen=most)

    def add_session(self, session: RecordedSession) -> None:
        """Add a session to the history; drop the oldest session if the maximum is exceeded."""
        self._kept.append(session)

    def get_session(self, number: int) -> RecordedSession | None:
        """Return the recorded session with this number, or None if it is no longer stored."""
        return next((session for session in self._kept if session.number == number), None)

    def summaries(self) -> list[SessionSummary]:
        """Return the summary of each recorded session, newest first."""
        return [_summary(session) for session in reversed(self._kept)]


def _summary(session: RecordedSession) -> SessionSummary:
    decision = session.decision
    return SessionSummary(
        id=session.number,
        profile=session.profile.scheduler_name,
        time=dt.datetime.fromtimestamp(session.session_input.now, dt.UTC).isoformat(timespec="milliseconds"),
        seconds=decision.solver.seconds,
        pods_placed=len(decision.assignments),
        gangs_refused=len(decision.refusals),
        gangs_waiting=len(decision.waiting),
        evictions=len(decision.evictions),
        gap=decision.solver.gap,
    )


_LOG: Final = logging.getLogger("batchsched.service")
_DIGITS: Final = 6
_MIN_REFUSALS: Final = 1000
"""Number of refusals of a profile up to which those of gangs that are no longer pending are kept."""
LONG_SESSION_SECONDS: Final = 5.0
"""A session that takes longer than this is reported with its longest stage and gang."""
LONG_SESSION_SHOWN_SECONDS: Final = 600.0
"""Time for which the metric names the gang of the latest long session."""


class ActivityRecorder:
    """The recorder of decisions, bindings and evictions in metrics and logs; it also keeps recent sessions.

    Args:
      clock: The clock.
      kept: The number of sessions to record; 0 records none.
      lease: The name of the Lease, a label of `leader_election_master_status`.
    """

    def __init__(self, clock: Clock, kept: int, lease: str = "batchsched") -> None:
        self.metrics = Metrics()
        self.metrics.build.labels(__version__).set(1)
        self.counting = MetricsRecorder(self.metrics)
        self.sessions = SessionHistory(kept)
        self.refusals: dict[str, Refusal] = {}
        """The latest refusal of each refused gang, by `namespace/name`; explained, once it is verified."""
        self._refused_gangs: dict[str, set[str]] = {}
        """By scheduler name of the profile: its gangs in `refusals`."""
        self._clock = clock
        self._lease = lease
        self._timed: dict[str, MetricsTelemetry] = {}
        self._number = 0
        self._set_aside_by_session = 0
        self._long_session_time = 0.0
        """When the latest long session ended, by the monotonic clock."""

    def telemetry_of_profile(self, profile: Profile) -> MetricsTelemetry:
        """Return the telemetry of a profile, which measures how long the stages of its sessions take."""
        name = profile.scheduler_name
        return self._timed.setdefault(name, MetricsTelemetry(self.metrics, name))

    def record_decision(self, profile_scheduler: ProfileScheduler, decision: Decision, took: float) -> None:
        """Record a session's decision in metrics, log and history; the scheduler loop calls this method.

        Args:
          profile_scheduler: The scheduler of the profile.
          decision: The decision.
          took: The duration of the session in seconds.
        """
        profile = profile_scheduler.profile
        timed = self.telemetry_of_profile(profile)
        timed.observe_extension_point_duration()
        stages = {name: round(seconds, _DIGITS) for name, seconds in timed.stages.items()}
        if took > LONG_SESSION_SECONDS:
            self._record_long_session(profile, timed, took)
        timed.clear_session_durations()
        begun = self._clock.steady_now() - took
        self._number += 1
        self.counting.record_session_metrics(
            profile.scheduler_name, profile_scheduler.taking_part, begun, decision, took
        )
        self._remember(profile_scheduler, decision)
        self._set_aside_by_session = len(decision.set_aside)
        session_input = profile_scheduler.session_input
        if session_input is not None:
            solver = replace(decision.solver, seconds=round(took, _DIGITS), stages=stages)
            recorded = replace(decision, solver=solver)
            self.sessions.add_session(
                RecordedSession(
                    self._number, profile, session_input, recorded, profile_scheduler.runner.answers
                )
            )
        _log_session(self._number, profile, decision, took)

    def _record_long_session(self, profile: Profile, timed: MetricsTelemetry, took: float) -> None:
        """Record in log and metrics which stage and which gang took the most time in a long session."""
        stage, stage_seconds = max(timed.stages.items(), key=itemgetter(1), default=("", 0.0))
        pod_group, gang_seconds = max(timed.gangs.items(), key=itemgetter(1), default=("", 0.0))
        gauge = self.metrics.long_session_gang
        gauge.clear()
        gauge.labels(profile.scheduler_name, stage, pod_group).set(gang_seconds)
        self._long_session_time = self._clock.monotonic()
        log_warning(
            _LOG,
            "Session took long",
            profile=profile.scheduler_name,
            seconds=round(took, 1),
            stage=stage,
            stageSeconds=round(stage_seconds, 1),
            podGroup=pod_group,
            podGroupSeconds=round(gang_seconds, 3),
        )

    def _remember(self, profile_scheduler: ProfileScheduler, decision: Decision) -> None:
        refused = self._refused_gangs.setdefault(profile_scheduler.profile.scheduler_name, set())
        for entity in profile_scheduler.taking_part:
            key = gang_key_from_identity(entity.identity)
            self.refusals.pop(key, None)
            refused.discard(key)
        entities = profile_scheduler.queue.entities()
        if len(refused) > max(_MIN_REFUSALS, 2 * len(entities)):
            pending = {gang_key_from_identity(entity.identity) for entity in entities}
            for key in refused - pending:
                self.refusals.pop(key, None)
            refused &= pending
        self.refusals.update((refusal.pod_group, refusal) for refusal in decision.refusals)
        refused.update(refusal.pod_group for refusal in decision.refusals)

    def record_explanation(self, outcome: ExplanationOutcome) -> None:
        """Record the explanation of a refused gang in metrics and for the status page.

        The scheduler calls this method after each explanation.
        """
        self.counting.record_explanation_metrics(outcome)
        key = outcome.refusal.pod_group
        if outcome.explained is not None and self.refusals.get(key) == outcome.refusal:
            self.refusals[key] = outcome.explained

    def record_binding(self, pod: Pod, node: str, problem: str, seconds: float) -> None:
        """Record in metrics and log whether the binding of a pod succeeded; binding cycles call this method.

        Args:
          pod: The pod.
          node: The name of the node.
          problem: The error message, "" after success.
          seconds: The duration of PreBind, Bind and PostBind.
        """
        self.counting.record_binding_metrics(pod, problem, self._clock.steady_now(), seconds)
        if problem:
            log_warning(_LOG, "Binding failed", pod=pod.key, node=node, problem=problem)
        else:
            log_info(_LOG, 2, "Successfully bound pod to node", pod=pod.key, node=node)

    def record_eviction(self, pod: Pod, reason: str, message: str) -> None:
        """Log the eviction of a pod. The evictor calls this method."""
        log_info(_LOG, 1, "Evicted", pod=pod.key, node=pod.node_name, reason=reason, message=message)

    def clear_expired_long_session_metric(self, now: float) -> None:
        """Remove the metric of the latest long session if that session ended more than 10 minutes ago.

        `now` is the present monotonic time.
        """
        if now - self._long_session_time > LONG_SESSION_SHOWN_SECONDS:
            self.metrics.long_session_gang.clear()

    async def update_and_export_metrics(self, service: SchedulerApp, gauges: MetricsCollector) -> bytes:
        """Update the gauges, and return all metrics in the text format of Prometheus."""
        self.metrics.leader.labels(self._lease).set(service.is_leading)
        now = self._clock.monotonic()
        gauges.update_gauges(service.profile_schedulers, now)
        self.clear_expired_long_session_metric(now)
        self.metrics.name_conflicts.clear()
        for name, deployment in service.conflicting_deployments.items():
            self.metrics.name_conflicts.labels(name, deployment).set(1)
        set_aside = sum(len(reflector.set_aside_objects) for reflector in service.reflectors)
        self.metrics.set_aside.set(set_aside + self._set_aside_by_session)
        return await asyncio.to_thread(self.metrics.prometheus_text)


def _log_session(number: int, profile: Profile, decision: Decision, took: float) -> None:
    log_info(
        _LOG,
        1,
        "Session decided",
        session=number,
        profile=profile.scheduler_name,
        podsPlaced=len(decision.assignments),
        gangsRefused=len(decision.refusals),
        evictions=len(decision.evictions),
        gap=decision.solver.gap,
        milliseconds=round(1000 * took, 1),
    )
    for refusal in decision.refusals:
        log_info(
            _LOG,
            3,
            "Unable to schedule",
            podGroup=refusal.pod_group,
            reason=refusal.reason,
            message=refusal.message,
        )
