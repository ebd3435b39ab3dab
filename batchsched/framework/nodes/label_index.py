"""An index of label sets, which finds the sets that a selector matches without testing each of them.

Topology spread and inter-pod affinity need it for pods on nodes and for pending pods. A cluster may have ten thousand
distinct label sets, so the index tests only sets with the rarest value that a selector requires.

Pods on nodes that no selector can distinguish form a group, so that a selector is evaluated once for each group.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod
from batchsched.api.core.selector import LabelSelector
from batchsched.framework.status import BoolArray, IndexArray


def selector_key(selector: LabelSelector | None) -> Hashable:
    """Return a hashable value for a label selector, which is equal for equal selectors."""
    if selector is None:
        return None
    return (tuple(sorted((selector.match_labels or {}).items())), selector.match_expressions or ())


@dataclass(frozen=True, slots=True, eq=False)
class PodSelector:
    """A selector of the pods that are in given namespaces and match all given label selectors.

    Args:
      selectors: all must match; None selects nothing, () selects everything.
      namespaces: the selected namespaces, None for all.
    """

    selectors: tuple[LabelSelector, ...] | None
    namespaces: frozenset[str] | None = None
    selector_key: Hashable = field(init=False)

    def __post_init__(self) -> None:
        parts = None if self.selectors is None else tuple(selector_key(one) for one in self.selectors)
        object.__setattr__(self, "selector_key", (parts, self.namespaces))

    @classmethod
    def from_label_selector(
        cls, selector: LabelSelector | None, namespaces: frozenset[str] | None = None
    ) -> "PodSelector":
        """Create a pod selector from one label selector and the namespaces in which it applies.

        A selector of None selects nothing.
        """
        return cls(None if selector is None else (selector,), namespaces)

    @property
    def selects_whole_namespaces(self) -> bool:
        """True if the selector matches all pods in its namespaces, whatever labels the pods have."""
        return self.selectors is not None and all(one.matches_everything for one in self.selectors)

    def matches_labels(self, labels: Mapping[str, str]) -> bool:
        """Return True if every label selector of this pod selector matches the labels.

        The namespace of the pod is not checked.
        """
        return self.selectors is not None and all(one.matches(labels) for one in self.selectors)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return True if the selector selects a pod with this namespace and these labels."""
        return (self.namespaces is None or namespace in self.namespaces) and self.matches_labels(labels)

    def selector_label_keys(self) -> frozenset[str]:
        """Return the keys of the pod labels that the label selectors test."""
        none: frozenset[str] = frozenset()
        return none.union(*(one.label_keys() for one in self.selectors or ()))

    def required_labels(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Yield each label key that the selector requires of a pod, with the permitted values."""
        for selector in self.selectors or ():
            yield from selector.permitted_label_values()


class LabelSetIndex:
    """An index of label sets with their namespaces, which finds the label sets that a selector matches."""

    def __init__(self) -> None:
        self._sets: list[tuple[str, Mapping[str, str]]] = []
        self._sets_with: dict[tuple[str, str], list[int]] = {}
        self._selected: dict[Hashable, tuple[int, list[int]]] = {}

    def __len__(self) -> int:
        """The number of label sets."""
        return len(self._sets)

    def add_label_set(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Add a label set with its namespace to the index, and return its position in the index."""
        number = len(self._sets)
        self._sets.append((namespace, labels))
        for item in labels.items():
            self._sets_with.setdefault(item, []).append(number)
        return number

    def matching_label_set_numbers(self, selection: PodSelector) -> IndexArray:
        """Return the positions in the index of the label sets that a selector matches, in ascending order.

        The result is cached; a later call tests only the label sets that were added since.
        """
        seen, selected = self._selected.get(selection.selector_key, (0, []))
        if seen < len(self._sets):
            likely = self._likely(selection, seen)
            selected = selected + [number for number in likely if selection.matches(*self._sets[number])]
            self._selected[selection.selector_key] = (len(self._sets), selected)
        return np.asarray(selected, np.int32)

    def _likely(self, selection: PodSelector, since: int) -> Iterable[int]:
        """Return the numbers, from `since` on, of the sets with the rarest required value. The others cannot match."""
        if selection.selectors is None:
            return ()
        rarest: list[list[int]] | None = None
        least = 0
        for key, values in selection.required_labels():
            lists = [self._sets_with[key, value] for value in values if (key, value) in self._sets_with]
            size = sum(len(one) for one in lists)
            if rarest is None or size < least:
                rarest, least = lists, size
        if rarest is None:
            return range(since, len(self._sets))
        return sorted(number for one in rarest for number in one if number >= since)


FEW = 256
"""Number of empty groups that is always acceptable."""


@dataclass(frozen=True, slots=True, eq=False)
class PodLabelGroup:
    """The namespace and labels that all pods of a group have, and whether the pods are terminating.

    Either all pods of the group are terminating or none is.
    """

    namespace: str
    labels: dict[str, str]
    terminating: bool

    def matches_pod(self, pod: Pod) -> bool:
        """Return True if a pod has the same namespace, labels and value of `terminating` as this group."""
        return (
            pod.labels == self.labels
            and pod.namespace == self.namespace
            and pod.terminating == self.terminating
        )


class PodLabelGroups:
    """Groups of pods on nodes with equal namespace, labels and `terminating`, with the size of each group.

    A long-running cluster gets new label sets all the time. Therefore `drop_empty_groups` drops groups without pods,
    which changes the indexes of the other groups.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._groups: list[PodLabelGroup] = []
        self._number: dict[tuple[str, tuple[tuple[str, str], ...], bool], int] = {}
        self._sizes: list[int] = []
        self._empty = 0
        self._index = LabelSetIndex()
        self._leaving: list[int] = []
        self._latest = 0
        """The group of the last pod."""

    def __len__(self) -> int:
        """The number of groups, including empty ones."""
        return len(self._groups)

    def add_pods(self, pods: Iterable[Pod]) -> list[int]:
        """Increase the count of each pod's label group by one, and return the groups' indexes.

        Missing groups are created.

        Returns:
          The index of each pod's group, in the order of `pods`.
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
        if number >= len(self._groups) or not self._groups[number].matches_pod(pod):
            labels = tuple(sorted(pod.labels.items()))
            number = self._latest = self._find(pod.namespace, labels, terminating=pod.terminating)
        return number

    def _find(self, namespace: str, labels: tuple[tuple[str, str], ...], *, terminating: bool) -> int:
        number = self._number.setdefault((namespace, labels, terminating), len(self._groups))
        if number == len(self._groups):
            group = PodLabelGroup(namespace, dict(labels), terminating)
            self._groups.append(group)
            self._sizes.append(0)
            self._empty += 1
            self._index.add_label_set(namespace, group.labels)
            if terminating:
                self._leaving.append(number)
        return number

    def remove_pods_from_groups(self, group_numbers: Iterable[int]) -> None:
        """Decrease the count of a label group by one for each occurrence of its index in `group_numbers`."""
        for number in group_numbers:
            self._sizes[number] -= 1
            self._empty += self._sizes[number] == 0

    def drop_empty_groups(self) -> IndexArray | None:
        """Drop the label groups without pods, if they outnumber the groups with pods.

        Up to `FEW` groups without pods are always kept.

        Returns:
          An array with the new index of each group, -1 for dropped groups; None if nothing was dropped.
        """
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

    def mask_pod_groups_passing_test(self, matches: Callable[[PodLabelGroup], bool]) -> BoolArray:
        """Return an array with one boolean per label group: True if `matches` returns True for the group."""
        return np.fromiter((matches(group) for group in self._groups), np.bool_, len(self._groups))

    def mask_pod_groups_matching_selector(self, selection: PodSelector, *, terminating: bool) -> BoolArray:
        """Return an array with one boolean per label group: True if `selection` matches its namespace and labels.

        If `terminating` is False, groups of terminating pods are not selected.
        """
        chosen = np.zeros(len(self._groups), np.bool_)
        chosen[self._index.matching_label_set_numbers(selection)] = True
        if not terminating:
            chosen[self._leaving] = False
        return chosen
