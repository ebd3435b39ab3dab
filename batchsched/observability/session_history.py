"""The most recent sessions with their complete input, for download and for `batchsched replay`."""

import datetime as dt
from collections import deque
from dataclasses import dataclass

import msgspec

from batchsched.api.decision import Decision
from batchsched.config.schema import Profile
from batchsched.record.answers import Answers
from batchsched.record.file import Record, encode
from batchsched.runner.world import SessionInput


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A finished session.

    Args:
      number: Increases by one with each session of the process.
      profile: The profile that it ran with.
      asked: Its input.
      decision: Its decision, with telemetry.
      answers: The answers of extenders, and plugin calls that exceeded their deadline.
    """

    number: int
    profile: Profile
    asked: SessionInput
    decision: Decision
    answers: Answers

    def content(self) -> bytes:
        """Return the session as the content of a session file."""
        session_input = self.asked
        content, _ = encode(
            Record(
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
    """A row of the list of sessions."""

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
    """The most recent sessions.

    Args:
      most: The maximum number of sessions to keep.
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[RecordedSession] = deque(maxlen=most)

    def resize(self, most: int) -> None:
        """Change the maximum number of sessions; the oldest are dropped."""
        if most != self._kept.maxlen:
            self._kept = deque(self._kept, maxlen=most)

    def keep(self, session: RecordedSession) -> None:
        """Add a session; the oldest is dropped if the maximum is reached."""
        self._kept.append(session)

    def get(self, number: int) -> RecordedSession | None:
        """Return a session by number, None if it is no longer kept."""
        return next((session for session in self._kept if session.number == number), None)

    def summaries(self) -> list[SessionSummary]:
        """Return a row for each session, newest first."""
        return [_summary(session) for session in reversed(self._kept)]


def _summary(session: RecordedSession) -> SessionSummary:
    decision = session.decision
    return SessionSummary(
        id=session.number,
        profile=session.profile.scheduler_name,
        time=dt.datetime.fromtimestamp(session.asked.now, dt.UTC).isoformat(timespec="milliseconds"),
        seconds=decision.solver.seconds,
        pods_placed=len(decision.assignments),
        gangs_refused=len(decision.refusals),
        gangs_waiting=len(decision.waiting),
        evictions=len(decision.evictions),
        gap=decision.solver.gap,
    )
