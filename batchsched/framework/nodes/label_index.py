"""The label index: pods named by namespace and labels, and found without asking every one.

Spreading and inter-pod affinity, of pods that are there and of pods that wait, come down to the same question:
which sets of labels does a selector match. Ten thousand pods with a name of their own in a label must not cost ten
thousand questions, so the index looks at the rarest value that a selector insists on.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from batchsched.api.core.selector import LabelSelector
from batchsched.framework.status import IndexArray


def identity(selector: LabelSelector | None) -> Hashable:
    """Return a value that equal selectors share, for sets and dicts."""
    if selector is None:
        return None
    return (tuple(sorted((selector.match_labels or {}).items())), selector.match_expressions or ())


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Pods of some namespaces that match every one of some selectors.

    Args:
      selectors: all must match; None selects nothing, () everything.
      namespaces: the only namespaces, or None for all.
    """

    selectors: tuple[LabelSelector, ...] | None
    namespaces: frozenset[str] | None = None
    identity: Hashable = field(init=False)

    def __post_init__(self) -> None:
        parts = None if self.selectors is None else tuple(identity(one) for one in self.selectors)
        object.__setattr__(self, "identity", (parts, self.namespaces))

    @classmethod
    def of(cls, selector: LabelSelector | None, namespaces: frozenset[str] | None = None) -> "Selection":
        """Make the selection of one selector; a missing one selects nothing."""
        return cls(None if selector is None else (selector,), namespaces)

    @property
    def empty(self) -> bool:
        """True when the selectors say nothing at all, and so match every set of labels."""
        return self.selectors is not None and all(one.empty for one in self.selectors)

    def matches_labels(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the selectors match a set of labels, whatever its namespace."""
        return self.selectors is not None and all(one.matches(labels) for one in self.selectors)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod is selected."""
        return (self.namespaces is None or namespace in self.namespaces) and self.matches_labels(labels)

    def keys(self) -> frozenset[str]:
        """Name the labels that the selectors look at."""
        none: frozenset[str] = frozenset()
        return none.union(*(one.keys() for one in self.selectors or ()))

    def wanted(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """The labels without which nothing is selected, each with the values that will do."""
        for selector in self.selectors or ():
            for key, value in (selector.match_labels or {}).items():
                yield key, (value,)
            for one in selector.match_expressions or ():
                if one.operator == "In":
                    yield one.key, tuple(dict.fromkeys(one.values or ()))


class LabelIndex:
    """Sets of labels with their namespaces, numbered as they come and found by what they say."""

    def __init__(self) -> None:
        self._sets: list[tuple[str, Mapping[str, str]]] = []
        self._having: dict[tuple[str, str], list[int]] = {}
        self._known: dict[Hashable, tuple[int, list[int]]] = {}

    def __len__(self) -> int:
        """The number of sets."""
        return len(self._sets)

    def add(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Take a set in; returns its number."""
        number = len(self._sets)
        self._sets.append((namespace, labels))
        for item in labels.items():
            self._having.setdefault(item, []).append(number)
        return number

    def select(self, selection: Selection) -> IndexArray:
        """[k] the numbers of the selected sets, ascending. Answers are kept, and extended as sets come."""
        seen, found = self._known.get(selection.identity, (0, []))
        if seen < len(self._sets):
            likely = self._likely(selection, seen)
            found = found + [number for number in likely if selection.matches(*self._sets[number])]
            self._known[selection.identity] = (len(self._sets), found)
        return np.asarray(found, np.int32)

    def _likely(self, selection: Selection, since: int) -> Iterable[int]:
        """Numbers from `since` on that may be selected: those with the rarest value that is insisted on."""
        if selection.selectors is None:
            return ()
        rarest: list[list[int]] | None = None
        least = 0
        for key, values in selection.wanted():
            lists = [self._having[key, value] for value in values if (key, value) in self._having]
            size = sum(len(one) for one in lists)
            if rarest is None or size < least:
                rarest, least = lists, size
        if rarest is None:
            return range(since, len(self._sets))
        return sorted(number for one in rarest for number in one if number >= since)
