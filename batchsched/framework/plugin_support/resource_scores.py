"""What the two resource-scoring plugins share: the arguments, and what a class asks of each resource that counts."""

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
    """A resource that counts in a score, and its weight."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=1, le=100)


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredResource:
    """What a class asks of one resource that counts in its score.

    Args:
      weight: in the score.
      asked: what the pod asks for.
      column: of the resource in the node table.
      assumed: its column in the requests with the defaults that scoring assumes; None: these do not count.
    """

    weight: int
    asked: int
    column: int
    assumed: int | None

    def capacity(self, nodes: Nodes) -> IntArray:
        """[n] allocatable; where it is 0 the resource is left out of the node's score."""
        return nodes.table.allocatable[nodes.where, self.column]

    def taken(self, nodes: Nodes) -> IntArray:
        """[n] requested by the pods that are there."""
        if self.assumed is None:
            return nodes.table.requested[nodes.where, self.column]
        return nodes.table.nonzero[nodes.where, self.assumed]


ScoredResources = tuple[ScoredResource, ...]


def everywhere(capacity: IntArray) -> bool:
    """Tell whether all [n] nodes have some of a resource."""
    return int(np.count_nonzero(capacity)) == len(capacity)


def scored_resources(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> ScoredResources:
    """Return what counts in a score: scalar resources only where the pod asks for them.

    Args:
      pod: the class to place.
      table: the nodes.
      resources: those that the arguments name, in their order.
      nonzero: count the defaults that scoring assumes for containers without cpu or memory requests.

    Source: `calculateResourceAllocatableRequest` of kube-scheduler's plugins/noderesources.
    """
    asked = asked_amounts(pod, table, resources, nonzero=nonzero)
    return tuple(
        ScoredResource(
            one.weight, amount, table.column[one.name], NONZERO_COLUMN.get(one.name) if nonzero else None
        )
        for one, amount in zip(resources, asked, strict=True)
        if one.name in table.column and (one.name in NATIVE or (amount and is_scalar(one.name)))
    )


def asked_amounts(
    pod: PodClass, table: NodeTable, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> tuple[int, ...]:
    """Return what the pod counts for in a score, resource by resource."""
    if nonzero and pod.pod.spec.resources is not None:
        amounts = scored_requests(pod.pod)
        return tuple(amounts.get(one.name, 0) for one in resources)
    column = table.column
    assumed = NONZERO_COLUMN if nonzero else {}
    found: list[int] = []
    for one in resources:
        if one.name in assumed:
            found.append(int(pod.nonzero[assumed[one.name]]))
        else:
            found.append(int(pod.requests[column[one.name]]) if one.name in column else 0)
    return tuple(found)


def is_extended(resource: str) -> bool:
    """Tell whether a resource is one that Kubernetes itself does not know, such as nvidia.com/gpu.

    Source: `IsExtendedResourceName` of k8s.io/kubernetes/pkg/apis/core/v1/helper.
    """
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def is_scalar(resource: str) -> bool:
    """Tell whether a resource is counted beside cpu, memory and ephemeral storage.

    Source: `IsScalarResourceName` of k8s.io/kubernetes/pkg/scheduler/util.
    """
    return (
        is_extended(resource)
        or resource.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in resource
    )
