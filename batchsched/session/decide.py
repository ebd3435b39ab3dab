"""`decide`: a Snapshot in, a Decision out. Everything else in batchsched is a shell around this function."""

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import NOBODY, ExternalCalls, Telemetry
from batchsched.session.session import Session


def decide(
    snapshot: Snapshot,
    profile: Profile,
    now: float,
    seed: int,
    *,
    telemetry: Telemetry | None = None,
    outside: ExternalCalls = NOBODY,
) -> Decision:
    """Decide one session: a pure, deterministic function without clock or I/O.

    Args:
      snapshot: the cluster; the decision depends on nothing else, except for the other arguments.
      profile: the scheduling profile.
      now: seconds since 1970.
      seed: seed of all random draws.
      telemetry: receives stages and timings; it never changes the decision.
      outside: calls extenders and limits the time of plugins. Its answers are part of the decision's input and are
        recorded with the session.

    Returns:
      Assignments, evictions, nominations, refusals with reasons, and what the session set aside.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist, or its arguments are invalid.
    """
    return Session(snapshot, profile, outside=outside).decide(now, seed, telemetry=telemetry)
