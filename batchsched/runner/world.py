"""What the sessions of one profile are told from outside, one after the other: it is asked, minded and kept.

A running scheduler follows the cluster from session to session, so that its plugins, and the ports behind them, stay;
only what they are told is each session's own. A plugin that hangs leaves the scheduler that asked it in the middle of a
session: that session is decided again from its snapshot, and whoever follows the cluster is made anew.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import msgspec
from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.gang_identity import identity_of
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import DeadlineKeeper
from batchsched.framework.runtime.registry import standard
from batchsched.ports.extender import Endpoint, Extenders, OutOfReach, Reply
from batchsched.ports.external import ExternalCalls
from batchsched.ports.plugin_deadline import DeadlineExceeded, PluginDeadline
from batchsched.ports.telemetry import Telemetry
from batchsched.record.answers import Answers, Transcript
from batchsched.record.answers import Asked as Said
from batchsched.runner.plugin_deadline import once
from batchsched.runner.session_runner import SessionRunner, http_extenders

T = TypeVar("T")


class _Heard(Extenders):
    """Extenders as the current session hears them."""

    def __init__(self, port: Extenders) -> None:
        self._port = port
        self.transcript = Transcript((), port)

    def begin(self) -> None:
        """Forget what was said."""
        self.transcript = Transcript((), self._port)

    @override
    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        return self.transcript.ask(endpoint, verb, question)

    @override
    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        return await self._port.put(endpoint, verb, question)


class _Minding(PluginDeadline):
    """The watchdog of the session that runs in this thread; elsewhere (queue, bindings) plugins are asked directly."""

    def __init__(self, overdue: tuple[DeadlineExceeded, ...]) -> None:
        self._overdue = {one.plugin: one for one in overdue}
        self._here = threading.local()

    def under(self, minder: DeadlineKeeper, work: Callable[[], T]) -> T:
        """Do work in this thread, and let its calls be minded."""
        self._here.minder = minder
        return work()

    @override
    def overdue(self, plugin: str) -> DeadlineExceeded | None:
        return self._overdue.get(plugin)

    @override
    def watch(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        minder: DeadlineKeeper | None = getattr(self._here, "minder", None)
        return call() if minder is None else minder.watch(plugin, point, call)


@dataclass(frozen=True)
class Asked:
    """What a session was decided over: with the profile, all that `decide` needs to decide it again.

    Args:
      seen: the cluster.
      taking_part: identities of the gangs that did.
      now: seconds since 1970.
      seed: of everything that was drawn.
    """

    seen: Snapshot
    taking_part: frozenset[str]
    now: float
    seed: int

    @cached_property
    def snapshot(self) -> Snapshot:
        """The cluster, and who waits and rests. That is found when somebody wants it, and most sessions nobody does."""
        waiting = {identity_of(pod) for pod in self.seen.pods if not pod.node}
        return replace(self.seen, resting=tuple(sorted(waiting - self.taking_part)))


class World:
    """The world around the sessions of one profile.

    Args:
      profile: how to schedule.
      overdue: plugins that hung before, and are asked no more.
      telemetry: hears of sessions.
    """

    def __init__(
        self, profile: Profile, overdue: tuple[DeadlineExceeded, ...] = (), telemetry: Telemetry | None = None
    ) -> None:
        self.profile = profile
        self.overdue = overdue
        self.telemetry = telemetry
        self.hung = False
        """Whether a plugin hung, so that whoever follows the cluster has to be made anew."""
        self.answers = Answers((), overdue)
        """What the last session was told."""
        self._heard = _Heard(http_extenders()) if profile.extenders else None
        self._minding = _Minding(overdue) if standard().foreign(profile) else None
        self.outside = ExternalCalls(self._heard or OutOfReach(), self._minding)

    @property
    def minded(self) -> bool:
        """Whether there are plugins of other packages, which may hang."""
        return self._minding is not None

    @property
    def names(self) -> str:
        """The plugins that hung, for people."""
        return ", ".join(one.plugin for one in self.overdue) or "none of them again"

    def renewed(self) -> "World":
        """Return a world in which the plugins that hung are left out."""
        return World(self.profile, self.overdue, self.telemetry)

    def decide(self, follow: Callable[[], Decision], asked: Asked | None) -> Decision:
        """Decide a session.

        Args:
          follow: decides it where the cluster is followed.
          asked: what it is decided over; needed where plugins are minded.
        """
        if self._heard is not None:
            self._heard.begin()
        minding = self._minding
        if minding is None or asked is None:
            decision = follow()
            self.answers = Answers(self._said(), self.overdue)
            return decision
        seconds = self.profile.plugin_deadline_seconds
        found, late = once(lambda minder: minding.under(minder, follow), seconds, self.overdue)
        if late is None:
            self.answers = Answers(self._said(), self.overdue)
            return found[0]
        # The call was counted where the cluster is followed; a replay counts from a fresh start, and so does this.
        meeting = SessionRunner(self.profile, Answers(self._said(), self.overdue))
        decision = meeting.decide(asked.snapshot, asked.now, asked.seed, self.telemetry)
        self.answers = meeting.answers
        self.overdue = tuple(msgspec.structs.replace(one, call=0) for one in meeting.answers.overdue)
        self.hung = True
        return decision

    def _said(self) -> tuple[Said, ...]:
        return () if self._heard is None else self._heard.transcript.asked
