"""The decision builder: collects the placements, evictions, refusals and objective values of a session."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import Pod
from batchsched.api.decision import (
    Assignment,
    ClaimAssignment,
    Decision,
    Eviction,
    Nomination,
    Refusal,
    Reservation,
    SetAside,
    SolverAccount,
    TierObjective,
    WaitingAtPermit,
)
from batchsched.devices.ledger import DeviceLedger
from batchsched.framework.runtime.deadline import exceeded_deadlines
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.session.gangs.gang_eligibility import incomplete_pod_group_refusal
from batchsched.session.joint.formulation import Formulation
from batchsched.session.joint.proposal import JointOutcome
from batchsched.session.preemption.victim_selection import VictimChooser
from batchsched.session.reservations import ReservedHead
from batchsched.session.statement import GangPlacement
from batchsched.session.tables.gang import EntitlementClass
from batchsched.session.tables.session_tables import SessionTables


@dataclass(slots=True)
class DecisionBuilder:
    """The builder of a session's decision, which collects placements, refusals, evictions and reservations.

    Args:
      brief: omit refusals and other parts that only explain why gangs wait.
      placements: gangs with a place, including those that wait at Permit.
      refusals: one for each gang that takes part and gets no place.
      reservations: the reserved starts that the decision states.
      evictions: pods that are evicted.
      nominated: pending pods and the index of the node that is reserved for each.
      objective: weight that was placed, by (entitlement class, priority) of a tier.
      bound: upper bound on the weight, by tier.
      tiers: the placed weight and its upper bound for each tier, set by `compute_tiers_and_gap`.
      gap: 1 - Σ objective / Σ bound, set by `compute_tiers_and_gap`.
      guard: True if the wall-clock guard stopped the solver.
      solver_work: the estimated work of CP-SAT for the placements, in units of about a microsecond.
      head: the gang with a reserved earliest start; None once it is placed.
    """

    brief: bool = False
    placements: list[GangPlacement] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    nominated: list[tuple[Pod, int]] = field(default_factory=list)
    objective: dict[tuple[EntitlementClass, int], float] = field(default_factory=dict)
    bound: dict[tuple[EntitlementClass, int], float] = field(default_factory=dict)
    tiers: tuple[TierObjective, ...] = ()
    gap: float = 0.0
    guard: bool = False
    solver_work: float = 0.0
    head: ReservedHead | None = None

    def add_placements(self, placements: Sequence[GangPlacement]) -> None:
        """Add placed gangs to the decision.

        Their requests are also subtracted from the resources that are free at the reserved start of the head.
        """
        self.placements += placements
        if self.head is not None:
            self.head.deduct_placements(placements)
            # Once the head is placed, its room needs no more protection.
            if any(placement.gang.members is self.head.gang.members for placement in placements):
                self.head = None

    def add_head_reservation(self) -> None:
        """Add to the decision the reserved start of the head, the first gang that does not fit.

        The reserved start is omitted if pods of the head have nominated nodes already.
        """
        nominated = {pod.key for pod, _ in self.nominated}
        if self.head is None or nominated & self.head.gang.members.pending.keys():
            return
        reservation = self.head.reservation_to_announce(self.placements)
        self.reservations += [] if reservation is None else [reservation]

    def add_tier_objectives(self, formulation: Formulation, outcome: JointOutcome) -> None:
        """Add the objective of one solver outcome, and its upper bound, to the sums for each tier.

        The sums are the fields `objective` and `bound` of the builder.
        """
        problem = formulation.problem
        total_weight = np.bincount(
            problem.gangs.tier[problem.classes.gang],
            problem.classes.weight * problem.classes.count,
            minlength=len(formulation.tiers),
        )
        # The solver's bound holds for the gangs of its window on the nodes as they were then. In a later window the
        # choices of earlier ones have taken parts of the nodes, so that only the total weight bounds the session.
        bound = np.maximum(total_weight, outcome.objective) if self.bound else outcome.bound
        for tier, name in enumerate(formulation.tiers):
            self.objective[name] = self.objective.get(name, 0.0) + float(outcome.objective[tier])
            self.bound[name] = self.bound.get(name, 0.0) + float(bound[tier])
        self.guard |= outcome.solution.guard

    def compute_tiers_and_gap(self) -> None:
        """Compute the gap of the decision, and for each tier the objective with its upper bound."""
        self.tiers = tuple(
            TierObjective(
                share=tier[0].name_in_decision,
                priority=tier[1],
                objective=self.objective[tier],
                bound=self.bound[tier],
            )
            for tier in sorted(self.bound, key=lambda tier: (tier[0], -tier[1]))
        )
        total = math.fsum(self.bound.values())
        self.gap = max(0.0, 1.0 - math.fsum(self.objective.values()) / total) if total > 0 else 0.0

    def add_evictions(self, victims: VictimChooser) -> None:
        """Add evictions and nominations, and state in each refusal how many pods are evicted for the gang."""
        self.evictions += victims.evictions
        self.nominated += victims.nominated
        self.guard |= victims.guard
        # A gang for which pods are evicted is still refused: it starts once its victims have left.
        self.refusals = [victims.refusal_with_eviction_count(refusal) for refusal in self.refusals]

    def build(self, tables: SessionTables, queue_set_aside: Iterable[SetAside]) -> Decision:
        """Return the decision with sorted lists, so that equal sessions return byte-identical decisions.

        Args:
          tables: the tables of the session, for the names of nodes and for the objects that were set aside.
          queue_set_aside: fields of Queues that could not be used.
        """
        refusals = list(self.refusals)
        # Incomplete PodGroups have no pending pod, so that no selection strategy has seen them.
        if not self.brief:
            refusals += [
                incomplete_pod_group_refusal(tables, members) for members in tables.incomplete.values()
            ]
        refusals = [_with_level_wait(refusal, tables) for refusal in refusals]
        names, ledger = tables.node_table.names, tables.node_table.device_ledger
        bound = [placement for placement in self.placements if not placement.held_by]
        held = [placement for placement in self.placements if placement.held_by]
        return Decision(
            assignments=tuple(
                Assignment(
                    namespace=namespace,
                    pod=pod,
                    node=node,
                    claims=_claims_of(f"{namespace}/{pod}", uid, ledger),
                )
                for namespace, pod, node, uid in _sorted_places(bound, names)
            ),
            evictions=tuple(sorted(self.evictions, key=lambda eviction: (eviction.namespace, eviction.pod))),
            nominations=tuple(
                Nomination(namespace=namespace, pod=pod, node=node)
                for namespace, pod, node, _ in _sorted_places(held, names, self.nominated)
            ),
            waiting=tuple(
                WaitingAtPermit(
                    pod_group=placement.gang.key,
                    plugin=placement.held_by,
                    until=format_timestamp(placement.until),
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


def _with_level_wait(refusal: Refusal, tables: SessionTables) -> Refusal:
    """Return a refusal that states until when the gang waits for a preferred level, if it lacks room because of it."""
    wait = tables.preferred_level_waits.wait_sentence(refusal.pod_group)
    if not wait or refusal.reason != "InsufficientTopologyCapacity":
        return refusal
    return msgspec.structs.replace(refusal, message=f"{refusal.message}; {wait}")


def _claims_of(pod: str, uid: str, ledger: DeviceLedger) -> tuple[ClaimAssignment, ...]:
    """Return the claims that the pod `namespace/name` with this UID reserved, with the devices that they get."""
    devices = ledger.devices_reserved_for_pod(pod, uid)
    if devices is None:
        return ()
    allocations = {reserved.claim: reserved.allocation for reserved in devices.allocations}
    return tuple(
        ClaimAssignment(claim=claim.rpartition("/")[2], allocation=allocations.get(claim))
        for claim in devices.claims
    )


def _sorted_places(
    placements: Iterable[GangPlacement], names: Sequence[str], nominated: Iterable[tuple[Pod, int]] = ()
) -> list[tuple[str, str, str, str]]:
    """Return (namespace, pod, node, UID of the pod) of placed and nominated pods, sorted."""
    places = [(placed.pod, placed.node) for placement in placements for placed in placement.placed]
    return sorted(
        (pod.namespace, pod.name, names[node], pod.metadata.uid) for pod, node in (*places, *nominated)
    )


def _skipped_extensions(pipeline: Pipeline) -> list[SetAside]:
    """Return the plugins that were left out because they hung, and the ignorable extenders that failed."""
    plugins = [
        SetAside("", f"plugin {skipped.plugin}", "", f"{skipped.point} {skipped.message}")
        for skipped in exceeded_deadlines(pipeline.plugins)
    ]
    extenders = [SetAside("", f"extender {url}", "", why) for why, url in pipeline.extenders.ignored.items()]
    return plugins + extenders
