"""Limits: what disruption budgets and entitlements leave to be taken, as rows over units."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.session.preemption.candidates import EvictionUnit
from batchsched.session.preemption.eligibility import EvictionEligibility
from batchsched.session.tables.gang import PendingGang
from batchsched.solver.victims.problem import VictimProblem


@dataclass(frozen=True, slots=True, eq=False)
class EvictionLimit:
    """A unit that may leave for a gang, and why."""

    unit: EvictionUnit
    reason: str


class EvictionConstraints:
    """What budgets and entitlements leave to be taken, as rows over units."""

    def __init__(self, causes: Sequence[EvictionLimit], budgets: Iterable[PodDisruptionBudget]) -> None:
        self._causes = causes
        self._rows: dict[object, tuple[int, dict[int, int]]] = {}
        for number, budget in enumerate(budgets):
            counts = {
                at: protected
                for at, cause in enumerate(causes)
                if (protected := sum(budget.protects(pod) for pod, _ in cause.unit.pods))
            }
            if counts:
                self._rows[number] = (max(0, budget.status.disruptions_allowed), counts)

    def tighten(self, claims: EvictionEligibility, gang: PendingGang, units: Sequence[EvictionUnit]) -> None:
        """Allow less of what was taken unfairly: from queues that the last victim would find not above any more."""
        asked = np.flatnonzero(gang.needs)
        by_queue: dict[str, list[EvictionUnit]] = {}
        for unit in units:
            if unit.members.queue != gang.queue and unit.total.any():
                by_queue.setdefault(unit.members.queue, []).append(unit)
        some = [
            (queue, r, claims.above(queue, gang).get(r, 0), [int(unit.total[r]) for unit in mine])
            for queue, mine in sorted(by_queue.items())
            for r in asked.tolist()
        ]
        some = [one for one in some if any(one[3])]
        guilty = [one for one in some if sum(one[3]) - min(one[3]) >= one[2]] or some
        for queue, r, above, taken in guilty:
            most = max(0, min(sum(taken) - 1, above + max(taken) - 1))
            amounts = {
                at: int(cause.unit.total[r])
                for at, cause in enumerate(self._causes)
                if cause.unit.members.queue == queue and cause.unit.total[r] > 0
            }
            self._rows[queue, r] = (most, amounts)

    def on(self, problem: VictimProblem) -> VictimProblem:
        """Return a problem with the rows."""
        rows = list(self._rows.values())
        entries = [(at, unit, amount) for at, (_, units) in enumerate(rows) for unit, amount in units.items()]
        return replace(
            problem,
            limit=np.array([most for most, _ in rows], np.int64),
            limit_row=np.array([row for row, _, _ in entries], np.int32),
            limit_unit=np.array([unit for _, unit, _ in entries], np.int32),
            limit_amount=np.array([amount for _, _, amount in entries], np.int64),
        )
