"""Keeps the refusals that the running scheduler has yet to explain, and explanations that are valid.

A session estimates what would help a refused gang. The explanation proves it: it decides the session again on changed
inputs, from the frozen input of the session that refused the gang. It is outdated when the gang takes part in another
session. If that session has an equal input and refuses the gang in the same way, the explanation is still valid.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import count
from typing import Final

import msgspec

from batchsched.api.decision import Decision, Refusal
from batchsched.api.gang import gang_key_from_identity, gang_namespace
from batchsched.config.schema import Profile
from batchsched.runner.profile_scheduler import ProfileScheduler
from batchsched.runner.session_runner import SessionInput
from batchsched.session.explanation.verification import DecidedInput

MAX_SESSIONS: Final = 20
"""Maximum number of sessions with refusals that are still to be explained; their inputs take memory."""
MAX_EXPLANATIONS: Final = 20_000
"""Maximum number of explanations that are kept."""


class ExplanationResultCode(StrEnum):
    """The result of an attempt to explain a refusal: verified, partial, outdated or failed.

    `ExplanationOutcome` defines these results. Metrics use them as values of a label.
    """

    VERIFIED = "verified"
    PARTIAL = "partial"
    OUTDATED = "outdated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ExplanationOutcome:
    """The outcome of explaining one refusal: the explained refusal, and how the explanation ended.

    Args:
      profile: the scheduler name of the profile.
      refusal: the refusal as its session decided it.
      explained: the refusal with the verified text; None if there is none.
      result: verified; partial: the budget of one explanation was spent before everything was verified; outdated:
        the gang took part in a newer session, or was interrupted too often; failed: a defect.
      seconds: the CPU time of the explanation.
      defect: the exception if the explanation failed.
    """

    profile: str
    refusal: Refusal
    explained: Refusal | None
    result: ExplanationResultCode
    seconds: float
    defect: Exception | None = None


@dataclass(frozen=True, slots=True)
class SessionInputIdentity:
    """The identity of a session's input: sessions with equal identities had equal inputs, except the time.

    If the identities are equal, an explanation for the earlier session can still be valid.

    Args:
      generation: the number of changes so far to the objects of the cluster that decisions read.
      profile: the profile of the session.
      taking_part: identities of the gangs that took part.
      memory: what the scheduler knew from earlier sessions: held gangs, reservations, refused evictions, and gangs that
        a plugin rejected.
    """

    generation: int
    profile: Profile
    taking_part: frozenset[str]
    memory: tuple[object, ...]

    @classmethod
    def from_session(
        cls, profile_scheduler: ProfileScheduler, session_input: SessionInput
    ) -> "SessionInputIdentity":
        """Return the identity of the input of a scheduler's last session."""
        cluster = session_input.cluster
        # The start of a reservation moves with the time of the session.
        heads = tuple(reservation.pod_group for reservation in cluster.reservations)
        return cls(
            profile_scheduler.session_generation,
            profile_scheduler.profile,
            session_input.taking_part,
            (cluster.held, heads, cluster.refused_evictions, cluster.chosen_policy, cluster.rejected),
        )


@dataclass(frozen=True, eq=False)
class RefusingSession:
    """A session that refused gangs, with its decision and its immutable input.

    Args:
      profile: the profile of the session.
      session_input: the input of the session.
      decision: the decision of the session.
      identity: identifies the input of the session.
    """

    profile: Profile
    session_input: SessionInput
    decision: Decision
    identity: SessionInputIdentity

    @cached_property
    def input_with_decision(self) -> DecidedInput:
        """The input of the session together with its decision.

        Creating the Snapshot takes milliseconds in a large cluster.
        """
        session_input = self.session_input
        return DecidedInput(
            session_input.snapshot, self.profile, session_input.now, session_input.seed, self.decision
        )


@dataclass(frozen=True, slots=True, eq=False)
class PendingExplanation:
    """A refusal that is to be explained, with the session that refused the gang."""

    session: RefusingSession
    refusal: Refusal

    @property
    def gang_key(self) -> str:
        """The `namespace/name` of the refused gang."""
        return self.refusal.pod_group


@dataclass(frozen=True, slots=True)
class FinishedExplanation:
    """The explanation of a refusal, with the identity of the input of the session that refused the gang."""

    identity: SessionInputIdentity
    refusal: Refusal
    explained: Refusal


class RefusalExplanations:
    """The refusals that are still to be explained, and the explanations that are still valid, by gang."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingExplanation] = {}
        self._explanations: dict[str, FinishedExplanation] = {}
        self._turns = count(1)
        self._turn_by_namespace: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def record_refusals_with_known_explanations(
        self, profile_scheduler: ProfileScheduler, decision: Decision
    ) -> Decision:
        """Record refusals for later explanation, and return the decision with explanations that are known.

        Earlier refusals of the gangs that took part in the session are dropped.

        Returns:
          The decision, in which refusals with a valid explanation are replaced by the explained ones.
        """
        refused = {refusal.pod_group for refusal in decision.refusals}
        for entity in profile_scheduler.taking_part:
            key = gang_key_from_identity(entity.identity)
            self._pending.pop(key, None)
            if key not in refused:
                self._explanations.pop(key, None)
        session_input = profile_scheduler.session_input
        # As in commands: extenders answer for the recorded input only, and a plugin that hung once would hang again.
        cannot_repeat = profile_scheduler.profile.extenders or profile_scheduler.runner.overdue
        if session_input is None or cannot_repeat or not refused:
            return decision
        identity = SessionInputIdentity.from_session(profile_scheduler, session_input)
        session = RefusingSession(profile_scheduler.profile, session_input, decision, identity)
        refusals = tuple(self._record_refusal(session, refusal) for refusal in decision.refusals)
        self._drop_oldest_session()
        return msgspec.structs.replace(decision, refusals=refusals)

    def _record_refusal(self, session: RefusingSession, refusal: Refusal) -> Refusal:
        last = self._explanations.get(refusal.pod_group)
        if last is not None and last.refusal == refusal and last.identity == session.identity:
            return last.explained
        self._pending[refusal.pod_group] = PendingExplanation(session, refusal)
        return refusal

    def _drop_oldest_session(self) -> None:
        sessions = list(dict.fromkeys(id(pending.session) for pending in self._pending.values()))
        if len(sessions) > MAX_SESSIONS:
            self._pending = {
                key: pending for key, pending in self._pending.items() if id(pending.session) != sessions[0]
            }

    def next_pending(self) -> PendingExplanation | None:
        """Return the refusal to explain next, or None if there is none.

        Gangs without any explanation come first, and namespaces take turns.
        """

        def pending_sort_key(pending: PendingExplanation) -> tuple[bool, int]:
            namespace = gang_namespace(pending.refusal.pod_group)
            return pending.gang_key in self._explanations, self._turn_by_namespace.get(namespace, 0)

        return min(self._pending.values(), key=pending_sort_key, default=None)

    def is_current(self, pending: PendingExplanation) -> bool:
        """Return whether a refusal is still the last one of its gang. Any thread may call this method."""
        return self._pending.get(pending.gang_key) is pending

    def drop_pending(self, pending: PendingExplanation) -> None:
        """Remove a refusal from the refusals to explain, because its explanation failed or is outdated."""
        if self.is_current(pending):
            del self._pending[pending.gang_key]

    def forget_gang(self, key: str) -> None:
        """Remove the refusal and the explanation of a gang, because the gang is no longer pending."""
        self._pending.pop(key, None)
        self._explanations.pop(key, None)

    def record_explanation_start(self, pending: PendingExplanation) -> None:
        """Record that an explanation begins, so that refusals of other namespaces are explained next."""
        self._turn_by_namespace[gang_namespace(pending.gang_key)] = next(self._turns)

    def store_explanation_if_current(self, pending: PendingExplanation, explained: Refusal) -> bool:
        """Store the explanation of a refusal and return True; return False if the refusal is outdated."""
        if not self.is_current(pending):
            return False
        del self._pending[pending.gang_key]
        self._explanations.pop(pending.gang_key, None)
        self._explanations[pending.gang_key] = FinishedExplanation(
            pending.session.identity, pending.refusal, explained
        )
        while len(self._explanations) > MAX_EXPLANATIONS:
            del self._explanations[next(iter(self._explanations))]
        return True
