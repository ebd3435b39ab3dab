"""NodeResourcesFit: whether a node has the requested resources free, and a score for their use."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.requests import pod_requests
from batchsched.api.crd.base import StrictModel
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, always_queue
from batchsched.framework.interface import (
    BulkFilterPlugin,
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import PODS, Nodes, NodeTable
from batchsched.framework.plugin_support.device_objects import mask_resources_served_by_devices
from batchsched.framework.plugin_support.scores import (
    CPU_AND_MEMORY,
    MAX_UTILIZATION,
    ResourceSpec,
    ScoredResources,
    UtilizationShapePoint,
    all_positive,
    check_increasing_utilization,
    is_extended_resource,
    scored_resources,
    utilization_score_table,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    SUCCESS,
    BoolArray,
    IndexArray,
    IntArray,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import PlacementEffect, PluginTraits, ResultScope

TOO_MANY_PODS: Final = "Too many pods"
NEVER: Final = np.iinfo(np.int64).min
"""A need that every node satisfies, even an overcommitted one: the resource is not requested."""


class ScoringStrategyType(StrEnum):
    """A strategy of kube-scheduler that computes the score of a node from the use of its resources."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class RequestedToCapacityRatioParameters(StrictModel):
    """The parameters of the strategy RequestedToCapacityRatio, which map utilizations of a node to scores."""

    shape: tuple[UtilizationShapePoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        check_increasing_utilization(self.shape)
        return self


class ScoringStrategy(StrictModel):
    """The scoring strategy of NodeResourcesFit, with its parameters and the resources that it considers.

    Only the strategy RequestedToCapacityRatio has parameters.
    """

    type: ScoringStrategyType = ScoringStrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatioParameters | None = None

    @model_validator(mode="after")
    def _has_its_line(self) -> Self:
        if (
            self.type is ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO
            and self.requested_to_capacity_ratio is None
        ):
            raise ValueError("requestedToCapacityRatio: the strategy needs a shape; state one")
        return self


class NodeResourcesFitArgs(StrictModel):
    """Arguments of NodeResourcesFit, as in kube-scheduler."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


@dataclass(frozen=True, slots=True, eq=False)
class FreeResourceRequirement:
    """The free amounts [R] of resources that a node needs so that NodeResourcesFit accepts it for a pod.

    `NEVER` stands for a resource that the pod does not request or that the plugin ignores.
    """

    amounts: IntArray


NEED: Final = StateKey[FreeResourceRequirement]("NodeResourcesFit/need")
SCORED: Final = StateKey[ScoredResources]("NodeResourcesFit/scored")


class NodeResourcesFit(
    SignaturePlugin,
    PreFilterPlugin,
    FilterPlugin,
    BulkFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    EnqueueExtensionsPlugin,
):
    """Refuses nodes without enough free resources for the pod, and scores nodes by the use of their resources.

    Where devices of a DeviceClass serve an extended resource, the score counts these devices and those in use.

    Source: kube-scheduler's plugins/noderesources, fit.go and the three scoring files.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    traits: ClassVar[PluginTraits] = PluginTraits(
        placement_effect=PlacementEffect.USES_CAPACITY,
        result_scope=ResultScope.NODE_AND_ITS_PODS,
        reads_priority=False,
    )
    Args: ClassVar[type[NodeResourcesFitArgs]] = NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs | None = None) -> None:
        self.args = args or NodeResourcesFitArgs()
        self._strategy = self.args.scoring_strategy
        line = self._strategy.requested_to_capacity_ratio
        self._line = utilization_score_table(line.shape) if line else None
        self._looked_at: tuple[tuple[str, ...], BoolArray] = (), np.zeros(0, np.bool_)
        """The resources of the last table, and which of them the Filter checks."""

    @override
    def signature(self, pod: Pod) -> Hashable:
        """Return an empty signature, because the plugin reads nothing of a pod's spec except its requests."""
        return ()  # pods of one class have equal requests

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        state.write(NEED, self._need(pod, nodes.table))
        return ASK_FILTER

    def _need(self, pod: PodClass, table: NodeTable) -> FreeResourceRequirement:
        amounts = np.where((pod.requests > 0) & self._looks_at(table), pod.requests, NEVER)
        amounts[table.column[PODS]] = 1
        return FreeResourceRequirement(amounts)

    def _looks_at(self, table: NodeTable) -> BoolArray:
        """Return a mask [R] of the resources that the Filter checks."""
        if self._looked_at[0] is not table.resources:
            looks = np.array([not self.ignores_resource(one) for one in table.resources], np.bool_)
            self._looked_at = table.resources, looks
        return self._looked_at[1]

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the configuration of the plugin or an extender makes the Filter ignore a resource.

        The solver ignores it, too.
        """
        if not is_extended_resource(resource):
            return False
        group = resource.partition("/")[0]
        return resource in self.args.ignored_resources or group in self.args.ignored_resource_groups

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        amounts, allocatable = state.read(NEED).amounts, nodes.allocatable
        short = amounts > allocatable - nodes.requested
        if short.any():
            # DynamicResources judges the nodes on which devices of a DeviceClass serve the resource.
            short &= ~(mask_resources_served_by_devices(nodes.table) & (allocatable == 0))
        if not short.any():
            return Verdict.accept(len(nodes))
        reasons, refused = [], []
        never = np.zeros(len(nodes), np.bool_)
        for column in np.flatnonzero(amounts != NEVER).tolist():
            lacking = short[:, column]
            if lacking.any():
                resource = nodes.table.resources[column]
                reasons.append(_reason(resource))
                refused.append(lacking)
                if resource != PODS:
                    never |= lacking & (amounts[column] > allocatable[:, column])
        return Verdict(tuple(reasons), np.stack(refused), never)

    @override
    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        amounts = self._need(pod, table).amounts
        requested = amounts != NEVER
        free = table.allocatable[nodes] - table.requested[nodes]
        requested = requested & ~(mask_resources_served_by_devices(table) & (table.allocatable[nodes] == 0))
        pod_counts = counts[:, np.newaxis]
        return bool(
            ((pod_counts * np.where(requested, amounts, 0) <= free) | ~requested | (pod_counts == 0)).all()
        )

    @override
    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        state.write(SCORED, self._scored(pod, nodes))
        return SUCCESS

    def _scored(self, pod: PodClass, nodes: Nodes) -> ScoredResources:
        return scored_resources(pod, nodes.table, self._strategy.resources, nonzero=True)

    @override
    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        total = np.zeros(len(nodes), np.int64)
        weights: IntArray | int = 0
        for resource in state.read(SCORED) if state.has(SCORED) else self._scored(pod, nodes):
            capacity, taken = resource.allocatable(nodes), resource.requested(nodes) + resource.request
            if self._line is None and all_positive(capacity):
                total += self._score(taken, capacity) * resource.weight
                weights += resource.weight
                continue
            offered = capacity > 0
            scores = self._score(taken, np.where(offered, capacity, 1))
            # A resource with score 0 does not count in the weighted mean, so that it does not lower the others.
            counts = offered & (scores > 0) if self._line is not None else offered
            total += np.where(counts, scores * resource.weight, 0)
            weights = weights + np.where(counts, resource.weight, 0)
        divisor = np.maximum(weights, 1)
        if self._line is not None:
            return np.floor(total / divisor + 0.5).astype(np.int64)
        return total // divisor

    def _score(self, taken: IntArray, capacity: IntArray) -> IntArray:
        """Return the score of one resource for each node [n]; `taken` includes the pod."""
        if self._strategy.type is ScoringStrategyType.LEAST_ALLOCATED:
            free: IntArray = np.maximum(capacity - taken, 0)
            return free * MAX_UTILIZATION // capacity
        used = np.minimum(taken, capacity) * MAX_UTILIZATION // capacity
        return used if self._line is None else self._line[used]

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        grown = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        return (
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE),
            ClusterEventWithHint.for_events(
                EventResource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN, self._left_over
            ),
            ClusterEventWithHint.for_events(
                EventResource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN, always_queue
            ),
            ClusterEventWithHint.for_events(EventResource.NODE, grown, self._has_grown),
        )

    def _checked_requests(self, pod: Pod) -> dict[str, int]:
        """Return those requests of a pod that the Filter checks."""
        checked = {
            name: amount for name, amount in pod_requests(pod).items() if not self.ignores_resource(name)
        }
        return {**checked, PODS: 1}

    def _left_over(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        before, after = pod_requests(old), pod_requests(new)
        return Hint.queue_if(
            any(
                after.get(name, 0) < before.get(name, 0)
                for name in self._checked_requests(pod)
                if name != PODS
            )
        )

    def _has_grown(self, pod: Pod, old: Node | None, new: Node) -> Hint:
        """Return QUEUE if the empty node could hold the pod and now has more of a requested resource."""
        checked, after = self._checked_requests(pod), new.parse_allocatable_in_base_units()
        if any(after.get(name, 0) < amount for name, amount in checked.items()):
            return Hint.SKIP
        before = {} if old is None else old.parse_allocatable_in_base_units()
        return Hint.queue_if(old is None or any(after[name] > before.get(name, 0) for name in checked))


def _reason(resource: str) -> str:
    return TOO_MANY_PODS if resource == PODS else f"Insufficient {resource}"
