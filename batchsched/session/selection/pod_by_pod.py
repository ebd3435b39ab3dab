"""Pod by pod: the pipeline alone, without the solver.

Each pod goes through PreFilter to Permit by itself, in the queue's order, as in kube-scheduler; GangScheduling's
Permit keeps the members of a gang waiting until its minimum has a place. A gang that is still short of it when its
pods are through gives everything back. Where it is one pod that is missing and that pod fits nowhere, the PostFilters
are asked to make room for it. What kube-scheduler does not know holds here, too: limits of queues and
required levels. A gang whose first pod led it into a domain that is too small tries the others, one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Refusal
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption.post_filter import Handle, filter_with_nominations, message
from batchsched.framework.runtime.sampling import Sampling
from batchsched.framework.status import BoolArray, IntArray
from batchsched.session.gangs.queue_limits import QueueLimits, spend
from batchsched.session.joint.formulation import SessionContext
from batchsched.session.placement.statement import GangPlacement, PlacedPod, PlannedPods, Statement
from batchsched.session.preemption.pod_preemption import PodPreemption
from batchsched.session.refusals.diagnosis import failed, no_domain, over_limit, permit_refusal, unschedulable
from batchsched.session.selection.domain_fence import DomainFence
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.tables.gang import GangPart, PendingGang
from batchsched.session.tables.pending import OrderedGangs


@dataclass(slots=True)
class PodTrial:
    """One try at a gang.

    Args:
      walked: what was placed so far.
      fence: the domains that it keeps to.
      used: [R] what was placed asks for.
      scan: why a pod had no node at all, the last of them.
      stuck: the first such pod, its part, and the nodes that were open to it, None for all.
      fenced: a pod had nodes, but none inside the fence.
      queue: the queue whose limit kept a pod out, "" for none.
      missed: pods that found no place.
      failure: the plugin that broke.
    """

    walked: GangPlacement
    fence: DomainFence
    used: IntArray
    scan: FilterResult | None = None
    stuck: "Stuck | None" = None
    fenced: bool = False
    queue: str = ""
    missed: int = 0
    failure: PluginError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stuck:
    """A pod that fits nowhere, and what the filters said of it."""

    part: GangPart
    pod: Pod
    scan: FilterResult
    allowed: BoolArray | None


class PodByPodPlacer:
    """Places gangs without the solver.

    Args:
      context: tables, levels and quotas of the session.
      statement: the session's statement.
      preemption: who holds nodes by nomination; None where nobody does, and nobody is to be evicted.
      sampling: how many of the nodes are looked at; None for all.
    """

    def __init__(
        self,
        context: SessionContext,
        statement: Statement,
        preemption: PodPreemption | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self._context = context
        self._tables = context.tables
        self._statement = statement
        self._preemption = preemption
        self._sampling = sampling
        self._quotas: QueueLimits = context.quotas
        self.placements: list[GangPlacement] = []

    def place_gang(self, gang: PendingGang) -> Refusal | None:
        """Place one gang, all or nothing; returns why it is refused, None when it has its place."""
        first: PodTrial | None = None
        for fence in self._fences(gang):
            trial = self._try(gang, fence)
            if self._statement.finish_gang(trial.walked):
                self.placements.append(trial.walked)
                self._quotas = spend(self._quotas, self._tables, trial.walked)
                return None
            first = first or trial
            if trial.failure or trial.walked.final or trial.queue:
                first = trial
                break
        return self._refused(gang, first) if first is not None else no_domain(gang)

    def _refused(self, gang: PendingGang, trial: PodTrial) -> Refusal:
        """Say why a gang is refused, after room was made for the one pod that it lacks, where that is possible."""
        preemption, stuck = self._preemption, trial.stuck
        if preemption is None:
            return _refusal(gang, trial, "")
        if trial.failure is not None or trial.walked.final:
            preemption.forget(gang)
        elif stuck is not None and gang.need == 1 and not trial.queue:
            try:
                return _refusal(gang, trial, self._make_room(preemption, gang, stuck))
            except PluginError as error:
                return failed(gang, error)
        return _refusal(gang, trial, "")

    def _make_room(self, preemption: PodPreemption, gang: PendingGang, stuck: Stuck) -> str:
        """Have room made for a pod; returns what is to be added to the sentence that says why it fits nowhere."""
        pod_class, table = stuck.part.pod_class, self._tables.node_table
        answer = preemption.make_room(gang, pod_class, stuck.pod, stuck.scan, stuck.allowed)
        self._statement.apply_permit_verdicts()
        if answer.node:
            # What it will hold counts against its queues now: the next must not be promised the same.
            placed = PlacedPod(stuck.pod, table.index[answer.node], pod_class, stuck.scan.state)
            self._quotas = spend(self._quotas, self._tables, GangPlacement(gang, [placed]))
        return message(answer.status)

    def _fences(self, gang: PendingGang) -> Iterator[DomainFence]:
        yield DomainFence.of(self._context, gang)
        yield from DomainFence.of(self._context, gang).each()

    def _try(self, gang: PendingGang, fence: DomainFence) -> PodTrial:
        trial = PodTrial(
            GangPlacement(gang), fence, np.zeros(len(self._tables.node_table.resources), np.int64)
        )
        trial.queue = self._over(gang, trial.used, int(gang.fresh))
        if trial.queue:
            return trial
        try:
            for part in gang.parts:
                for pod in part.pods:
                    if trial.walked.final or trial.missed > gang.size - gang.need:
                        return trial
                    trial.missed += not self._pod(trial, part, pod)
        except PluginError as error:
            trial.failure = error
        return trial

    def _over(self, gang: PendingGang, used: IntArray, gangs: int) -> str:
        """Name a queue that does not allow a gang so much [R], "" when all do."""
        if not self._quotas.limits:
            return ""
        return self._quotas.lacking(self._tables, gang.members.owner, used, gangs)

    def _pod(self, trial: PodTrial, part: GangPart, pod: Pod) -> bool:
        """Place one pod on the node of the highest score, the first of them; tell whether it has one."""
        tables = self._tables
        used = trial.used + part.pod_class.requests
        over = self._over(trial.walked.gang, used, 0)
        if over:
            trial.queue = over
            return False
        pod_class = part.pod_class.showing(pod) if tables.pipeline.looks_at(pod) else part.pod_class
        standing = tables.result_cache.of(part.pod_class)
        allowed = trial.fence.allows(part.subgroup)
        scan = self._scan(
            tables.pipeline.scan(pod_class, tables.node_table, standing), pod_class, pod, allowed
        )
        feasible = standing.feasible_nodes(scan.fits if allowed is None else scan.fits & allowed)
        if not len(feasible):
            if scan.fits.any():
                trial.fenced = True
            else:
                trial.scan = scan
                trial.stuck = trial.stuck or Stuck(part, pod, scan, allowed)
            return False
        total = tables.pipeline.score(pod_class, feasible, tables.node_table, scan.state, standing)
        node = int(feasible[int(np.argmax(total))])
        share = PlannedPods(GangPart(part.pod_class, part.subgroup, (pod,)), (node,), (1,))
        self._statement.reserve_pods(trial.walked, share, scan.state)
        if not trial.walked.refusal.ok:
            return False
        trial.fence.enter(part.subgroup, node)
        trial.used = used
        return True

    def _scan(
        self, scan: FilterResult, pod_class: PodClass, pod: Pod, allowed: BoolArray | None
    ) -> FilterResult:
        """Return what is left of a scan beside nominated pods, of the nodes looked at, and after the extenders."""
        tables = self._tables
        if self._preemption is not None and self._preemption.nominations.pods:
            shown = self._preemption.presented(pod_class, pod)
            handle = Handle(tables.pipeline, shown, tables.node_table, scan, self._preemption.nominations)
            extend = partial(tables.pipeline.extended, pod_class, table=tables.node_table)
            return filter_with_nominations(handle, extend, allowed, self._sampling)
        if self._sampling is not None:
            scan = self._sampling.narrowed(scan, allowed)
        return tables.pipeline.extended(pod_class, scan, tables.node_table)


class PodByPodProposer:
    """Selects gangs without the solver, in the order of their queues' fair shares; a `Proposer`."""

    def __init__(self, run: SelectionRun) -> None:
        self._run = run

    def select(self, pending: OrderedGangs) -> None:
        """Place gang after gang; make room for the one pod that a gang lacks."""
        run, builder = self._run, self._run.builder
        # The order is computed before any gang is placed, so that it does not depend on where the first ones land.
        positions = list(run.order.through(pending, run.admission, run.now))
        preemption = PodPreemption(run.tables, run.now)
        placer = PodByPodPlacer(run.context(), run.statement, preemption, self._sampling())
        for position in positions:
            admitted = run.admit(pending.members[position])
            if isinstance(admitted, Refusal):
                builder.refusals.append(admitted)
            elif admitted is not None:
                refusal = placer.place_gang(admitted)
                # A gang at its minimum runs already: its surplus pods wait without a refusal.
                if refusal is not None and admitted.need > 0:
                    builder.refusals.append(refusal)
        builder.placements += placer.placements
        builder.evictions += preemption.evictions.values()
        builder.nominated += preemption.standing()

    def _sampling(self) -> Sampling | None:
        """Return how many nodes are searched for a pod; None for all of them."""
        run = self._run
        percentage, pipeline = run.profile.percentage_of_nodes_to_score, run.tables.pipeline
        if percentage is None:
            return None
        unscored = not pipeline.scores and not pipeline.extenders
        return Sampling(run.tables.node_table, percentage, run.seed, any_will_do=unscored)


def _refusal(gang: PendingGang, trial: PodTrial, said: str) -> Refusal:
    if trial.failure is not None:
        return failed(gang, trial.failure)
    if trial.walked.final:
        return permit_refusal(trial.walked, timed_out=False)
    if trial.queue:
        return over_limit(gang, trial.queue)
    if trial.scan is not None and not trial.fenced:
        return unschedulable(gang, trial.scan, said)
    return no_domain(gang)
