"""What the two resource-scoring plugins share: the arguments, and allocatable and requested resource by resource."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import Field

from batchsched.framework.nodes import Nodes
from batchsched.framework.podclass import PodClass
from batchsched.framework.status import IntArray
from batchsched.model.custom import Part
from batchsched.model.requests import scored_requests

NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
NONZERO_COLUMN: Final = {"cpu": 0, "memory": 1}


class ResourceSpec(Part):
    """A resource that counts in a score, and its weight."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=1, le=100)


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """One resource on n nodes.

    Args:
      weight: in the score.
      capacity: [n] allocatable; where it is 0 the resource is left out of the node's score.
      taken: [n] requested by the pods that are there.
      asked: what the pod asks for.
    """

    weight: int
    capacity: IntArray
    taken: IntArray
    asked: int

    @property
    def everywhere(self) -> bool:
        """True when all nodes have some of it."""
        return int(np.count_nonzero(self.capacity)) == len(self.capacity)


def loads(pod: PodClass, nodes: Nodes, resources: Sequence[ResourceSpec], *, nonzero: bool) -> list[Load]:
    """Return the loads of those resources that count: scalar ones only where the pod asks for them.

    Args:
      pod: the class to place.
      nodes: n nodes.
      resources: those that the arguments name, in their order.
      nonzero: count the defaults that scoring assumes for containers without cpu or memory requests.

    Source: `calculateResourceAllocatableRequest` of kube-scheduler's plugins/noderesources.
    """
    table, where = nodes.table, nodes.where
    column = table.column
    asked = asked_amounts(pod, nodes, resources, nonzero=nonzero)
    found = []
    for resource, amount in zip(resources, asked, strict=True):
        if resource.name not in column or not (resource.name in NATIVE or is_scalar(resource.name)):
            continue
        if amount or resource.name in NATIVE:
            second = NONZERO_COLUMN.get(resource.name) if nonzero else None
            at = column[resource.name]
            # One column of the nodes looked at, and not all columns first.
            taken = table.requested[where, at] if second is None else table.nonzero[where, second]
            found.append(Load(resource.weight, table.allocatable[where, at], taken, amount))
    return found


def asked_amounts(
    pod: PodClass, nodes: Nodes, resources: Sequence[ResourceSpec], *, nonzero: bool
) -> tuple[int, ...]:
    """Return what the pod counts for in a score, resource by resource."""
    if nonzero and pod.pod.spec.resources is not None:
        amounts = scored_requests(pod.pod)
        return tuple(amounts.get(one.name, 0) for one in resources)
    column = nodes.table.column
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
