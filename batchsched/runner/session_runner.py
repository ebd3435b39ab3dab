"""Runs one session with its environment: extenders over HTTP, and a deadline for plugins. All answers are recorded."""

from functools import cache, partial

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import DeadlineKeeper
from batchsched.framework.runtime.registry import standard
from batchsched.ports.external import Extenders, ExternalCalls, Telemetry
from batchsched.record.answers import NO_ANSWERS, Answers, Transcript
from batchsched.runner.plugin_deadline import run_with_deadline
from batchsched.session.decide import decide


@cache
def http_extenders() -> Extenders:
    """Return the client of extenders. One for the whole process, so that connections are reused."""
    from batchsched.kube.extender import HttpExtenders

    return HttpExtenders()


class SessionRunner:
    """Runs one session and records what extenders answered and which plugins hung.

    Args:
      profile: The profile.
      before: Answers of an earlier run; a plugin that was disabled before the session has the call number 0.
    """

    def __init__(self, profile: Profile, before: Answers = NO_ANSWERS) -> None:
        self._profile = profile
        self._overdue = before.overdue
        self._port = http_extenders() if profile.extenders else None
        self._transcript = Transcript(before.extenders, self._port)

    @property
    def answers(self) -> Answers:
        """All answers so far."""
        return Answers(self._transcript.asked, self._overdue)

    def decide(self, snapshot: Snapshot, now: float, seed: int, telemetry: Telemetry | None) -> Decision:
        """Decide as `session.decide` does; a call that exceeds the deadline of the profile disables its plugin."""
        work = partial(self._decide, snapshot, now, seed, telemetry)
        if not standard().foreign(self._profile):
            return work(None)
        decision, self._overdue = run_with_deadline(
            work, self._profile.plugin_deadline_seconds, self._overdue
        )
        return decision

    def _decide(
        self,
        snapshot: Snapshot,
        now: float,
        seed: int,
        telemetry: Telemetry | None,
        minder: DeadlineKeeper | None,
    ) -> Decision:
        # If a plugin hangs, the session is decided again, and the extenders' recorded answers are used again.
        self._transcript = Transcript(self._transcript.asked, self._port)
        outside = ExternalCalls(self._transcript, minder)
        return decide(snapshot, self._profile, now, seed, telemetry=telemetry, outside=outside)
