"""Reservation for the head (the first gang that does not fit): its earliest start, and how it is kept.

The head cannot start now. Its reserved start is the first expected end of a running gang after which it fits. A gang
behind it may start now if it ends by then, or if the head still fits together with it. On equal nodes with one
slot each, this is the rule of EASY backfill for the extra nodes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Reservation
from batchsched.config.schema import Profile
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import IndexArray, IntArray
from batchsched.queues.gang_order import DEFAULT_RUNTIME_SECONDS, SLOWDOWN_BOUND_SECONDS
from batchsched.session.joint.formulation import Formulation, FormulationInput, problem_at_later_time
from batchsched.session.statement import GangPlacement, PlacedPod
from batchsched.session.tables.gang import GangState, PendingGang, RunningGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import EVERY_NODE, UNLIMITED, ConstraintRow, Problem


@dataclass(slots=True, eq=False)
class HeadReservation:
    """The earliest start of the first gang that does not fit (the head), with the resources free at that time.

    Args:
      start: seconds since 1970 at which the head can start.
      free: [N, R] resources that are free then, less the requests of gangs that were placed since and still run then.
      problem: the head as the only gang of a problem, to test whether it fits.
      needs: [R] requests that the head needs at least.
    """

    start: float
    free: IntArray
    problem: Problem
    needs: IntArray

    def deduct_if_head_still_fits(self, nodes: IndexArray, requests: IntArray) -> bool:
        """Deduct requests from the resources free at the reserved start, if the head still fits in the rest.

        Return True if the head still fits without these resources, else deduct nothing and return False.

        Args:
          nodes: the node index of each entry of `requests`; a node may occur several times.
          requests: the requests, one row [R] for each entry of `nodes`.
        """
        remaining = self.free.copy()
        np.subtract.at(remaining, nodes, requests)
        if not only_gang_fits(self.problem, remaining):
            return False
        self.free = remaining
        return True

    def capacity_left_by_head(self) -> IntArray:
        """Return the amounts [N, R] (node, resource) that the head leaves free at its reserved start.

        A gang that uses only these amounts does not delay the head.
        """
        available = np.maximum(0, self.free)
        head = solve_greedy(replace(self.problem, nodes=replace(self.problem.nodes, free=available)))
        demand = self.problem.classes.demand[head.classes] * head.counts[:, np.newaxis]
        np.subtract.at(available, head.nodes, demand)
        return available


def only_gang_fits(problem: Problem, free: IntArray) -> bool:
    """Return True if the only gang of a solver problem fits on nodes with the free resources `free` [N, R]."""
    available = np.maximum(0, free)
    # Equal pods without topology or rows: counting slots is exact and far cheaper than a solve, and it is asked often.
    simple = (
        len(problem.classes.kind) == 1
        and problem.gangs.required[0] < 0
        and not problem.gangs.slice_size[0]
        and not problem.rows
        and not len(problem.subgroups.gang)
    )
    if simple:
        demand = problem.classes.demand[0]
        requested = demand > 0
        slots = (available[:, requested] // demand[requested]).min(axis=1)
        return int(slots[problem.kinds.mask[problem.classes.kind[0]]].sum()) >= int(problem.gangs.need[0])
    return bool(solve_greedy(replace(problem, nodes=replace(problem.nodes, free=available))).taken[0])


def reservation_for_decision(gang: PendingGang, reservation: HeadReservation) -> Reservation:
    """Return a gang's reservation as the decision states it, with the start rounded up to whole seconds."""
    return Reservation(pod_group=gang.key, start=format_timestamp(math.ceil(reservation.start)))


def fits_after_running_gangs_end(inputs: FormulationInput, gang: PendingGang) -> bool:
    """Return True if a gang would fit on the cluster once all running gangs have ended.

    Pods that count against no queue stay on their nodes, and queues allow no more than they do now.
    """
    tables, cache = inputs.tables, gang.members.cache
    if inputs.quotas.find_queue_with_exceeded_limit(
        tables, gang.members.queue_and_user, gang.needs, int(gang.has_no_bound_pod)
    ):
        return False
    # The problem is another object, unless it depends on this gang and the nodes only.
    problem = problem_at_later_time(inputs, gang)
    capacity = tables.capacity_for_gangs(inputs.profile.scheduler_name)
    cached = cache.fits_after_running_gangs_end
    if cached is None or cached[0] is not problem or cached[1] is not capacity:
        cached = cache.fits_after_running_gangs_end = (problem, capacity, only_gang_fits(problem, capacity))
    return cached[2]


def free_resources_minus_nominated_pods(tables: SessionTables, held: Iterable[tuple[Pod, int]]) -> IntArray:
    """Return the free amounts [N, R] (node, resource) minus the requests of the given nominated pods.

    `held` contains nominated pods that are not in the node table, with their node indexes.
    """
    free = tables.free_resources()
    for pod, node in held:
        free[node] -= tables.request_vector(pod)
    return free


def compute_head_reservation(
    inputs: FormulationInput,
    gang: PendingGang,
    started: Iterable[GangPlacement],
    now: float,
    held: Sequence[tuple[Pod, int]] = (),
    presumed: Iterable[GangPlacement] = (),
) -> HeadReservation | None:
    """Return the earliest start of a gang that does not fit now, with the resources that are free at that time.

    The result is None if the gang does not fit when all running gangs with a known end have ended.

    Args:
      inputs: the tables of the session.
      gang: the head.
      started: gangs that this session has placed so far; their ends free resources, too.
      now: seconds since 1970.
      held: nominated pods that are not in the node table, with their node indexes; they go before the head.
      presumed: gangs that will probably start now, on these nodes; they are not in the node table.
    """
    tables = inputs.tables
    runs = [tables.running_gang(members) for members in tables.running.values()]
    runs += [_run_of(tables, placement, now) for placement in started]
    starting = [_run_of(tables, placement, now) for placement in presumed]
    runs += starting
    # Gangs without a known end never free their room, so that a start announced from the others is never too early.
    runs = sorted((run for run in runs if math.isfinite(run.end)), key=lambda run: run.end)
    free = free_resources_minus_nominated_pods(tables, held)
    for run in starting:
        np.subtract.at(free, run.nodes, run.requests)
    problem = problem_at_later_time(inputs, gang)
    first = _first_fit(problem, free, runs, gang)
    if first is None:
        return None
    start = max(now, runs[first].end)
    # Gangs that end at the same moment free their room together.
    while first + 1 < len(runs) and max(now, runs[first + 1].end) <= start:
        first += 1
    return HeadReservation(start, _released(free, runs[: first + 1]), problem, gang.needs)


class PlacementEstimator:
    """An estimator that uses the greedy algorithm to find which gangs start now, and on which nodes.

    The gangs are added one after the other. No nodes are reserved for them.

    Args:
      inputs: the tables of the session.
      available: [N, R] free resources.
    """

    def __init__(self, inputs: FormulationInput, available: IntArray) -> None:
        self._inputs = inputs
        self._free = np.maximum(0, available)
        self._free_total = self._free.sum(axis=0)
        self.placements: list[GangPlacement] = []
        """The gangs that start."""

    def place_gang_if_it_fits(self, gang: PendingGang) -> None:
        """Estimate where a gang starts, and record its placement if it fits beside all recorded gangs."""
        if not (gang.needs <= self._free_total).all():
            return
        problem = problem_at_later_time(self._inputs, gang)
        solution = solve_greedy(replace(problem, nodes=replace(problem.nodes, free=self._free)))
        pods = [iter(part.pods) for part in gang.parts]
        placement = GangPlacement(
            gang,
            [
                PlacedPod(next(pods[number]), node, gang.parts[number].pod_class, CycleState())
                for number, node, count in zip(
                    solution.classes.tolist(), solution.nodes.tolist(), solution.counts.tolist(), strict=True
                )
                for _ in range(count)
            ],
        )
        if not placement.placed:
            return
        demand = problem.classes.demand[solution.classes] * solution.counts[:, np.newaxis]
        np.subtract.at(self._free, solution.nodes, demand)
        self._free_total = self._free_total - demand.sum(axis=0)
        self._inputs = self._inputs.after_placements([placement])
        self.placements.append(placement)


def _identities(gangs: Iterable[PendingGang]) -> frozenset[str]:
    return frozenset(gang.members.identity for gang in gangs)


def _run_of(tables: SessionTables, placement: GangPlacement, now: float) -> RunningGang:
    """Return what a gang placed by this session uses, and its expected end."""
    gang = placement.gang
    end = math.inf if math.isnan(gang.estimate) else now + gang.estimate
    return RunningGang.from_requests(
        end if gang.has_no_bound_pod else tables.running_gang(gang.members).end,
        [placed.node for placed in placement.placed],
        [tables.request_vector(placed.pod) for placed in placement.placed],
        len(tables.node_table.resources),
    )


def _first_fit(problem: Problem, free: IntArray, runs: list[RunningGang], gang: PendingGang) -> int | None:
    """Return the index of the first end after which the gang fits, found by bisection: ends only add room."""
    # Sums over all nodes bound the search from below before any solve.
    low, high = _least(free, runs, gang), len(runs) - 1
    if high < 0 or low > high or not only_gang_fits(problem, _released(free, runs)):
        return None
    while low < high:
        middle = (low + high) // 2
        if only_gang_fits(problem, _released(free, runs[: middle + 1])):
            high = middle
        else:
            low = middle + 1
    return low


def _least(free: IntArray, runs: list[RunningGang], gang: PendingGang) -> int:
    """Return a lower bound for the bisection: the index of the first end with a sufficient free sum."""
    if not runs:
        return 0
    released = np.cumsum([run.total for run in runs], axis=0)
    enough = (np.maximum(0, free).sum(axis=0) + released >= gang.needs).all(axis=1)
    return int(np.argmax(enough)) if enough.any() else len(runs)


def _released(free: IntArray, runs: list[RunningGang]) -> IntArray:
    after = free.copy()
    if runs:
        np.add.at(
            after, np.concatenate([run.nodes for run in runs]), np.concatenate([run.requests for run in runs])
        )
    return after


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """The rules for reserved starts: which starts a decision announces, and which starts must not be delayed.

    Args:
      now: seconds since 1970.
      slowdown: the slowdown (wait + run time) / run time from which on a gang's start is announced and kept; None
        announces all starts and keeps none.
      before: `namespace/name` of the gangs that had a reservation in the previous session.
    """

    now: float
    slowdown: float | None = None
    before: frozenset[str] = frozenset()

    @classmethod
    def from_profile(cls, profile: Profile, previous: Iterable[Reservation], now: float) -> Self:
        """Create the rules from the `backfill` setting of a profile and the reservations of the previous decision.

        Starts are kept only with `backfill: kept`.
        """
        slowdown = profile.promise_slowdown if profile.backfill == "kept" else None
        return cls(now, slowdown, frozenset(reservation.pod_group for reservation in previous))

    def should_announce_reserved_start(self, gang: PendingGang) -> bool:
        """Return True if the decision announces the reserved start of a gang."""
        return self.slowdown is None or gang.key in self.before or self._slowdown(gang) >= self.slowdown

    def has_kept_reservation(self, members: GangState) -> bool:
        """Return True if the previous decision announced a start of the gang that must not be delayed."""
        return self.slowdown is not None and members.key in self.before

    def put_reserved_gangs_first_in_tier(
        self,
        line: OrderedGangs,
        turns: Iterator[int],
        tables: SessionTables,
        nominated: Set[str],
        *,
        shared: bool,
    ) -> tuple[OrderedGangs, Iterator[int]]:
        """In each tier, move gangs with nominated pods or a start that must not be delayed to the front.

        A policy that keeps resources free does not hold back the moved gangs: their start was announced, or pods were
        evicted for them.

        Return the pending gangs, with the room of moved gangs set to 0, and the indexes in the new order of turns.

        Args:
          line: the pending gangs.
          turns: indexes into `line` in the order of turns.
          tables: for the tiers of the gangs.
          nominated: identities of the gangs with nominated pods.
          shared: True if queues have entitlements; a gang with a kept start then moves past gangs of its own queue
            only.
        """
        moved = {
            index
            for index, members in enumerate(line.members)
            if self.has_kept_reservation(members) or members.identity in nominated
        }
        if not moved:
            return line, turns
        room = line.room.copy()
        room[list(moved)] = 0.0
        order = list(turns)
        for index in [index for index in order if index in moved]:
            members = line.members[index]
            tier = tables.pending_gang(members).tier_sort_key
            own_queue_only = shared and members.identity not in nominated
            position = order.index(index)
            passed = (
                place
                for place, other in enumerate(order[:position])
                if other not in moved
                and tables.pending_gang(line.members[other]).tier_sort_key >= tier
                and not (own_queue_only and line.members[other].queue != members.queue)
            )
            order.insert(next(passed, position), order.pop(position))
        return replace(line, room=room), iter(order)

    def _slowdown(self, gang: PendingGang) -> float:
        run = DEFAULT_RUNTIME_SECONDS if math.isnan(gang.estimate) else gang.estimate
        return (self.now - gang.created + run) / max(run, SLOWDOWN_BOUND_SECONDS)


MAX_HEAD_CANDIDATES: Final = 8
"""Maximum number of gangs that do not fit for which a start is computed, until one has a start."""
RESERVATION: Final = "reservation"
"""Plugin name in the rows that keep the head's room; the diagnosis recognizes them by it."""


@dataclass(slots=True, eq=False)
class ReservedHead:
    """The gang with a reserved start (the head), and the constraints that keep later gangs from delaying it.

    Args:
      gang: the head.
      inputs: the tables of the session.
      reservation: its earliest start, and what is free then.
      now: seconds since 1970.
      held: nominated pods and their node indexes; they count as running without an end.
      strict: True if no gang may delay the start. Otherwise gangs of higher tiers may, so the start is computed again
        when all gangs are placed.
      announced: True if the decision states the start.
      ahead: identities of the gangs ahead of the head in the order; the reservation does not restrict them.
      presumed: by identity, gangs of `ahead` that `reservation` counts as started on these nodes.
    """

    gang: PendingGang
    inputs: FormulationInput
    reservation: HeadReservation
    now: float
    held: Sequence[tuple[Pod, int]] = ()
    strict: bool = False
    announced: bool = True
    ahead: frozenset[str] = frozenset()
    presumed: dict[str, GangPlacement] = field(default_factory=dict)

    @classmethod
    def find_head(
        cls,
        inputs: FormulationInput,
        gangs: Iterable[PendingGang],
        started: Sequence[GangPlacement],
        rules: ReservationRules,
        held: Sequence[tuple[Pod, int]] = (),
    ) -> Self | None:
        """Return the first gang that must wait for running gangs to end, or that already has a reservation.

        A gang that has a reservation is returned even if it can start now: no gang behind it may displace it. The
        result includes the earliest start of the gang. Return None if no gang fits after the known ends of running
        gangs, or if the profile has `backfill: none`.

        Args:
          inputs: the tables of the session.
          gangs: in the order of tiers.
          started: gangs that this session has placed already.
          rules: the reservations of earlier sessions, and which gangs may have a new one.
          held: nominated pods and their node indexes.
        """
        tables, now = inputs.tables, rules.now
        ends = (tables.running_gang(members).end for members in tables.running.values())
        if inputs.profile.backfill == "none" or not (rules.before or any(map(math.isfinite, ends))):
            return None
        available = free_resources_minus_nominated_pods(tables, held)
        free = np.maximum(0, available)
        free_total, candidates = free.sum(axis=0), 0
        waiting = [gang for gang in gangs if gang.need and not gang.follows]
        waiting.sort(key=lambda gang: (gang.tier_sort_key, not rules.has_kept_reservation(gang.members)))
        starts, fitting = PlacementEstimator(inputs, available), list[PendingGang]()
        for position, gang in enumerate(waiting):
            if (gang.needs <= free_total).all() and only_gang_fits(
                problem := problem_at_later_time(inputs, gang), free
            ):
                if gang.key in rules.before:  # it can start now: no gang behind it may displace it by weight
                    reservation = HeadReservation(now, available, problem, gang.needs)
                    return cls(gang, inputs, reservation, now, held, ahead=_identities(waiting[:position]))
                fitting.append(gang)
                continue
            if not rules.should_announce_reserved_start(gang):
                continue
            # Each candidate costs a bisection of solves; gangs far behind would hardly start before the first ones.
            if candidates == MAX_HEAD_CANDIDATES:
                break
            candidates += 1
            if not fits_after_running_gangs_end(inputs, gang):
                continue
            # Each gang is presumed to start once, and only if a candidate for the head comes after it.
            while fitting:
                starts.place_gang_if_it_fits(fitting.pop(0))
            later = compute_head_reservation(inputs, gang, started, now, held, starts.placements)
            if later is not None:
                return cls(
                    gang,
                    inputs,
                    later,
                    now,
                    held,
                    ahead=_identities(waiting[:position]),
                    presumed={placement.gang.members.identity: placement for placement in starts.placements},
                )
        return None

    def restricts_gang(self, gang: PendingGang) -> bool:
        """Return True if a gang must leave free the resources that the head needs at its reserved start."""
        if gang.members is self.gang.members or (
            not self.strict and gang.tier_sort_key < self.gang.tier_sort_key
        ):
            return False
        # Surplus of a gang ahead of the head is not ahead itself: it may wait.
        if gang.need and not gang.follows and gang.members.identity in self.ahead:
            return False
        # Not `>`: an unknown end is NaN, and counts as later than the start.
        return not self._end(gang) <= self.reservation.start

    def with_reservation_rows(self, formulation: Formulation) -> Formulation:
        """Return the solver problem with constraints that keep the reserved resources free at the reserved start.

        They apply to gangs that would still run then.
        """
        bounded = [number for number, gang in enumerate(formulation.gangs) if self.restricts_gang(gang)]
        problem = formulation.problem
        classes = np.flatnonzero(np.isin(problem.classes.gang, bounded))
        if not len(classes):
            return formulation
        beside_head = self.reservation.capacity_left_by_head()
        rows = []
        for resource in np.flatnonzero(self.reservation.problem.classes.demand.any(axis=0)).tolist():
            asking = classes[problem.classes.demand[classes, resource] > 0]
            available = beside_head[:, resource]
            right = np.where(available < problem.nodes.free[:, resource], available, UNLIMITED)
            if len(asking) and (right < UNLIMITED).any():
                rows.append(
                    ConstraintRow(
                        partition=EVERY_NODE,
                        classes=asking.astype(np.int32),
                        coefficients=problem.classes.demand[asking, resource],
                        right=right,
                        plugin=RESERVATION,
                        reason=self.gang.key,
                    )
                )
        return replace(formulation, problem=replace(problem, rows=(*problem.rows, *rows)))

    def deduct_placements(self, placements: Iterable[GangPlacement]) -> None:
        """Reduce the resources free at the reserved start by the requests of placed gangs that will still run then."""
        for placement in placements:
            # It was deducted already on the nodes on which it was presumed to start.
            presumed = self.presumed.pop(placement.gang.members.identity, None)
            if presumed is not None:
                self._add_at_start(presumed, 1)
            self._add_at_start(placement, -1)

    def _add_at_start(self, placement: GangPlacement, sign: int) -> None:
        """Add what a gang requests to the resources that are free at the reserved start, if it runs beyond that."""
        # Not `>`: an unknown end is NaN, and counts as later than the start.
        if not self._end(placement.gang) <= self.reservation.start:
            nodes, requests = self._places((placed.pod, placed.node) for placed in placement.placed)
            np.add.at(self.reservation.free, nodes, sign * requests)

    def deduct_after_eviction_if_head_still_fits(
        self, placement: GangPlacement, leaving: Iterable[tuple[Pod, int]]
    ) -> bool:
        """Record the start of a gang that evicts victims, if the head can still start at its reserved time.

        Return True if the start is recorded, False if it would delay the head. The start of a gang that does not have
        to leave room for the head is always recorded.

        Args:
          placement: the gang.
          leaving: its victims with their node indexes, without victims that would have ended before the start.
        """
        if not self.restricts_gang(placement.gang):
            self.deduct_placements((placement,))
            return True
        nodes, requests = self._places((placed.pod, placed.node) for placed in placement.placed)
        freed_nodes, freed = self._places(leaving)
        return self.reservation.deduct_if_head_still_fits(
            np.concatenate([nodes, freed_nodes]), np.concatenate([requests, -freed])
        )

    def runs_beyond_reserved_start(self, identity: str) -> bool:
        """Return True if a running gang is expected to end after the reserved start, or if its end is unknown."""
        tables = self.inputs.tables
        return not tables.running_gang(tables.gangs[identity]).end <= self.reservation.start

    def reservation_to_announce(self, started: Iterable[GangPlacement]) -> Reservation | None:
        """Return the head's reservation for the decision; None if it is not announced or has no known start.

        If gangs of higher tiers may delay the start, it is computed again with the gangs that the session placed.
        """
        if not self.announced:
            return None
        current = (
            self.reservation
            if self.strict
            else compute_head_reservation(self.inputs, self.gang, started, self.now, self.held)
        )
        return None if current is None else reservation_for_decision(self.gang, current)

    def _end(self, gang: PendingGang) -> float:
        """Return the expected end of a gang that starts now or runs already, in seconds since 1970; NaN if unknown."""
        return (
            self.now + gang.estimate
            if gang.has_no_bound_pod
            else self.inputs.tables.running_gang(gang.members).end
        )

    def _places(self, pods: Iterable[tuple[Pod, int]]) -> tuple[IntArray, IntArray]:
        """Return [P] the node indexes and [P, R] the requests of pods."""
        places = list(pods)
        rows = [self.inputs.tables.request_vector(pod) for pod, _ in places]
        width = len(self.inputs.tables.node_table.resources)
        return np.array([node for _, node in places], np.int64), np.array(rows, np.int64).reshape(-1, width)
