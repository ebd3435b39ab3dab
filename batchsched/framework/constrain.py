"""Constrain: our own point, where a plugin tells the solver what pods do to each other.

A plugin whose verdict changes as pods land adds linear rows over the counts of classes per domain of the nodes.
A row must be valid: it may admit too much, since replay walks the answer pod by pod through the real pipeline,
but it never refuses a placement that the pipeline allows.
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
    """A class of pods that the session may place: one column of the solver's problem.

    Args:
      index: the class's number in the problem; rows name it.
      pod_class: the pods, seen as one.
      gang: the gang's number in the problem.
      count: pods that wait.
      rigid: all of them are placed, or none: the gang has no surplus.
      fits: [N] nodes that no lasting refusal keeps the pods from; None: nobody looked. It makes rows tighter.
    """

    index: int
    pod_class: PodClass
    gang: int
    count: int
    rigid: bool
    fits: BoolArray | None = None


class Batch:
    """All candidates of a session, and the partitions of the nodes that rows refer to."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self.partitions: list[IndexArray] = []
        self.gathered: dict[int, str] = {}
        """Gangs all of whose pods end in one domain of a node label, whatever their order: by number, the label."""
        self._known: dict[bytes, int] = {}

    def of(self, gangs: Set[int]) -> "Batch":
        """Return the candidates of some gangs; what is registered there is registered here."""
        some = Batch([one for one in self.candidates if one.gang in gangs])
        some.partitions, some.gathered, some._known = self.partitions, self.gathered, self._known
        return some

    def partition(self, domains: IndexArray) -> int:
        """Register a partition ([N] domain of each node, -1 for none) and return its number for rows."""
        key = np.ascontiguousarray(domains, np.int32).tobytes()
        if key not in self._known:
            self._known[key] = len(self.partitions)
            self.partitions.append(np.ascontiguousarray(domains, np.int32))
        return self._known[key]
