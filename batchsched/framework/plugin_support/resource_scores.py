"""Arguments and tables that both resource-scoring plugins use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import Field

from batchsched.api.core.requests import scored_requests
from batchsched.api.crd.base import SpecPart
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import IntArray

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
NONZERO_COLUMN: Final = {"cpu": 0, "memory": 1}


class ResourceSpec(SpecPart):
    """A resource that counts in a score, with its weight."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=1, le=100)


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredResource:
    """One resource in the score of a class.

    Args:
      weight: its weight in the score.
      asked: the pod's request.
      column: its column in the node table.
      assumed: its column in the requests with the defaults that scoring uses; None: use the requests without
        defaults.
    """

    weight: int
    asked: int
    column: int
    assumed: int | None

    def capacity(self, nodes: Nodes) -> IntArray:
        """[n] the allocatable amount. If it is 0, the resource does not count for the node."""
        return nodes.table.allocatable[nodes.where, self.column]

    def taken(self, nodes: Nodes) -> IntArray:
        """[n] requests of the pods on each node."""
        if self.assumed is None:
            return nodes.table.requested[nodes.where, self.column]
        return nodes.table.nonzero[nodes.where, self.assumed]


ScoredResources = tuple[ScoredResource, ...]


def everywhere(capacity: IntArray) -> bool:
    """Return True if all [n] nodes have some of a resource."""
    return int(np.count_nonzero(capacity)) == len(capacity)


def scored_resources(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> ScoredResources:
    """Return the resources that count in a score. Scalar resources count only if the pod requests them.

    Args:
      pod: the class to place.
      table: the nodes.
      resources: the resources of the arguments, in their order.
      nonzero: use default requests for containers without cpu or memory requests.

    Source: `calculateResourceAllocatableRequest` of kube-scheduler's plugins/noderesources.
    """
    amounts = asked_amounts(pod, table, resources, nonzero=nonzero)
    return tuple(
        ScoredResource(
            resource.weight,
            amount,
            table.column[resource.name],
            NONZERO_COLUMN.get(resource.name) if nonzero else None,
        )
        for resource, amount in zip(resources, amounts, strict=True)
        if resource.name in table.column
        and (resource.name in NATIVE or (amount and is_scalar(resource.name)))
    )


def asked_amounts(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> tuple[int, ...]:
    """Return, for each resource, the amount with which the pod counts in a score."""
    if nonzero and pod.pod.spec.resources is not None:
        amounts = scored_requests(pod.pod)
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


def is_extended(resource: str) -> bool:
    """Return True for an extended resource such as nvidia.com/gpu.

    Source: `IsExtendedResourceName` of k8s.io/kubernetes/pkg/apis/core/v1/helper.
    """
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def is_scalar(resource: str) -> bool:
    """Return True for a countable resource other than cpu, memory and ephemeral storage.

    Source: `IsScalarResourceName` of k8s.io/kubernetes/pkg/scheduler/util.
    """
    return (
        is_extended(resource)
        or resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
    )
