"""Clearing: room is made for gangs that found none, at the least cost, and kept for them by nomination.

Gang after gang, in the order of their tiers: where its own nominations still hold, or what leaves already is enough,
nobody else has to leave. Otherwise the solver chooses the victims; the gang is walked through the pipeline over the
nodes without them, and only then they are evicted. What each is given counts for those that come after it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Final, Self

import msgspec
import numpy as np

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.metadata import seconds
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Eviction, Refusal
from batchsched.ports.telemetry import Silence
from batchsched.session.gangs.queue_limits import QueueLimits, spend
from batchsched.session.joint.formulation import Formulation, SessionContext, formulate
from batchsched.session.joint.proposal import JointProposer
from batchsched.session.placement.class_feasibility import FeasibilityByClass
from batchsched.session.placement.statement import GangPlacement, PlannedPods, Statement
from batchsched.session.preemption.candidates import EvictionUnit, VictimCandidate, VictimCandidates
from batchsched.session.preemption.consolidation import all_find_a_place, movable
from batchsched.session.preemption.constraints import EvictionConstraints, EvictionLimit
from batchsched.session.preemption.eligibility import EvictionEligibility
from batchsched.session.reservation.head import ReservedHead
from batchsched.session.tables.gang import PendingGang
from batchsched.solver.problem import UNLIMITED, IndexArray
from batchsched.solver.victims.choose import VictimBudget, choose_victims
from batchsched.solver.victims.problem import VictimProblem, VictimSet
from batchsched.solver.victims.verify import verify_victims

MOST: Final = 32
"""For so many gangs of a session room is sought; the next session looks at the others."""
ROUNDS: Final = 8
"""So often a set of victims is chosen anew that is not fair, or after which the pipeline refuses the gang."""
LATE: Final = 600.0
"""Seconds after its grace period from which a pod that leaves is no longer expected to."""


class VictimSelection:
    """Room made for gangs: who has to leave, and what is kept. Inside, the table is without those who leave.

    Args:
      context: tables, levels, and what queues allow after everybody was placed.
      statement: the session's; what is walked here is undone on leaving.
      claims: who may take from whom, after everybody was placed.
      now: seconds since 1970.
      seed: CP-SAT's.
      head: whose start is kept.
    """

    def __init__(
        self,
        context: SessionContext,
        statement: Statement,
        claims: EvictionEligibility,
        now: float,
        seed: int,
        head: ReservedHead | None = None,
    ) -> None:
        self._head = head
        self._context = context
        self._tables = context.tables
        self._statement = statement
        self._claims = claims
        self._tenants = VictimCandidates(context.tables, now, context.profile.scheduler_name)
        self._now = now
        self._seed = seed
        self._budgets: tuple[PodDisruptionBudget, ...] = context.tables.snapshot.pod_disruption_budgets
        settings = context.profile.solver
        self._budget = VictimBudget(
            deterministic=settings.deterministic_budget, guard_seconds=settings.guard_seconds
        )
        self._off: dict[str, tuple[Pod, int]] = {}
        self._mark = 0
        self.evictions: list[Eviction] = []
        self.nominated: list[tuple[Pod, int]] = []
        self.evicted: dict[str, int] = {}
        """By namespace/name of a gang for which room is kept, how many pods are evicted for it."""
        self.guard = False

    def __enter__(self) -> Self:
        """Take whoever leaves already off the table."""
        self._mark = self._statement.checkpoint()
        leaving = [unit for unit in self._tenants.leaving if self._in_time(unit)]
        for unit in leaving:
            for pod, node in unit.pods:
                self._take_off(pod, node)
            self._claims.count(unit.members.queue, -unit.total)
        self._context = replace(self._context, quotas=self._relieved(leaving))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back."""
        self._statement.roll_back_to(self._mark)
        for key in list(reversed(self._off)):
            self._put_back(key)

    def make_room(self, gangs: Sequence[PendingGang]) -> None:
        """Make room for gangs, one after the other, as far as they may make others leave."""
        for gang in [one for one in gangs if self._claims.disturbs(one)][:MOST]:
            kept = self._still_kept(gang)
            if kept is not None:
                self._keep(gang, kept, [])
                continue
            causes = self._causes(gang)
            if (causes or self._off) and self._clear(gang, causes):
                continue
            if self._context.profile.consolidate and self._enough_in_all(gang):
                self._clear(gang, self._staying(movable(gang, self._tenants.all)), moving=True)

    def _in_time(self, unit: EvictionUnit) -> bool:
        return all(
            self._now <= seconds(pod.metadata.deletion_timestamp, self._now) + LATE for pod, _ in unit.pods
        )

    def _take_off(self, pod: Pod, node: int) -> None:
        self._tables.node_table.remove([pod])
        self._off[pod.key] = (pod, node)

    def _put_back(self, key: str) -> None:
        pod, node = self._off.pop(key)
        self._tables.node_table.add([(pod, node)], *self._tables.request_vectors(pod))

    def _still_kept(self, gang: PendingGang) -> GangPlacement | None:
        """Walk a gang over the nodes for which it is nominated; None where that no longer does."""
        index = self._tables.node_table.index
        shares = []
        for part in gang.parts:
            places = [(pod, index.get(pod.status.nominated_node_name or "", -1)) for pod in part.pods]
            there = [one for one in places if one[1] >= 0]
            if there:
                pods, nodes = zip(*there, strict=True)
                shares.append(PlannedPods(replace(part, pods=pods), nodes, (1,) * len(nodes)))
        if sum(len(share.nodes) for share in shares) < gang.need:
            return None
        if self._context.quotas.lacking(self._tables, gang.members.owner, gang.needs, int(gang.fresh)):
            return None
        walked = self._statement.place_gang(gang, shares)
        return walked if walked.refusal.ok else None

    def _causes(self, gang: PendingGang) -> list[EvictionLimit]:
        """Everybody who may have to leave for a gang: surplus before the minimum of the same gang."""
        found = []
        own = self._tenants.of(gang.queue)
        others = self._ripe if self._claims.reclaims(gang) else []
        for tenant in sorted({*own, *others}, key=lambda one: one.members.identity):
            reason = self._claims.reason(gang, tenant) if tenant.members is not gang.members else ""
            if reason:
                found += [EvictionLimit(unit, reason) for unit in tenant.units]
        return self._staying(found)

    @cached_property
    def _ripe(self) -> list[VictimCandidate]:
        """From whom other queues may take."""
        return [one for one in self._tenants.all if self._claims.ripe(one)]

    def _staying(self, causes: Iterable[EvictionLimit]) -> list[EvictionLimit]:
        """Leave out who leaves already."""
        return [one for one in causes if one.unit.pods and one.unit.pods[0][0].key not in self._off]

    def _enough_in_all(self, gang: PendingGang) -> bool:
        """Whether the nodes have what a gang asks for, if not in one place: otherwise moving helps nobody."""
        there = np.maximum(0, self._tables.free_resources()).sum(axis=0)
        return bool((there >= gang.needs).all())

    def _clear(self, gang: PendingGang, causes: list[EvictionLimit], *, moving: bool = False) -> bool:
        """Choose who leaves for a gang, and keep its places; False, and nothing changes, where no set is found."""
        formulation = formulate(self._context, [gang], gang.created, lasting=True)
        if formulation.failures:
            return False
        limits = EvictionConstraints(causes, self._budgets)
        cuts: tuple[IndexArray, ...] = ()
        for _ in range(ROUNDS):
            problem = limits.on(replace(self._problem(formulation, causes), cuts=cuts))
            answer = choose_victims(problem, self._budget, self._seed)
            if answer is None or verify_victims(problem, answer):
                return False
            self.guard |= answer.guard
            chosen = [causes[unit] for unit in answer.units.tolist()]
            units = [one.unit for one in chosen]
            if not moving and not self._claims.fair(gang, units):
                limits.tighten(self._claims, gang, units)
                continue
            mark = self._statement.checkpoint()
            walked = self._without(gang, formulation, answer, chosen)
            if walked is not None and moving and units and not self._all_move(walked, units):
                self._statement.roll_back_to(mark)
                self._return(units)
                walked = None
            if walked is not None and not self._in_time_for_head(walked, units):
                self._statement.roll_back_to(mark)
                self._return(units)
                if not units:
                    return False  # there is room, and it is the head's
                walked = None
            if walked is not None:
                self._keep(gang, walked, chosen)
                return True
            cuts += (answer.units,)
        return False

    def _in_time_for_head(self, walked: GangPlacement, units: Sequence[EvictionUnit]) -> bool:
        """Tell whether the head still starts when it was told to once a gang is there instead of some units."""
        head = self._head
        if head is None or walked.gang.members is head.gang.members:
            return True
        lasting = (unit for unit in units if head.outlasts(unit.members.identity))
        return head.spares(walked, [one for unit in lasting for one in unit.pods])

    def _all_move(self, walked: GangPlacement, units: Sequence[EvictionUnit]) -> bool:
        quotas = spend(self._relieved(units), self._tables, walked)
        return all_find_a_place(
            replace(self._context, quotas=quotas, feasibility=FeasibilityByClass(self._tables, scores=False)),
            units,
        )

    def _return(self, units: Iterable[EvictionUnit]) -> None:
        """Put units back where they were."""
        for unit in units:
            for pod, _ in unit.pods:
                self._put_back(pod.key)

    def _problem(self, formulation: Formulation, causes: Sequence[EvictionLimit]) -> VictimProblem:
        tables, quotas = self._tables, self._context.quotas
        resources = len(tables.node_table.resources)
        held: dict[tuple[int, int], np.ndarray] = {}
        bonds = []
        surplus: dict[str, list[int]] = {}
        for at, cause in enumerate(causes):
            for pod, node in cause.unit.pods:
                vector = tables.request_vectors(pod)[0]
                held[at, node] = held[at, node] + vector if (at, node) in held else vector
            of_gang = surplus.setdefault(cause.unit.members.identity, [])
            if cause.unit.ends:
                bonds += [(at, other) for other in of_gang]
            of_gang.append(at)
        counted = np.array([cause.unit.total.any() for cause in causes], np.bool_)
        pairs = np.array(list(held), np.int32).reshape(-1, 2)
        with_it = np.array(bonds, np.int32).reshape(-1, 2)
        return VictimProblem(
            wanted=formulation.problem,
            free=tables.free_resources(),
            cost=np.array([cause.unit.cost for cause in causes], np.int64),
            unit=pairs[:, 0],
            node=pairs[:, 1],
            freed=np.array(list(held.values()), np.int64).reshape(len(held), resources),
            bond_unit=with_it[:, 0],
            bond_with=with_it[:, 1],
            quota_left=np.where(quotas.free < UNLIMITED, quotas.free - quotas.over, UNLIMITED),
            gangs_left=np.where(quotas.gangs < UNLIMITED, quotas.gangs - quotas.over_gangs, UNLIMITED),
            quota_unit=quotas.members(tables, [cause.unit.members.owner for cause in causes]) & counted,
            ends=np.array([cause.unit.ends for cause in causes], np.bool_),
        )

    def _without(
        self, gang: PendingGang, formulation: Formulation, answer: VictimSet, chosen: Sequence[EvictionLimit]
    ) -> GangPlacement | None:
        """Walk a gang over the nodes without some units; None, and they are back, where the pipeline finds no way."""
        pods = [one for cause in chosen for one in cause.unit.pods]
        for pod, node in pods:
            self._take_off(pod, node)
        walked = self._statement.place_gang(gang, _shares(formulation, answer))
        if walked.refusal.ok and walked.placed:
            return walked
        relieved = replace(
            self._context,
            quotas=self._relieved(cause.unit for cause in chosen),
            feasibility=FeasibilityByClass(self._tables, scores=False),
        )
        again = formulate(relieved, [gang], gang.created)
        outcome = JointProposer(again, self._context.profile.solver, self._seed, Silence()).select(
            self._statement
        )
        if outcome.placements:
            return outcome.placements[0]
        self._return(cause.unit for cause in chosen)
        return None

    def _relieved(self, units: Iterable[EvictionUnit]) -> QueueLimits:
        """What queues allow once units have left."""
        quotas = self._context.quotas
        for unit in units if quotas.limits else ():
            if unit.total.any():
                mine = quotas.members(self._tables, [unit.members.owner])[:, 0]
                bounded = (quotas.free < UNLIMITED) & mine[:, np.newaxis]
                left = np.where(bounded, quotas.free - quotas.over + unit.total, quotas.free)
                over = np.where(bounded, np.maximum(0, -left), quotas.over)
                ended = (quotas.gangs < UNLIMITED) & mine & unit.ends
                gangs = np.where(ended, quotas.gangs - quotas.over_gangs + 1, quotas.gangs)
                over_gangs = np.where(ended, np.maximum(0, -gangs), quotas.over_gangs)
                quotas = replace(
                    quotas,
                    free=np.maximum(0, left),
                    over=over,
                    gangs=np.maximum(0, gangs),
                    over_gangs=over_gangs,
                )
        return quotas

    def told(self, refusal: Refusal) -> Refusal:
        """Return a refusal that also says what is kept for the gang, and how many leave for it."""
        pods = self.evicted.get(refusal.pod_group)
        if pods is None:
            return refusal
        what = f"{pods} pods are evicted for it" if pods else "what leaves already is enough for it"
        return msgspec.structs.replace(
            refusal, message=f"{refusal.message}; {what}, and its places are kept by nomination"
        )

    def _keep(self, gang: PendingGang, walked: GangPlacement, chosen: Sequence[EvictionLimit]) -> None:
        """Evict the chosen, and nominate the gang's pods for their nodes."""
        self._context = replace(
            self._context,
            quotas=spend(self._relieved(cause.unit for cause in chosen), self._tables, walked),
            feasibility=FeasibilityByClass(self._tables, scores=False),
        )
        for cause in chosen:
            unit = cause.unit
            self._claims.count(unit.members.queue, -unit.total)
            for pod, _ in unit.pods:
                self.evictions.append(
                    Eviction(
                        namespace=pod.namespace,
                        pod=pod.name,
                        pod_group=unit.members.key.partition("/")[2],
                        for_=gang.key,
                        reason=cause.reason,
                    )
                )
                self._budgets = tuple(budget.without(pod) for budget in self._budgets)
        requests = [self._tables.request_vectors(one.pod)[0] for one in walked.placed]
        self._claims.count(gang.queue, np.sum(requests, axis=0))
        self.nominated += [(one.pod, one.node) for one in walked.placed]
        self.evicted[gang.key] = sum(len(cause.unit.pods) for cause in chosen)


def _shares(formulation: Formulation, answer: VictimSet) -> list[PlannedPods]:
    """What the solver's placement gives to each part of the gang."""
    return [
        PlannedPods(
            formulation.parts[klass][1],
            tuple(answer.nodes[answer.classes == klass].tolist()),
            tuple(answer.counts[answer.classes == klass].tolist()),
        )
        for klass in np.unique(answer.classes).tolist()
    ]
