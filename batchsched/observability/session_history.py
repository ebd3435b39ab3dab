"""The last sessions, with all that they were decided over: to be downloaded, and decided again by `replay`."""

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
    """A session that was decided.

    Args:
      number: grows from session to session.
      profile: how.
      asked: what it was decided over.
      decision: what came of it, with its telemetry.
      answers: what the world said meanwhile.
    """

    number: int
    profile: Profile
    asked: SessionInput
    decision: Decision
    answers: Answers

    def content(self) -> bytes:
        """Return it as the content of a session file."""
        asked = self.asked
        content, _ = encode(
            Record(asked.snapshot, self.profile, asked.now, asked.seed, self.decision, answers=self.answers)
        )
        return content


class SessionSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One line about a session."""

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
    """The last sessions.

    Args:
      most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._kept: deque[RecordedSession] = deque(maxlen=most)

    def resize(self, most: int) -> None:
        """Keep so many from now on; the oldest go."""
        if most != self._kept.maxlen:
            self._kept = deque(self._kept, maxlen=most)

    def keep(self, session: RecordedSession) -> None:
        """Keep a session; the oldest goes."""
        self._kept.append(session)

    def get(self, number: int) -> RecordedSession | None:
        """Return a session, None where it is not kept any more."""
        return next((one for one in self._kept if one.number == number), None)

    def summaries(self) -> list[SessionSummary]:
        """Return a line about each, the newest first."""
        return [_summary(one) for one in reversed(self._kept)]


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
