"""The statement: places gangs pod by pod through Filter, Reserve and Permit, and can roll everything back.

A statement changes the node table, the counts of gangs and the state of plugins. All of it is undone in reverse order
unless it is committed. Each gang is placed or rolled back as a whole; no gang stays with fewer pods than its minimum.
KAI-Scheduler and Volcano use the same word for the same thing.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Final, Self

import numpy as np

from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod
from batchsched.api.gang import GangPhase, PhaseChange, phase_after
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.interface import ReservePlugin
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SUCCESS, Code, IntArray, Status
from batchsched.framework.waiting_pods import WaitingPod
from batchsched.ports.external import NoTelemetry, Telemetry
from batchsched.session.tables.gang import GangPart, PendingGang
from batchsched.session.tables.session_tables import SessionTables


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPods:
    """Equal pods of a gang, with the nodes that are proposed for them.

    Args:
      part: the pods, all of one subGroup and one pod class; they take the nodes in the order of `nodes`.
      nodes: the indexes of the nodes.
      counts: the number of pods on each of these nodes.
    """

    part: GangPart
    nodes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(slots=True)
class PlacedPod:
    """A pod that passed Reserve, with the index of its node and the cycle state that plugins wrote for it."""

    pod: Pod
    node: int
    pod_class: PodClass
    state: CycleState


_PodNodes = list[tuple[Pod, int]]
"""Pods, each with the index of its node."""
_POD_CLASS: Final[Callable[[PlacedPod], PodClass]] = attrgetter("pod_class")


@dataclass(slots=True)
class GangPlacement:
    """The result of placing one gang: its pods with their nodes, or the refusal.

    Args:
      gang: the gang.
      placed: pods with a node, in the order of Reserve; empty exactly if the gang was rolled back.
      refusal: the last status that refused a pod, also if the gang is kept without that pod. Success if no pod was
        refused, also if the gang was rolled back because fewer pods than its minimum were proposed.
      final: True if Reserve or Permit refused a pod, or a plugin failed: no other placement helps in this session.
      failure: True if a plugin failed.
      held_by: the plugin that makes the gang wait at Permit; "" if it may be bound.
      until: seconds since 1970 until which it may wait there.
      state: the gang's phase after the placement.
    """

    gang: PendingGang
    placed: list[PlacedPod] = field(default_factory=list)
    refusal: Status = SUCCESS
    final: bool = False
    failure: bool = False
    held_by: str = ""
    until: float = 0.0
    state: GangPhase = GangPhase.PENDING

    def total_requests(self, resources: int) -> IntArray:
        """Return the total requests of the gang's placed pods, as an array by resource [R]."""
        total = np.zeros(resources, np.int64)
        for pod_class, count in Counter(map(_POD_CLASS, self.placed)).items():
            total += pod_class.requests * count
        return total


class Statement:
    """All placements of one session, as one transaction over the session's tables.

    Use it as a context manager. On exit, gangs that were not committed are rolled back. Committed gangs leave the
    tables, too, since nothing is bound yet; what their plugins reserved stays reserved for the decision.
    """

    def __init__(self, tables: SessionTables, now: float, telemetry: Telemetry | None = None) -> None:
        self._tables = tables
        self._telemetry = telemetry or NoTelemetry()
        self._now = now
        self._placements: list[GangPlacement] = []
        """Gangs with a place, in the order in which they got it; rollback goes backwards through this list."""
        self._committed = 0
        self._failed: dict[str, GangPlacement] = {}
        """Gangs over which a plugin failed, by identity; they are not tried again in this session."""
        self._reservers: dict[PodClass, tuple[ReservePlugin, ...]] = {}
        pipeline = tables.pipeline
        # If every Permit plugin is a Reserve plugin as well, no plugin at Permit keeps state for a class for which
        # none keeps anything at Reserve. Then all pods of the class may be assumed before Permit is asked.
        self._can_assume_at_once = {*map(id, pipeline.permits)} <= {*map(id, pipeline.reserves)}
        self._permit_by_gang = pipeline.permit_is_per_gang
        self.rejected: list[GangPlacement] = []
        """Gangs that waited at Permit until a plugin rejected one of their pods."""

    def __enter__(self) -> Self:
        """Begin the transaction."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Roll back gangs that were not committed, and remove the pods of committed gangs from the tables."""
        self.roll_back_to(self._committed)
        tables = self._tables
        # Without Unreserve: the plugins' reservations of committed pods last until PreBind or a failed bind.
        tables.node_table.remove_pods(
            [placed.pod for placement in self._placements for placed in placement.placed]
        )
        for placement in self._placements:
            identity = placement.gang.members.identity
            tables.counts.invalidate_counts(identity)
            tables.node_table.waiting.remove_gang(identity)

    def checkpoint(self) -> int:
        """Return a checkpoint of the placements so far, for `roll_back_to`.

        It is valid until the statement is rolled back to an earlier one.
        """
        return len(self._placements)

    def roll_back_to(self, checkpoint: int) -> None:
        """Roll back every gang that was placed after the checkpoint, the last one first."""
        # Reverse order: a plugin may have counted later pods on top of earlier ones.
        for placement in reversed(self._placements[checkpoint:]):
            self._roll_back(placement)
        del self._placements[checkpoint:]

    def commit(self) -> tuple[GangPlacement, ...]:
        """Commit all gangs that are placed so far, and return their placements."""
        self._committed = len(self._placements)
        return tuple(self._placements)

    def place_gangs(
        self, proposals: Iterable[tuple[PendingGang, Sequence[PlannedPods]]]
    ) -> list[GangPlacement]:
        """Place gangs one after the other on their proposed nodes, and return one result for each gang.

        Consecutive single pods of one class are filtered together.
        """
        placements: list[GangPlacement] = []
        for pod_class, group in groupby(proposals, key=_single_pod_class):
            run, state = list(group), None
            if pod_class is not None and len(run) > 1:
                state = self._filter_together(pod_class, [plan.nodes[0] for _, (plan,) in run])
            placements += [self.place_gang(gang, plans, state) for gang, plans in run]
        return placements

    def _filter_together(self, pod_class: PodClass, nodes: Sequence[int]) -> CycleState | None:
        """Return the cycle state of a class if one pod may be on each of the nodes, None if each has to be asked."""
        try:
            state, status = self._prefilter(pod_class)
            return state if status.ok and self._all_fit(pod_class, nodes, state) else None
        except PluginError:
            return None  # It is raised again for the first pod, and recorded with that pod's gang.

    def place_gang(
        self, gang: PendingGang, plans: Sequence[PlannedPods], state: CycleState | None = None
    ) -> GangPlacement:
        """Try to place one gang on its proposed nodes; return the result with its placed pods or its refusal.

        If too few of its pods can be placed, the gang is rolled back: `placed` of the result is empty.

        A gang over which a plugin failed is refused for the rest of the session: a plugin that hung is left out from
        then on, so the same placement would pass without it.

        Args:
          gang: the gang.
          plans: the proposed nodes of each part.
          state: the cycle state of the only plan, if the filters accepted it already; None asks the filters.
        """
        failed = self._failed.get(gang.members.identity)
        if failed is not None:
            return failed
        placement = GangPlacement(gang)
        try:
            with self._telemetry.gang_span(gang.key):
                if state is not None:
                    self.reserve_and_permit_pods(placement, plans[0], state)
                else:
                    placement.refusal = self._place_in_some_order(placement, plans)
        except PluginError as error:
            placement.refusal = Status(Code.UNSCHEDULABLE, (str(error),), error.plugin)
            placement.failure = placement.final = True
            self._failed[gang.members.identity] = placement
            self._roll_back(placement)
            return placement
        # Slices are even only with all the pods that the solver proposed.
        group, planned = gang.members.group, sum(sum(plan.counts) for plan in plans)
        if group is not None and group.spec.has_subgroup_tree_or_slices and len(placement.placed) < planned:
            self._roll_back(placement)
            return placement
        self.keep_complete_gang_or_roll_back(placement)
        return placement

    def reserve_and_permit_pods(self, placement: GangPlacement, plan: PlannedPods, state: CycleState) -> None:
        """Call Reserve and Permit for planned pods of a gang that the Filter plugins have accepted already.

        Afterwards the caller calls `keep_complete_gang_or_roll_back`, which keeps the gang or rolls it back.

        Raises:
          PluginError: a plugin failed.
        """
        pod_nodes = list(zip(plan.part.pods, _node_of_each_pod(plan), strict=True))
        status = self._reserve_and_permit(placement, pod_nodes, plan.part.pod_class, state)
        if not status.ok:
            placement.refusal = status

    def keep_complete_gang_or_roll_back(self, placement: GangPlacement) -> bool:
        """Keep the placement of a gang if its minimum number of pods is placed, otherwise roll it back.

        First, pods of nested or optional subGroups that would be placed only in part are unreserved.

        Return True if the gang is kept.
        """
        self._take_back_incomplete_subgroups(placement)
        rejection = self._tables.node_table.waiting.first_rejection_of_gang(placement.gang.members.identity)
        if not rejection.ok:
            placement.refusal, placement.final = rejection, True
        elif placement.placed and self._is_complete(placement):
            self._record_permit_wait(placement)
            self._placements.append(placement)
            return True
        self._roll_back(placement)
        return False

    def _record_permit_wait(self, placement: GangPlacement) -> None:
        """Note which plugin makes the gang wait, the one with the first deadline; move the gang to its phase."""
        waiting = self._tables.node_table.waiting
        identity = placement.gang.members.identity
        deadlines = [
            (until, plugin) for pod in waiting.pods_of_gang(identity) for plugin, until in pod.until.items()
        ]
        if deadlines:
            placement.until, placement.held_by = min(deadlines)
            placement.state = phase_after(placement.state, PhaseChange.HOLD)
        else:
            placement.state = phase_after(placement.state, PhaseChange.ALLOW)
            waiting.remove_gang(identity)

    def apply_permit_answers(self) -> None:
        """Finish placements of waiting gangs that all Permit plugins allow now; roll back rejected gangs."""
        waiting = self._tables.node_table.waiting
        for placement in [placement for placement in self._placements if placement.held_by]:
            identity = placement.gang.members.identity
            rejection = waiting.first_rejection_of_gang(identity)
            if not rejection.ok:
                placement.refusal, placement.final, placement.held_by = rejection, True, ""
                self._placements = [other for other in self._placements if other is not placement]
                self._roll_back(placement)
                self.rejected.append(placement)
            elif waiting.is_gang_allowed(identity):
                placement.state, placement.held_by = phase_after(placement.state, PhaseChange.ALLOW), ""
                waiting.remove_gang(identity)

    def _take_back_incomplete_subgroups(self, placement: GangPlacement) -> None:
        """Take back the pods of nested or optional subGroups that would be placed in part."""
        count = self._tables.counts.pod_counts_of_gang(placement.gang.members)
        tree = count.tree
        while tree is not None:
            touched = {placed.pod.labels.get(SUB_GROUP_LABEL, "") for placed in placement.placed}
            names = tree.names_in_smallest_incomplete_subtree(count.sub_placed, touched)
            if not names:
                return
            waiting, identity = self._tables.node_table.waiting, placement.gang.members.identity
            for placed in [one for one in placement.placed if one.pod.labels.get(SUB_GROUP_LABEL) in names]:
                placement.placed.remove(placed)
                waiting.remove_pod(identity, placed.pod.key)
                self._take_back(placed)

    def _is_complete(self, placement: GangPlacement) -> bool:
        return self._tables.counts.pod_counts_of_gang(placement.gang.members).has_minimum_placed

    def _place_in_some_order(self, placement: GangPlacement, plans: Sequence[PlannedPods]) -> Status:
        """Place all plans; if one gets stuck behind the others, start again with that one, once for each plan.

        Example: if the topology spread of a pod counts the other parts, the pod fits only before they are placed.
        """
        order, refusal = list(plans), SUCCESS
        for _ in plans:
            refusal, stuck_plan = self._place_plans(placement, order)
            if (
                stuck_plan is None
                or stuck_plan is order[0]
                or placement.final
                or self._is_complete(placement)
            ):
                break
            self._roll_back(placement)
            if placement.failure:
                return placement.refusal
            order = [stuck_plan, *(plan for plan in order if plan is not stuck_plan)]
        return refusal

    def _place_plans(
        self, placement: GangPlacement, plans: Sequence[PlannedPods]
    ) -> tuple[Status, PlannedPods | None]:
        """Place plan after plan and try those with pods left again, until a round places nothing.

        Returns:
          The last refusal and the plan that got stuck; Success and None if all pods have a node.
        """
        queue = deque(
            (plan, list(zip(plan.part.pods, _node_of_each_pod(plan), strict=False))) for plan in plans
        )
        plans_without_progress, refusal = 0, SUCCESS
        while queue and plans_without_progress < len(queue):
            plan, pod_nodes = queue.popleft()
            refusal, left_over = self._place_plan(placement, plan, pod_nodes)
            if not left_over:
                plans_without_progress = 0
                continue
            queue.append((plan, left_over))
            if placement.final:
                break
            plans_without_progress = plans_without_progress + 1 if len(left_over) == len(pod_nodes) else 0
        return (refusal, queue[-1][0]) if queue else (SUCCESS, None)

    def _place_plan(
        self, placement: GangPlacement, plan: PlannedPods, pod_nodes: _PodNodes
    ) -> tuple[Status, _PodNodes]:
        """Place as many pods of one plan as the pipeline accepts; return the last refusal and the pods left over."""
        pod_class = plan.part.pod_class
        state, status = self._prefilter(pod_class)
        if not status.ok:
            return status, pod_nodes
        if self._all_fit(pod_class, [node for _, node in pod_nodes], state):
            count_before = len(placement.placed)
            status = self._reserve_and_permit(placement, pod_nodes, pod_class, state)
            return status, pod_nodes[len(placement.placed) - count_before :]
        return self._place_one_by_one(placement, pod_class, pod_nodes, state)

    def _place_one_by_one(
        self, placement: GangPlacement, pod_class: PodClass, pod_nodes: _PodNodes, state: CycleState
    ) -> tuple[Status, _PodNodes]:
        """Place pod after pod, each on the first remaining node that the filters accept now."""
        pipeline, table = self._tables.pipeline, self._tables.node_table
        nodes = deque(node for _, node in pod_nodes)
        pods = [pod for pod, _ in pod_nodes]
        next_pod, refused_nodes, status = 0, 0, SUCCESS
        while nodes and refused_nodes < len(nodes):
            node = nodes.popleft()
            filtered_class = pod_class
            # If a plugin may read the pod itself, no result of the class can be used for it.
            if pipeline.reads_all:
                filtered_class = pod_class.with_example_pod(pods[next_pod])
                state, status = pipeline.run_prefilters(filtered_class, table)
            if status.ok:
                status = pipeline.recheck_node(filtered_class, node, table, state)
            if not status.ok:
                # The node may fit after the next pod landed elsewhere: back to the end of the queue.
                nodes.append(node)
                refused_nodes += 1
                status = status if refused_nodes == len(nodes) else SUCCESS
                continue
            status = self._reserve_and_permit(placement, [(pods[next_pod], node)], pod_class, state)
            if not status.ok:
                nodes.appendleft(node)
                break
            pipeline.run_add_pod(filtered_class, pods[next_pod], node, table, state)
            next_pod, refused_nodes = next_pod + 1, 0
        return status, list(zip(pods[next_pod:], nodes, strict=True))

    def _prefilter(self, pod_class: PodClass) -> tuple[CycleState, Status]:
        tables = self._tables
        return tables.pipeline.run_prefilters(
            pod_class, tables.node_table, tables.result_cache.results_of_pod_class(pod_class)
        )

    def _all_fit(self, pod_class: PodClass, nodes: Sequence[int], state: CycleState) -> bool:
        """Return whether pods of a class may be on all these nodes at once, one pod for each time a node occurs."""
        counted = sorted(Counter(nodes).items())  # For a few nodes a dict is faster than np.unique.
        unique_nodes, counts = np.array(counted, np.int32).T
        pipeline, table = self._tables.pipeline, self._tables.node_table
        return bool(pipeline.allows_bulk_placement(pod_class, table, unique_nodes, counts, state))

    def _reserve_and_permit(
        self, placement: GangPlacement, pod_nodes: _PodNodes, pod_class: PodClass, state: CycleState
    ) -> Status:
        """Reserve, assume and permit pods of one class; from the first refused pod on, none gets a place.

        Each pod passes all three points before the next one, as in kube-scheduler. Only where no plugin keeps state
        for the class, all pods are assumed before Permit.
        """
        reservers = self._reservers_of(pod_class)
        at_once = self._can_assume_at_once and not reservers
        for batch in [pod_nodes] if at_once else [[pod_node] for pod_node in pod_nodes]:
            status = SUCCESS
            if reservers:
                ((pod, node),) = batch
                status = self._tables.pipeline.reserve(pod, node, self._tables.node_table, state, reservers)
            if status.ok:
                self._assume(placement, batch, pod_class, state)
                status = self._permit(placement, len(batch))
            if not status.ok:
                placement.final = True
                return status
        return SUCCESS

    def _assume(
        self, placement: GangPlacement, pod_nodes: _PodNodes, pod_class: PodClass, state: CycleState
    ) -> None:
        """Count reserved pods on their nodes and in their gang."""
        tables, count = self._tables, self._tables.counts.pod_counts_of_gang(placement.gang.members)
        for _, group in groupby(pod_nodes, key=lambda pod_node: id(pod_node[0].spec)):
            equal_pods = list(group)
            tables.node_table.add_pods(equal_pods, *tables.requests_and_nonzero(equal_pods[0][0]))
        for pod, node in pod_nodes:
            count.change_placed_counts(pod, 1)
            placement.placed.append(PlacedPod(pod, node, pod_class, state))
        placement.state = phase_after(placement.state, PhaseChange.RESERVE)

    def _permit(self, placement: GangPlacement, count: int) -> Status:
        """Ask Permit for the last `count` assumed pods; take back the first refused one and those after it."""
        tables, identity = self._tables, placement.gang.members.identity
        for index, placed in enumerate(placement.placed[-count:]):
            # Plugins that answer by gang give every pod of the batch the answer of the first one.
            if index == 0 or not self._permit_by_gang:
                answers = tables.pipeline.permit(placed.pod, placed.node, tables.node_table, placed.state)
            if answers and answers[0].status.code is not Code.WAIT:
                for _ in range(index, count):
                    self._take_back(placement.placed.pop())
                return answers[0].status
            if answers:
                until = {answer.status.plugin: self._now + answer.timeout_seconds for answer in answers}
                tables.node_table.waiting.add_waiting_pod(
                    WaitingPod(placed.pod, placed.node, identity, until)
                )
        return SUCCESS

    def _reservers_of(self, pod_class: PodClass) -> tuple[ReservePlugin, ...]:
        """Return the Reserve plugins that keep state for pods of a class; they are asked once per session."""
        if pod_class not in self._reservers:
            self._reservers[pod_class] = self._tables.pipeline.stateful_reserve_plugins(
                pod_class, self._tables.node_table
            )
        return self._reservers[pod_class]

    def _take_back(self, placed: PlacedPod) -> None:
        """Unreserve one pod and take it off the tables, even if a plugin fails."""
        tables = self._tables
        try:
            tables.pipeline.unreserve(placed.pod, placed.node, tables.node_table, placed.state)
        finally:
            tables.node_table.remove_pods([placed.pod])
            tables.counts.gang_counts_of_pod(placed.pod).change_placed_counts(placed.pod, -1)

    def _roll_back(self, placement: GangPlacement) -> None:
        """Unreserve all pods of a gang, the last one first, and take them off the tables."""
        first_error: PluginError | None = None
        if placement.state is not GangPhase.PENDING:
            placement.state = phase_after(placement.state, PhaseChange.ROLL_BACK)
        while placement.placed:
            # One failing Unreserve must not leave the other pods on the tables.
            try:
                self._take_back(placement.placed.pop())
            except PluginError as error:
                first_error = first_error or error
        self._tables.node_table.waiting.remove_gang(placement.gang.members.identity)
        if first_error is not None and placement.refusal.ok:
            placement.refusal = Status(Code.UNSCHEDULABLE, (str(first_error),), first_error.plugin)
            placement.failure = True


def _single_pod_class(proposal: tuple[PendingGang, Sequence[PlannedPods]]) -> PodClass | None:
    """Return the class of a pod without a PodGroup, None for a gang."""
    gang, plans = proposal
    return plans[0].part.pod_class if gang.members.is_single_pod and len(plans) == 1 else None


def _node_of_each_pod(plan: PlannedPods) -> Iterator[int]:
    for node, count in zip(plan.nodes, plan.counts, strict=True):
        for _ in range(count):
            yield node
