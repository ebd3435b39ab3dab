"""The `Session` object: keeps tables of one cluster up to date, and runs sessions on these tables.

A Session is made from a Snapshot and then follows the cluster by `apply_changes`. A new Session over a Snapshot and an
old one that followed the cluster to the same state decide the same; a property test holds that.
"""

from collections.abc import Hashable, Iterable, Set
from typing import Self

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision, Refusal, Reservation
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import PluginCallSampler
from batchsched.framework.runtime.registry import standard_registry
from batchsched.ports.cluster import ClusterChanges
from batchsched.ports.external import NO_EXTERNAL_CLIENTS, ExternalClients, NoTelemetry, Telemetry
from batchsched.queues.gang_order import AutoOrder, make_gang_order_policy
from batchsched.queues.usage_history import Usage, UsageHistory
from batchsched.session.decision_builder import DecisionBuilder
from batchsched.session.gangs.gang_eligibility import GangEligibilityCheck
from batchsched.session.gangs.order import GangOrder, ignored_policy_reason
from batchsched.session.selection.selection import (
    call_permit_again_for_waiting_gangs,
    place_gangs_and_choose_victims,
)
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.statement import Statement
from batchsched.session.tables.gang import GangState
from batchsched.session.tables.session_tables import Pause, SessionTables, do_not_pause


class Session:
    """A scheduler that keeps tables of one cluster between sessions, and computes each session's decision.

    It implements `ports.cluster.Scheduler`.

    Args:
      snapshot: the cluster to start from.
      profile: the scheduling profile.
      pipeline: the profile's plugins, if they exist already; None creates them.
      past: usage of the queues until now; None takes it from the Snapshot. A Session that replaces another one
        receives that one's history.
      brief: leave out what only explains why gangs wait: refusals, and the reservation of a head behind which no gang
        can start. A simulator decides thousands of sessions and reads none of it.
      pause: called repeatedly while the tables are filled, as in `SessionTables`.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist, or its arguments are invalid.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile,
        pipeline: Pipeline | None = None,
        past: UsageHistory | None = None,
        *,
        brief: bool = False,
        pause: Pause = do_not_pause,
    ) -> None:
        self.profile = self._configured = profile
        self.tables = SessionTables(snapshot, pipeline or standard_registry().create_pipeline(profile), pause)
        self._brief = brief
        self.solver_work = 0.0
        """The estimated work of CP-SAT for the last decision, in units of about a microsecond."""
        self._held: tuple[HeldGang, ...] = snapshot.held
        self._reservations: tuple[Reservation, ...] = snapshot.reservations
        """Reservations that the previous decision stated; `backfill: kept` keeps them."""
        self._resting, self._rejected = frozenset(snapshot.resting), frozenset(snapshot.rejected)
        self._policy = make_gang_order_policy(profile.policy.name, profile.policy.args)
        self.use_gang_order_candidate(snapshot.chosen_policy)
        self._order = GangOrder(self.tables, self._policy, profile, past)
        self._gang_eligibility = GangEligibilityCheck.from_tables(self.tables)

    @classmethod
    def for_simulation(cls, snapshot: Snapshot, profile: Profile, past: UsageHistory | None = None) -> Self:
        """Create a session that computes no refusals, for use in simulations."""
        return cls(snapshot, profile, past=past, brief=True)

    @classmethod
    def for_forecast(cls, snapshot: Snapshot, profile: Profile) -> Self:
        """Create a session that computes no refusals and skips pods with ResourceClaims, for forecasts."""
        pipeline = standard_registry().create_pipeline(profile)
        pipeline.allocates_devices = False
        return cls(snapshot, profile, pipeline, brief=True)

    @property
    def node_table(self) -> NodeTable:
        """The node table of the session: all nodes of the cluster, with their bound and assumed pods."""
        return self.tables.node_table

    @property
    def ignored_policy_reason(self) -> str:
        """Why sessions ignore the gang order that the profile's `policy` names; "" if they use it."""
        return ignored_policy_reason(self.profile, self.tables.queues)

    def decayed_usage(self, now: float) -> Usage:
        """Return the decayed past usage of each queue at `now`; empty if no queue policy reads it."""
        return self._order.update_decayed_usage(now)

    def apply_changes(self, changes: ClusterChanges) -> None:
        """Update the session's tables by the changes of the cluster since the last call.

        Call it between two sessions only.
        """
        self.tables.apply_changes(changes)
        if changes.nodes is not None:
            self._order.record_inconsistent_queue_settings()
            # Topology levels are valid for one set of nodes; cached answers refer to them.
            self._gang_eligibility = GangEligibilityCheck.from_tables(self.tables)

    def set_waiting_gangs(self, held: tuple[HeldGang, ...]) -> None:
        """Replace the list of gangs that wait at Permit."""
        self._held = held

    def set_rejected_gangs(self, identities: Iterable[str]) -> None:
        """Replace the set of gangs that hold up no other gang while they rest.

        A plugin rejected them although they had room, or their last session failed.
        """
        self._rejected = frozenset(identities)

    def use_gang_order_candidate(self, label: str) -> None:
        """Make the policy `auto` use the candidate with this label; do nothing under other policies.

        A label is the name of the gang order with its arguments. If no candidate has the label, the present candidate
        stays in use. The backfill setting of the candidate, if it has one, replaces the setting of the profile.
        """
        if not isinstance(self._policy, AutoOrder):
            return
        candidate = self._policy.use_candidate(label)
        if candidate.backfill is None:
            self.profile = self._configured
        elif candidate.backfill != self.profile.backfill or self.profile.blocking:
            self.profile = self._configured.model_copy(
                update={"backfill": candidate.backfill, "blocking": False}
            )

    def set_refused_evictions(self, pods: Iterable[str]) -> None:
        """Replace the set of pods that must not be victims, because the API server refused their eviction."""
        self.tables.refused_evictions = frozenset(pods)

    def distinct_spec_numbers(self, pods: Iterable[Pod]) -> set[Hashable]:
        """Return one number for each distinct pod spec; specs are equal if no plugin can tell them apart."""
        return {self.tables.specs.spec_number_of(pod) for pod in pods}

    def decide(
        self,
        now: float,
        seed: int,
        taking_part: Set[str] | None = None,
        telemetry: Telemetry | None = None,
        *,
        with_evictions: bool = True,
    ) -> Decision:
        """Run the next session and return its decision.

        Afterwards the tables are as before: the decided pods are not bound yet.

        Args:
          now: seconds since 1970.
          seed: seed of all random draws.
          taking_part: identities of the gangs that take part. The others rest, which means that the session does not
            try them, because no change since their refusal can help them. In strict queues and under `blocking`, gangs
            behind them wait as if they had been refused again. None: all pending gangs take part, except those that
            rest in the Snapshot.
          telemetry: receives stages and timings.
          with_evictions: evict pods for gangs that find no room. Victims are chosen after all placements, so that the
            assignments are the same without them. With `solver.enabled: false`, pods are evicted in any case.
        """
        tables = self.tables
        tables.set_time(now)
        tables.update_pending_gangs_and_indexes()
        tables.pipeline.extenders.forget_extender_failures()
        tables.pipeline.timings = PluginCallSampler(telemetry, seed)
        # Usage decays up to the start of the session; what the session itself places counts from its end.
        self._order.update_decayed_usage(now)
        with Statement(tables, now, telemetry) as statement:
            resting = self._resting_gangs(taking_part)
            run = self._new_run(statement, resting, now, seed, telemetry or NoTelemetry())
            run.with_evictions = with_evictions
            held = call_permit_again_for_waiting_gangs(run, self._held)
            pending = tables.pending_gangs.order_by_policy(
                self._policy, now, self._ordered_gangs(taking_part, resting, held)
            )
            place_gangs_and_choose_victims(run, pending)
            # A plugin may reject a gang while later gangs are placed: ask again before anything is committed.
            run.remove_rejected_gangs()
            statement.commit()
            decision = run.builder.build(tables, self._order.ignored_queue_fields)
        # After the statement's block: placed pods are off the tables again, so they are counted from the placements.
        self._order.record_usage_after_session(run.builder.placements)
        self._reservations = decision.reservations
        self.solver_work = run.builder.solver_work
        return decision

    def decide_refusals(self, now: float, seed: int) -> tuple[Refusal, ...]:
        """Run another session over the same tables to compute refusals, and return only the refusals."""
        brief, self._brief = self._brief, False
        try:
            return self.decide(now, seed).refusals
        finally:
            self._brief = brief

    def _new_run(
        self, statement: Statement, resting: frozenset[str], now: float, seed: int, telemetry: Telemetry
    ) -> SelectionRun:
        return SelectionRun(
            tables=self.tables,
            profile=self.profile,
            policy=self._policy,
            gang_eligibility=self._gang_eligibility,
            order=self._order,
            statement=statement,
            resting=resting,
            previous_reservations=self._reservations,
            now=now,
            seed=seed,
            telemetry=telemetry,
            builder=DecisionBuilder(self._brief),
        )

    def _ordered_gangs(
        self, taking_part: Set[str] | None, resting: frozenset[str], held: frozenset[str]
    ) -> Iterable[GangState] | None:
        """Return the pending gangs that take part, and resting gangs that hold up others; None for all pending gangs.

        Gangs that wait at Permit are not among them.
        """
        tables = self.tables
        if self._may_resting_gangs_hold_up_others:
            return (
                members
                for members in tables.pending_gangs
                if members.identity not in held
                and (members.identity not in resting or self._holds_up_others(members))
            )
        if taking_part is None:
            excluded = resting | held
            if not excluded:
                return None
            return [members for members in tables.pending_gangs if members.identity not in excluded]
        # Only pending gangs have a slot; an identity may be that of a gang that was bound or deleted since.
        candidates = (tables.gangs.get(identity) for identity in taking_part - held)
        return [members for members in candidates if members is not None and members.slot >= 0]

    def _resting_gangs(self, taking_part: Set[str] | None) -> frozenset[str]:
        """Return the gangs that rest, at least those on which the decision may depend.

        The nominations of resting gangs stay reserved, and other gangs may have to wait for resting gangs.
        """
        if taking_part is None:
            return self._resting
        tables = self.tables
        if self._may_resting_gangs_hold_up_others:
            return frozenset(members.identity for members in tables.pending_gangs) - taking_part
        return frozenset(tables.nominated) - taking_part

    @property
    def _may_resting_gangs_hold_up_others(self) -> bool:
        return self.profile.head_blocks or self._order.has_strict_queue

    def _holds_up_others(self, members: GangState) -> bool:
        """Return True if gangs behind a resting gang have to wait for it until it starts or is deleted.

        The pods of another profile's gangs, which never take part, hold up no gang of this one.
        """
        return (
            (self.profile.head_blocks or self._order.is_strict(members.queue))
            and members.identity not in self._rejected
            and self.tables.pending_gang(members).need > 0
            and any(
                pod.spec.scheduler_name == self.profile.scheduler_name for pod in members.pending.values()
            )
        )


def decide(
    snapshot: Snapshot,
    profile: Profile,
    now: float,
    seed: int,
    *,
    telemetry: Telemetry | None = None,
    outside: ExternalClients = NO_EXTERNAL_CLIENTS,
) -> Decision:
    """Run one session over a snapshot and return its decision, which depends only on the arguments.

    The session reads no clock and does no I/O, except for the calls of `outside`.

    Args:
      snapshot: the cluster.
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
    pipeline = standard_registry().create_pipeline(profile, outside)
    return Session(snapshot, profile, pipeline).decide(now, seed, telemetry=telemetry)
