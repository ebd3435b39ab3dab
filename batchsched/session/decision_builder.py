"""The draft: a decision in the making, with the values that its tiers reached and could at most have reached."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Eviction, Refusal, Reservation, TierAccount
from batchsched.session.joint.formulation import Formulation
from batchsched.session.joint.proposal import JointSelection
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.preemption.victim_selection import VictimSelection
from batchsched.session.reservation.head import ReservedHead
from batchsched.session.tables.gang import EntitlementClass


@dataclass(slots=True)
class DecisionBuilder:
    """A decision in the making; a brief one leaves out why gangs have to wait."""

    brief: bool = False
    walked: list[GangPlacement] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    nominated: list[tuple[Pod, int]] = field(default_factory=list)
    objective: dict[tuple[EntitlementClass, int], float] = field(default_factory=dict)
    bound: dict[tuple[EntitlementClass, int], float] = field(default_factory=dict)
    tiers: tuple[TierAccount, ...] = ()
    gap: float = 0.0
    guard: bool = False
    head: ReservedHead | None = None
    """Whose start is kept; None once it has its place."""

    def started(self, walked: Sequence[GangPlacement]) -> None:
        """Take in who was placed."""
        self.walked += walked
        if self.head is not None:
            self.head.count(walked)
            if any(one.gang.members is self.head.gang.members for one in walked):
                self.head = None

    def reserve(self) -> None:
        """State the start that is kept for the head, unless places are kept for it already."""
        nominated = {pod.key for pod, _ in self.nominated}
        if self.head is None or nominated & self.head.gang.members.pending.keys():
            return
        reservation = self.head.reservation(self.walked)
        self.reservations += [] if reservation is None else [reservation]

    def account(self, formulation: Formulation, outcome: JointSelection) -> None:
        """Add a window's values to its tiers.

        The bound of the first window holds for its gangs alone: what later ones want in all is added to it, unless
        they got it.
        """
        problem = formulation.problem
        wanted = np.bincount(
            problem.gangs.tier[problem.classes.gang],
            problem.classes.weight * problem.classes.count,
            minlength=len(formulation.tiers),
        )
        bound = np.maximum(wanted, outcome.objective) if self.bound else outcome.bound
        for tier, name in enumerate(formulation.tiers):
            self.objective[name] = self.objective.get(name, 0.0) + float(outcome.objective[tier])
            self.bound[name] = self.bound.get(name, 0.0) + float(bound[tier])
        self.guard |= outcome.solution.guard

    def close(self) -> None:
        """Turn the values into the account."""
        self.tiers = tuple(
            TierAccount(
                share=one[0].share, priority=one[1], objective=self.objective[one], bound=self.bound[one]
            )
            for one in sorted(self.bound, key=lambda one: (one[0], -one[1]))
        )
        total = sum(self.bound.values())
        self.gap = max(0.0, 1.0 - sum(self.objective.values()) / total) if total > 0 else 0.0

    def cleared(self, clearing: VictimSelection) -> None:
        """Take in for whom room was made: who leaves, and what is kept."""
        self.evictions += clearing.evictions
        self.nominated += clearing.nominated
        self.guard |= clearing.guard
        self.refusals = [clearing.told(one) for one in self.refusals]
