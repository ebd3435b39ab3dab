"""The requests of a pod that the kubelet aligns with NUMA zones.

The Topology Manager aligns cpu, memory and huge pages of Guaranteed pods only, and devices of all pods.

Source: `pkg/noderesourcetopology/filter.go` of the scheduler-plugins project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batchsched.api.core.pod import Container, Pod
from batchsched.api.core.quality_of_service import RESOURCES, QosClass, qos_class
from batchsched.api.core.quantity import parse_quantity_in_base_units
from batchsched.api.core.requests import pod_requests

Requests = Mapping[str, int]
"""Amount in base units by resource, without zeros."""

_ALIGNED_FOR_GUARANTEED: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True, eq=False)
class AlignedDemand:
    """The requests of a pod that the kubelet aligns with NUMA zones, by container and for the whole pod.

    Args:
      guaranteed: whether the pod is Guaranteed.
      init: the requests of the init containers that end before the next container starts.
      running: the requests of the containers that run together: restartable init containers and containers.
      total: the requests of the whole pod.
    """

    guaranteed: bool
    init: tuple[Requests, ...]
    running: tuple[Requests, ...]
    total: Requests

    def single_zone_parts(self, *, pod_scope: bool) -> tuple[Requests, ...]:
        """Return the parts of the pod that each need a single NUMA zone: the whole pod, or each of its containers.

        An init container that requests no more than a later container is left out: the kubelet gives its cpus and its
        memory to later containers of the pod.
        """
        if pod_scope:
            return (self.total,) if self.total else ()
        larger = (one for one in self.init if not any(_is_part_of(one, other) for other in self.running))
        return tuple(part for part in (*larger, *self.running) if part)


def _is_part_of(requests: Requests, other: Requests) -> bool:
    return all(amount <= other.get(name, 0) for name, amount in requests.items())


def is_guaranteed(pod: Pod) -> bool:
    """Return whether a pod is of QoS class Guaranteed.

    If a container has no limit of cpu or memory, quantities are not parsed.
    """
    if pod.spec.resources is None and not all(map(_limits_cpu_and_memory, pod.spec.containers)):
        return False
    return qos_class(pod) is QosClass.GUARANTEED


def _limits_cpu_and_memory(container: Container) -> bool:
    limits = container.resources.limits if container.resources else None
    return limits is not None and all(resource in limits for resource in RESOURCES)


def aligned_demand(pod: Pod) -> AlignedDemand:
    """Return the requests of a pod that the kubelet takes from single NUMA zones."""
    guaranteed = is_guaranteed(pod)
    init = [one for one in pod.spec.init_containers or () if one.restart_policy != "Always"]
    sidecars = [one for one in pod.spec.init_containers or () if one.restart_policy == "Always"]
    return AlignedDemand(
        guaranteed,
        tuple(_aligned(_requests(one), guaranteed=guaranteed) for one in init),
        tuple(_aligned(_requests(one), guaranteed=guaranteed) for one in (*sidecars, *pod.spec.containers)),
        _aligned(pod_requests(pod), guaranteed=guaranteed),
    )


def _requests(container: Container) -> Requests:
    requests = container.resources.requests if container.resources else None
    return {name: parse_quantity_in_base_units(name, amount) for name, amount in (requests or {}).items()}


def _aligned(requests: Requests, *, guaranteed: bool) -> Requests:
    return {name: amount for name, amount in requests.items() if amount and (guaranteed or _is_device(name))}


def _is_device(resource: str) -> bool:
    return resource not in _ALIGNED_FOR_GUARANTEED and not resource.startswith("hugepages-")
