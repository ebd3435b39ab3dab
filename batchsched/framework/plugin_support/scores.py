"""Helpers of Score plugins: the resources to score, scores by utilization, and the mapping to 0..100.

A score by utilization is a piecewise linear function that the configuration defines by points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from batchsched.api.core.device import DeviceClass
from batchsched.api.core.requests import pending_pod_requests_for_scoring
from batchsched.api.crd.base import StrictModel
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.plugin_support.device_counts import device_counts
from batchsched.framework.plugin_support.device_objects import device_class_by_resource
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IntArray

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
NONZERO_COLUMN: Final = {"cpu": 0, "memory": 1}


class ResourceSpec(StrictModel):
    """The name of a resource and its weight in a score."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=1, le=100)


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredResource:
    """A resource that counts in the score of a pod class, with its weight and the pod's request.

    Args:
      weight: its weight in the score.
      request: the pod's request.
      column: its column in the node table.
      assumed: its column in the requests with the defaults that scoring uses; None: use the requests without
        defaults.
      device_class: the DeviceClass that serves the resource on nodes without a device plugin for it; None if there is
        none. On these nodes, devices count.
    """

    weight: int
    request: int
    column: int
    assumed: int | None
    device_class: DeviceClass | None = None

    def allocatable(self, nodes: Nodes) -> IntArray:
        """Return the allocatable amount [n] of the resource on each node.

        If it is 0, the score ignores the resource for the node.
        """
        offered = nodes.table.allocatable[nodes.where, self.column]
        if self.device_class is None:
            return offered
        devices = device_counts(nodes.table).counts_of_class(self.device_class, nodes.table)
        return np.where(offered == 0, devices.capacity[nodes.where], offered)

    def requested(self, nodes: Nodes) -> IntArray:
        """Return the amount [n] of the resource that the pods on each node request."""
        if self.assumed is not None:
            return nodes.table.nonzero_requested[nodes.where, self.assumed]
        requested = nodes.table.requested[nodes.where, self.column]
        if self.device_class is None:
            return requested
        devices = device_counts(nodes.table).counts_of_class(self.device_class, nodes.table)
        offered = nodes.table.allocatable[nodes.where, self.column]
        return np.where(offered == 0, devices.allocated[nodes.where], requested)


ScoredResources = tuple[ScoredResource, ...]


def all_positive(capacity: IntArray) -> bool:
    """Return True if all amounts [n] are above zero."""
    return int(np.count_nonzero(capacity)) == len(capacity)


def scored_resources(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> ScoredResources:
    """Return the resources that count in the score of a pod class.

    Scalar resources count only if the pod requests them.

    Args:
      pod: the class to place.
      table: the nodes.
      resources: the resources of the arguments, in their order.
      nonzero: use default requests for containers without cpu or memory requests.

    Source: `calculateResourceAllocatableRequest` of kube-scheduler's plugins/noderesources.
    """
    amounts = requested_amounts(pod, table, resources, nonzero=nonzero)
    classes = device_class_by_resource(table)
    return tuple(
        ScoredResource(
            resource.weight,
            amount,
            table.column[resource.name],
            NONZERO_COLUMN.get(resource.name) if nonzero else None,
            classes.get(resource.name),
        )
        for resource, amount in zip(resources, amounts, strict=True)
        if resource.name in table.column
        and (resource.name in NATIVE or (amount and is_scalar_resource(resource.name)))
    )


def requested_amounts(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> tuple[int, ...]:
    """Return how much of each given resource one pod of the class requests, for use in scores.

    With `nonzero`, containers without cpu or memory requests count with default amounts.
    """
    if nonzero and pod.pod.spec.resources is not None:
        amounts = pending_pod_requests_for_scoring(pod.pod)
        return tuple(amounts.get(one.name, 0) for one in resources)
    column = table.column
    assumed = NONZERO_COLUMN if nonzero else {}
    counted: list[int] = []
    for resource in resources:
        if resource.name in assumed:
            counted.append(int(pod.nonzero[assumed[resource.name]]))
        else:
            counted.append(int(pod.requests[column[resource.name]]) if resource.name in column else 0)
    return tuple(counted)


def is_extended_resource(resource: str) -> bool:
    """Return True for an extended resource such as nvidia.com/gpu.

    Source: `IsExtendedResourceName` of k8s.io/kubernetes/pkg/apis/core/v1/helper.
    """
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def is_scalar_resource(resource: str) -> bool:
    """Return True for extended resources, huge pages, attachable volumes and names with `kubernetes.io/`.

    Source: `IsScalarResourceName` of k8s.io/kubernetes/pkg/scheduler/util.
    """
    return (
        is_extended_resource(resource)
        or resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
    )


MAX_SCORE: Final = 100
"""The highest score of a node."""


def default_normalize(scores: IntArray, reverse: bool) -> IntArray:
    """Scale the scores of nodes [n] to whole numbers in 0..100, relative to the highest score.

    With `reverse`, the lowest score is the best.

    If the maximum is 0, all nodes are equal: 100 with `reverse`, else unchanged.

    Source: `DefaultNormalizeScore` of k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper.
    """
    highest = int(scores.max()) if len(scores) else 0
    if highest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    scaled = MAX_SCORE * scores // highest
    return MAX_SCORE - scaled if reverse else scaled


MAX_UTILIZATION: Final = 100
SHAPE_FACTOR: Final = 10
"""Factor from the scores of a shape, 0 to 10, to node scores, 0 to 100."""


class UtilizationShapePoint(StrictModel):
    """A point of the function from utilization in percent to score."""

    utilization: int = Field(default=0, ge=0, le=100)
    score: int = Field(default=0, ge=0, le=10)


def check_increasing_utilization(shape: Sequence[UtilizationShapePoint]) -> None:
    """Check that each point of a utilization shape has a higher utilization than the previous point.

    Raises:
      ValueError: a point has the same or a lower utilization.
    """
    points = [point.utilization for point in shape]
    if any(later <= earlier for earlier, later in pairwise(points)):
        raise ValueError("shape: utilization values must rise from point to point")


def utilization_score_table(shape: Sequence[UtilizationShapePoint]) -> NDArray[np.int64]:
    """Return the scores [101] for 0 to 100 percent utilization, interpolated between the points of a shape.

    Scores are rounded toward zero.

    Source: `BuildBrokenLinearFunction` of kube-scheduler's plugins/helper.
    """
    scores = []
    for percent in range(MAX_UTILIZATION + 1):
        index = next((i for i, point in enumerate(shape) if percent <= point.utilization), len(shape))
        if index == 0 or index == len(shape):
            scores.append(shape[min(index, len(shape) - 1)].score * SHAPE_FACTOR)
            continue
        before, after = shape[index - 1], shape[index]
        rise = (after.score - before.score) * SHAPE_FACTOR * (percent - before.utilization)
        scores.append(before.score * SHAPE_FACTOR + int(rise / (after.utilization - before.utilization)))
    return np.asarray(scores, np.int64)
