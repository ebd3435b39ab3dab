"""The head's reservation: when it can start at the earliest, and who may start before it.

The head cannot start now. Going through the running gangs in the order of their expected ends, the first moment
at which it fits is its reserved start. A gang behind it may start now when it ends by then, or when the head still
fits beside it: on a cluster of equal one-slot nodes that is EASY's rule of the extra nodes.
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
    """A reservation while a session goes on.

    Args:
      start: seconds since 1970 at which the head can start.
      free: [N, R] what will be free then, less what longer gangs took since.
      problem: the head alone, to ask whether it fits.
      needs: [R] what the head needs at least.
    """

    start: float
    free: IntArray
    problem: Problem
    needs: IntArray

    def take(self, nodes: IndexArray, requests: IntArray) -> bool:
        """Give way to a gang that outlives the reserved start: True, and it is counted, when the head still fits."""
        left = self.free.copy()
        np.subtract.at(left, nodes, requests)
        if not fits(self.problem, left):
            return False
        self.free = left
        return True

    def beside(self) -> IntArray:
        """[N, R] what will be free at the start once the head has its place: nobody there is in its way."""
        available = np.maximum(0, self.free)
        head = solve_greedy(replace(self.problem, nodes=replace(self.problem.nodes, free=available)))
        demand = self.problem.classes.demand[head.classes] * head.counts[:, np.newaxis]
        np.subtract.at(available, head.nodes, demand)
        return available


def fits(problem: Problem, free: IntArray) -> bool:
    """Tell whether the only gang of a problem finds room in `free` [N, R]."""
    available = np.maximum(0, free)
    simple = (
        len(problem.classes.kind) == 1
        and problem.gangs.required[0] < 0
        and not problem.rows
        and not len(problem.subgroups.gang)
    )
    if simple:
        demand = problem.classes.demand[0]
        asked = demand > 0
        slots = (available[:, asked] // demand[asked]).min(axis=1)
        return int(slots[problem.kinds.mask[problem.classes.kind[0]]].sum()) >= int(problem.gangs.need[0])
    return bool(solve_greedy(replace(problem, nodes=replace(problem.nodes, free=available))).taken[0])


def announce(gang: PendingGang, shadow: HeadReservation) -> Reservation:
    """Return a reservation as decisions tell it: in whole seconds, and not too early."""
    return Reservation(pod_group=gang.key, start=timestamp(math.ceil(shadow.start)))


def fits_empty_cluster(context: SessionContext, gang: PendingGang) -> bool:
    """Tell whether an empty cluster would take a gang: only then does it wait for running gangs to end."""
    known = gang.members.cache.fits_empty_cluster
    if known is None or known[0] is not gang.members.cache.pending:
        problem = lasting_problem(context, gang)
        there = (
            len(
                solve_greedy(
                    replace(problem, nodes=replace(problem.nodes, free=problem.nodes.capacity))
                ).counts
            )
            > 0
        )
        known = gang.members.cache.fits_empty_cluster = (gang.members.cache.pending, there)
    return known[1]


def free_without_nominated(tables: SessionTables, held: Iterable[tuple[Pod, int]]) -> IntArray:
    """[N, R] what is free, less what is kept on nodes for pods that are not there yet."""
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
    """Return the reservation of a gang that does not fit now; None when no running gang's end lets it in.

    Args:
      context: the tables of the session.
      gang: the head.
      started: gangs that this session has started so far: they will end, too.
      now: seconds since 1970.
      held: pods that are not on the nodes that are kept for them, and come before the head.
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
    while first + 1 < len(runs) and max(now, runs[first + 1].end) <= start:
        first += 1
    return HeadReservation(start, _released(free, runs[: first + 1]), problem, gang.needs)


def _run_of(tables: SessionTables, walked: GangPlacement, now: float) -> RunningGang:
    """What a gang that this session started holds; it counts from now on."""
    gang = walked.gang
    end = math.inf if math.isnan(gang.estimate) else now + gang.estimate
    return RunningGang.of(
        end if gang.fresh else tables.running_gang(gang.members).end,
        [placed.node for placed in walked.placed],
        [tables.request_vectors(placed.pod)[0] for placed in walked.placed],
        len(tables.node_table.resources),
    )


def _first_fit(problem: Problem, free: IntArray, runs: list[RunningGang], gang: PendingGang) -> int | None:
    """Bisect for the first end after which the gang fits; ends only ever add room."""
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
    """The first end after which enough is free in sum: none before it can do."""
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
