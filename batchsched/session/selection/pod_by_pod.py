"""Selection pod by pod: plugins alone choose the node of each pod, without the solver.

Each pod passes PreFilter to Permit by itself, in the order of its queue, as in kube-scheduler. The Permit of
GangScheduling keeps the pods of a gang waiting until its minimum has a place. After all its pods were tried, a gang
below its minimum is rolled back. If one pod is missing and fits nowhere, PostFilter plugins may make room for it.

Two rules are added to those of kube-scheduler: the limits of queues, and required topology levels. If the first pod of
a gang led into a domain that is too small, the other domains are tried one by one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.api.decision import Refusal
from batchsched.errors import PluginError
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.pod_class import PodClass
from batchsched.framework.preemption import (
    PreemptionHandle,
    joined_reasons,
    restrict_by_nominations_and_extenders,
)
from batchsched.framework.runtime.sampling import NodeSampler
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.session.gangs.queue_limits import QueueLimits
from batchsched.session.joint.formulation import FormulationInput
from batchsched.session.preemption.pod_preemption import PodPreemption
from batchsched.session.refusals import (
    no_domain_refusal,
    no_feasible_node_refusal,
    over_queue_limit_refusal,
    plugin_failure_refusal,
    rolled_back_refusal,
)
from batchsched.session.selection.selection_run import SelectionRun
from batchsched.session.statement import GangPlacement, PlacedPod, PlannedPods, Statement
from batchsched.session.tables.bound_domains import domain_with_most_bound_pods
from batchsched.session.tables.gang import GangPart, PendingGang
from batchsched.session.tables.pending import OrderedGangs
from batchsched.solver.problem import NONE


class AllowedDomains:
    """The topology domains in which the pods of one gang and its subgroups may be placed.

    Index -1 stands for the gang as a whole, and indexes from 0 for its subgroups. `above` has for each subgroup the
    indexes of the subgroups that contain it.
    """

    def __init__(
        self,
        domains: IndexArray,
        levels: dict[int, int],
        pins: dict[int, int],
        above: Mapping[int, frozenset[int]],
    ) -> None:
        self._domains = domains
        self._levels = levels
        self._pins = dict(pins)
        self._above = above

    @classmethod
    def from_gang(cls, inputs: FormulationInput, gang: PendingGang) -> "AllowedDomains":
        """Return the domains that a gang may use: those of its bound pods, or all if no pod is bound."""
        group = gang.members.group
        if group is None:  # a single pod has no required level
            return cls(inputs.levels.domains, {}, {}, {})
        choices = {-1: inputs.levels.requested_levels_of_gang(group)} | dict(
            enumerate(inputs.levels.requested_levels_of_subgroups(group))
        )
        tree = group.spec.subgroup_tree
        names = {-1: ()} | {index: tree.names_in_subtree(index) for index in range(len(tree.names))}
        levels = {index: choice.required for index, choice in choices.items() if choice.required != NONE}
        pins = {
            index: domain_with_most_bound_pods(inputs.levels, gang.members, level, names[index])
            for index, level in levels.items()
        }
        above = {index: frozenset(tree.list_ancestors(index)) for index in range(len(tree.names))}
        return cls(inputs.levels.domains, levels, pins, above)

    def _indexes(self, subgroup: int) -> frozenset[int]:
        """The gang, a subgroup and those above it, as far as they have a required level."""
        return frozenset({-1, subgroup, *self._above.get(subgroup, ())}) & self._levels.keys()

    def allowed_nodes(self, subgroup: int) -> BoolArray | None:
        """Return a mask [N] of the nodes that pods of a subgroup may use; None if they may use all nodes.

        Subgroup -1 stands for pods without a subgroup.
        """
        allowed: BoolArray | None = None
        for index in self._indexes(subgroup):
            domains, pin = self._domains[self._levels[index]], self._pins[index]
            inside = domains >= 0 if pin == NONE else domains == pin
            allowed = inside if allowed is None else allowed & inside
        return allowed

    def restrict_to_domains_of_node(self, subgroup: int, node: int) -> None:
        """Restrict the gang and a subgroup to the domains of a node, each at its own required level.

        The subgroups above the given one are restricted as well.
        """
        for index in self._indexes(subgroup):
            self._pins[index] = int(self._domains[self._levels[index]][node])

    def iterate_next_domain_choices(self) -> "Iterator[AllowedDomains]":
        """Yield a copy of this object for each domain that may be chosen next, restricted to this domain.

        The next choice is for the gang, or else for the first subgroup, with a required level and without a chosen
        domain. If there is no choice left, yield nothing.
        """
        index = next((index for index in sorted(self._levels) if self._pins[index] == NONE), None)
        if index is None:
            return
        for domain in np.unique(self._domains[self._levels[index]]).tolist():
            if domain >= 0:
                yield AllowedDomains(self._domains, self._levels, self._pins | {index: domain}, self._above)


@dataclass(slots=True)
class GangPlacementAttempt:
    """One attempt to place a gang pod by pod in the topology domains that are allowed for it.

    Args:
      placement: the pods placed so far.
      fence: the topology domains in which the gang may be placed.
      used: [R] what the placed pods request.
      scan: the filters' answers for the last pod that fits on no node.
      stuck: the first pod that fits on no node.
      fenced: True if a pod fits on some node, but on none inside the fence.
      queue: the queue with the limit that refused a pod, "" for none.
      missed: number of pods without a place.
      failure: the failure of a plugin.
    """

    placement: GangPlacement
    fence: AllowedDomains
    used: IntArray
    scan: FilterResult | None = None
    stuck: "UnplaceablePod | None" = None
    fenced: bool = False
    queue: str = ""
    missed: int = 0
    failure: PluginError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class UnplaceablePod:
    """A pod of a gang that fits on no node, with the results of the Filters.

    `allowed` are the nodes inside the gang's fence (None: all).
    """

    part: GangPart
    pod: Pod
    scan: FilterResult
    allowed: BoolArray | None


class PodByPodPlacer:
    """The component that places gangs pod by pod, by calling all plugins for each pod, without the solver.

    Args:
      inputs: tables, levels and quotas of the session.
      statement: the session's statement.
      preemption: nominated pods and PostFilter; None if there are none and no pod may be evicted.
      sampling: limits how many nodes are filtered for a pod; None filters all.
    """

    def __init__(
        self,
        inputs: FormulationInput,
        statement: Statement,
        preemption: PodPreemption | None = None,
        sampling: NodeSampler | None = None,
    ) -> None:
        self._inputs = inputs
        self._tables = inputs.tables
        self._statement = statement
        self._preemption = preemption
        self._sampling = sampling
        self._quotas: QueueLimits = inputs.quotas
        self.placements: list[GangPlacement] = []

    def place_gang(self, gang: PendingGang) -> Refusal | None:
        """Place a gang with at least its minimum number of pods, or not at all.

        Return the refusal of the gang, or None if it has a place.
        """
        if field := _slices_field(gang):
            return Refusal(pod_group=gang.key, reason="UnsupportedField", message=f"{field}: {_NO_SLICES}")
        reported_trial: GangPlacementAttempt | None = None
        for fence in self._fences(gang):
            trial = self._try_fence(gang, fence)
            if self._statement.keep_complete_gang_or_roll_back(trial.placement):
                self.placements.append(trial.placement)
                self._quotas = self._quotas.after_placements(self._tables, [trial.placement])
                return None
            # The refusal tells of the first attempt, which was free in its choice of domain.
            reported_trial = reported_trial or trial
            if trial.failure or trial.placement.final or trial.queue:
                # These do not depend on the domain: another one does not help.
                reported_trial = trial
                break
        return no_domain_refusal(gang) if reported_trial is None else self._refuse(gang, reported_trial)

    def _refuse(self, gang: PendingGang, trial: GangPlacementAttempt) -> Refusal:
        """Return the refusal of a gang; first try to make room for the one pod that it lacks."""
        preemption, stuck = self._preemption, trial.stuck
        if preemption is None:
            return _refusal(gang, trial, "")
        if trial.failure is not None or trial.placement.final:
            # It was not for lack of room that the gang was refused: nominated nodes do not help it.
            preemption.drop_nominations_of_gang(gang)
        elif stuck is not None and gang.need == 1 and not trial.queue:
            try:
                return _refusal(gang, trial, self._make_room(preemption, gang, stuck))
            except PluginError as error:
                return plugin_failure_refusal(gang, error)
        return _refusal(gang, trial, "")

    def _make_room(self, preemption: PodPreemption, gang: PendingGang, stuck: UnplaceablePod) -> str:
        """Ask the PostFilter plugins for room; return their message for the refusal."""
        pod_class, table = stuck.part.pod_class, self._tables.node_table
        answer = preemption.run_postfilters(gang, pod_class, stuck.pod, stuck.scan, stuck.allowed)
        # A PostFilter may reject pods that wait at Permit instead of evicting bound ones.
        self._statement.apply_permit_answers()
        if answer.node:
            # The nominated pod counts against its queues now, so that no later gang gets the same quota.
            placed = PlacedPod(stuck.pod, table.index[answer.node], pod_class, stuck.scan.state)
            self._quotas = self._quotas.after_placements(self._tables, [GangPlacement(gang, [placed])])
        return joined_reasons(answer.status)

    def _fences(self, gang: PendingGang) -> Iterator[AllowedDomains]:
        """Yield the open fence, in which the first pod chooses a domain, and then one for each domain."""
        yield AllowedDomains.from_gang(self._inputs, gang)
        yield from AllowedDomains.from_gang(self._inputs, gang).iterate_next_domain_choices()

    def _try_fence(self, gang: PendingGang, fence: AllowedDomains) -> GangPlacementAttempt:
        """Place as many pods of a gang as possible inside a fence; the caller finishes the gang."""
        no_requests = np.zeros(len(self._tables.node_table.resources), np.int64)
        trial = GangPlacementAttempt(GangPlacement(gang), fence, no_requests)
        trial.queue = self._exceeded_queue(gang, no_requests, int(gang.has_no_bound_pod))
        if trial.queue:
            return trial
        try:
            for part in gang.parts:
                for pod in part.pods:
                    # More than the surplus is missing: the minimum cannot be reached any more.
                    if trial.placement.final or trial.missed > gang.pending_pod_count - gang.need:
                        return trial
                    trial.missed += not self._place_pod(trial, part, pod)
        except PluginError as error:
            trial.failure = error
        return trial

    def _exceeded_queue(self, gang: PendingGang, used: IntArray, gangs: int) -> str:
        """Return the queue with a limit below these requests [R] or this number of gangs, "" for none."""
        if not self._quotas.limits:
            return ""
        return self._quotas.find_queue_with_exceeded_limit(
            self._tables, gang.members.queue_and_user, used, gangs
        )

    def _place_pod(self, trial: GangPlacementAttempt, part: GangPart, pod: Pod) -> bool:
        """Place one pod on the node with the highest score, the first of equals; return whether it has a place."""
        pipeline, table = self._tables.pipeline, self._tables.node_table
        used = trial.used + part.pod_class.requests
        exceeded_queue = self._exceeded_queue(trial.placement.gang, used, 0)
        if exceeded_queue:
            trial.queue = exceeded_queue
            return False
        pod_class = part.pod_class.with_example_pod(pod) if pipeline.reads_whole_pod(pod) else part.pod_class
        results = self._tables.result_cache.results_of_pod_class(part.pod_class)
        allowed = trial.fence.allowed_nodes(part.subgroup)
        scan = self._filter(
            pipeline.find_nodes_that_pass_filters(pod_class, table, results), pod_class, pod, allowed
        )
        feasible = results.feasible_node_indexes(scan.fits if allowed is None else scan.fits & allowed)
        if not len(feasible):
            if scan.fits.any():
                trial.fenced = True
            else:
                trial.scan = scan
                trial.stuck = trial.stuck or UnplaceablePod(part, pod, scan, allowed)
            return False
        scores = pipeline.score(pod_class, feasible, table, scan.state, results)
        node = int(feasible[int(np.argmax(scores))])
        plan = PlannedPods(GangPart(part.pod_class, part.subgroup, (pod,)), (node,), (1,))
        self._statement.reserve_and_permit_pods(trial.placement, plan, scan.state)
        if not trial.placement.refusal.ok:
            return False
        trial.fence.restrict_to_domains_of_node(part.subgroup, node)
        trial.used = used
        return True

    def _filter(
        self, scan: FilterResult, pod_class: PodClass, pod: Pod, allowed: BoolArray | None
    ) -> FilterResult:
        """Narrow the filters' answers by nominated pods, by sampling, and by the extenders, in this order."""
        tables = self._tables
        if self._preemption is not None and self._preemption.nominations.pods:
            shown = self._preemption.pod_class_with_nomination(pod_class, pod)
            handle = PreemptionHandle(
                tables.pipeline, shown, tables.node_table, scan, self._preemption.nominations
            )
            extend = partial(tables.pipeline.run_extender_filters, pod_class, table=tables.node_table)
            return restrict_by_nominations_and_extenders(handle, extend, allowed, self._sampling)
        if self._sampling is not None:
            scan = self._sampling.limit_to_sample(scan, allowed)
        return tables.pipeline.run_extender_filters(pod_class, scan, tables.node_table)


class PodByPodSelection:
    """A `SelectionStrategy` that places gangs pod by pod, in fair-share order, without the solver."""

    def __init__(self, run: SelectionRun) -> None:
        self._run = run

    def place_pending_gangs(self, pending: OrderedGangs) -> tuple[PendingGang, ...]:
        """Place gang after gang; if one pod of a gang fits on no node, call PostFilter at once.

        Return no gangs, because preemption is done.
        """
        run, builder = self._run, self._run.builder
        # The order is computed before any gang is placed, so that it does not depend on where the first ones land.
        positions = list(run.order.iterate_gang_indexes(pending, run.gang_eligibility, run.now, run.resting))
        preemption = PodPreemption(run.tables, run.now)
        placer = PodByPodPlacer(run.formulation_input(), run.statement, preemption, self._sampling())
        placed = {placement.gang.members.identity for placement in builder.placements}
        for position in positions:
            gang = run.gang_in_turn_or_record_refusal(pending.members[position], placed)
            if gang is None or gang.members.identity in run.resting:
                continue
            refusal = placer.place_gang(gang)
            if refusal is None:
                placed.add(gang.members.identity)
            # A gang at its minimum runs already: its elastic pods wait without a refusal.
            elif gang.need > 0:
                builder.refusals.append(refusal)
        builder.placements += placer.placements
        builder.evictions += preemption.evictions.values()
        builder.nominated += preemption.list_unplaced_nominations()
        return ()

    def _sampling(self) -> NodeSampler | None:
        """Return how many nodes are searched for a pod; None for all of them."""
        run = self._run
        percentage, pipeline = run.profile.percentage_of_nodes_to_score, run.tables.pipeline
        if percentage is None:
            return None
        unscored = not pipeline.scores and not pipeline.extenders
        return NodeSampler(run.tables.node_table, percentage, run.seed, any_will_do=unscored)


_NO_SLICES: Final = "pods that are placed one by one form no slices; enable the solver of the profile"


def _slices_field(gang: PendingGang) -> str:
    """Return the field by which a gang asks for slices, "" for none."""
    spec = gang.members.group.spec if gang.members.group is not None else None
    if spec is None:
        return ""
    if spec.topology_slices is not None:
        return "spec.topology.slices"
    number = next((n for n, sub in enumerate(spec.sub_groups) if sub.topology_slices is not None), None)
    return "" if number is None else f"spec.subGroups[{number}].topology.slices"


def _refusal(gang: PendingGang, trial: GangPlacementAttempt, postfilter_message: str) -> Refusal:
    if trial.failure is not None:
        return plugin_failure_refusal(gang, trial.failure)
    if trial.placement.final:
        return rolled_back_refusal(trial.placement, timed_out=False)
    if trial.queue:
        return over_queue_limit_refusal(gang, trial.queue)
    if trial.scan is not None and not trial.fenced:
        return no_feasible_node_refusal(gang, trial.scan, postfilter_message)
    return no_domain_refusal(gang)
