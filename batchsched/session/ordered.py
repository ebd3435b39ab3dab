"""Ordered selection: the policy's order is strict, gang after gang, and the solver only places.

What stands at the front starts first. Where the profile blocks, the first gang that does not fit, the head, ends
the session; with EASY backfill it reserves its earliest start, and gangs behind it start if they do not delay it.

Source: Mu'alem and Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the
IBM SP2 with Backfilling, TPDS 2001, for EASY.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

import numpy as np

from batchsched.framework.status import BoolArray, IntArray
from batchsched.model.decision import Refusal, Reservation
from batchsched.model.meta import timestamp
from batchsched.session.admission import Admission
from batchsched.session.backfill import Shadow, shadow_of
from batchsched.session.backlog import Line
from batchsched.session.diagnosis import by_itself, lone, out_of_turn, permit_refusal
from batchsched.session.formulation import Formulation, Scene, formulate
from batchsched.session.gang import Gang, Members
from batchsched.session.joint import shares_of
from batchsched.session.quotas import spend
from batchsched.session.walk import Walk, Walked
from batchsched.solver.greedy import greedy
from batchsched.solver.problem import Solution

Hopes = dict[str, tuple[Gang | None, bool]]
"""By identity: the gang that was asked about, and whether the empty cluster takes it."""


class Attempt(Enum):
    """What became of trying to start a gang."""

    STARTED = "started"
    FULL = "full"  # it would fit once running gangs end
    STUCK = "stuck"  # capacity is not what it lacks


class Ordered:
    """One session in the policy's order.

    Args:
      scene: tables, levels, quotas and surveys of the session.
      admission: says which gangs may be tried.
      walk: the session's statement.
      now: seconds since 1970.
      hopes: whether a gang fits on the empty cluster, kept from session to session.
      brief: leave refusals out; who asks thousands of times reads none.
    """

    def __init__(
        self, scene: Scene, admission: Admission, walk: Walk, now: float, hopes: Hopes, *, brief: bool = False
    ) -> None:
        self._scene = scene
        self._table = scene.frame.table
        self._admission = admission
        self._walk = walk
        self._now = now
        self._brief = brief
        self._hopes = hopes
        self.walked: list[Walked] = []
        self.refusals: list[Refusal] = []
        self.reservations: list[Reservation] = []

    def select(self, line: Line) -> None:
        """Start gangs in order until the head blocks or the window is through."""
        profile = self._scene.profile
        could = self._could_fit(line.needs)
        for at, members in enumerate(line.members):
            gang = self._admitted(members)
            if gang is None:
                continue
            attempt = self._start(gang) if could[at] else self._full_or_stuck(gang)
            if attempt is Attempt.STARTED:
                could[at + 1 :] &= self._could_fit(line.needs[at + 1 :])
                continue
            if not could[at] and not self._brief:
                self.refusals.append(lone(self._scene, gang))
            if attempt is Attempt.FULL and profile.backfill == "easy":
                shadow = shadow_of(self._scene, gang, self._now)
                if shadow is not None:
                    self._reserve(gang, shadow)
                    self._backfill(line, at + 1, gang, shadow)
                    return
            elif attempt is Attempt.FULL and profile.blocking:
                self._leave_out(line.members[at + 1 :], gang)
                return

    def _reserve(self, gang: Gang, shadow: Shadow) -> None:
        self.reservations.append(Reservation(pod_group=gang.key, start=timestamp(math.ceil(shadow.start))))

    def _backfill(self, line: Line, first: int, head: Gang, shadow: Shadow) -> None:
        """Start gangs behind the head, in order, that do not delay it."""
        estimates = line.estimates
        short = np.nan_to_num(estimates, nan=np.inf) + self._now <= shadow.start
        total = np.maximum(0, shadow.free).sum(axis=0)
        may = self._could_fit(line.needs) & (short | (line.needs + shadow.needs <= total).all(axis=1))
        at = first
        while at < len(line.members):
            behind = at + int(np.argmax(may[at:])) if may[at:].any() else len(line.members)
            self._leave_out(line.members[at:behind], head)
            if behind == len(line.members):
                return
            gang = self._admitted(line.members[behind])
            at = behind + 1
            if gang is None:
                continue
            if self._start(gang, None if short[behind] else shadow) is Attempt.STARTED:
                may[at:] &= self._could_fit(line.needs[at:])
                if not short[behind]:
                    total = np.maximum(0, shadow.free).sum(axis=0)
                    may[at:] &= short[at:] | (line.needs[at:] + shadow.needs <= total).all(axis=1)

    def _could_fit(self, needs: IntArray) -> BoolArray:
        """[W] gangs whose needs are free in sum: the others need not be tried."""
        free: IntArray = np.maximum(0, self._table.allocatable - self._table.requested).sum(axis=0)
        return np.asarray((needs <= free).all(axis=1))

    def _admitted(self, members: Members) -> Gang | None:
        admitted = self._admission.gang(members)
        if isinstance(admitted, Refusal):
            self.refusals.append(admitted)
            return None
        return admitted if admitted.parts else None

    def _start(self, gang: Gang, shadow: Shadow | None = None) -> Attempt:
        """Place a gang and walk it; with a shadow, only where the head still fits beside it."""
        formulation = formulate(self._scene, [gang], gang.created)
        solution = greedy(formulation.problem)
        if not len(solution.counts):
            return self._refused(gang, formulation, solution)
        if shadow is not None and not self._leaves_room(formulation, solution, shadow):
            return Attempt.FULL
        walked = self._walk.gang(gang, shares_of(formulation, solution)[0])
        if not walked.placed:
            self.refusals.append(permit_refusal(walked, timed_out=False))
            return Attempt.STUCK
        self.walked.append(walked)
        self._scene = replace(self._scene, quotas=spend(self._scene.quotas, self._scene.frame, walked))
        return Attempt.STARTED

    def _leaves_room(self, formulation: Formulation, solution: Solution, shadow: Shadow) -> bool:
        demand = formulation.problem.demand[solution.classes] * solution.counts[:, np.newaxis]
        return shadow.take(solution.nodes, demand)

    def _refused(self, gang: Gang, formulation: Formulation, solution: Solution) -> Attempt:
        if not self._brief:
            self.refusals.append(by_itself(self._scene, formulation, solution))
        return self._full_or_stuck(gang)

    def _full_or_stuck(self, gang: Gang) -> Attempt:
        """Tell whether an empty cluster would take the gang: only then does it wait for running gangs to end."""
        known = self._hopes.get(gang.members.identity)
        if known is None or known[0] is not gang.members.gang:
            problem = formulate(self._scene, [gang], gang.created, lasting=True).problem
            fits = len(greedy(replace(problem, free=problem.capacity)).counts) > 0
            known = self._hopes[gang.members.identity] = (gang.members.gang, fits)
        return Attempt.FULL if known[1] else Attempt.STUCK

    def _leave_out(self, members: Iterable[Members], head: Gang) -> None:
        if not self._brief:
            self.refusals += [out_of_turn(one, head) for one in members]
