"""Pod classes: groups of pods that no plugin can distinguish, so that they share all plugin results."""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.framework.status import IndexArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """The pods that every plugin treats in the same way, described by an example pod and its requests.

    They may belong to several gangs, unless a plugin reads the gang of a pod.

    Args:
      pod: one of the pods, or a pod without a name that has only what they share: spec, namespace, controller, and
        the labels that some selector reads.
      requests: [R] requests of one pod in base units, including the pod count; columns as in the node table.
      nonzero: [2] milli-CPU and bytes with the defaults that scoring uses.
      requested_columns: the columns of `requests` above zero, without the pod count.
      priority: the resolved priority.
      kin: the first class that differs from this one only in priority, if no plugin reads the priority; None for
        that first class itself.
    """

    pod: Pod
    requests: IntArray
    nonzero: IntArray
    requested_columns: IndexArray
    priority: int = 0
    kin: "PodClass | None" = None

    @property
    def pod_class_for_result_cache(self) -> "PodClass":
        """The pod class under which results are cached: this class, or one that differs only in priority."""
        return self.kin or self

    def with_example_pod(self, pod: Pod) -> "PodClass":
        """Return a copy of the pod class with another of its pods as the example `pod`."""
        return replace(self, pod=pod)

    @classmethod
    def from_pod(
        cls, pod: Pod, requests: IntArray, nonzero: tuple[int, int], priority: int = 0
    ) -> "PodClass":
        """Create the pod class of a pod from the pod and its requests.

        Column 0 of `requests` is the pod count.
        """
        asked = np.flatnonzero(requests[1:] > 0).astype(np.int32) + 1
        return cls(pod, requests, np.asarray(nonzero, np.int64), asked.astype(np.int32), priority)
