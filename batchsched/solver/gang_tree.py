"""Subgroup trees and topology slices in the solver.

The tree rules of this module apply to a gang if one of its subgroups has a parent, if fewer subgroups are needed than
there are, or if its pods or those of a subgroup are divided into topology slices. Every other gang has the simpler
rules of `ProblemSubgroups`.

The tree rules: a pod is placed only if afterwards the gang and every subgroup above the pod run. A subgroup without
children runs if it has its minimum, one with children if enough of these run, and the gang if enough of the subgroups
without a parent run and it has its own minimum.

Shapes: C classes, G gangs, S subgroups.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchsched.solver.problem import NONE, BoolArray, IntArray, Problem


def mask_gangs_with_tree_rules(problem: Problem) -> BoolArray:
    """Return a mask [G] of the gangs with nested subgroups, optional subgroups or topology slices."""
    gangs, parts = problem.gangs, problem.subgroups
    trees: BoolArray = (gangs.slice_size > 0) | (gangs.min_children != NONE)
    # Single gangs are asked about thousands of times in a session.
    if not len(parts.gang):
        return trees
    trees[parts.gang[(parts.parent != NONE) | (parts.min_children != NONE) | (parts.slice_size > 0)]] = True
    return trees


@dataclass(frozen=True)
class SubgroupTreeNode:
    """A gang or a subgroup, with its pods and the subgroups directly below it.

    Args:
      subgroup: its number, NONE for the gang itself.
      need: pods that must still be placed; for a subgroup with children 0.
      min_children: how many of the children must run.
      required, preferred: levels or NONE.
      pinned: the domain of the required level where members already run, or NONE.
      slice_level, slice_size: the slices of its own pods; NONE and 0 without.
      classes: its own classes, without those of the subgroups below.
      counts: pods of each of these classes.
      children: the subgroups below.
      running: running pods in slices, by domain.
    """

    subgroup: int
    need: int
    min_children: int
    required: int
    preferred: int
    pinned: int
    slice_level: int
    slice_size: int
    classes: tuple[int, ...]
    counts: tuple[int, ...]
    children: tuple["SubgroupTreeNode", ...]
    running: tuple[tuple[int, int], ...] = ()

    @cached_property
    def is_running(self) -> bool:
        """Whether the gang or subgroup already has enough running pods."""
        running = sum(child.is_running for child in self.children)
        return self.need == 0 and running >= self.min_children

    @cached_property
    def pending_pod_count(self) -> int:
        """The number of pending pods of the gang or subgroup and of all subgroups below it."""
        return sum(self.counts) + sum(child.pending_pod_count for child in self.children)

    @cached_property
    def fewest_pods_to_run(self) -> int:
        """The fewest pods to place so that the gang or subgroup runs; more than `pods` if it cannot run."""
        below = sorted(child.fewest_pods_to_run for child in self.children)[: self.min_children]
        own = self.round_up_to_complete_slices(self.need) if self.slice_size and self.need else self.need
        return (
            max(own, sum(below)) if self.children or sum(self.counts) >= own else self.pending_pod_count + own
        )

    @cached_property
    def all_classes(self) -> tuple[int, ...]:
        """The pod classes of the gang or subgroup and of all subgroups below it."""
        return self.classes + tuple(c for child in self.children for c in child.all_classes)

    def iterate_subtree(self) -> Iterator["SubgroupTreeNode"]:
        """Yield this gang or subgroup, and all subgroups below it."""
        yield self
        for child in self.children:
            yield from child.iterate_subtree()

    @property
    def running_slices_by_domain(self) -> dict[int, int]:
        """The number of topology slices with running pods in each domain, incomplete slices included."""
        return {domain: -(-pods // self.slice_size) for domain, pods in self.running}

    @property
    def missing_slice_pods_by_domain(self) -> dict[int, int]:
        """For each domain with an incomplete topology slice, the number of pods that the slice lacks."""
        return {domain: -pods % self.slice_size for domain, pods in self.running if pods % self.slice_size}

    def round_up_to_complete_slices(self, pods: int) -> int:
        """Return the smallest number of pods that is at least `pods` and completes every topology slice."""
        missing = sum(self.missing_slice_pods_by_domain.values())
        return missing + -(-max(0, pods - missing) // self.slice_size) * self.slice_size


class GangTrees:
    """The trees of subgroups of all gangs in a problem, created on first use."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.is_tree = mask_gangs_with_tree_rules(problem)
        self._trees: dict[int, SubgroupTreeNode] = {}

    def tree_of_gang(self, gang: int) -> SubgroupTreeNode | None:
        """Return the subgroup tree of a gang, or None if it has no nested or optional subgroups or slices."""
        if not self.is_tree[gang]:
            return None
        if gang not in self._trees:
            self._trees[gang] = self._build(gang)
        return self._trees[gang]

    def _build(self, gang: int) -> SubgroupTreeNode:
        problem = self._problem
        parts, gangs = problem.subgroups, problem.gangs
        owned = np.flatnonzero(problem.classes.gang == gang)
        children: dict[int, list[int]] = {}
        for s in np.flatnonzero(parts.gang == gang).tolist():
            children.setdefault(int(parts.parent[s]), []).append(s)
        below = tuple(self._node(s, owned, children) for s in children.get(NONE, ()))
        least = int(gangs.min_children[gang])
        return SubgroupTreeNode(
            subgroup=NONE,
            need=int(gangs.need[gang]),
            min_children=len(below) if least == NONE else least,
            required=int(gangs.required[gang]),
            preferred=int(gangs.preferred[gang]),
            pinned=int(gangs.pinned[gang]),
            slice_level=int(gangs.slice_level[gang]),
            slice_size=int(gangs.slice_size[gang]),
            children=below,
            running=self._running(gang, NONE),
            **self._own(NONE, owned),
        )

    def _node(self, s: int, owned: IntArray, children: dict[int, list[int]]) -> SubgroupTreeNode:
        parts = self._problem.subgroups
        below = tuple(self._node(child, owned, children) for child in children.get(s, ()))
        least = int(parts.min_children[s])
        return SubgroupTreeNode(
            subgroup=s,
            need=0 if below else int(parts.need[s]),
            min_children=len(below) if least == NONE else least,
            required=int(parts.required[s]),
            preferred=int(parts.preferred[s]),
            pinned=int(parts.pinned[s]),
            slice_level=int(parts.slice_level[s]),
            slice_size=int(parts.slice_size[s]),
            children=below,
            running=self._running(int(parts.gang[s]), s),
            **self._own(s, owned),
        )

    def _own(self, subgroup: int, owned: IntArray) -> dict[str, tuple[int, ...]]:
        classes = owned[self._problem.classes.subgroup[owned] == subgroup]
        counts = self._problem.classes.count[classes]
        return {"classes": tuple(classes.tolist()), "counts": tuple(counts.tolist())}

    def _running(self, gang: int, subgroup: int) -> tuple[tuple[int, int], ...]:
        table = self._problem.running_slice_pods
        own = (table.gang == gang) & (table.subgroup == subgroup) & (table.domain != NONE)
        return tuple(zip(table.domain[own].tolist(), table.pods[own].tolist(), strict=True))
