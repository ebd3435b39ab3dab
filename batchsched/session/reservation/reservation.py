"""Reservation of the head: its earliest start, and the check whether another gang may start before it.

The head cannot start now. Its reserved start is the first expected end of a running gang after which it fits. A gang
behind it may start now if it ends by then, or if the head still fits together with it. On equal nodes with one
slot each, this is the rule of EASY backfill for the extra nodes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Reservation
from batchsched.framework.status import IndexArray, IntArray
from batchsched.session.joint.formulation import SessionContext, lasting_problem
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.tables.gang import PendingGang, RunningGang
from batchsched.session.tables.session_tables import SessionTables
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import Problem


@dataclass(slots=True, eq=False)
class HeadReservation:
    """A reservation during a session.

    Args:
      start: seconds since 1970 at which the head can start.
      free: [N, R] resources that are free then, less what gangs that run longer have used since.
      problem: the head as the only gang of a problem, to test whether it fits.
      needs: [R] requests that the head needs at least.
    """

    start: float
    free: IntArray
    problem: Problem
    needs: IntArray

    def take(self, nodes: IndexArray, requests: IntArray) -> bool:
        """Count a gang that runs beyond the start if the head still fits; return True if it does."""
        remaining = self.free.copy()
        np.subtract.at(remaining, nodes, requests)
        if not fits(self.problem, remaining):
            return False
        self.free = remaining
        return True

    def beside(self) -> IntArray:
        """Return [N, R] what is free at the start once the head is placed; gangs that use only this do not delay it."""
        available = np.maximum(0, self.free)
        head = solve_greedy(replace(self.problem, nodes=replace(self.problem.nodes, free=available)))
        demand = self.problem.classes.demand[head.classes] * head.counts[:, np.newaxis]
        np.subtract.at(available, head.nodes, demand)
        return available


def fits(problem: Problem, free: IntArray) -> bool:
    """Return True if the only gang of a problem fits into `free` [N, R]."""
    available = np.maximum(0, free)
    simple = (
        len(problem.classes.kind) == 1
        and problem.gangs.required[0] < 0
        and not problem.rows
        and not len(problem.subgroups.gang)
    )
    if simple:
        demand = problem.classes.demand[0]
        requested = demand > 0
        slots = (available[:, requested] // demand[requested]).min(axis=1)
        return int(slots[problem.kinds.mask[problem.classes.kind[0]]].sum()) >= int(problem.gangs.need[0])
    return bool(solve_greedy(replace(problem, nodes=replace(problem.nodes, free=available))).taken[0])


def announce(gang: PendingGang, shadow: HeadReservation) -> Reservation:
    """Return a reservation for a decision; the start is rounded up to seconds, so that it is never too early."""
    return Reservation(pod_group=gang.key, start=timestamp(math.ceil(shadow.start)))


def fits_empty_cluster(context: SessionContext, gang: PendingGang) -> bool:
    """Return True if a gang fits when all running gangs have ended; otherwise to wait for them is useless."""
    cached = gang.members.cache.fits_empty_cluster
    if cached is None or cached[0] is not gang.members.cache.pending:
        problem = lasting_problem(context, gang)
        fits_alone = (
            len(
                solve_greedy(
                    replace(problem, nodes=replace(problem.nodes, free=problem.nodes.capacity))
                ).counts
            )
            > 0
        )
        cached = gang.members.cache.fits_empty_cluster = (gang.members.cache.pending, fits_alone)
    return cached[1]


def free_without_nominated(tables: SessionTables, held: Iterable[tuple[Pod, int]]) -> IntArray:
    """Return [N, R] the free resources, less the requests of nominated pods that are not in the node table."""
    free = tables.free_resources()
    for pod, node in held:
        free[node] -= tables.request_vectors(pod)[0]
    return free


def reserve(
    context: SessionContext,
    gang: PendingGang,
    started: Iterable[GangPlacement],
    now: float,
    held: Sequence[tuple[Pod, int]] = (),
) -> HeadReservation | None:
    """Return the reservation of a gang that does not fit now; None if it does not fit after any known end.

    Args:
      context: the tables of the session.
      gang: the head.
      started: gangs that this session has placed so far; their ends count too.
      now: seconds since 1970.
      held: nominated pods that are not in the node table, with their node indexes; they go before the head.
    """
    tables = context.tables
    runs = [tables.running_gang(members) for members in tables.running.values()]
    runs += [_run_of(tables, walked, now) for walked in started]
    runs.sort(key=lambda run: run.end)
    runs = [run for run in runs if math.isfinite(run.end)]
    free = free_without_nominated(tables, held)
    problem = lasting_problem(context, gang)
    first = _first_fit(problem, free, runs, gang)
    if first is None:
        return None
    start = max(now, runs[first].end)
    # Gangs that end at the same moment free their room together.
    while first + 1 < len(runs) and max(now, runs[first + 1].end) <= start:
        first += 1
    return HeadReservation(start, _released(free, runs[: first + 1]), problem, gang.needs)


def _run_of(tables: SessionTables, walked: GangPlacement, now: float) -> RunningGang:
    """Return what a gang placed by this session uses, and its expected end."""
    gang = walked.gang
    end = math.inf if math.isnan(gang.estimate) else now + gang.estimate
    return RunningGang.of(
        end if gang.fresh else tables.running_gang(gang.members).end,
        [placed.node for placed in walked.placed],
        [tables.request_vectors(placed.pod)[0] for placed in walked.placed],
        len(tables.node_table.resources),
    )


def _first_fit(problem: Problem, free: IntArray, runs: list[RunningGang], gang: PendingGang) -> int | None:
    """Return the index of the first end after which the gang fits, found by bisection: ends only add room."""
    low, high = _least(free, runs, gang), len(runs) - 1
    if high < 0 or low > high or not fits(problem, _released(free, runs)):
        return None
    while low < high:
        middle = (low + high) // 2
        if fits(problem, _released(free, runs[: middle + 1])):
            high = middle
        else:
            low = middle + 1
    return low


def _least(free: IntArray, runs: list[RunningGang], gang: PendingGang) -> int:
    """Return the index of the first end after which the free sum suffices, a lower bound of the bisection."""
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
