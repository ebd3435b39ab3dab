"""QOSSort: pods of equal priority by their quality of service. Disabled by default."""

from collections.abc import Hashable
from typing import Any, ClassVar

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.api.core.quality_of_service import qos_class
from batchsched.framework.interface import QueueSortPlugin, SignaturePlugin


class QOSSort(SignaturePlugin, QueueSortPlugin):
    """Sorts pods by priority, then by QoS class from Guaranteed to BestEffort, then by time in the queue.

    Enable it under `queueSort`, with `disabled: [{name: "*"}]`: only one plugin may sort.

    Source: QOSSort of the scheduler-plugins project.
    """

    name: ClassVar[str] = "QOSSort"

    @override
    def signature(self, pod: Pod) -> Hashable:
        """Return None, the same signature for all pods, because QueueSort orders pods, not pod classes."""
        return None

    @override
    def sort_key(self, pod: Pod, priority: int, queued: float) -> Any:
        return (-priority, qos_class(pod), queued)
