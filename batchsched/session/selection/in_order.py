"""Ordered selection: the policy's order is strict, gang after gang, and the solver only places.

What stands at the front starts first. Where the profile blocks, the first gang that does not fit, the head, ends
the session; with EASY backfill it reserves its earliest start, and gangs behind it start if they do not delay it.

Source: Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the
IBM SP2 with Backfilling, TPDS 2001, for EASY.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from itertools import islice

import numpy as np

from batchsched.api.decision import Refusal, Reservation
from batchsched.framework.status import BoolArray, IntArray
from batchsched.queues.gang_order.policy import HorizonPolicy
from batchsched.session.joint.formulation import Formulation, formulate
from batchsched.session.joint.proposal import shares_of
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.refusals.diagnosis import by_itself, lone, out_of_turn, outside_window, permit_refusal
from batchsched.session.reservation.reservation import HeadReservation, hopeful, reservation, shadow_of
from batchsched.session.selection.selection_run import SelectionRun, refresh_feasibility, spend_quotas
from batchsched.session.tables.gang import PendingGang, PodGroupState
from batchsched.session.tables.pending import OrderedGangs
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import Solution

GangShape = tuple[int, tuple[tuple[int, int], ...]]
"""What two gangs share that need the same room: pods that must be placed, and (class, pods) of every part."""


class PlacementAttempt(Enum):
    """What became of trying to start a gang."""

    STARTED = "started"
    FULL = "full"  # it would fit once running gangs end
    STUCK = "stuck"  # capacity is not what it lacks
    IN_THE_WAY = "in the way"  # it fits, and would delay the head


class InOrderProposer:
    """Selects gangs in the policy's order; a `Proposer`."""

    def __init__(self, run: SelectionRun) -> None:
        self._run = run
        self._context = run.context()
        self._node_table = run.tables.node_table
        self._statement = run.statement
        self._now = run.now
        self._sticky = run.sticky_reservations()
        self._brief = run.builder.brief
        self._ending_soon: IntArray = np.zeros(len(self._node_table.resources), np.int64)
        """[R] what running gangs release within the policy's horizon."""
        self._found_no_room: set[GangShape] = set()
        """Shapes that found no room in this session; free capacity only shrinks while a session goes on."""
        self._delays_head: set[GangShape] = set()
        """Shapes that would have taken the head's room; cleared when a gang starts, since that changes placements."""
        self._placements: list[GangPlacement] = []
        self._refusals: list[Refusal] = []
        self._reservations: list[Reservation] = []

    def select(self, pending: OrderedGangs) -> None:
        """Start the gangs of one window in the order of their queues' fair shares."""
        run, builder = self._run, self._run.builder
        window = run.profile.session_window
        turns = run.order.through(pending, run.admission, run.now)
        # While queues have fair shares, a reservation goes first in its own queue only.
        shared = run.order.policies is not None
        pending, turns = self._sticky.in_front(pending, turns, run.tables, shared=shared)
        horizon = run.policy.horizon if isinstance(run.policy, HorizonPolicy) else 0.0
        self._start_in_order(pending, islice(turns, window), horizon)
        if not self._brief:
            # `turns` is a shared iterator: what is left of it lies outside the window.
            builder.refusals += [outside_window(pending.members[position], window) for position in turns]
        builder.placements += self._placements
        builder.refusals += self._refusals
        builder.reservations += self._reservations

    def _start_in_order(self, line: OrderedGangs, turns: Iterator[int], horizon: float) -> None:
        """Start gangs in order until the head blocks or the window is through.

        Args:
          line: who waits.
          turns: places in the line in order, as many as the window has; asked for as far as it matters.
          horizon: seconds within which a running gang's end counts as room, where the policy wants room.
        """
        profile = self._context.profile
        self._ending_soon = self._ending(horizon) if line.room.any() else self._ending_soon
        held, could = self._held_back(line), self._could_fit(line)
        if self._brief and self._sticky.slowdown is None and not could.any():
            return  # nobody starts, and when the head could is read by nobody
        behind = np.ones(len(line.members), np.bool_)
        for at in turns:
            behind[at] = False
            if held[at]:
                self._leave_out((line.members[at],), None)
                continue
            gang = self._admitted(line.members[at])
            if gang is None:
                continue
            attempt = self._start(gang) if could[at] else self._too_large(gang)
            if attempt is PlacementAttempt.STARTED:
                held, could = self._held_back(line), self._could_fit(line)
                continue
            if attempt is PlacementAttempt.FULL and profile.backfill != "none":
                shadow = shadow_of(self._context, gang, self._placements, self._now)
                if shadow is not None:
                    if self._sticky.due(gang):
                        self._reservations.append(reservation(gang, shadow))
                    self._backfill(line, turns, behind, (gang, shadow))
                    return
            elif attempt is PlacementAttempt.FULL and profile.blocking:
                self._leave_out((line.members[at] for at in turns), gang)
                return

    def _ending(self, horizon: float) -> IntArray:
        """[R] what gangs hold that are expected to end within the horizon, as the session begins."""
        tables = self._context.tables
        runs = (tables.running_gang(members) for members in tables.running.values())
        soon = [run.total for run in runs if run.end <= self._now + horizon]
        return np.sum(soon, axis=0) if soon else self._ending_soon

    def _held_back(self, line: OrderedGangs) -> BoolArray:
        """[W] gangs that the policy holds back: their needs and the room are not free, now or soon."""
        room = line.room
        if not room.any() or not (self._context.tables.running or self._placements):
            return np.zeros(len(room), np.bool_)
        table = self._node_table
        there = np.maximum(0, self._context.tables.free_resources()).sum(axis=0) + self._ending_soon
        wanted = line.needs + room[:, np.newaxis] * table.allocatable.sum(axis=0)
        short = (wanted > there) & (line.needs > 0) & self._context.tables.share_resources
        return np.asarray((room > 0) & short.any(axis=1))

    def _backfill(
        self,
        line: OrderedGangs,
        turns: Iterator[int],
        behind: BoolArray,
        head: tuple[PendingGang, HeadReservation],
    ) -> None:
        """Start gangs behind the head, in order, that do not delay it.

        Args:
          line: who waits.
          turns: places of those behind the head, in order.
          behind: [W] the same.
          head: and its reservation.
        """
        first, shadow = head
        short = np.nan_to_num(line.columns.estimate, nan=np.inf) + self._now <= shadow.start
        may = behind & self._may_backfill(line, short, shadow)
        while not self._brief or may.any():
            at = next(turns, None)
            if at is None:
                return
            attempt = PlacementAttempt.IN_THE_WAY
            if may[at]:
                may[at] = False
                gang = self._admitted(line.members[at])
                if gang is None:
                    continue
                attempt = self._start(gang, None if short[at] else shadow)
            if attempt is PlacementAttempt.IN_THE_WAY:
                self._leave_out((line.members[at],), first)
            else:
                may &= self._may_backfill(line, short, shadow)

    def _may_backfill(self, line: OrderedGangs, short: BoolArray, shadow: HeadReservation) -> BoolArray:
        """[W] gangs that could start by what is free in sum, now and beside the head at its start."""
        total = np.maximum(0, shadow.free).sum(axis=0)
        beside = short | (line.needs + shadow.needs <= total).all(axis=1)
        return np.asarray(self._could_fit(line) & beside & ~self._held_back(line))

    def _could_fit(self, line: OrderedGangs) -> BoolArray:
        """[W] gangs whose needs are free in sum: the others need not be tried."""
        free: IntArray = np.maximum(0, self._context.tables.free_resources()).sum(axis=0)
        return np.asarray((line.needs <= free).all(axis=1))

    def _admitted(self, members: PodGroupState) -> PendingGang | None:
        """Return the gang if it may be placed; record its refusal otherwise."""
        admitted = self._run.admit(members)
        if isinstance(admitted, Refusal):
            self._refusals.append(admitted)
            return None
        return admitted

    def _start(self, gang: PendingGang, shadow: HeadReservation | None = None) -> PlacementAttempt:
        """Place a gang and walk it; with a shadow, only where the head still fits beside it."""
        shape = _shape(gang)
        if self._brief and shape in self._found_no_room:
            return self._full_or_stuck(gang)
        if shadow is not None and shape in self._delays_head:
            return PlacementAttempt.IN_THE_WAY
        formulation = formulate(self._context, [gang], gang.created)
        solution = solve_greedy(formulation.problem)
        if not len(solution.counts):
            if self._only_shrinks(gang, formulation):
                self._found_no_room.add(shape)
            return self._refused(gang, formulation, solution)
        if shadow is not None:
            solution = self._beside(formulation, solution, shadow)
            if not len(solution.counts):
                if self._only_shrinks(gang, formulation) and not formulation.problem.nodes.levels.size:
                    self._delays_head.add(shape)
                return PlacementAttempt.IN_THE_WAY
        self._delays_head.clear()
        walked = self._statement.place_gang(gang, shares_of(formulation, solution)[0])
        if not walked.placed:
            self._refusals.append(permit_refusal(walked, timed_out=False))
            return PlacementAttempt.STUCK
        self._placements.append(walked)
        # Plugins answer for later gangs with this one in place.
        self._context = refresh_feasibility(spend_quotas(self._context, [walked]))
        return PlacementAttempt.STARTED

    def _only_shrinks(self, gang: PendingGang, formulation: Formulation) -> bool:
        """Tell whether a gang that finds no room now finds none later in the session, nor does one like it."""
        problem = formulation.problem
        free_of_others = (
            not (problem.rows or formulation.failures)
            and not len(problem.quotas.gangs)
            and gang.need > 0
            and gang.fresh
        )
        unlevelled = not len(problem.subgroups.gang) and bool((problem.gangs.required < 0).all())
        feasibility = self._context.feasibility
        return (
            free_of_others
            and unlevelled
            and all(feasibility.of(part.pod_class).shrinking for part in gang.parts)
        )

    def _beside(self, formulation: Formulation, solution: Solution, shadow: HeadReservation) -> Solution:
        """Return the solution where the head still fits beside it, else one on what the head leaves, if any."""
        if self._leaves_room(formulation, solution, shadow):
            return solution
        problem = formulation.problem
        other = solve_greedy(
            replace(
                problem, nodes=replace(problem.nodes, free=np.minimum(problem.nodes.free, shadow.beside()))
            )
        )
        if len(other.counts) and not self._leaves_room(formulation, other, shadow):
            return solve_greedy(
                replace(problem, gangs=replace(problem.gangs, allowed=np.zeros_like(problem.gangs.allowed)))
            )
        return other

    def _leaves_room(self, formulation: Formulation, solution: Solution, shadow: HeadReservation) -> bool:
        demand = formulation.problem.classes.demand[solution.classes] * solution.counts[:, np.newaxis]
        return shadow.take(solution.nodes, demand)

    def _refused(self, gang: PendingGang, formulation: Formulation, solution: Solution) -> PlacementAttempt:
        if gang.need == 0:  # it runs, and its surplus waits for room without being in anybody's way
            return PlacementAttempt.STUCK
        if not self._brief:
            self._refusals.append(by_itself(self._context, formulation, solution))
        return self._full_or_stuck(gang)

    def _too_large(self, gang: PendingGang) -> PlacementAttempt:
        if not self._brief:
            self._refusals.append(lone(self._context, gang))
        return self._full_or_stuck(gang)

    def _full_or_stuck(self, gang: PendingGang) -> PlacementAttempt:
        """Tell whether an empty cluster would take the gang: only then does it wait for running gangs to end."""
        return PlacementAttempt.FULL if hopeful(self._context, gang) else PlacementAttempt.STUCK

    def _leave_out(self, members: Iterable[PodGroupState], head: PendingGang | None) -> None:
        if not self._brief:
            self._refusals += [out_of_turn(one, head.key if head else "") for one in members]


def _shape(gang: PendingGang) -> GangShape:
    return gang.need, tuple((id(part.pod_class), len(part.pods)) for part in gang.parts)
