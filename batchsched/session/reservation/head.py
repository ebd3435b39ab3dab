"""The reserved head of a session that selects gangs by weight.

Before the solver runs, the first gang in the order of tiers that fits nowhere becomes the head. It reserves its
earliest start, computed from the expected ends of running gangs. Gangs of its tier or below that run beyond this start
may use only what the head leaves free then: one row for each node and resource in the solver's problem. Gangs that end
before the start, and gangs of higher tiers, are not restricted.
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
"""Maximum number of gangs that do not fit for which a start is computed, until one has a start."""
RESERVATION: Final = "reservation"
"""Plugin name in the rows that keep the head's room; the diagnosis recognizes them by it."""


@dataclass(slots=True, eq=False)
class ReservedHead:
    """A gang with a reserved start, which the placements of the session must not delay.

    Args:
      gang: the head.
      context: the tables of the session.
      shadow: its earliest start, and what is free then.
      now: seconds since 1970.
      held: nominated pods and their node indexes; they count as running without an end.
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
        """Return the first gang that can start once running gangs end.

        None if no known end makes room for one, or if the profile has `backfill: none`.

        Args:
          context: the tables of the session.
          gangs: in the order of tiers.
          started: gangs that this session has placed already.
          promises: the reservations of earlier sessions, and which gangs may have a new one.
          held: nominated pods and their node indexes.
        """
        tables, now = context.tables, promises.now
        ends = (tables.running_gang(members).end for members in tables.running.values())
        if context.profile.backfill == "none" or not (promises.before or any(map(math.isfinite, ends))):
            return None
        available = free_without_nominated(tables, held)
        free = np.maximum(0, available)
        free_total, candidates = free.sum(axis=0), 0
        waiting = [gang for gang in gangs if gang.need and not gang.follows and promises.due(gang)]
        for gang in sorted(waiting, key=lambda one: (one.tier, not promises.given(one.members))):
            if (gang.needs <= free_total).all() and fits(problem := lasting_problem(context, gang), free):
                if gang.key in promises.before:  # it can start now: no gang may displace it by weight
                    return cls(gang, context, HeadReservation(now, available, problem, gang.needs), now, held)
                continue
            if candidates == MAX_HEAD_CANDIDATES:
                break
            candidates += 1
            shadow = reserve(context, gang, started, now, held) if fits_empty_cluster(context, gang) else None
            if shadow is not None:
                return cls(gang, context, shadow, now, held)
        return None

    def bounds(self, gang: PendingGang) -> bool:
        """Return True if a gang may use only what the head leaves free."""
        if gang.members is self.gang.members or gang.tier < self.gang.tier:
            return False
        # Not `>`: an unknown end is NaN, and counts as later than the start.
        return not self._end(gang) <= self.shadow.start

    def on(self, formulation: Formulation) -> Formulation:
        """Return the formulation with rows that keep the head's room from longer gangs."""
        bounded = [number for number, gang in enumerate(formulation.gangs) if self.bounds(gang)]
        problem = formulation.problem
        classes = np.flatnonzero(np.isin(problem.classes.gang, bounded))
        if not len(classes):
            return formulation
        beside_head = self.shadow.beside()
        rows = []
        for resource in np.flatnonzero(self.shadow.problem.classes.demand.any(axis=0)).tolist():
            asking = classes[problem.classes.demand[classes, resource] > 0]
            available = beside_head[:, resource]
            right = np.where(available < problem.nodes.free[:, resource], available, UNLIMITED)
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
        """Count placed gangs: what runs beyond the reserved start is not free then."""
        for placement in walked:
            if not self._end(placement.gang) <= self.shadow.start:
                nodes, requests = self._places((placed.pod, placed.node) for placed in placement.placed)
                np.subtract.at(self.shadow.free, nodes, requests)

    def spares(self, walked: GangPlacement, leaving: Iterable[tuple[Pod, int]]) -> bool:
        """Count a gang in place of its victims if the head can still start in time; return True if it can.

        Args:
          walked: the gang.
          leaving: its victims, of gangs that would have run beyond the start, with their node indexes.
        """
        if not self.bounds(walked.gang):
            self.count((walked,))
            return True
        nodes, requests = self._places((placed.pod, placed.node) for placed in walked.placed)
        freed_nodes, freed = self._places(leaving)
        return self.shadow.take(np.concatenate([nodes, freed_nodes]), np.concatenate([requests, -freed]))

    def outlasts(self, identity: str) -> bool:
        """Return True if a running gang is expected to run beyond the reserved start, or if its end is unknown."""
        tables = self.context.tables
        return not tables.running_gang(tables.gangs[identity]).end <= self.shadow.start

    def reservation(self, started: Iterable[GangPlacement]) -> Reservation | None:
        """Return the reservation for the decision, computed again after all placements of the session."""
        shadow = reserve(self.context, self.gang, started, self.now, self.held)
        return None if shadow is None else announce(self.gang, shadow)

    def _end(self, gang: PendingGang) -> float:
        """Return the expected end of a gang that starts now or runs already, in seconds since 1970; NaN if unknown."""
        return self.now + gang.estimate if gang.fresh else self.context.tables.running_gang(gang.members).end

    def _places(self, pods: Iterable[tuple[Pod, int]]) -> tuple[IntArray, IntArray]:
        """Return [P] the node indexes and [P, R] the requests of pods."""
        places = list(pods)
        rows = [self.context.tables.request_vectors(pod)[0] for pod, _ in places]
        width = len(self.context.tables.node_table.resources)
        return np.array([node for _, node in places], np.int64), np.array(rows, np.int64).reshape(-1, width)
