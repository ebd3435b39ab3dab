"""Index of label sets: finds the label sets that a selector matches without testing each of them.

Topology spread and inter-pod affinity need it for pods on nodes and for pending pods. A cluster may have ten thousand
distinct label sets, so the index tests only sets with the rarest value that a selector requires.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.selector import LabelSelector
from batchsched.framework.status import IndexArray


def identity(selector: LabelSelector | None) -> Hashable:
    """Return a hashable value that is equal for equal selectors."""
    if selector is None:
        return None
    return (tuple(sorted((selector.match_labels or {}).items())), selector.match_expressions or ())


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A selection of pods by namespaces and selectors.

    Args:
      selectors: all must match; None selects nothing, () selects everything.
      namespaces: the selected namespaces, None for all.
    """

    selectors: tuple[LabelSelector, ...] | None
    namespaces: frozenset[str] | None = None
    identity: Hashable = field(init=False)

    def __post_init__(self) -> None:
        parts = None if self.selectors is None else tuple(identity(one) for one in self.selectors)
        object.__setattr__(self, "identity", (parts, self.namespaces))

    @classmethod
    def of(cls, selector: LabelSelector | None, namespaces: frozenset[str] | None = None) -> "Selection":
        """Return the selection of one selector. None selects nothing."""
        return cls(None if selector is None else (selector,), namespaces)

    @property
    def empty(self) -> bool:
        """True if the selectors have no requirement, and so match every label set."""
        return self.selectors is not None and all(one.empty for one in self.selectors)

    def matches_labels(self, labels: Mapping[str, str]) -> bool:
        """Return True if the selectors match a label set in any namespace."""
        return self.selectors is not None and all(one.matches(labels) for one in self.selectors)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return True if a pod with this namespace and these labels is selected."""
        return (self.namespaces is None or namespace in self.namespaces) and self.matches_labels(labels)

    def keys(self) -> frozenset[str]:
        """Return the keys of the labels that the selectors read."""
        none: frozenset[str] = frozenset()
        return none.union(*(one.keys() for one in self.selectors or ()))

    def required_labels(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Yield each label key that a selected pod must have, with the permitted values."""
        for selector in self.selectors or ():
            for key, value in (selector.match_labels or {}).items():
                yield key, (value,)
            for expression in selector.match_expressions or ():
                if expression.operator == "In":
                    yield expression.key, tuple(dict.fromkeys(expression.values or ()))


class LabelIndex:
    """Label sets with their namespaces, numbered in the order of their addition."""

    def __init__(self) -> None:
        self._sets: list[tuple[str, Mapping[str, str]]] = []
        self._sets_with: dict[tuple[str, str], list[int]] = {}
        self._selected: dict[Hashable, tuple[int, list[int]]] = {}

    def __len__(self) -> int:
        """The number of sets."""
        return len(self._sets)

    def add(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Add a set and return its number."""
        number = len(self._sets)
        self._sets.append((namespace, labels))
        for item in labels.items():
            self._sets_with.setdefault(item, []).append(number)
        return number

    def select(self, selection: Selection) -> IndexArray:
        """[k] Return the numbers of the selected sets, ascending. Answers are cached, and extended for new sets."""
        seen, selected = self._selected.get(selection.identity, (0, []))
        if seen < len(self._sets):
            likely = self._likely(selection, seen)
            selected = selected + [number for number in likely if selection.matches(*self._sets[number])]
            self._selected[selection.identity] = (len(self._sets), selected)
        return np.asarray(selected, np.int32)

    def _likely(self, selection: Selection, since: int) -> Iterable[int]:
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
