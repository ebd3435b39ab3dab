"""One session with the world around it: extenders are asked over HTTP, plugins are minded, and all of it is kept."""

from functools import cache, partial

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import DeadlineKeeper
from batchsched.framework.runtime.registry import standard
from batchsched.ports.extender import Extenders
from batchsched.ports.external import ExternalCalls
from batchsched.ports.telemetry import Telemetry
from batchsched.record.answers import NOTHING, Answers, Transcript
from batchsched.runner.plugin_deadline import minded
from batchsched.session.decide import decide


@cache
def http_extenders() -> Extenders:
    """Return what reaches extenders: one for the whole process, so that connections are shared."""
    from batchsched.kube.extender import HttpExtenders

    return HttpExtenders()


class SessionRunner:
    """One session and what the world says to it.

    Args:
      profile: how to schedule.
      before: what was said already; plugins that were overdue in sessions before stand there with call 0.
    """

    def __init__(self, profile: Profile, before: Answers = NOTHING) -> None:
        self._profile = profile
        self._overdue = before.overdue
        self._port = http_extenders() if profile.extenders else None
        self._transcript = Transcript(before.extenders, self._port)

    @property
    def answers(self) -> Answers:
        """All that was said so far."""
        return Answers(self._transcript.asked, self._overdue)

    def decide(self, snapshot: Snapshot, now: float, seed: int, telemetry: Telemetry | None) -> Decision:
        """Decide, as `session.decide` does; a plugin that hangs is given up after the profile's deadline."""
        work = partial(self._decide, snapshot, now, seed, telemetry)
        if not standard().foreign(self._profile):
            return work(None)
        decision, self._overdue = minded(work, self._profile.plugin_deadline_seconds, self._overdue)
        return decision

    def _decide(
        self,
        snapshot: Snapshot,
        now: float,
        seed: int,
        telemetry: Telemetry | None,
        minder: DeadlineKeeper | None,
    ) -> Decision:
        # A session that is decided again, since a plugin hung, hears from extenders what it heard before.
        self._transcript = Transcript(self._transcript.asked, self._port)
        outside = ExternalCalls(self._transcript, minder)
        return decide(snapshot, self._profile, now, seed, telemetry=telemetry, outside=outside)
