"""The head of a session that selects by weight: its start is kept, and its room with it.

Before the solver is asked, the first gang in the order of tiers that does not fit, however the others fare, reserves
its earliest start from the expected ends of what runs. Whoever is of its tier or below and outlasts that moment may
use what the head leaves there and no more: a row for each node, so that all are still chosen together. Who ends in
time may use everything, and higher tiers owe the head nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Reservation
from batchsched.framework.status import IntArray
from batchsched.session.joint.formulation import Formulation, SessionContext, lasting_problem
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.reservation.reservation import (
    HeadReservation,
    announce,
    fits,
    fits_empty_cluster,
    free_without_nominated,
    reserve,
)
from batchsched.session.reservation.sticky import StickyReservations
from batchsched.session.tables.gang import PendingGang
from batchsched.solver.problem import EVERY_NODE, UNLIMITED, Row

MAX_HEAD_CANDIDATES: Final = 8
"""So many gangs that do not fit are asked, in order, when they could start."""
RESERVATION: Final = "reservation"
"""Stands for a plugin in the rows that keep the head's room."""


@dataclass(slots=True, eq=False)
class ReservedHead:
    """A gang whose start is kept while a session goes on.

    Args:
      gang: whose.
      context: the tables of the session.
      shadow: when it can start, and what is free then.
      now: seconds since 1970.
      held: pods that wait for their nodes by nomination: they never end.
    """

    gang: PendingGang
    context: SessionContext
    shadow: HeadReservation
    now: float
    held: Sequence[tuple[Pod, int]] = ()

    @classmethod
    def among(
        cls,
        context: SessionContext,
        gangs: Iterable[PendingGang],
        started: Sequence[GangPlacement],
        promises: StickyReservations,
        held: Sequence[tuple[Pod, int]] = (),
    ) -> Self | None:
        """Return the first of some gangs that waits for running ones to end.

        None where no end is known that helps, or the profile wants none.

        Args:
          context: the tables of the session.
          gangs: in the order of tiers.
          started: gangs that have a place already in this session.
          promises: who stands in front of its tier, and for whom it is early yet.
          held: pods that wait for their nodes by nomination.
        """
        tables, now = context.tables, promises.now
        ends = (tables.running_gang(members).end for members in tables.running.values())
        if context.profile.backfill == "none" or not (promises.before or any(map(math.isfinite, ends))):
            return None
        left = free_without_nominated(tables, held)
        free = np.maximum(0, left)
        there, asked = free.sum(axis=0), 0
        waiting = [gang for gang in gangs if gang.need and not gang.follows and promises.due(gang)]
        for gang in sorted(waiting, key=lambda one: (one.tier, not promises.given(one.members))):
            if (gang.needs <= there).all() and fits(problem := lasting_problem(context, gang), free):
                if gang.key in promises.before:  # its time has come: nobody is to weigh more than its promise
                    return cls(gang, context, HeadReservation(now, left, problem, gang.needs), now, held)
                continue
            if asked == MAX_HEAD_CANDIDATES:
                break
            asked += 1
            shadow = reserve(context, gang, started, now, held) if fits_empty_cluster(context, gang) else None
            if shadow is not None:
                return cls(gang, context, shadow, now, held)
        return None

    def bounds(self, gang: PendingGang) -> bool:
        """Tell whether a gang may only take what the head leaves."""
        if gang.members is self.gang.members or gang.tier < self.gang.tier:
            return False
        return not self._end(gang) <= self.shadow.start

    def on(self, formulation: Formulation) -> Formulation:
        """Return a formulation in which the head's room is kept."""
        bounded = [number for number, gang in enumerate(formulation.gangs) if self.bounds(gang)]
        problem = formulation.problem
        classes = np.flatnonzero(np.isin(problem.classes.gang, bounded))
        if not len(classes):
            return formulation
        beside = self.shadow.beside()
        rows = []
        for resource in np.flatnonzero(self.shadow.problem.classes.demand.any(axis=0)).tolist():
            asking = classes[problem.classes.demand[classes, resource] > 0]
            left = beside[:, resource]
            right = np.where(left < problem.nodes.free[:, resource], left, UNLIMITED)
            if len(asking) and (right < UNLIMITED).any():
                rows.append(
                    Row(
                        partition=EVERY_NODE,
                        classes=asking.astype(np.int32),
                        coefficients=problem.classes.demand[asking, resource],
                        right=right,
                        plugin=RESERVATION,
                        reason=self.gang.key,
                    )
                )
        return replace(formulation, problem=replace(problem, rows=(*problem.rows, *rows)))

    def count(self, walked: Iterable[GangPlacement]) -> None:
        """Take in who was started: what outlasts the reserved start is not free then."""
        for one in walked:
            if not self._end(one.gang) <= self.shadow.start:
                nodes, requests = self._places((placed.pod, placed.node) for placed in one.placed)
                np.subtract.at(self.shadow.free, nodes, requests)

    def spares(self, walked: GangPlacement, leaving: Iterable[tuple[Pod, int]]) -> bool:
        """Give way to a gang for which others leave that outlast the start: True, and it is counted, if the head fits.

        Args:
          walked: the gang.
          leaving: pods that leave for it, and the nodes that they leave, of gangs that outlast the start.
        """
        if not self.bounds(walked.gang):
            self.count((walked,))
            return True
        nodes, requests = self._places((placed.pod, placed.node) for placed in walked.placed)
        left, freed = self._places(leaving)
        return self.shadow.take(np.concatenate([nodes, left]), np.concatenate([requests, -freed]))

    def outlasts(self, identity: str) -> bool:
        """Tell whether a running gang is expected to go on beyond the reserved start."""
        tables = self.context.tables
        return not tables.running_gang(tables.gangs[identity]).end <= self.shadow.start

    def reservation(self, started: Iterable[GangPlacement]) -> Reservation | None:
        """Return the start as it is after a session's gangs were started."""
        shadow = reserve(self.context, self.gang, started, self.now, self.held)
        return None if shadow is None else announce(self.gang, shadow)

    def _end(self, gang: PendingGang) -> float:
        """When a gang ends that starts now, or runs and gets more pods; NaN where nobody knows."""
        return self.now + gang.estimate if gang.fresh else self.context.tables.running_gang(gang.members).end

    def _places(self, pods: Iterable[tuple[Pod, int]]) -> tuple[IntArray, IntArray]:
        """([P], [P, R]) the nodes and requests of some pods."""
        there = list(pods)
        rows = [self.context.tables.request_vectors(pod)[0] for pod, _ in there]
        width = len(self.context.tables.node_table.resources)
        return np.array([node for _, node in there], np.int64), np.array(rows, np.int64).reshape(-1, width)
