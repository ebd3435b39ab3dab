"""Victim selection: evict the cheapest set of pods for each gang that found no room, and nominate the gang's pods.

Gangs are processed in the order of their tiers. If a gang's earlier nominations still hold, or the pods that are
being deleted free enough room, nothing more is evicted for it. Otherwise the solver chooses victims. They are evicted
only if the pipeline then accepts the gang on the nodes without them. Each eviction and each nomination counts for the
gangs that follow.

Consolidation moves gangs to other nodes so that the free room is in one place. Only whole gangs are moved, and only if
all of them fit elsewhere at once. The greedy algorithm of the solver checks this on the nodes without the moved gangs
and with the pending gang. Rules that are not rows of the problem are checked by the pipeline once the moved gangs are
pending again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Final, Self

import msgspec
import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Eviction, Refusal
from batchsched.ports.external import NoTelemetry
from batchsched.session.gangs.queue_limits import QueueLimits
from batchsched.session.joint.formulation import (
    FeasibleNodesByPodClass,
    Formulation,
    FormulationInput,
    formulate_problem,
    problem_at_later_time,
)
from batchsched.session.joint.proposal import JointPlacer
from batchsched.session.preemption.constraints import DisruptionBudgets, EvictionConstraints, EvictionOption
from batchsched.session.preemption.eligibility import (
    CONSOLIDATED,
    RECLAIMED,
    ElasticPodChooser,
    EvictionRules,
    EvictionUnit,
    VictimCandidate,
    VictimCandidates,
    build_eviction,
)
from batchsched.session.preemption.leaving_claims import DeletedPodsWithClaims, is_termination_overdue
from batchsched.session.reservations import ReservedHead
from batchsched.session.statement import GangPlacement, PlannedPods, Statement
from batchsched.session.tables.gang import EntitlementClass, GangState, PendingGang
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.problem import (
    IndexArray,
)
from batchsched.solver.verify import find_victim_faults
from batchsched.solver.victims.choose import VictimSearchLimits, choose_victims
from batchsched.solver.victims.relieved_rows import convert_relieved_rows_to_resources
from batchsched.solver.victims.victim_problem import VictimProblem, VictimSolution

MAX_GANGS_PER_SESSION: Final = 32
"""Maximum number of gangs for which a session selects victims; later sessions process the others."""
MAX_ATTEMPTS_PER_GANG: Final = 8
"""Maximum attempts to find a victim set that is fair and after which the gang passes the pipeline."""


class VictimChooser:
    """A context manager that selects victims for unplaced gangs, and restores the node table on exit.

    Inside the block, the node table is without the pods that are being deleted and without the victims chosen so far,
    the device ledger is without the claims that only these pods reserved, and both contain the gangs that get their
    room. When the block ends, with or without an exception, both are as before: the victims still run when the session
    ends, and the decision carries the evictions.

    `_removed` records every pod that was taken off the table, so that no early exit can lose one.

    Args:
      inputs: tables, topology levels, and the queue limits left after the session's placements.
      statement: places gangs on the table; it is rolled back to its present state when the block ends.
      eligibility: decides which gang may evict which; it counts the session's placements already.
      now: seconds since 1970.
      seed: seed of CP-SAT.
      head: the gang with a reserved start, which evictions must not delay; None if there is none.
    """

    def __init__(
        self,
        inputs: FormulationInput,
        statement: Statement,
        eligibility: EvictionRules,
        now: float,
        seed: int,
        head: ReservedHead | None = None,
    ) -> None:
        self._head = head
        self._inputs = inputs
        self._tables = inputs.tables
        self._statement = statement
        self._eligibility = eligibility
        self._candidates = VictimCandidates(inputs.tables, now, inputs.profile.scheduler_name)
        self._now = now
        self._seed = seed
        self._budgets = DisruptionBudgets(inputs.tables.snapshot.pod_disruption_budgets)
        settings = inputs.profile.solver
        self._solver_budget = VictimSearchLimits(
            deterministic=settings.deterministic_budget, guard_seconds=settings.guard_seconds
        )
        self._removed: dict[str, tuple[Pod, int]] = {}
        """Pods that are off the node table, by key, with their node indexes, in the order of their removal."""
        self._missing_pods = DeletedPodsWithClaims(inputs.tables)
        self._checkpoint = 0
        self.evictions: list[Eviction] = []
        """Evictions for the decision."""
        self.nominated: list[tuple[Pod, int]] = []
        """Nominated pods and their node indexes, for the decision."""
        self.evicted_pods: dict[str, int] = {}
        """By `namespace/name` of each gang with new nominations, the number of pods evicted for it."""
        self.guard = False
        """True if the solver's wall-clock guard ended one of its searches."""

    def __enter__(self) -> Self:
        """Remove the pods that are being deleted from the node table, unless they are overdue."""
        self._checkpoint = self._statement.checkpoint()
        self._missing_pods.mark_devices_as_free()
        terminating = [unit for unit in self._candidates.terminating if not self._is_overdue(unit)]
        for unit in terminating:
            for pod, node in unit.pods:
                self._remove(pod, node)
            self._eligibility.add_usage(unit.members.queue, -unit.total)
        self._inputs = replace(self._inputs, quotas=self._limits_without(terminating))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the node table and the device ledger, and roll back placed gangs."""
        # Placed gangs leave first: they may use room of removed pods, and a node must not hold both.
        self._statement.roll_back_to(self._checkpoint)
        for key in list(reversed(self._removed)):
            self._restore(key)
        self._missing_pods.mark_devices_as_used_again()

    def select_victims(self, gangs: Sequence[PendingGang]) -> None:
        """Choose the pods to evict for each unplaced gang that may preempt, and nominate the gang's pods.

        Args:
          gangs: unplaced gangs, in the order of their tiers.
        """
        for gang in [gang for gang in gangs if self._eligibility.may_preempt_by_policy(gang)][
            :MAX_GANGS_PER_SESSION
        ]:
            # Nominations of an earlier session come first: pods were evicted for them, and others would have to be.
            placement = self._place_on_nominated_nodes(gang)
            if placement is not None:
                self._keep(gang, placement, [])
                continue
            options = self._options(gang)
            # Without options, the room of pods that are being deleted may still be enough.
            if (options or self._removed) and self._select(gang, options):
                continue
            # Only if other victims are not enough.
            protected = self._protected_options(gang)
            if protected and self._select(gang, [*options, *protected]):
                continue
            if self._inputs.profile.consolidate and self._fits_in_total(gang):
                movable = self._still_running(
                    list_movable_gangs(gang, self._candidates.unprotected_candidates)
                )
                self._select(gang, movable, moving=True)

    def _is_overdue(self, unit: EvictionUnit) -> bool:
        return any(is_termination_overdue(pod, self._now) for pod, _ in unit.pods)

    def _remove(self, pod: Pod, node: int) -> None:
        self._tables.node_table.remove_pods([pod])
        self._tables.node_table.device_ledger.simulate_deletion_of_pod(pod)
        self._removed[pod.key] = (pod, node)

    def _restore(self, key: str) -> None:
        pod, node = self._removed.pop(key)
        self._tables.node_table.add_pods([(pod, node)], *self._tables.requests_and_nonzero(pod))
        self._tables.node_table.device_ledger.undo_simulated_deletion_of_pod(pod)

    def _restore_units(self, units: Iterable[EvictionUnit]) -> None:
        for unit in units:
            for pod, _ in unit.pods:
                self._restore(pod.key)

    def _place_on_nominated_nodes(self, gang: PendingGang) -> GangPlacement | None:
        """Place a gang on the nodes for which its pods are nominated; None, and no change, if that fails."""
        index = self._tables.node_table.index
        plans = []
        for part in gang.parts:
            nominees = [
                (pod, node)
                for pod in part.pods
                if (node := index.get(pod.status.nominated_node_name or "", -1)) >= 0
            ]
            if nominees:
                pods, nodes = zip(*nominees, strict=True)
                plans.append(PlannedPods(replace(part, pods=pods), nodes, (1,) * len(nodes)))
        if sum(len(plan.nodes) for plan in plans) < gang.need:
            return None
        # The statement does not know queue limits: proposals come from the solver otherwise, which does.
        if self._inputs.quotas.find_queue_with_exceeded_limit(
            self._tables, gang.members.queue_and_user, gang.needs, int(gang.has_no_bound_pod)
        ):
            return None
        # A gang without placed pods leaves nothing on the table: `place_gang` rolled it back.
        placement = self._statement.place_gang(gang, plans)
        return placement if placement.placed else None

    def _options(self, gang: PendingGang) -> list[EvictionOption]:
        """Return the units that may be evicted for a gang: the surplus of each candidate before its minimum."""
        options = []
        own_queue = self._candidates.list_unprotected_candidates_in_queue(gang.queue)
        other_queues = self._reclaimable if self._eligibility.entitlement_class_allows_reclaim(gang) else []
        preference: ElasticPodChooser | None = None
        for candidate in sorted(
            {*own_queue, *other_queues}, key=lambda candidate: candidate.members.identity
        ):
            # A gang with surplus in the queue runs and is pending at once. It must not evict its own pods.
            if candidate.members is gang.members:
                continue
            reason = self._eligibility.eviction_reason(gang, candidate)
            if not reason:
                continue
            units = candidate.eviction_units
            if len(units) > 1:  # an elastic gang with surplus
                preference = preference or ElasticPodChooser(self._rank_surplus(gang), self._removed.keys())
                units = candidate.make_units(preference)
            options += [EvictionOption(unit, reason) for unit in units]
        return self._still_running(options)

    def _protected_options(self, gang: PendingGang) -> list[EvictionOption]:
        """Return the units of protected gangs that may be evicted for a gang nevertheless, to meet a guarantee."""
        if gang.entitled is not EntitlementClass.GUARANTEE:
            return []
        return self._still_running(
            EvictionOption(unit, RECLAIMED)
            for candidate in self._candidates.protected_candidates
            if self._eligibility.may_override_protection(gang, candidate)
            for unit in candidate.eviction_units
        )

    def _rank_surplus(self, gang: PendingGang) -> Callable[[Pod, int], int]:
        """Return a rank of running pods: 0 if a pod of the gang fits on the node without this pod.

        1 stands for a node that the gang may use, and on which more than this pod has to be evicted; 2 for all others.
        """
        problem = problem_at_later_time(self._inputs, gang)
        mask, demand = problem.kinds.mask[problem.classes.kind], problem.classes.demand
        free = self._tables.free_resources()

        def rank_of_surplus_pod(pod: Pod, node: int) -> int:
            classes = demand[mask[:, node]]
            available = free[node] + self._tables.request_vector(pod)
            fits = ((classes <= available) | (classes == 0)).all(axis=1)
            return 0 if fits.any() else 1 + (not len(classes))

        return rank_of_surplus_pod

    @cached_property
    def _reclaimable(self) -> list[VictimCandidate]:
        """Candidates that have run long enough for other queues to reclaim from them, and that use shared resources."""
        return [
            candidate
            for candidate in self._candidates.unprotected_candidates
            if self._eligibility.has_run_for_reclaim_min_runtime(candidate)
            # Pods that do not count against their queue take no queue above its share.
            and self._candidates.eviction_reduces_queue_usage(candidate)
        ]

    def _still_running(self, options: Iterable[EvictionOption]) -> list[EvictionOption]:
        """Return the options without those that this session has evicted already."""
        # One pod decides for its unit: units are removed and restored as a whole.
        return [
            option
            for option in options
            if option.unit.pods and option.unit.pods[0][0].key not in self._removed
        ]

    def _fits_in_total(self, gang: PendingGang) -> bool:
        """Return True if all nodes together have what a gang needs; consolidation cannot help otherwise."""
        free = np.maximum(0, self._tables.free_resources()).sum(axis=0)
        return bool((free >= gang.needs).all())

    def _select(self, gang: PendingGang, options: list[EvictionOption], *, moving: bool = False) -> bool:
        """Choose victims for a gang, and keep the room that they free for it.

        Args:
          gang: the pending gang.
          options: the units that may be evicted.
          moving: True if every victim has to fit elsewhere at once (consolidation).

        Returns: True if the gang got its room. If False, the table and the statement are as before the call: a
        failed attempt rolls back the gang first, and then restores the victims that were removed for it.
        """
        units_of_pods = [[pod for pod, _ in option.unit.pods] for option in options]
        formulation = formulate_problem(self._inputs, [gang], gang.created, lasting=True, units=units_of_pods)
        if formulation.failures:
            return False
        constraints = EvictionConstraints(options, self._budgets)
        # Victim sets that failed. A superset may still succeed, so that a cut excludes a set and its subsets only.
        cuts: tuple[IndexArray, ...] = ()
        for _ in range(MAX_ATTEMPTS_PER_GANG):
            problem = constraints.problem_with_constraints(
                replace(self._problem(formulation, options), cuts=cuts)
            )
            answer = choose_victims(problem, self._solver_budget, self._seed)
            # `find_victim_faults` shares no code with the solver; an answer that it rejects evicts nothing.
            if answer is None or find_victim_faults(problem, answer):
                return False
            self.guard |= answer.guard
            chosen = [options[unit] for unit in answer.units.tolist()]
            units = [option.unit for option in chosen]
            # Nothing is removed yet. Moved gangs need no right of reclaim, since they keep their room.
            if not moving and not self._eligibility.may_evict_all(gang, units):
                constraints.tighten_limits_to_exclude_victims(self._eligibility, gang, units)
                continue
            checkpoint = self._statement.checkpoint()
            placement = self._place_without(gang, formulation, answer, chosen)
            # From here on the units are off the table: every failure has to roll back and restore.
            if placement is not None and moving and units and not self._all_fit_elsewhere(placement, units):
                self._statement.roll_back_to(checkpoint)
                self._restore_units(units)
                placement = None
            if placement is not None and not self._head_still_starts(placement, units):
                self._statement.roll_back_to(checkpoint)
                self._restore_units(units)
                if not units:
                    return False  # the free room is reserved for the head: no choice of victims changes that
                placement = None
            if placement is not None:
                self._keep(gang, placement, chosen)
                return True
            cuts += (answer.units,)
        return False

    def _head_still_starts(self, placement: GangPlacement, units: Sequence[EvictionUnit]) -> bool:
        """Return True if the head can start at its reserved time with the gang in place of the units.

        If so, the reservation counts the gang from now on.
        """
        head = self._head
        if head is None or placement.gang.members is head.gang.members:
            return True
        # Units that end before the reserved start are free for the head anyway.
        outlasting = (unit for unit in units if head.runs_beyond_reserved_start(unit.members.identity))
        return head.deduct_after_eviction_if_head_still_fits(
            placement, [place for unit in outlasting for place in unit.pods]
        )

    def _all_fit_elsewhere(self, placement: GangPlacement, units: Sequence[EvictionUnit]) -> bool:
        # Fresh feasible nodes: those of the inputs were computed with the units on their nodes and without the gang.
        return all_gangs_fit_elsewhere(self._inputs_after(units, [placement]), units)

    def _inputs_after(
        self, units: Iterable[EvictionUnit], placements: Sequence[GangPlacement] = ()
    ) -> FormulationInput:
        """Return the input after units have left and gangs were placed; victims are chosen without scores."""
        quotas = self._limits_without(units).after_placements(self._tables, placements)
        return replace(
            self._inputs, quotas=quotas, feasible_nodes=FeasibleNodesByPodClass(self._tables, scores=False)
        )

    def _problem(self, formulation: Formulation, options: Sequence[EvictionOption]) -> VictimProblem:
        """Return the solver's problem: the units to choose from, what each frees where, and what queues allow."""
        tables, quotas = self._tables, self._inputs.quotas
        resources = len(tables.node_table.resources)
        freed: dict[tuple[int, int], np.ndarray] = {}
        bonds = []
        units_of_gang: dict[str, list[int]] = {}
        for unit, option in enumerate(options):
            for pod, node in option.unit.pods:
                requests = tables.request_vector(pod)
                freed[unit, node] = freed[unit, node] + requests if (unit, node) in freed else requests
            earlier_units = units_of_gang.setdefault(option.unit.members.identity, [])
            # The minimum follows the surplus of its gang in `options`, and is evicted only with all of it.
            if option.unit.ends:
                bonds += [(unit, surplus) for surplus in earlier_units]
            earlier_units.append(unit)
        counted = np.array([option.unit.total.any() for option in options], np.bool_)
        places = np.array(list(freed), np.int32).reshape(-1, 2)
        bonded = np.array(bonds, np.int32).reshape(-1, 2)
        problem = VictimProblem(
            pending=formulation.problem,
            free=tables.free_resources(),
            cost=np.array([option.unit.cost for option in options], np.int64),
            unit=places[:, 0],
            node=places[:, 1],
            freed=np.array(list(freed.values()), np.int64).reshape(len(freed), resources),
            bond_unit=bonded[:, 0],
            bond_with=bonded[:, 1],
            # Negative where a limit was lowered below the usage: an eviction has to make up for that first.
            quota_left=quotas.remaining,
            gangs_left=quotas.remaining_gangs,
            quota_unit=quotas.mask_of_limits_by_gang(
                tables, [option.unit.members.queue_and_user for option in options]
            )
            & counted,
            ends=np.array([option.unit.ends for option in options], np.bool_),
        )
        return convert_relieved_rows_to_resources(problem)

    def _place_without(
        self,
        gang: PendingGang,
        formulation: Formulation,
        answer: VictimSolution,
        chosen: Sequence[EvictionOption],
    ) -> GangPlacement | None:
        """Remove the chosen units and place a gang; None, and the units are back, if the pipeline accepts no way."""
        for option in chosen:
            for pod, node in option.unit.pods:
                self._remove(pod, node)
        placement = self._statement.place_gang(gang, _planned(formulation, answer))
        if placement.placed:
            return placement
        # The masks of `formulation` were computed with the victims on their nodes. Without them, rules between pods
        # (anti-affinity, spreading, ports) may allow another placement, so the gang is formulated again.
        inputs = self._inputs_after(option.unit for option in chosen)
        outcome = JointPlacer(
            formulate_problem(inputs, [gang], gang.created),
            self._inputs.profile.solver,
            self._seed,
            NoTelemetry(),
        ).solve_and_place(self._statement)
        if outcome.placements:
            return outcome.placements[0]
        # Neither attempt left pods of the gang on the table: the statement rolled it back both times.
        self._restore_units(option.unit for option in chosen)
        return None

    def _limits_without(self, units: Iterable[EvictionUnit]) -> QueueLimits:
        """Return what the queues allow once these units are evicted."""
        quotas = self._inputs.quotas
        for unit in units:
            # A unit without counted requests belongs to another scheduler: it frees no quota and ends no counted gang.
            if unit.total.any():
                quotas = quotas.after_evictions(
                    self._tables, unit.members.queue_and_user, unit.total, int(unit.ends)
                )
        return quotas

    def refusal_with_eviction_count(self, refusal: Refusal) -> Refusal:
        """Return a refusal that also states how many pods are evicted for the refused gang.

        Return the refusal unchanged if the session has not nominated pods of this gang.
        """
        pods = self.evicted_pods.get(refusal.pod_group)
        if pods is None:
            return refusal
        source = f"{pods} pods are evicted for it" if pods else "what leaves already is enough for it"
        return msgspec.structs.replace(
            refusal, message=f"{refusal.message}; {source}, and its places are kept by nomination"
        )

    def _keep(self, gang: PendingGang, placement: GangPlacement, chosen: Sequence[EvictionOption]) -> None:
        """Record the evictions and the gang's nominations; the table stays without the one and with the other."""
        # First the limits and the feasible nodes, which the gangs that follow see from here on.
        self._inputs = self._inputs_after((option.unit for option in chosen), [placement])
        for option in chosen:
            unit = option.unit
            self._eligibility.record_eviction(unit)
            for pod, _ in unit.pods:
                self.evictions.append(build_eviction(pod, unit.members, gang, option.reason))
                self._budgets.count_eviction(pod)
        resources = len(self._tables.node_table.resources)
        self._eligibility.add_usage(gang.queue, placement.total_requests(resources))
        self.nominated += [(placed.pod, placed.node) for placed in placement.placed]
        self.evicted_pods[gang.key] = sum(len(option.unit.pods) for option in chosen)


def _planned(formulation: Formulation, answer: VictimSolution) -> list[PlannedPods]:
    """Return the solver's placement, part by part of the gang."""
    return [
        PlannedPods(
            formulation.parts[class_number][1],
            tuple(answer.nodes[answer.classes == class_number].tolist()),
            tuple(answer.counts[answer.classes == class_number].tolist()),
        )
        for class_number in np.unique(answer.classes).tolist()
    ]


def list_movable_gangs(gang: PendingGang, candidates: Iterable[VictimCandidate]) -> list[EvictionOption]:
    """Return the running gangs that consolidation may move to other nodes to make room for a pending gang.

    A gang may be moved if it counts against a queue, has no higher priority, is disrupted as a whole, and has no
    system-critical pods of a higher priority.
    """
    return [
        EvictionOption(candidate.eviction_units[0], CONSOLIDATED)
        for candidate in candidates
        if len(candidate.eviction_units) == 1
        and candidate.priority <= gang.priority
        and not candidate.is_too_critical_to_evict_for(gang)
        and candidate.eviction_units[0].total.any()
    ]


def all_gangs_fit_elsewhere(inputs: FormulationInput, units: Sequence[EvictionUnit]) -> bool:
    """Return True if the gangs that consolidation would move all fit on free resources at the same time.

    Args:
      inputs: the session; its node table is without the units.
      units: the gangs to move, each as a single unit.
    """
    gangs = [inputs.tables.pending_gang(_as_pending(unit)) for unit in units]
    formulation = formulate_problem(inputs, gangs, min(gang.created for gang in gangs))
    solution = solve_greedy(formulation.problem)
    placed = int(solution.counts.sum())
    # All pods, not the minimum only: a moved gang must not lose pods that it had.
    return not formulation.failures and placed == sum(gang.pending_pod_count for gang in gangs)


def _as_pending(unit: EvictionUnit) -> GangState:
    """Return the gang of a unit as it is once its controller has created the evicted pods again."""
    pods = {pod.key: pod.with_node("") for pod, _ in unit.pods}
    members = unit.members
    return GangState(members.identity, members.group, pending=pods, default_queue=members.default_queue)
