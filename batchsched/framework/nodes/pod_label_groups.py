"""Groups of pods on nodes that no selector can distinguish, so that a selector is evaluated once for each group."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Affinity, Pod
from batchsched.framework.nodes.label_index import LabelIndex, Selection
from batchsched.framework.status import BoolArray, IndexArray, IntArray

FEW = 256
"""Number of empty groups that is always acceptable."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelGroup:
    """Pods on nodes with one namespace and equal labels, either all terminating or none."""

    namespace: str
    labels: dict[str, str]
    terminating: bool

    def holds(self, pod: Pod) -> bool:
        """Return True if a pod belongs to the group."""
        return (
            pod.labels == self.labels
            and pod.namespace == self.namespace
            and pod.terminating == self.terminating
        )


@dataclass(slots=True, eq=False)
class AffinityGroup:
    """Pods on nodes of one namespace with equal pod affinity and anti-affinity.

    Args:
      namespace, affinity: what the pods share.
      on: node → number of these pods.
    """

    namespace: str
    affinity: Affinity
    on: dict[int, int] = field(default_factory=dict)
    _arrays: tuple[IndexArray, IntArray] | None = None

    def change(self, node: int, by: int) -> None:
        """Add a number, which may be negative, to the pods on a node."""
        count = self.on.get(node, 0) + by
        if count:
            self.on[node] = count
        else:
            del self.on[node]
        self._arrays = None

    def renumber(self, numbers: list[int]) -> None:
        """Give the nodes other indexes: numbers[old] is the new index."""
        self.on = {numbers[node]: count for node, count in self.on.items()}
        self._arrays = None

    def places(self) -> tuple[IndexArray, IntArray]:
        """Return ([k] nodes, [k] number of the pods on each)."""
        if self._arrays is None:
            size = len(self.on)
            self._arrays = (
                np.fromiter(self.on.keys(), np.int32, size),
                np.fromiter(self.on.values(), np.int64, size),
            )
        return self._arrays


class PodLabelGroups:
    """The label groups of the pods on nodes, numbered in the order of their creation.

    A long-running cluster has ever new label sets. Therefore `renumber` drops empty groups from time to time, which
    changes the numbers of the others.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._groups: list[LabelGroup] = []
        self._number: dict[tuple[str, tuple[tuple[str, str], ...], bool], int] = {}
        self._sizes: list[int] = []
        self._empty = 0
        self._index = LabelIndex()
        self._leaving: list[int] = []
        self._latest = 0
        """The group of the last pod."""

    def __len__(self) -> int:
        """The number of groups, including empty ones."""
        return len(self._groups)

    def enter(self, pods: Iterable[Pod]) -> list[int]:
        """Count pods in.

        Returns:
          The group of each pod, in the order of `pods`.
        """
        numbers: list[int] = []
        number = self._latest
        previous: ObjectMeta | None = None
        for pod in pods:
            metadata = pod.metadata
            # Pods of one template follow each other: comparing with the previous pod is cheaper than a look-up.
            if previous is None or (metadata.labels, metadata.namespace, metadata.deletion_timestamp) != (
                previous.labels,
                previous.namespace,
                previous.deletion_timestamp,
            ):
                previous, number = metadata, self._group_of(pod)
            self._empty -= self._sizes[number] == 0
            self._sizes[number] += 1
            numbers.append(number)
        return numbers

    def _group_of(self, pod: Pod) -> int:
        """Return the group of a pod; a new one if there is none."""
        number = self._latest
        if number >= len(self._groups) or not self._groups[number].holds(pod):
            labels = tuple(sorted(pod.labels.items()))
            number = self._latest = self._find(pod.namespace, labels, terminating=pod.terminating)
        return number

    def _find(self, namespace: str, labels: tuple[tuple[str, str], ...], *, terminating: bool) -> int:
        number = self._number.setdefault((namespace, labels, terminating), len(self._groups))
        if number == len(self._groups):
            group = LabelGroup(namespace, dict(labels), terminating)
            self._groups.append(group)
            self._sizes.append(0)
            self._empty += 1
            self._index.add(namespace, group.labels)
            if terminating:
                self._leaving.append(number)
        return number

    def leave(self, numbers: Iterable[int]) -> None:
        """Count one pod out for each of these groups; a group may occur several times."""
        for number in numbers:
            self._sizes[number] -= 1
            self._empty += self._sizes[number] == 0

    def renumber(self) -> IndexArray | None:
        """Drop the empty groups if there are many. Return [groups] the new numbers (-1: dropped); else None."""
        if self._empty <= max(FEW, len(self._groups) // 2):
            return None
        keys, sizes = list(self._number), self._sizes
        self._forget()
        numbers = np.full(len(keys), -1, np.int32)
        for old, (namespace, labels, terminating) in enumerate(keys):
            if sizes[old]:
                new = numbers[old] = self._find(namespace, labels, terminating=terminating)
                self._sizes[new] = sizes[old]
        self._empty = 0
        return numbers

    def matching(self, matches: Callable[[LabelGroup], bool]) -> BoolArray:
        """[groups] Return the groups that pass a test, which is called for each group."""
        return np.fromiter((matches(group) for group in self._groups), np.bool_, len(self._groups))

    def selected(self, selection: Selection, *, terminating: bool) -> BoolArray:
        """[groups] Return the selected groups; groups of terminating pods only if `terminating`."""
        chosen = np.zeros(len(self._groups), np.bool_)
        chosen[self._index.select(selection)] = True
        if not terminating:
            chosen[self._leaving] = False
        return chosen
