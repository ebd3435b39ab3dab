"""Selection in strict order: gang after gang as the policy says; the solver only chooses the nodes.

The first gang that does not fit is the head. With `blocking` it ends the session. With EASY backfill it reserves its
earliest start, and gangs behind it start only if they do not delay that start. Pods may be evicted for the gangs that
did not fit, in the same order; evictions for a gang behind the head must not delay the head either.

Source: Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the
IBM SP2 with Backfilling, TPDS 2001, for EASY.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum

import numpy as np

from batchsched.framework.status import BoolArray, IntArray
from batchsched.queues.gang_order import HeadroomPolicy
from batchsched.session.joint.formulation import Formulation, formulate_problem
from batchsched.session.joint.proposal import planned_pods_by_gang
from batchsched.session.preemption.nominated import NominatedPods
from batchsched.session.refusals import (
    explain_refused_gang,
    out_of_turn_refusal,
    outside_window_refusal,
    refusal_of_only_gang,
    rolled_back_refusal,
)
from batchsched.session.reservations import (
    HeadReservation,
    ReservedHead,
    compute_head_reservation,
    fits_after_running_gangs_end,
)
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.tables.gang import GangState, PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.solver.completion import solve_single_gang
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import Solution
from batchsched.solver.rank_layout import lay_out_ranks

GangShape = tuple[int, tuple[tuple[int, int], ...]]
"""What decides which room a gang needs: pods that must be placed, and (identity of the class, pods) of each part."""


class AttemptResult(Enum):
    """The result of trying a gang in strict order: the gang started, must wait or was refused."""

    STARTED = "started"
    FULL = "full"
    """The gang finds no room on its nodes or in its queue."""
    REFUSED = "refused"
    """A plugin refused the gang, or it is only the surplus of a running gang: it holds up no other gang."""
    IN_THE_WAY = "in the way"
    """The gang fits, but would delay the head."""


class InOrderSelection:
    """A `SelectionStrategy` that selects gangs strictly in the order of the policy."""

    def __init__(self, run: SelectionRun, nominated: NominatedPods) -> None:
        self._run = run
        self._nominated = nominated
        self._inputs = run.formulation_input()
        self._node_table = run.tables.node_table
        self._statement = run.statement
        self._now = run.now
        self._reservation_rules = run.reservation_rules
        self._brief = run.builder.brief
        self._is_idle = False
        """True if nothing that counts against a queue runs; looked up only if the policy keeps room free."""
        self._ending_soon: IntArray = np.zeros(len(self._node_table.resources), np.int64)
        """[R] what running gangs release within the policy's horizon."""
        self._found_no_room: set[GangShape] = set()
        """Shapes that found no room in this session; free capacity only shrinks during a session."""
        self._delays_head: set[GangShape] = set()
        """Shapes that would have taken the head's room; cleared when a gang starts, since that changes placements."""
        self._may_evict = False
        """True if an eviction may help some pending gang; if not, gangs that cannot start are not looked at."""
        self._unplaced: list[PendingGang] = []
        """Gangs that got no place, in order; gangs that the policy or a blocking head holds back are not among them."""
        self._refusals = run.builder.refusals
        self._takes_part: BoolArray = np.ones(0, np.bool_)
        """[W] False for the pending gangs that rest and only hold up others."""
        self._placed = {placement.gang.members.identity for placement in run.builder.placements}
        """Identities of the gangs that the session has placed so far."""

    def place_pending_gangs(self, pending: OrderedGangs) -> list[PendingGang]:
        """Try the first `sessionWindow` gangs in order, and start the gangs that fit and may start now.

        Return the gangs that were not placed, and for which other gangs may be evicted.
        """
        run, builder = self._run, self._run.builder
        window = run.profile.session_window
        turns = run.order.iterate_gang_indexes(pending, run.gang_eligibility, run.now, run.resting)
        # While queues have fair shares, a reservation goes first in its own queue only.
        shared = run.order.policies is not None
        pending, turns = self._reservation_rules.put_reserved_gangs_first_in_tier(
            pending, turns, run.tables, self._nominated.gang_identities, shared=shared
        )
        self._may_evict = run.eviction_may_help(pending)
        self._takes_part = np.array([not self._rests(members) for members in pending.members], np.bool_)
        horizon = run.policy.horizon_seconds if isinstance(run.policy, HeadroomPolicy) else 0.0
        self._start_in_order(pending, self._turns_in_window(pending, turns), horizon)
        if not self._brief:
            # `turns` is a shared iterator: its remaining gangs are outside the window.
            outside = (pending.members[position] for position in turns)
            builder.refusals += [
                outside_window_refusal(members, window) for members in outside if not self._rests(members)
            ]
        # The gangs as admitted have no entitlement class, which decides whether a gang may reclaim.
        return [
            replace(gang, entitled=run.order.entitled.get(gang.members.identity, gang.entitled))
            for gang in self._unplaced
            if gang.need
        ]

    def _rests(self, members: GangState) -> bool:
        """Return True if a gang does not take part: it only holds up others."""
        return members.identity in self._run.resting

    def _turns_in_window(self, pending: OrderedGangs, turns: Iterator[int]) -> Iterator[int]:
        """Yield the turns of the first `sessionWindow` gangs that take part, and of the resting gangs among them."""
        remaining = self._run.profile.session_window
        for position in turns:
            yield position
            remaining -= not self._rests(pending.members[position])
            if not remaining:
                return

    def _start_in_order(self, pending: OrderedGangs, turns: Iterator[int], horizon: float) -> None:
        """Start gangs in order until the head blocks or the window ends.

        Args:
          pending: the pending gangs.
          turns: positions in `pending` in the order of turns; computed lazily, so they are read only as far as needed.
          horizon: seconds within which the ends of running gangs count as room, for policies that keep room free.
        """
        profile = self._inputs.profile
        if pending.room.any():
            self._ending_soon = self._released_within(horizon)
            running, scheduler_name = self._inputs.tables.running.values(), profile.scheduler_name
            self._is_idle = not any(members.counts_against_queue(scheduler_name) for members in running)
        held_back, could_fit = self._held_back(pending), self._could_fit(pending)
        if (
            self._brief
            and self._reservation_rules.slowdown is None
            and not could_fit.any()
            and not self._may_evict
        ):
            return  # No gang can start, and a brief decision needs no reservation for the head.
        behind = np.ones(len(pending.members), np.bool_)
        for position in turns:
            behind[position] = False
            if held_back[position]:
                self._refuse_waiting((pending.members[position],), None)
                continue
            gang = self._run.gang_in_turn_or_record_refusal(pending.members[position], self._placed)
            if gang is None:
                continue
            attempt = self._start(gang) if could_fit[position] else self._refuse_without_attempt(gang)
            # A gang with nominated pods holds up no other gang and needs no reservation: its room is kept already.
            if attempt is AttemptResult.STARTED or self._keep_nominated(gang):
                held_back, could_fit = self._held_back(pending), self._could_fit(pending)
                continue
            if attempt is not AttemptResult.FULL or not self._may_hold_up_others(gang):
                continue
            if profile.backfill == "none":
                self._refuse_waiting((pending.members[position] for position in turns), gang)
                return
            head = self._reserve_head(gang)
            # None: no expected end lets the gang in. Then it does not hold up the gangs behind it.
            if head is not None:
                self._backfill(pending, turns, behind, head)
                return

    def _may_hold_up_others(self, gang: PendingGang) -> bool:
        """Return True if a gang without room may hold up others: it waits for running gangs to end."""
        profile = self._inputs.profile
        # A gang that rests has no reservation: it would be in the session.
        holds_up = profile.head_blocks or (profile.backfill != "none" and not self._rests(gang.members))
        return holds_up and fits_after_running_gangs_end(self._inputs, gang)

    def _keep_nominated(self, gang: PendingGang) -> bool:
        """Record a gang without a place; keep the room of its nominated pods, and return whether it has any."""
        if self._rests(gang.members):
            return self._nominated.has_nominated_pods(gang)  # their room is kept in the whole session
        self._unplaced.append(gang)
        kept = self._nominated.add_unplaced_pods_to_node_table([gang], self._run.builder.placements)
        self._inputs = self._inputs.after_placements(kept)
        return bool(kept)

    def _reserve_head(self, gang: PendingGang) -> ReservedHead | None:
        """Reserve the earliest start of a gang; None if no expected end of running gangs lets it in."""
        builder = self._run.builder
        head_reservation = compute_head_reservation(self._inputs, gang, builder.placements, self._now)
        if head_reservation is not None:
            builder.head = ReservedHead(
                gang,
                self._inputs,
                head_reservation,
                self._now,
                strict=True,
                announced=self._reservation_rules.should_announce_reserved_start(gang),
            )
        return builder.head

    def _released_within(self, horizon: float) -> IntArray:
        """[R] Return what gangs release that are expected to end within `horizon` seconds."""
        tables = self._inputs.tables
        running = (tables.running_gang(members) for members in tables.running.values())
        ending = [gang.total for gang in running if gang.end <= self._now + horizon]
        return np.sum(ending, axis=0) if ending else self._ending_soon

    def _held_back(self, pending: OrderedGangs) -> BoolArray:
        """[W] True for gangs that the policy holds back: their needs and the room to keep are not free, now or soon."""
        room = pending.room
        # On an idle cluster no gang is held back: otherwise a large one would wait forever.
        if not room.any() or (self._is_idle and not self._run.builder.placements):
            return np.zeros(len(room), np.bool_)
        free = np.maximum(0, self._inputs.tables.free_resources()).sum(axis=0) + self._ending_soon
        required = pending.needs + room[:, np.newaxis] * self._node_table.allocatable.sum(axis=0)
        lacking = (required > free) & (pending.needs > 0) & self._inputs.tables.share_resources
        return np.asarray((room > 0) & lacking.any(axis=1))

    def _backfill(
        self, pending: OrderedGangs, turns: Iterator[int], behind: BoolArray, head: ReservedHead
    ) -> None:
        """Start gangs behind the head, in order, that do not delay it.

        Args:
          pending: the pending gangs.
          turns: positions of the gangs behind the head, in order.
          behind: [W] True for the same gangs.
          head: the head and its reservation.
        """
        runtime = np.nan_to_num(pending.columns.estimate, nan=np.inf)
        ends_in_time = runtime + self._now <= head.reservation.start
        candidates = behind & self._could_backfill(pending, head.reservation, ends_in_time)
        # A brief decision needs no refusals, so it stops at the last candidate.
        while not self._brief or self._may_evict or candidates.any():
            position = next(turns, None)
            if position is None:
                return
            attempt, gang = AttemptResult.IN_THE_WAY, None
            # A gang that cannot start behind the head may still evict gangs that do not end before the head starts.
            if candidates[position] or self._may_evict:
                gang = self._run.gang_in_turn_or_record_refusal(pending.members[position], self._placed)
                if gang is None:
                    continue
            if candidates[position] and gang is not None:
                candidates[position] = False
                attempt = self._start(gang, None if ends_in_time[position] else head.reservation)
            if attempt is AttemptResult.IN_THE_WAY:
                self._refuse_waiting((pending.members[position],), head.gang)
            if attempt is not AttemptResult.STARTED and gang is not None:
                self._keep_nominated(gang)
            if attempt is not AttemptResult.IN_THE_WAY:
                # Room only shrinks: a gang that is no candidate any more does not become one again.
                candidates &= self._could_backfill(pending, head.reservation, ends_in_time)

    def _could_backfill(
        self, pending: OrderedGangs, reservation: HeadReservation, ends_in_time: BoolArray
    ) -> BoolArray:
        """[W] True for gangs that may fit by the sums of free resources, now and next to the head at its start."""
        free_at_start = np.maximum(0, reservation.free).sum(axis=0)
        fits_next_to_head = (pending.needs + reservation.needs <= free_at_start).all(axis=1)
        return np.asarray(
            self._could_fit(pending) & (ends_in_time | fits_next_to_head) & ~self._held_back(pending)
        )

    def _could_fit(self, pending: OrderedGangs) -> BoolArray:
        """[W] True for gangs with requests of at most the free resources of all nodes; the others cannot be placed.

        A resting gang is not tried, whatever it requests.
        """
        free: IntArray = np.maximum(0, self._inputs.tables.free_resources()).sum(axis=0)
        return np.asarray((pending.needs <= free).all(axis=1) & self._takes_part)

    def _start(self, gang: PendingGang, head_reservation: HeadReservation | None = None) -> AttemptResult:
        """Place a gang; with a reservation, only where the head still fits at its start."""
        shape = _shape_of(gang)
        # A full decision tries again for the sake of the gang's own refusal.
        if self._brief and shape in self._found_no_room:
            return AttemptResult.FULL
        if head_reservation is not None and shape in self._delays_head:
            return AttemptResult.IN_THE_WAY
        formulation = formulate_problem(self._inputs, [gang], gang.created)
        solution = solve_single_gang(formulation.problem)
        if not len(solution.counts):
            if self._room_only_shrinks(gang, formulation):
                self._found_no_room.add(shape)
            return self._refuse_unplaced(gang, formulation, solution)
        if head_reservation is not None:
            solution = self._next_to_head(formulation, solution, head_reservation)
            if not len(solution.counts):
                if self._room_only_shrinks(gang, formulation) and not formulation.problem.nodes.levels.size:
                    self._delays_head.add(shape)
                return AttemptResult.IN_THE_WAY
        self._delays_head.clear()
        if head_reservation is None:
            # Behind a head, other nodes could take the room that the head needs.
            solution = lay_out_ranks(formulation.problem, solution, formulation.ranked)
        placement = self._statement.place_gang(gang, planned_pods_by_gang(formulation, solution)[0])
        if not placement.placed:
            self._refusals.append(rolled_back_refusal(placement, timed_out=False))
            return AttemptResult.REFUSED
        self._run.builder.placements.append(placement)
        self._placed.add(gang.members.identity)
        # From here on the plugins answer with this gang in place.
        self._inputs = self._inputs.after_placements([placement]).with_fresh_feasible_nodes()
        return AttemptResult.STARTED

    def _room_only_shrinks(self, gang: PendingGang, formulation: Formulation) -> bool:
        """Return whether a gang of this shape that finds no room now finds none later in the session.

        Rows, quotas, bound pods and topology levels make gangs of one shape different; a filter that may accept a node
        later, for example because of affinity to a pod that lands there, makes the future different.
        """
        problem = formulation.problem
        depends_on_gang = (
            bool(problem.rows or formulation.failures)
            or len(problem.quotas.gangs) > 0
            or gang.need <= 0
            or not gang.has_no_bound_pod
        )
        gangs = problem.gangs
        has_levels = len(problem.subgroups.gang) > 0 or bool(
            ((gangs.required >= 0) | (gangs.slice_size > 0)).any()
        )
        feasible_nodes = self._inputs.feasible_nodes
        return (
            not depends_on_gang
            and not has_levels
            and all(feasible_nodes.feasible_nodes_of(part.pod_class).shrinking for part in gang.parts)
        )

    def _next_to_head(
        self, formulation: Formulation, solution: Solution, head_reservation: HeadReservation
    ) -> Solution:
        """Return a solution with which the head still fits at its start; an empty one if there is none."""
        if self._leaves_room(formulation, solution, head_reservation):
            return solution
        problem = formulation.problem
        free = np.minimum(problem.nodes.free, head_reservation.capacity_left_by_head())
        restricted = solve_greedy(replace(problem, nodes=replace(problem.nodes, free=free)))
        if len(restricted.counts) and not self._leaves_room(formulation, restricted, head_reservation):
            allowed = np.zeros_like(problem.gangs.allowed)
            return solve_greedy(replace(problem, gangs=replace(problem.gangs, allowed=allowed)))
        return restricted

    def _leaves_room(
        self, formulation: Formulation, solution: Solution, head_reservation: HeadReservation
    ) -> bool:
        """Return whether the head still fits after this solution; if so, the solution counts against its room."""
        demand = formulation.problem.classes.demand[solution.classes] * solution.counts[:, np.newaxis]
        return head_reservation.deduct_if_head_still_fits(solution.nodes, demand)

    def _refuse_unplaced(
        self, gang: PendingGang, formulation: Formulation, solution: Solution
    ) -> AttemptResult:
        # Surplus of a running gang waits for room without holding up other gangs.
        if gang.need == 0:
            return AttemptResult.REFUSED
        if not self._brief:
            with self._run.telemetry.gang_span(formulation.gangs[0].key):
                self._refusals.append(refusal_of_only_gang(self._inputs, formulation, solution))
        return AttemptResult.FULL

    def _refuse_without_attempt(self, gang: PendingGang) -> AttemptResult:
        """Refuse a gang that asks for more than is free; a resting gang was refused before."""
        if not self._brief and not self._rests(gang.members):
            with self._run.telemetry.gang_span(gang.key):
                self._refusals.append(explain_refused_gang(self._inputs, gang))
        return AttemptResult.FULL

    def _refuse_waiting(self, waiting: Iterable[GangState], head: PendingGang | None) -> None:
        """Refuse gangs that wait behind the head, or because of the policy if there is no head."""
        if not self._brief:
            self._refusals += [
                out_of_turn_refusal(members, head.key if head else "")
                for members in waiting
                if not self._rests(members)
            ]


def _shape_of(gang: PendingGang) -> GangShape:
    return gang.need, tuple((id(part.pod_class), len(part.pods)) for part in gang.parts)
