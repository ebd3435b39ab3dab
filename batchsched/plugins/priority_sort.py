"""PrioritySort: pods with higher priority first, then pods that have been queued longer."""

from collections.abc import Hashable
from typing import Any, ClassVar

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.interface import QueueSortPlugin, SignaturePlugin


class PrioritySort(SignaturePlugin, QueueSortPlugin):
    """Sorts pods by priority, then by the time at which they entered the scheduling queue.

    Source: kube-scheduler's plugins/queuesort.
    """

    name: ClassVar[str] = "PrioritySort"

    @override
    def signature(self, pod: Pod) -> Hashable:
        """Return None, the same signature for all pods, because QueueSort orders pods, not pod classes."""
        return None

    @override
    def sort_key(self, pod: Pod, priority: int, queued: float) -> Any:
        return (-priority, queued)
