"""The state that selection strategies share during one session: its inputs, and its decision so far."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from batchsched.api.decision import Refusal, Reservation
from batchsched.api.gang import gang_key_from_identity
from batchsched.config.schema import Profile
from batchsched.ports.external import Telemetry
from batchsched.queues.gang_order import GangOrderPolicy
from batchsched.session.decision_builder import DecisionBuilder
from batchsched.session.gangs.gang_eligibility import GangEligibilityCheck
from batchsched.session.gangs.order import GangOrder
from batchsched.session.gangs.queue_limits import QueueLimits, compute_remaining_limits
from batchsched.session.joint.formulation import FeasibleNodesByPodClass, FormulationInput
from batchsched.session.refusals import out_of_turn_refusal, rolled_back_refusal
from batchsched.session.reservations import ReservationRules
from batchsched.session.statement import Statement
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.relaxation.budget import ExplanationBudget


class SelectionStrategy(Protocol):
    """The component that selects pending gangs and their nodes: jointly, in strict order, or pod by pod."""

    def place_pending_gangs(self, pending: OrderedGangs) -> Iterable[PendingGang]:
        """Place gangs, and record their placements and refusals for the decision of the session.

        Args:
          pending: the gangs that take part, and resting gangs that hold up others, in the policy's order.

        Returns:
          The gangs that were not placed, and for which other gangs may be evicted, in order.
        """
        ...


@dataclass(slots=True, eq=False)
class SelectionRun:
    """The inputs of a session and its decision so far, shared by the components that select gangs.

    Args:
      tables: nodes, gangs and classes.
      profile: the scheduling profile.
      policy: the profile's gang order.
      gang_eligibility: says which gangs may be tried.
      order: orders gangs by the fair shares of their queues.
      statement: places gangs; what is not committed is rolled back when the session ends.
      resting: identities of gangs that do not take part, at least of those with nominated nodes, which stay reserved,
        and of those that hold up other gangs.
      previous_reservations: reservations that the previous decision stated.
      now: seconds since 1970.
      seed: seed of all random draws.
      telemetry: receives stages and timings.
      builder: the decision so far.
      with_evictions: evict pods for gangs that find no room.
      explanations: the work that explanations of refusals may still cost.
    """

    tables: SessionTables
    profile: Profile
    policy: GangOrderPolicy
    gang_eligibility: GangEligibilityCheck
    order: GangOrder
    statement: Statement
    resting: frozenset[str]
    previous_reservations: tuple[Reservation, ...]
    now: float
    seed: int
    telemetry: Telemetry
    builder: DecisionBuilder
    with_evictions: bool = True
    explanations: ExplanationBudget = field(default_factory=ExplanationBudget)
    _limits_at_start: QueueLimits | None = field(init=False, default=None)
    """What the queues allowed before the first placement of the session."""

    def formulation_input(self) -> FormulationInput:
        """Return the input of the next solver problem; the gangs placed so far reduce its queue limits."""
        if self._limits_at_start is None:
            self._limits_at_start = compute_remaining_limits(self.tables, self.profile.scheduler_name)
        formulation_input = FormulationInput(
            self.tables,
            self.profile,
            self.gang_eligibility.levels,
            self._limits_at_start,
            FeasibleNodesByPodClass(self.tables),
            self.explanations,
        )
        return formulation_input.after_placements(self.builder.placements)

    @property
    def reservation_rules(self) -> ReservationRules:
        """The rules for reserved starts: which the session announces, and which must not be delayed."""
        return ReservationRules.from_profile(self.profile, self.previous_reservations, self.now)

    def eligible_gang_or_record_refusal(self, members: GangState) -> PendingGang | None:
        """Return a gang with the pods that may be placed now, or record its refusal and return None.

        If none of its pods may be placed now, return None without a refusal. A resting gang has no new refusal. Call
        this method once for each gang of a session.
        """
        with self.telemetry.gang_span(members.key):
            admitted = self.gang_eligibility.eligible_gang_or_refusal(members)
        if isinstance(admitted, Refusal):
            if members.identity not in self.resting:
                self.builder.refusals.append(admitted)
            return None
        return admitted if admitted.parts else None

    def gang_in_turn_or_record_refusal(self, members: GangState, placed: Set[str]) -> PendingGang | None:
        """Return an eligible gang, or record its refusal and return None, also if another gang must start first.

        In a strict queue, the session must have placed the gang ahead, except for surplus of a running gang.

        Args:
          members: the gang; `GangOrder.iterate_gang_indexes` has yielded its index.
          placed: identities of the gangs that the session has placed so far.
        """
        gang = self.eligible_gang_or_record_refusal(members)
        ahead = self.order.ahead.get(members.identity, "")
        if gang is None or not gang.need or not ahead or ahead in placed:
            return gang
        if members.identity not in self.resting:
            self.builder.refusals.append(out_of_turn_refusal(members, gang_key_from_identity(ahead)))
        return None

    def eviction_may_help(self, pending: OrderedGangs) -> bool:
        """Return True if evictions, or pods that are being deleted, may free enough room for a pending gang.

        The search for victims is skipped if all gangs have one priority and no queue has an entitlement.
        """
        tables = self.tables
        if not tables.pipeline.nominates_nodes:
            return False
        # Reclaim goes by entitlement instead of priority, and moved gangs may have any priority up to the gang's own.
        if tables.nominated or self.profile.consolidate or self.order.policies is not None:
            return True
        highest = pending.columns.priority.max(initial=np.iinfo(np.int64).min)
        running = (tables.running_gang(members) for members in tables.running.values())
        return any(gang.priority < highest or gang.terminating for gang in running)

    def remove_rejected_gangs(self) -> None:
        """Remove from the decision the gangs that a plugin rejected while they waited at Permit."""
        self.statement.apply_permit_answers()
        rejected = self.statement.rejected
        # By identity: placements are mutable and compare by value, pod by pod.
        rejected_ids = {id(placement) for placement in rejected}
        builder = self.builder
        builder.placements = [
            placement for placement in builder.placements if id(placement) not in rejected_ids
        ]
        builder.refusals += [rolled_back_refusal(placement, timed_out=False) for placement in rejected]
