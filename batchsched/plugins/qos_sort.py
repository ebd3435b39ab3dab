"""QOSSort: pods of equal priority by their quality of service. Disabled by default."""

from collections.abc import Hashable
from enum import IntEnum
from typing import Any, ClassVar, Final

from typing_extensions import override

from batchsched.api.core.pod import Amounts, Pod
from batchsched.api.core.quantity import parse_amount
from batchsched.framework.interface import QueueSortPlugin, SignaturePlugin

RESOURCES: Final = ("cpu", "memory")
"""The resources that determine the quality of service."""


class QosClass(IntEnum):
    """The quality-of-service class of a pod, the highest first."""

    GUARANTEED = 0
    BURSTABLE = 1
    BEST_EFFORT = 2


class QOSSort(SignaturePlugin, QueueSortPlugin):
    """Sorts pods by priority, then by QoS class from Guaranteed to BestEffort, then by time in the queue.

    Enable it under `queueSort`, with `disabled: [{name: "*"}]`: only one plugin may sort.

    Source: QOSSort of the scheduler-plugins project.
    """

    name: ClassVar[str] = "QOSSort"

    @override
    def signature(self, pod: Pod) -> Hashable:
        return None

    @override
    def key(self, pod: Pod, priority: int, queued: float) -> Any:
        return (-priority, qos_class(pod), queued)


def qos_class(pod: Pod) -> QosClass:
    """Return the QoS class of a pod by its pod-level requests and limits, or else by those of all containers.

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
    read = {name: parse_amount(name, text) for name, text in (amounts or {}).items() if name in RESOURCES}
    return {name: amount for name, amount in read.items() if amount > 0}


def _add(total: dict[str, int], amounts: Amounts | None) -> None:
    for name, amount in _positive(amounts).items():
        total[name] = total.get(name, 0) + amount
