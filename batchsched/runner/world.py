"""The environment of the sessions of one profile: extenders, plugin deadlines, and a record of both.

A running scheduler follows the cluster from session to session, so its plugins and the ports behind them stay, while
the recorded answers belong to one session. A plugin that hangs leaves the tables half changed: the session is decided
again from its snapshot, and the scheduler that follows the cluster is rebuilt.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import msgspec
from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.gang import identity_of
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import DeadlineKeeper
from batchsched.framework.runtime.registry import standard
from batchsched.ports.external import (
    DeadlineExceeded,
    Endpoint,
    Extenders,
    ExternalCalls,
    OutOfReach,
    PluginDeadline,
    Reply,
    Telemetry,
)
from batchsched.record.answers import Answers, ExtenderCall, Transcript
from batchsched.runner.plugin_deadline import run_until_deadline
from batchsched.runner.session_runner import SessionRunner, http_extenders

T = TypeVar("T")


class _Heard(Extenders):
    """The extenders of the current session."""

    def __init__(self, port: Extenders) -> None:
        self._port = port
        self.transcript = Transcript((), port)

    def begin(self) -> None:
        """Delete the recorded answers."""
        self.transcript = Transcript((), self._port)

    @override
    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        return self.transcript.ask(endpoint, verb, question)

    @override
    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        return await self._port.put(endpoint, verb, question)


class _Minding(PluginDeadline):
    """The deadline of the session that runs in this thread. Calls from other threads, such as bindings, have none."""

    def __init__(self, overdue: tuple[DeadlineExceeded, ...]) -> None:
        self._overdue = {call.plugin: call for call in overdue}
        self._thread = threading.local()

    def under(self, minder: DeadlineKeeper, work: Callable[[], T]) -> T:
        """Run work in this thread with a deadline for its calls."""
        self._thread.minder = minder
        return work()

    @override
    def overdue(self, plugin: str) -> DeadlineExceeded | None:
        return self._overdue.get(plugin)

    @override
    def watch(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        minder: DeadlineKeeper | None = getattr(self._thread, "minder", None)
        return call() if minder is None else minder.watch(plugin, point, call)


@dataclass(frozen=True)
class SessionInput:
    """The input of a session: with the profile, all that `decide` needs to decide it again.

    Args:
      seen: The cluster.
      taking_part: Identities of the gangs that took part.
      now: Seconds since 1970.
      seed: The seed of all random choices.
    """

    seen: Snapshot
    taking_part: frozenset[str]
    now: float
    seed: int

    @cached_property
    def snapshot(self) -> Snapshot:
        """The cluster, with the gangs that did not take part. Computed on first use, which most sessions never have."""
        waiting = {identity_of(pod) for pod in self.seen.pods if not pod.node}
        return replace(self.seen, resting=tuple(sorted(waiting - self.taking_part)))


class SessionEnvironment:
    """The environment of the sessions of one profile.

    Args:
      profile: The profile.
      overdue: Plugins that hung in earlier sessions and are disabled.
      telemetry: Receives the stages of sessions.
    """

    def __init__(
        self, profile: Profile, overdue: tuple[DeadlineExceeded, ...] = (), telemetry: Telemetry | None = None
    ) -> None:
        self.profile = profile
        self.overdue = overdue
        self.telemetry = telemetry
        self.hung = False
        """Whether a plugin hung, so that the scheduler that follows the cluster must be rebuilt."""
        self.answers = Answers((), overdue)
        """The recorded answers of the last session."""
        self._heard = _Heard(http_extenders()) if profile.extenders else None
        self._minding = _Minding(overdue) if standard().foreign(profile) else None
        self.outside = ExternalCalls(self._heard or OutOfReach(), self._minding)

    @property
    def minded(self) -> bool:
        """Whether external plugins are enabled, which may hang."""
        return self._minding is not None

    @property
    def names(self) -> str:
        """The names of the plugins that hung, as text."""
        return ", ".join(call.plugin for call in self.overdue) or "none of them again"

    def renewed(self) -> "SessionEnvironment":
        """Return an environment without the plugins that hung."""
        return SessionEnvironment(self.profile, self.overdue, self.telemetry)

    def decide(self, follow: Callable[[], Decision], session_input: SessionInput | None) -> Decision:
        """Decide a session.

        Args:
          follow: Decides it with the scheduler that follows the cluster.
          session_input: The input of the session; required if external plugins are enabled.
        """
        if self._heard is not None:
            self._heard.begin()
        minding = self._minding
        if minding is None or session_input is None:
            decision = follow()
            self.answers = Answers(self._extender_answers(), self.overdue)
            return decision
        seconds = self.profile.plugin_deadline_seconds
        results, late = run_until_deadline(
            lambda minder: minding.under(minder, follow), seconds, self.overdue
        )
        if late is None:
            self.answers = Answers(self._extender_answers(), self.overdue)
            return results[0]
        # The number of the call was counted by the scheduler that follows the cluster. A replay counts from a fresh
        # scheduler.
        runner = SessionRunner(self.profile, Answers(self._extender_answers(), self.overdue))
        decision = runner.decide(
            session_input.snapshot, session_input.now, session_input.seed, self.telemetry
        )
        self.answers = runner.answers
        self.overdue = tuple(msgspec.structs.replace(call, call=0) for call in runner.answers.overdue)
        self.hung = True
        return decision

    def _extender_answers(self) -> tuple[ExtenderCall, ...]:
        return () if self._heard is None else self._heard.transcript.asked
