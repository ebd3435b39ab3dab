"""Verification of changes: decide again on the changed input, within a budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, InputChange
from batchsched.api.gang import gang_identity, gang_key_of_pod
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import Telemetry
from batchsched.session.explanation.changed_input import apply_changes
from batchsched.session.session import Session

MAX_VERIFICATION_WORK: Final = 20e6
"""Work of verifying all refusals of one session, in units of about a microsecond at most."""
MAX_WORK_PER_GANG: Final = 100e6
"""Work of verifying the refusal of a single gang, if no other refusals are verified with it."""
WORK_PER_DECISION: Final = 10_000
"""Work of one decision, in addition to what nodes and pods cost."""
WORK_PER_OBJECT: Final = 400
"""Work of one node or pod in one decision."""
MAX_DECISIONS_PER_GANG: Final = 100
"""Maximum number of sessions that are decided again for one gang."""


@dataclass(frozen=True)
class DecidedInput:
    """The input of a session with its decision.

    Args:
      snapshot: the cluster.
      profile: the scheduling profile.
      now: seconds since 1970.
      seed: seed of all random draws.
      decision: the decision.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int
    decision: Decision


DecideAgain = Callable[[Snapshot, Profile, float, int], Decision]
"""Returns the decision of a session over a snapshot with a profile, a time (seconds since 1970) and a seed."""


def decide_briefly(
    snapshot: Snapshot, profile: Profile, now: float, seed: int, telemetry: Telemetry | None = None
) -> Decision:
    """Return the decision of a session without refusals; this is the default `DecideAgain`."""
    session = Session(snapshot, profile, brief=True)
    if telemetry is not None:
        telemetry.report_progress(0, 1, "decisions")  # the tables of a large cluster take a second
    return session.decide(now, seed, telemetry=telemetry)


class VerificationBudget:
    """The work that the verification of refusals may still cost. It is counted, not timed, so that results repeat.

    Args:
      units: units of about a microsecond at most.
    """

    def __init__(self, units: float = MAX_VERIFICATION_WORK) -> None:
        self._remaining = units

    def spend_decision(self, snapshot: Snapshot) -> bool:
        """Subtract the work of a decision over a Snapshot; return False if the budget was spent before."""
        if self._remaining <= 0:
            return False
        self._remaining -= WORK_PER_DECISION + WORK_PER_OBJECT * (len(snapshot.nodes) + len(snapshot.pods))
        return True


class OutOfBudget(Exception):
    """The budget of a verification is spent, so that it is not known whether a change admits a gang."""


class PlacementVerifier:
    """Checks whether a session places one gang after changes of its input.

    Args:
      decided: the session.
      key: `namespace/name` of the gang.
      budget: the work that all checks may cost.
      decide_again: decides the session on changed inputs.
    """

    def __init__(
        self,
        decided: DecidedInput,
        key: str,
        budget: VerificationBudget,
        decide_again: DecideAgain = decide_briefly,
    ) -> None:
        self._decided = decided
        self._decide_again = decide_again
        self._budget = budget
        self._decisions = 0
        self._answers: dict[bytes, bool] = {}
        pods = [pod for pod in decided.snapshot.pods if gang_key_of_pod(pod) == key]
        self.members = frozenset(pod.key for pod in pods)
        self._needs_others = any(map(_attracted_by_pods, pods))
        self.startable = self._places(emptied_cluster(decided.snapshot, self.members))
        """Whether the gang can start on the emptied cluster with unused queues."""

    def places(self, changes: Sequence[InputChange]) -> bool:
        """Return whether the session on the changed input places the gang, with all other gangs competing as before.

        Raises:
          OutOfBudget: the budget is spent.
        """
        key = msgspec.json.encode(changes)
        if key not in self._answers:
            self._answers[key] = self._decide(changes)
        return self._answers[key]

    def _decide(self, changes: Sequence[InputChange]) -> bool:
        try:
            changed = apply_changes(self._decided.snapshot, changes)
        except ValueError:  # the changed object would be invalid, such as a limit below the guarantee
            return False
        # What does not fit an empty cluster fits no fuller one, unless the gang needs other pods near it.
        if (
            not self.startable
            and not self._needs_others
            and not self._places(emptied_cluster(changed, self.members))
        ):
            return False
        self._decisions += 1
        if self._decisions > MAX_DECISIONS_PER_GANG or not self._budget.spend_decision(changed):
            raise OutOfBudget
        return self._places(changed)

    def _places(self, snapshot: Snapshot) -> bool:
        """Return whether the session on another input places the gang."""
        decided = self._decided
        decision = self._decide_again(snapshot, decided.profile, decided.now, decided.seed)
        return any(entry.pod_key in self.members for entry in decision.assignments)


def emptied_cluster(snapshot: Snapshot, members: frozenset[str]) -> Snapshot:
    """Return the Snapshot with only the given pods, and without the memory of earlier sessions."""
    pods = tuple(pod for pod in snapshot.pods if pod.key in members)
    gangs = {gang_identity(pod) for pod in pods}
    return replace(
        snapshot,
        pods=pods,
        pod_groups=tuple(group for group in snapshot.pod_groups if group.key in gangs),
        held=(),
        resting=(),
        usage=(),
        reservations=(),
        refused_evictions=(),
    )


def _attracted_by_pods(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None
