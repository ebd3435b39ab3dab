"""The subgroups of a gang as a tree, and how many pods are missing until enough of them run."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class SubgroupTree:
    """The tree of a gang's subgroups: leaves have pods, and a parent runs if enough of its children run.

    Args:
      names: the name of each subgroup.
      parents: the index of the parent of each subgroup, -1 for none.
      children: the indexes of the children of each subgroup.
      minimums: the number of pods that each subgroup needs in order to run; 0 for a subgroup with children.
      min_children: how many of its children must run for each subgroup to run; 0 for a subgroup without children.
      roots: the indexes of the subgroups without a parent.
      min_roots: how many of the roots must run for the gang to run.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    minimums: tuple[int, ...]
    min_children: tuple[int, ...]
    roots: tuple[int, ...]
    min_roots: int

    @classmethod
    def from_parents(
        cls,
        names: Sequence[str],
        parents: Sequence[str | None],
        minimums: Sequence[int],
        min_children: Sequence[int | None],
        min_roots: int | None,
    ) -> Self:
        """Build the tree of subgroups from their names and from the names of their parents.

        In `parents`, None means that a subgroup has no parent. In `min_children` and `min_roots`, None means all. The
        parents must exist and form no cycle.
        """
        index = {name: number for number, name in enumerate(names)}
        parent_of = tuple(-1 if parent is None else index[parent] for parent in parents)
        children: list[list[int]] = [[] for _ in names]
        for number, parent in enumerate(parent_of):
            if parent >= 0:
                children[parent].append(number)
        roots = tuple(number for number, parent in enumerate(parent_of) if parent < 0)
        return cls(
            names=tuple(names),
            parents=parent_of,
            children=tuple(map(tuple, children)),
            minimums=tuple(
                0 if below else minimum for below, minimum in zip(children, minimums, strict=True)
            ),
            min_children=tuple(
                len(below) if least is None else least
                for below, least in zip(children, min_children, strict=True)
            ),
            roots=roots,
            min_roots=len(roots) if min_roots is None else min_roots,
        )

    @property
    def has_nested_or_optional_subgroups(self) -> bool:
        """Whether a subgroup has a parent, or the gang's `minSubGroups` requires fewer than all subgroups."""
        return len(self.roots) < len(self.names) or self.min_roots < len(self.roots)

    @property
    def minimum_pod_count(self) -> int:
        """The smallest number of pods with which the required number of the gang's subgroups can run."""
        return self.count_missing_pods({})

    def count_missing_pods(self, placed: Mapping[str, int]) -> int:
        """Return how many more pods must be placed, at least, so that enough subgroups of the gang can run.

        Args:
          placed: number of placed pods by name of the subgroup; a missing name has none.
        """
        return self._least(self.roots, self.min_roots, placed)

    def names_in_subtree(self, number: int) -> tuple[str, ...]:
        """Return the names of the subgroup with this index and of all subgroups below it."""
        below = (name for child in self.children[number] for name in self.names_in_subtree(child))
        return (self.names[number], *below)

    def list_ancestors(self, number: int) -> list[int]:
        """Return the indexes of all subgroups above a subgroup, its parent first."""
        above, parent = [], self.parents[number]
        while parent >= 0:
            above.append(parent)
            parent = self.parents[parent]
        return above

    def names_in_smallest_incomplete_subtree(
        self, placed: Mapping[str, int], touched: AbstractSet[str]
    ) -> tuple[str, ...]:
        """Return the subgroup names in the smallest subtree with too few placed pods; () if there is none.

        Args:
          placed: number of placed pods by name of the subgroup; a missing name has none.
          touched: names of subgroups; only subtrees that contain one of them are considered.
        """
        for number in sorted(range(len(self.names)), key=lambda number: len(self.names_in_subtree(number))):
            names = self.names_in_subtree(number)
            if not touched.isdisjoint(names) and self._missing_below(number, placed):
                return names
        return ()

    def _missing_below(self, number: int, placed: Mapping[str, int]) -> int:
        if self.children[number]:
            return self._least(self.children[number], self.min_children[number], placed)
        return max(0, self.minimums[number] - placed.get(self.names[number], 0))

    def _least(self, group: Sequence[int], needed: int, placed: Mapping[str, int]) -> int:
        """Return the smallest number of additional pods with which `needed` of the subgroups can run."""
        missing = [self._missing_below(number, placed) for number in group]
        return sum(missing) if needed >= len(missing) else sum(sorted(missing)[:needed])
