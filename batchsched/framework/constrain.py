"""The extension point Constrain, at which a plugin adds linear constraints (rows) to the solver's problem.

If placed pods change a plugin's verdict, the plugin adds rows over the number of pods of a class in a domain.
A row must be valid: it may allow too much, because the pipeline checks each proposal pod by pod, but it must not
forbid a placement that the pipeline allows.

`ConstraintDomains` and `sum_by_domain` handle the domains of a topology key as arrays.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import BoolArray, IndexArray, IntArray
from batchsched.solver.problem import ALL_NODES, EVERY_NODE, NONE, UNLIMITED, ConstraintRow, RowRelief, Sense

__all__ = ["ALL_NODES", "EVERY_NODE", "CandidatePods", "CandidateSet", "ConstraintRow", "RowRelief", "Sense"]


@dataclass(frozen=True, slots=True, eq=False)
class CandidatePods:
    """The pending pods of one gang and one pod class; the solver decides how many of them each node gets.

    Args:
      index: the number by which rows refer to these pods.
      pod_class: the class of the pods.
      gang: the number of the gang in the problem.
      count: the number of pending pods.
      rigid: either all of the pods are placed or none, because the gang has no elastic pods.
      fits: [N] nodes that no lasting refusal excludes; None if unknown. Plugins use it to make rows tighter.
      subgroup: the number of the pods' subgroup in the problem; NONE for pods outside of subgroups.
    """

    index: int
    pod_class: PodClass
    gang: int
    count: int
    rigid: bool
    fits: BoolArray | None = None
    subgroup: int = NONE


class CandidateSet:
    """The pending pods that the solver may place, grouped by gang and pod class.

    `partitions` has the divisions of the nodes into domains, to which linear constraints refer by number.

    Args:
      candidates: the pods.
      units: running pods that the solver may evict, each unit as a whole. A row may state by how much the eviction of a
        unit raises its limits.
    """

    def __init__(self, candidates: Sequence[CandidatePods], units: Sequence[Sequence[Pod]] = ()) -> None:
        self.candidates = tuple(candidates)
        self.units = units
        self.partitions: list[IndexArray] = []
        self.gathered: dict[int, str] = {}
        """Gangs with all pods in one domain of a node label: number of the gang → label."""
        self.gathered_subgroups: dict[int, str] = {}
        """Subgroups of other gangs with all pods in one domain of a node label: number of the subgroup → label."""
        self._partition_numbers: dict[bytes, int] = {}

    def restricted_to_gangs(self, gangs: Set[int]) -> "CandidateSet":
        """Return a copy of the candidate set that contains only the pending pods of the given gangs.

        Both sets share the registered partitions.
        """
        batch = CandidateSet([one for one in self.candidates if one.gang in gangs], self.units)
        batch.partitions, batch._partition_numbers = self.partitions, self._partition_numbers
        batch.gathered, batch.gathered_subgroups = self.gathered, self.gathered_subgroups
        return batch

    def register_partition(self, domains: IndexArray) -> int:
        """Register a division of the nodes into domains; return the number by which rows refer to it.

        `domains` [N] has the domain of each node; -1 marks a node without a domain.
        """
        key = np.ascontiguousarray(domains, np.int32).tobytes()
        if key not in self._partition_numbers:
            self._partition_numbers[key] = len(self.partitions)
            self.partitions.append(np.ascontiguousarray(domains, np.int32))
        return self._partition_numbers[key]


def pod_limit_row(
    plugin: str,
    reason: str,
    partition: int,
    coefficients: Mapping[int, int],
    right: IntArray,
    relief: RowRelief | None = None,
) -> ConstraintRow:
    """Return a linear constraint that limits a weighted number of pods in each topology domain.

    Each pod of a candidate counts with the candidate's coefficient.

    Args:
      plugin: the plugin that adds the row.
      reason: the message if the row excludes a placement.
      partition: the number of a registered partition of the nodes into domains, EVERY_NODE or ALL_NODES.
      coefficients: index of a candidate → how much each of its pods counts.
      right: [D] the limit of each domain.
      relief: by how much evictions raise the limits.
    """
    return ConstraintRow(
        partition=partition,
        classes=np.fromiter(coefficients.keys(), np.int32, len(coefficients)),
        coefficients=np.fromiter(coefficients.values(), np.int64, len(coefficients)),
        right=right,
        plugin=plugin,
        reason=reason,
        relief=relief,
    )


def exclusion_row(
    plugin: str, reason: str, candidates: CandidateSet, classes: Sequence[int], nodes: BoolArray
) -> ConstraintRow:
    """Return a linear constraint that forbids the given candidate pods on the given nodes.

    `classes` has the indexes of the candidates. `nodes` [N] is True for each node on which their pods are forbidden.
    """
    partition = candidates.register_partition(np.where(nodes, 0, -1).astype(np.int32))
    return pod_limit_row(plugin, reason, partition, dict.fromkeys(classes, 1), np.zeros(1, np.int64))


def sum_by_domain(codes: IndexArray, counts: IntArray, domains: int) -> IntArray:
    """Return for each topology domain the sum of its nodes' counts.

    The result [D+1] has one entry for each of the D domains. The last entry is the sum over all nodes without a domain.
    `codes` [N] has the domain of each node, -1 for none. `counts` [N] has one number for each node.
    """
    return np.bincount(codes % (domains + 1), weights=counts, minlength=domains + 1).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintDomains:
    """The topology domains for which a plugin adds linear constraints, one constraint for each domain.

    Args:
      partition: EVERY_NODE if each domain is one node, else the number of a registered partition.
      codes: [rows] the domain of each row, -1 if the row is for a node without a domain.
    """

    partition: int
    codes: IndexArray

    @classmethod
    def from_domain_numbers(cls, batch: CandidateSet, codes: IndexArray) -> "ConstraintDomains":
        """Create the topology domains for linear constraints from the domain number of each node.

        `codes` [N] has these numbers, -1 for a node without a domain.
        """
        inside = codes[codes >= 0]
        used, sizes = np.unique(inside, return_counts=True)
        if len(used) and int(sizes.max()) == 1:
            return cls(EVERY_NODE, codes)
        place = np.full(int(codes.max(initial=-1)) + 2, -1, np.int32)
        place[used] = np.arange(len(used), dtype=np.int32)
        return cls(batch.register_partition(place[codes]), used.astype(np.int32))

    def row_limits(self, values: IntArray, elsewhere: int = UNLIMITED) -> IntArray:
        """Return the limit of each linear constraint (row), given the limit of each topology domain.

        The result [rows] has for each row the entry of `values` for its domain. `elsewhere` is the limit of a row for a
        node without a domain.
        """
        filled = np.append(values, elsewhere)
        return filled[np.where(self.codes < 0, len(values), self.codes)]
