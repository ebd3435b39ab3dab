"""What operators see of a service: metrics, the log of its sessions, and the last sessions themselves."""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from batchsched import __version__
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Refusal
from batchsched.api.gang_identity import key_of
from batchsched.config.schema import Profile
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.logs import say, warn
from batchsched.observability.metrics import Metrics
from batchsched.observability.recorder import MetricsRecorder, TimedStage
from batchsched.observability.session_history import RecordedSession, SessionHistory
from batchsched.ports.clock import Clock
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.scheduler.app import SchedulerApp

_LOG: Final = logging.getLogger("batchsched.service")
_DIGITS: Final = 6
_MOST: Final = 20_000


class Observer:
    """Hears of everything that a service does.

    Args:
      clock: tells time.
      kept: how many sessions are kept; 0: none is recorded.
      lease: the name of the Lease, under which we say whether we lead.
    """

    def __init__(self, clock: Clock, kept: int, lease: str = "batchsched") -> None:
        self.metrics = Metrics()
        self.metrics.build.labels(__version__).set(1)
        self.counting = MetricsRecorder(self.metrics)
        self.sessions = SessionHistory(kept)
        self.refusals: dict[str, Refusal] = {}
        """What was said last of each gang that was refused, by name."""
        self._clock = clock
        self._lease = lease
        self._timed: dict[str, TimedStage] = {}
        self._number = 0

    def telemetry(self, profile: Profile) -> TimedStage:
        """Return what hears of the sessions of a profile."""
        name = profile.scheduler_name
        return self._timed.setdefault(name, TimedStage(self.metrics, name))

    def heard(self, planner: ProfileScheduler, decision: Decision, took: float) -> None:
        """Hear of a decision; a `loop.Heard`."""
        profile = planner.profile
        timed = self.telemetry(profile)
        timed.flush()
        stages = {name: round(seconds, _DIGITS) for name, seconds in timed.stages.items()}
        timed.begin()
        begun = self._clock.now() - took
        self._number += 1
        self.counting.decided(profile.scheduler_name, planner.taking_part, begun, decision, took)
        self._remember(planner, decision)
        self.metrics.set_aside.set(len(decision.set_aside))
        asked = planner.asked
        if asked is not None:
            account = replace(decision.solver, seconds=round(took, _DIGITS), stages=stages)
            told = replace(decision, solver=account)
            self.sessions.keep(RecordedSession(self._number, profile, asked, told, planner.world.answers))
        _tell(self._number, profile, decision, took)

    def _remember(self, planner: ProfileScheduler, decision: Decision) -> None:
        for entity in planner.taking_part:
            self.refusals.pop(key_of(entity.identity), None)
        if len(self.refusals) > _MOST:  # most of them are of gangs that are gone
            self.refusals.clear()
        self.refusals.update((one.pod_group, one) for one in decision.refusals)

    def told(self, pod: Pod, node: str, problem: str) -> None:
        """Hear of a binding; a `binder.Told`."""
        self.counting.bound(pod, problem, self._clock.now())
        if problem:
            warn(_LOG, "Binding failed", pod=pod.key, node=node, problem=problem)
        else:
            say(_LOG, 2, "Successfully bound pod to node", pod=pod.key, node=node)

    def evicted(self, pod: Pod, reason: str, message: str) -> None:
        """Hear of an eviction; a `disruption.Evicted`."""
        say(_LOG, 1, "Evicted", pod=pod.key, node=pod.node, reason=reason, message=message)

    async def text(self, service: SchedulerApp, gauges: MetricsCollector) -> bytes:
        """Bring everything up to date, and write it as Prometheus reads it."""
        self.metrics.leader.labels(self._lease).set(service.leads)
        gauges.read(service.planners, self._clock.monotonic())
        return await asyncio.to_thread(self.metrics.text)


def _tell(number: int, profile: Profile, decision: Decision, took: float) -> None:
    say(
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
    for one in decision.refusals:
        say(_LOG, 3, "Unable to schedule", podGroup=one.pod_group, reason=one.reason, message=one.message)
