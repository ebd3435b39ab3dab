"""The draft: a decision in the making, with the values that its tiers reached and could at most have reached."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.decision import (
    Assignment,
    Decision,
    Eviction,
    Nomination,
    Refusal,
    Reservation,
    SetAside,
    SolverAccount,
    TierAccount,
    Waiting,
)
from batchsched.framework.runtime.deadline import left_out
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.session.gangs.admission import without_pods
from batchsched.session.joint.formulation import Formulation
from batchsched.session.joint.proposal import JointOutcome
from batchsched.session.placement.statement import GangPlacement
from batchsched.session.preemption.victim_selection import VictimSelection
from batchsched.session.reservation.head import ReservedHead
from batchsched.session.tables.gang import EntitlementClass
from batchsched.session.tables.session_tables import SessionTables


@dataclass(slots=True)
class DecisionBuilder:
    """A decision in the making; a brief one leaves out why gangs have to wait."""

    brief: bool = False
    placements: list[GangPlacement] = field(default_factory=list)
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

    def add_placements(self, placements: Sequence[GangPlacement]) -> None:
        """Take in who was placed."""
        self.placements += placements
        if self.head is not None:
            self.head.count(placements)
            if any(one.gang.members is self.head.gang.members for one in placements):
                self.head = None

    def reserve_head(self) -> None:
        """State the start that is kept for the head, unless places are kept for it already."""
        nominated = {pod.key for pod, _ in self.nominated}
        if self.head is None or nominated & self.head.gang.members.pending.keys():
            return
        reservation = self.head.reservation(self.placements)
        self.reservations += [] if reservation is None else [reservation]

    def add_tier_values(self, formulation: Formulation, outcome: JointOutcome) -> None:
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

    def close_tiers(self) -> None:
        """Turn the values into the account."""
        self.tiers = tuple(
            TierAccount(
                share=one[0].share, priority=one[1], objective=self.objective[one], bound=self.bound[one]
            )
            for one in sorted(self.bound, key=lambda one: (one[0], -one[1]))
        )
        total = sum(self.bound.values())
        self.gap = max(0.0, 1.0 - sum(self.objective.values()) / total) if total > 0 else 0.0

    def add_evictions(self, victims: VictimSelection) -> None:
        """Take in for whom room was made: who leaves, and what is kept."""
        self.evictions += victims.evictions
        self.nominated += victims.nominated
        self.guard |= victims.guard
        self.refusals = [victims.told(one) for one in self.refusals]

    def build(self, tables: SessionTables, queue_set_aside: Iterable[SetAside]) -> Decision:
        """Return the decision; every part of it is sorted, so that equal sessions give equal bytes.

        Args:
          tables: of the session, for the names of nodes and for what was set aside.
          queue_set_aside: fields of Queues that could not be used.
        """
        refusals = list(self.refusals)
        if not self.brief:
            refusals += [without_pods(members) for members in tables.incomplete.values()]
        names = tables.node_table.names
        bound = [placement for placement in self.placements if not placement.held_by]
        held = [placement for placement in self.placements if placement.held_by]
        return Decision(
            assignments=tuple(
                Assignment(namespace=namespace, pod=pod, node=node)
                for namespace, pod, node in _sorted_places(bound, names)
            ),
            evictions=tuple(sorted(self.evictions, key=lambda eviction: (eviction.namespace, eviction.pod))),
            nominations=tuple(
                Nomination(namespace=namespace, pod=pod, node=node)
                for namespace, pod, node in _sorted_places(held, names, self.nominated)
            ),
            waiting=tuple(
                Waiting(
                    pod_group=placement.gang.key, plugin=placement.held_by, until=timestamp(placement.until)
                )
                for placement in sorted(held, key=lambda placement: placement.gang.key)
            ),
            refusals=tuple(sorted(refusals, key=lambda refusal: refusal.pod_group)),
            reservations=tuple(self.reservations),
            set_aside=(
                *tables.snapshot.set_aside,
                *queue_set_aside,
                *tables.plugin_failures.values(),
                *_skipped_extensions(tables.pipeline),
            ),
            solver=SolverAccount(tiers=self.tiers, gap=self.gap, guard=self.guard),
        )


def _sorted_places(
    placements: Iterable[GangPlacement], names: Sequence[str], nominated: Iterable[tuple[Pod, int]] = ()
) -> list[tuple[str, str, str]]:
    """Return (namespace, pod, node) of placed and nominated pods, sorted."""
    places = [(placed.pod, placed.node) for placement in placements for placed in placement.placed]
    return sorted((pod.namespace, pod.name, names[node]) for pod, node in (*places, *nominated))


def _skipped_extensions(pipeline: Pipeline) -> list[SetAside]:
    """Return the plugins that were left out because they hung, and the ignorable extenders that failed."""
    plugins = [
        SetAside("", f"plugin {skipped.plugin}", "", f"{skipped.point} {skipped.problem}")
        for skipped in left_out(pipeline.plugins)
    ]
    extenders = [SetAside("", f"extender {url}", "", why) for why, url in pipeline.extenders.ignored.items()]
    return plugins + extenders
