"""The quality-of-service class of a pod, which determines how the kubelet treats its resources."""

from enum import IntEnum
from typing import Final

from batchsched.api.core.pod import Amounts, Pod
from batchsched.api.core.quantity import parse_quantity_in_base_units

RESOURCES: Final = ("cpu", "memory")
"""The resources that determine the quality of service."""


class QosClass(IntEnum):
    """The quality-of-service classes of pods, from the highest to the lowest."""

    GUARANTEED = 0
    BURSTABLE = 1
    BEST_EFFORT = 2


def qos_class(pod: Pod) -> QosClass:
    """Return the QoS class of a pod, as Kubernetes computes it from requests and limits.

    The pod-level resources determine the class. Without pod-level resources, the resources of all containers do.

    Source: `ComputePodQOS` of k8s.io/kubernetes/pkg/apis/core/v1/helper/qos.

    Raises:
      InvalidQuantity: an amount is not a quantity.
    """
    spec = pod.spec
    if spec.resources is not None:
        declared = [spec.resources]
        limited = not spec.resources.limits or len(_positive(spec.resources.limits)) == len(RESOURCES)
    else:
        containers = (*spec.containers, *(spec.init_containers or ()))
        declared = [one.resources for one in containers if one.resources is not None]
        limited = len(declared) == len(containers) and all(
            len(_positive(resources.limits)) == len(RESOURCES) for resources in declared
        )
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for resources in declared:
        _add(requests, resources.requests)
        _add(limits, resources.limits)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if limited and requests == limits else QosClass.BURSTABLE


def _positive(amounts: Amounts | None) -> dict[str, int]:
    read = {
        name: parse_quantity_in_base_units(name, text)
        for name, text in (amounts or {}).items()
        if name in RESOURCES
    }
    return {name: amount for name, amount in read.items() if amount > 0}


def _add(total: dict[str, int], amounts: Amounts | None) -> None:
    for name, amount in _positive(amounts).items():
        total[name] = total.get(name, 0) + amount
