"""`decide`: a snapshot in, a decision out. Everything else in batchsched is a shell around it."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby, islice

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.decision import (
    Assignment,
    Decision,
    Nomination,
    Refusal,
    Reservation,
    SetAside,
    SolverAccount,
    Waiting,
)
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.deadline import left_out
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard
from batchsched.framework.runtime.sampling import Sampling
from batchsched.framework.runtime.timing import PluginTimings
from batchsched.ports.external import NOBODY, ExternalCalls
from batchsched.ports.telemetry import Silence, Telemetry
from batchsched.queues.gang_order import policy as policies
from batchsched.queues.gang_order.builtin import POLICIES
from batchsched.queues.gang_order.policy import HorizonPolicy
from batchsched.queues.usage_history import Usage, UsageHistory
from batchsched.session.decision_builder import DecisionBuilder
from batchsched.session.gangs.admission import Admission, without_pods
from batchsched.session.gangs.order import GangOrder
from batchsched.session.gangs.permit_waiting import revisit
from batchsched.session.gangs.queue_limits import quotas, spend
from batchsched.session.joint.formulation import Formulation, SessionContext, formulate
from batchsched.session.joint.proposal import JointProposer, JointSelection, with_gang
from batchsched.session.placement.class_feasibility import FeasibilityByClass
from batchsched.session.placement.statement import GangPlacement, Statement
from batchsched.session.preemption.eligibility import EvictionEligibility
from batchsched.session.preemption.nominated import NominatedCapacity
from batchsched.session.preemption.pod_preemption import PodPreemption
from batchsched.session.preemption.victim_selection import VictimSelection
from batchsched.session.refusals.diagnosis import (
    Diagnosis,
    no_nodes,
    out_of_turn,
    outside_window,
    permit_refusal,
)
from batchsched.session.reservation.head import ReservedHead
from batchsched.session.reservation.sticky import StickyReservations
from batchsched.session.selection.in_order import InOrderSelection
from batchsched.session.selection.pod_by_pod import PodByPodSelection
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables
from batchsched.session.tables.topology_levels import Levels


def decide(
    snapshot: Snapshot,
    profile: Profile,
    now: float,
    seed: int,
    *,
    telemetry: Telemetry | None = None,
    outside: ExternalCalls = NOBODY,
) -> Decision:
    """Decide one session: pure, deterministic, without clock or I/O.

    Args:
      snapshot: everything the decision may depend on.
      profile: how to schedule.
      now: seconds since 1970.
      seed: of everything that is drawn.
      telemetry: a listener; it never changes the decision.
      outside: reaches extenders, and minds the time of plugins. What it says is part of what is decided over, and
        is recorded with the session.

    Raises:
      InvalidInput: the profile names a plugin or a policy that does not exist, or arguments that it refuses.
    """
    return Sessions(snapshot, profile, outside=outside).decide(now, seed, telemetry=telemetry)


class Sessions:
    """One session after the other over a cluster that is followed event by event.

    A fresh object over a snapshot and an old one that followed the cluster there decide the same.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile,
        pipeline: Pipeline | None = None,
        outside: ExternalCalls = NOBODY,
        past: UsageHistory | None = None,
    ) -> None:
        self.profile = profile
        self.tables = SessionTables(snapshot, pipeline or standard().pipeline(profile, outside))
        self.held: tuple[HeldGang, ...] = snapshot.held
        self.promised: tuple[Reservation, ...] = snapshot.reservations
        """What the session before told, for a profile that keeps it."""
        self._rest = frozenset(snapshot.resting)
        self._policy = policies.make(profile.policy.name, profile.policy.args, POLICIES)
        self._turns = GangOrder(self.tables, self._policy, profile, past)
        self._look_at_levels()

    def lay_out(self, nodes: Sequence[Node]) -> None:
        """Take in the nodes as they are now, in the order in which a fresh snapshot has them."""
        self.tables.lay_out(nodes)
        self._turns.look_at_nodes()
        self._look_at_levels()

    def _look_at_levels(self) -> None:
        self._levels = Levels(self.tables.snapshot, self.tables.node_table)
        self._admission = Admission.of(self.tables, self._levels, self.tables.snapshot)

    def decide(
        self,
        now: float,
        seed: int,
        *,
        telemetry: Telemetry | None = None,
        brief: bool = False,
        among: Set[str] | None = None,
    ) -> Decision:
        """Decide the next session; the frame is left as it was found.

        Args:
          now: seconds since 1970.
          seed: of everything that is drawn.
          telemetry: a listener.
          brief: leave out what says only that a gang has to wait, refusals and the reservation of a head behind
            which nobody could start; a simulator reads none of it.
          among: identities of the gangs that take part; the others rest, since nothing can have helped them. None:
            all but those that rest in the snapshot.
        """
        listener = telemetry or Silence()
        draft = DecisionBuilder(brief)
        self.tables.refresh()
        self.tables.pipeline.extenders.begin()
        self.tables.pipeline.timings = PluginTimings(telemetry, seed)
        self._turns.usage(now)
        with Statement(self.tables, now) as statement:
            busy = self._revisit_held(statement, draft, now)
            line = self.tables.pending_gangs.order(self._policy, now, self._taking_part(among, busy))
            waiting = line.members
            if not self.tables.node_table.nodes:
                draft.refusals += [no_nodes(one) for one in waiting]
            elif not self.profile.solver.enabled:
                turns = self._turns.through(line, self._admission, now)
                self._podwise(statement, draft, [line.members[at] for at in turns], now, seed)
            elif self.profile.selection == "ordered":
                self._ordered(statement, draft, line, now, brief)
            else:
                kept = NominatedCapacity(self.tables, self._resting(among))
                self._joint(statement, draft, waiting, kept, now, (seed, listener))
            self._heed(statement, draft)
            statement.commit()
            decision = self._decision(draft, brief)
        self._turns.remember(draft.walked)
        self.promised = decision.reservations
        return decision

    def usage(self, now: float) -> Usage:
        """Return what queues used lately, decayed up to now; nothing while no policy asks for it."""
        return self._turns.usage(now)

    def _taking_part(self, among: Set[str] | None, busy: frozenset[str]) -> list[PodGroupState] | None:
        """Return who waits, neither rests nor is held; None for all that wait."""
        tables, out = self.tables, self._rest | busy
        if among is None:
            return [one for one in tables.pending_gangs if one.identity not in out] if out else None
        found = (tables.gangs.get(identity) for identity in among - busy)
        return [one for one in found if one is not None and one.slot >= 0]

    def _resting(self, among: Set[str] | None) -> frozenset[str]:
        """Return who rests, of those at least that hold something by nomination."""
        return self._rest if among is None else frozenset(self.tables.nominated) - among

    def _heed(self, statement: Statement, draft: DecisionBuilder) -> None:
        """Take gangs out that plugins sent back while they waited."""
        statement.apply_permit_verdicts()
        gone = {id(one) for one in statement.rejected}
        draft.walked = [one for one in draft.walked if id(one) not in gone]
        draft.refusals += [permit_refusal(one, timed_out=False) for one in statement.rejected]

    def _revisit_held(self, statement: Statement, draft: DecisionBuilder, now: float) -> frozenset[str]:
        walked = revisit(self.tables, statement, self.held, now)
        for one in walked:
            if one.refusal.ok:
                draft.walked.append(one)
            else:
                draft.refusals.append(permit_refusal(one, timed_out=now >= self._deadline(one)))
        return frozenset(one.gang.members.identity for one in walked)

    def _deadline(self, walked: GangPlacement) -> float:
        return next((one.until for one in self.held if one.pod_group == walked.gang.key), float("inf"))

    def _context(self, draft: DecisionBuilder) -> SessionContext:
        """Lay out what stays the same in the session; held gangs count against their queues already."""
        left = quotas(self.tables, self.profile.scheduler_name)
        context = SessionContext(
            self.tables, self.profile, self._levels, left, FeasibilityByClass(self.tables)
        )
        return self._spent(context, draft.walked)

    def _joint(
        self,
        statement: Statement,
        draft: DecisionBuilder,
        waiting: Sequence[PodGroupState],
        kept: NominatedCapacity,
        now: float,
        seeded: tuple[int, Telemetry],
    ) -> None:
        """Select by weight: all gangs of a window at once, window after window."""
        with seeded[1].stage("admit"):
            gangs = self._turns.of(self._admitted(draft, waiting), now)
            gangs.sort(key=lambda gang: (gang.tier, gang.behind != "" or not kept.holds(gang)))
        known = {gang.members.identity: gang for gang in gangs}
        with kept:
            context = self._context(draft)
            free = [gang for gang in gangs if not kept.holds(gang)]
            promises = StickyReservations.of(self.profile, self.promised, now)
            draft.head = ReservedHead.among(context, free, draft.walked, promises, kept.expected)
            for some in (part for batch in self._batches(gangs) for part in kept.parts(batch)):
                context = self._window(statement, draft, context, self._in_time(draft, some, known), seeded)
                context = self._spent(context, kept.keep(some, draft.walked))
            draft.nominated += kept.standing
            kept.release()
            self._make_room(statement, draft, gangs, (now, seeded[0]))
            draft.reserve()
        draft.close()

    def _make_room(
        self,
        statement: Statement,
        draft: DecisionBuilder,
        gangs: Sequence[PendingGang],
        when: tuple[float, int],
    ) -> None:
        """Let others leave for gangs that found no room, where a PostFilter may make room at all."""
        placed = {one.gang.members.identity for one in draft.walked} | {""}
        refused = [
            one
            for one in gangs
            if one.need and not one.follows and one.members.identity not in placed and one.behind in placed
        ]
        if refused and self.tables.pipeline.postfilters:
            claims = EvictionEligibility(self.tables, self._turns.latest, when[0], draft.walked)
            with VictimSelection(self._context(draft), statement, claims, *when, draft.head) as clearing:
                clearing.make_room(refused)
            draft.cleared(clearing)

    def _in_time(
        self, draft: DecisionBuilder, some: Sequence[PendingGang], known: Mapping[str, PendingGang]
    ) -> list[PendingGang]:
        """Leave out surplus whose gang has no place, and who is behind somebody whom an earlier window refused."""
        there = {one.gang.members.identity for one in draft.walked}
        here, chosen = set(there), list[PendingGang]()
        for gang in some:
            if gang.behind and gang.behind not in here:
                draft.refusals.append(out_of_turn(gang.members, known[gang.behind].key))
            elif not gang.follows or gang.members.identity in there:
                chosen.append(gang)
                here.add(gang.members.identity)
        return chosen

    def _batches(self, gangs: Sequence[PendingGang]) -> Iterable[Sequence[PendingGang]]:
        """Cut gangs into windows; where surplus follows its gang, each share is one, since it has to see it placed."""
        parts: Iterable[Iterable[PendingGang]] = [gangs]
        if any(gang.follows for gang in gangs):
            parts = (some for _, some in groupby(gangs, key=lambda gang: gang.tier[:2]))
        window = self.profile.session_window
        for part in parts:
            members = list(part)
            for first in range(0, len(members), window):
                yield members[first : first + window]

    def _window(
        self,
        statement: Statement,
        draft: DecisionBuilder,
        context: SessionContext,
        gangs: Sequence[PendingGang],
        seeded: tuple[int, Telemetry],
    ) -> SessionContext:
        """Select among the gangs of one window; returns the scene for the next."""
        seed, telemetry = seeded
        with telemetry.stage("pipeline"):
            context.feasibility.all(part.pod_class for gang in gangs for part in gang.parts)
        with telemetry.stage("formulate"):
            formulation = formulate(context, gangs, self.tables.pending_gangs.youngest())
            if draft.head is not None:
                formulation = draft.head.on(formulation)
        outcome = JointProposer(formulation, self.profile.solver, seed, telemetry).select(statement)
        with telemetry.stage("walk"):
            outcome = self._rescued(statement, context, formulation, outcome, draft.head)
        draft.started(outcome.walked)
        if not draft.brief:
            with telemetry.stage("explain"):
                draft.refusals += Diagnosis(
                    context, formulation, outcome, self.profile.solver, seed
                ).refusals()
        draft.account(formulation, outcome)
        return replace(self._spent(context, outcome.walked), feasibility=FeasibilityByClass(self.tables))

    def _rescued(
        self,
        statement: Statement,
        context: SessionContext,
        formulation: Formulation,
        outcome: JointSelection,
        head: ReservedHead | None,
    ) -> JointSelection:
        """Try gangs that the walk refused once more, pod by pod: the pipeline may know a way that rows cannot say."""
        if not outcome.rejected:
            return outcome
        podwise = PodByPodSelection(self._spent(context, outcome.walked), self._admission, statement)
        standing = {one.gang.members.identity for one in outcome.walked}
        for number, refused in sorted(outcome.rejected.items()):
            gang = formulation.gangs[number]
            if refused.final or gang.members.identity in standing:  # it may stand without some of its surplus
                continue
            if head is not None and head.bounds(gang):  # pod by pod nobody would look at what the head leaves
                continue
            if podwise.take(gang) is None:
                outcome = with_gang(formulation, outcome, number, podwise.walked[-1])
        return outcome

    def _spent(self, context: SessionContext, walked: Iterable[GangPlacement]) -> SessionContext:
        return replace(context, quotas=spend(context.quotas, self.tables, *walked))

    def _admitted(self, draft: DecisionBuilder, waiting: Sequence[PodGroupState]) -> list[PendingGang]:
        """Admit gangs, in the policy's order."""
        gangs: list[PendingGang] = []
        for members in waiting:
            admitted = self._admission.gang(members)
            if isinstance(admitted, Refusal):
                draft.refusals.append(admitted)
            elif admitted.parts:
                gangs.append(admitted)
        return gangs

    def _ordered(
        self, statement: Statement, draft: DecisionBuilder, line: OrderedGangs, now: float, brief: bool
    ) -> None:
        promises, window = (
            StickyReservations.of(self.profile, self.promised, now),
            self.profile.session_window,
        )
        turns = self._turns.through(line, self._admission, now)
        shared = self._turns.policies is not None
        line, turns = promises.in_front(line, turns, self.tables, shared=shared)
        ordered = InOrderSelection(self._context(draft), self._admission, statement, promises, brief=brief)
        horizon = self._policy.horizon if isinstance(self._policy, HorizonPolicy) else 0.0
        ordered.select(line, islice(turns, window), horizon)
        if not brief:
            draft.refusals += [outside_window(line.members[at], window) for at in turns]
        draft.walked += ordered.walked
        draft.refusals += ordered.refusals
        draft.reservations += ordered.reservations

    def _podwise(
        self,
        statement: Statement,
        draft: DecisionBuilder,
        waiting: Sequence[PodGroupState],
        now: float,
        seed: int,
    ) -> None:
        preemption = PodPreemption(self.tables, now)
        podwise = PodByPodSelection(
            self._context(draft), self._admission, statement, preemption, self._sampling(seed)
        )
        podwise.select(waiting)
        draft.walked += podwise.walked
        draft.refusals += podwise.refusals
        draft.evictions += preemption.evictions.values()
        draft.nominated += preemption.standing()

    def _sampling(self, seed: int) -> Sampling | None:
        """Return the search that the profile asks for, None where it looks at all nodes."""
        percentage, tables = self.profile.percentage_of_nodes_to_score, self.tables
        if percentage is None:
            return None
        nobody_ranks = not tables.pipeline.scores and not tables.pipeline.extenders
        return Sampling(tables.node_table, percentage, seed, any_will_do=nobody_ranks)

    def _decision(self, draft: DecisionBuilder, brief: bool) -> Decision:
        if not brief:
            draft.refusals += [without_pods(one) for one in self.tables.incomplete.values()]
        names = self.tables.node_table.names
        bound = [one for one in draft.walked if not one.held_by]
        held = [one for one in draft.walked if one.held_by]
        return Decision(
            assignments=tuple(
                Assignment(namespace=namespace, pod=pod, node=node)
                for namespace, pod, node in _places(bound, names)
            ),
            evictions=tuple(sorted(draft.evictions, key=lambda one: (one.namespace, one.pod))),
            nominations=tuple(
                Nomination(namespace=namespace, pod=pod, node=node)
                for namespace, pod, node in _places(held, names, draft.nominated)
            ),
            waiting=tuple(
                Waiting(pod_group=one.gang.key, plugin=one.held_by, until=timestamp(one.until))
                for one in sorted(held, key=lambda one: one.gang.key)
            ),
            refusals=tuple(sorted(draft.refusals, key=lambda one: one.pod_group)),
            reservations=tuple(draft.reservations),
            set_aside=(
                *self.tables.snapshot.set_aside,
                *self._turns.set_aside,
                *self.tables.plugin_failures.values(),
                *_gone_without(self.tables.pipeline),
            ),
            solver=SolverAccount(tiers=draft.tiers, gap=draft.gap, guard=draft.guard),
        )


def _places(
    walked: Iterable[GangPlacement], names: Sequence[str], others: Iterable[tuple[Pod, int]] = ()
) -> list[tuple[str, str, str]]:
    found = [(placed.pod, placed.node) for one in walked for placed in one.placed]
    return sorted((pod.namespace, pod.name, names[node]) for pod, node in (*found, *others))


def _gone_without(pipeline: Pipeline) -> list[SetAside]:
    """Say what the session went on without: plugins that hung, and extenders that failed and may be ignored."""
    plugins = [
        SetAside("", f"plugin {one.plugin}", "", f"{one.point} {one.problem}")
        for one in left_out(pipeline.plugins)
    ]
    extenders = [SetAside("", f"extender {url}", "", why) for why, url in pipeline.extenders.ignored.items()]
    return plugins + extenders
