"""Constrain: an extension point where a plugin describes to the solver how pods affect each other.

If placed pods change a plugin's verdict, it adds linear rows over the number of pods of a class in a domain.
A row must be valid: it may allow too much, because the pipeline checks each proposal pod by pod, but it must not
forbid a placement that the pipeline allows.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import BoolArray, IndexArray
from batchsched.solver.problem import ALL_NODES, EVERY_NODE, Row, Sense

__all__ = ["ALL_NODES", "EVERY_NODE", "Batch", "Candidate", "Row", "Sense"]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Pods of one class and one gang that the session may place: a column of the solver's problem.

    Args:
      index: the number of the column; rows refer to it.
      pod_class: the class of the pods.
      gang: the number of the gang in the problem.
      count: the number of pending pods.
      rigid: either all of the pods are placed or none, because the gang has no surplus.
      fits: [N] nodes that no lasting refusal excludes; None if unknown. It makes rows tighter.
    """

    index: int
    pod_class: PodClass
    gang: int
    count: int
    rigid: bool
    fits: BoolArray | None = None


class Batch:
    """All candidates of a session, and the partitions of the nodes to which rows refer."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self.partitions: list[IndexArray] = []
        self.gathered: dict[int, str] = {}
        """Gangs with all pods in one domain of a node label: number of the gang → label."""
        self._partition_numbers: dict[bytes, int] = {}

    def of(self, gangs: Set[int]) -> "Batch":
        """Return a batch with the candidates of some gangs. It shares the registered partitions with this batch."""
        batch = Batch([one for one in self.candidates if one.gang in gangs])
        batch.partitions, batch.gathered, batch._partition_numbers = (
            self.partitions,
            self.gathered,
            self._partition_numbers,
        )
        return batch

    def partition(self, domains: IndexArray) -> int:
        """Register a partition, as [N] the domain of each node (-1: none), and return its number for rows."""
        key = np.ascontiguousarray(domains, np.int32).tobytes()
        if key not in self._partition_numbers:
            self._partition_numbers[key] = len(self.partitions)
            self.partitions.append(np.ascontiguousarray(domains, np.int32))
        return self._partition_numbers[key]
