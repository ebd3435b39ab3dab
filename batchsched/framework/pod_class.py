"""Pod classes: pods whose scheduling-relevant specs are equal share every mask and score."""

from dataclasses import dataclass, replace

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.framework.status import IndexArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """Equal pods, seen as one.

    Args:
      pod: one of them; plugins may look at its spec, namespace and those labels that some selector reads.
      requests: [R] what one pod asks for, in base units, the pod count included; R as in the node table.
      nonzero: [2] milli-CPU and bytes with the defaults that scoring uses.
      asked: the columns of `requests` above zero, the pod count left out.
      priority: the resolved priority.
      kin: a class that differs in priority alone, where no plugin looks at that; None: it is the first of its kind.
    """

    pod: Pod
    requests: IntArray
    nonzero: IntArray
    asked: IndexArray
    priority: int = 0
    kin: "PodClass | None" = None

    @property
    def first(self) -> "PodClass":
        """The class of which plugins have said all that they say of this one."""
        return self.kin or self

    def showing(self, pod: Pod) -> "PodClass":
        """Return the class with another of its pods as the one that plugins look at."""
        return replace(self, pod=pod)

    @classmethod
    def of(cls, pod: Pod, requests: IntArray, nonzero: tuple[int, int], priority: int = 0) -> "PodClass":
        """Make a class of a pod and its requests; column 0 is the pod count."""
        asked = np.flatnonzero(requests[1:] > 0).astype(np.int32) + 1
        return cls(pod, requests, np.asarray(nonzero, np.int64), asked.astype(np.int32), priority)
