"""An index of the affinity terms of pods on nodes, which finds the terms that may match a pending pod.

A cluster may have thousands of pods with different terms, and nearly every term requires a label value that few pending
pods have. The terms are therefore indexed by a label value that each of them requires.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from batchsched.api.core.pod import Affinity, Pod, PodAffinityTerm
from batchsched.api.core.selector import LabelSelector
from batchsched.framework.status import IndexArray, IntArray

LabelValue = tuple[str, str]
"""A label key and a value."""


@dataclass(slots=True, eq=False)
class AffinityGroup:
    """The pods of one namespace with equal pod affinity and anti-affinity, and their number on each node.

    Args:
      namespace, affinity: what the pods share.
      on: index of a node → number of these pods on the node.
    """

    namespace: str
    affinity: Affinity
    on: dict[int, int] = field(default_factory=dict)
    _arrays: tuple[IndexArray, IntArray] | None = None

    def add_to_pod_count(self, node: int, by: int) -> None:
        """Change the number of this affinity group's pods on a node by `by`, which may be negative."""
        count = self.on.get(node, 0) + by
        if count:
            self.on[node] = count
        else:
            del self.on[node]
        self._arrays = None

    def renumber_nodes(self, numbers: list[int]) -> None:
        """Replace each node index `i` in this group's pod counts by the node's new index `numbers[i]`."""
        self.on = {numbers[node]: count for node, count in self.on.items()}
        self._arrays = None

    def nodes_and_pod_counts(self) -> tuple[IndexArray, IntArray]:
        """Return the indexes of the nodes with pods of this group, and the number of its pods on each."""
        if self._arrays is None:
            size = len(self.on)
            self._arrays = (
                np.fromiter(self.on.keys(), np.int32, size),
                np.fromiter(self.on.values(), np.int64, size),
            )
        return self._arrays


@dataclass(frozen=True, slots=True, eq=False)
class ExistingAffinityTerm:
    """A pod affinity or anti-affinity term that all pods of one `AffinityGroup` have.

    Args:
      group: the pods.
      term: the term.
      is_anti_affinity: the pods keep matching pods away; otherwise they attract them.
      preference: the weight of a preferred term; None for a required one.
    """

    group: AffinityGroup
    term: PodAffinityTerm
    is_anti_affinity: bool
    preference: int | None


def _terms_of(group: AffinityGroup) -> Iterator[ExistingAffinityTerm]:
    for affinity, is_anti_affinity in (
        (group.affinity.pod_affinity, False),
        (group.affinity.pod_anti_affinity, True),
    ):
        if affinity is None:
            continue
        for term in affinity.required_terms:
            yield ExistingAffinityTerm(group, term, is_anti_affinity, None)
        for preferred in affinity.preferred_terms:
            yield ExistingAffinityTerm(group, preferred.pod_affinity_term, is_anti_affinity, preferred.weight)


class AffinityTermIndex:
    """An index that finds the pod affinity terms that may match a pod with given labels.

    Each term is listed under the values of one label that it requires. If it requires several labels, it is listed
    under the one that the fewest other terms are listed under.
    """

    def __init__(self) -> None:
        self._by_value: dict[LabelValue, dict[ExistingAffinityTerm, None]] = {}
        self._without_value: dict[ExistingAffinityTerm, None] = {}
        self._values_of: dict[ExistingAffinityTerm, tuple[LabelValue, ...]] = {}

    def add_term(self, term: ExistingAffinityTerm) -> None:
        """Add an affinity term to the index. A term without a label selector matches no pod, and is not found."""
        selector = term.term.label_selector
        if selector is None:
            return
        values = self._rarest_values(selector)
        if values is None:
            self._without_value[term] = None
            return
        self._values_of[term] = values
        for value in values:
            self._by_value.setdefault(value, {})[term] = None

    def remove_term(self, term: ExistingAffinityTerm) -> None:
        """Remove an affinity term from the index."""
        self._without_value.pop(term, None)
        for value in self._values_of.pop(term, ()):
            terms = self._by_value[value]
            del terms[term]
            if not terms:
                del self._by_value[value]

    def terms_that_may_match(self, labels: Mapping[str, str]) -> Iterator[ExistingAffinityTerm]:
        """Yield the affinity terms that may match a pod with these labels; omitted terms cannot match it.

        Each term is yielded once.
        """
        yield from self._without_value
        for value in labels.items():
            yield from self._by_value.get(value, ())

    def _rarest_values(self, selector: LabelSelector) -> tuple[LabelValue, ...] | None:
        """Return the values of the required label that finds the fewest terms; None if no label is required."""
        alternatives = [
            tuple((key, value) for value in values) for key, values in selector.permitted_label_values()
        ]
        return min(
            alternatives,
            key=lambda values: sum(len(self._by_value.get(value, ())) for value in values),
            default=None,
        )


class AffinityGroups:
    """The bound and placed pods with pod affinity or anti-affinity, grouped by namespace and affinity."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, bytes], AffinityGroup] = {}
        self._terms: dict[tuple[str, bytes], tuple[ExistingAffinityTerm, ...]] = {}
        self._index = AffinityTermIndex()

    def __iter__(self) -> Iterator[AffinityGroup]:
        """The groups, in the order of their first pods."""
        return iter(self._groups.values())

    def update_pod_count(self, pod: Pod, affinity: Affinity, node: int, by: int) -> None:
        """Update an affinity group's pod count after a pod was added (`by` = 1) or removed (`by` = -1)."""
        key = (pod.namespace, msgspec.msgpack.encode((affinity.pod_affinity, affinity.pod_anti_affinity)))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = AffinityGroup(pod.namespace, affinity)
            terms = self._terms[key] = tuple(_terms_of(group))
            for term in terms:
                self._index.add_term(term)
        group.add_to_pod_count(node, by)
        if not group.on:
            del self._groups[key]
            for term in self._terms.pop(key):
                self._index.remove_term(term)

    def renumber_nodes(self, numbers: list[int]) -> None:
        """Replace each node index `i` in all affinity groups by the node's new index `numbers[i]`."""
        for group in self._groups.values():
            group.renumber_nodes(numbers)

    def terms_that_may_match(self, labels: Mapping[str, str]) -> Iterable[ExistingAffinityTerm]:
        """Return the affinity terms that may match a pod with these labels; omitted terms cannot match it."""
        return self._index.terms_that_may_match(labels)
