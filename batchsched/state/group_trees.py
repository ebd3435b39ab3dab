"""The trees that CompositePodGroups and PodGroups of Kubernetes form in a live cluster, updated in any order.

A tree is one gang, so each change of a group changes the PodGroup of its root, and a group that arrives late may move
pods to another gang.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.conversion import scheduling_group_key, with_gang_labels_of_tree
from batchsched.api.external.group_tree import (
    InvalidTreeField,
    TreeGroup,
    TreeRootIndex,
    convert_tree_to_pod_group,
    groups_below_with_depth,
    invalid_tree_fields,
)
from batchsched.api.external.pod_group import source_annotations


@dataclass(frozen=True, slots=True)
class TreeChangeEffects:
    """The gangs and PodGroups that the change of a PodGroup or CompositePodGroup affects.

    Args:
      gangs: by `namespace/name` of a root, the PodGroup of the tree; None if the root does not exist.
      pod_groups: the PodGroups of Kubernetes, by `namespace/name`, with pods that belong to another gang than before.
    """

    gangs: Mapping[str, PodGroup | None]
    pod_groups: frozenset[str]


class GroupTrees:
    """The trees of CompositePodGroups and the PodGroups below them, with the gang that each tree forms.

    An origin is one kind of group in one API version. If several origins have a group of the same name, the first one
    counts.
    """

    def __init__(self) -> None:
        self._by_origin: dict[int, dict[tuple[bool, str], TreeGroup]] = {}
        self._composites: dict[str, TreeGroup] = {}
        self._pod_groups: dict[str, TreeGroup] = {}
        self._children: dict[str, dict[tuple[bool, str], TreeGroup]] = {}
        self._roots: dict[tuple[bool, str], str] = {}
        """The root of each group."""

    def put_group(self, origin: int, group: TreeGroup) -> TreeChangeEffects:
        """Add or replace a PodGroup or CompositePodGroup in its tree; return the gangs and PodGroups that changed."""
        self._by_origin.setdefault(origin, {})[_address(group)] = group
        return self._update({_address(group)})

    def remove_group(self, origin: int, key: str, *, is_composite: bool) -> TreeChangeEffects:
        """Remove a PodGroup or CompositePodGroup from its tree; return the gangs and PodGroups that changed."""
        address = (is_composite, key)
        if self._by_origin.get(origin, {}).pop(address, None) is None:
            return TreeChangeEffects({}, frozenset())
        return self._update({address})

    def replace_groups_of_origin(self, origin: int, listed: Iterable[TreeGroup]) -> TreeChangeEffects:
        """Replace all groups of one kind and API version by a new list; return the gangs and PodGroups that changed."""
        before = self._by_origin.get(origin, {})
        after = {_address(group): group for group in listed}
        self._by_origin[origin] = after
        return self._update(before.keys() | after.keys())

    def gang_and_subgroup_of(self, pod_group: str) -> tuple[str, str] | None:
        """Return the names of the gang and the subgroup of a PodGroup's pods; None if the PodGroup is in no tree."""
        group = self._pod_groups.get(pod_group)
        if group is None:
            return None
        return self._roots[False, pod_group].rpartition("/")[2], group.converted_subgroup_name

    def with_gang_labels(self, pod: Pod) -> Pod:
        """Return a pod with the labels of its gang and subgroup if its PodGroup is in a tree; otherwise the pod itself.

        Call this method only for pods of a batchsched profile.
        """
        key = scheduling_group_key(pod)
        place = self.gang_and_subgroup_of(key) if key else None
        return with_gang_labels_of_tree(pod, {key: place}) if place is not None else pod

    def groups_of_tree(self, root: str) -> tuple[TreeGroup, ...]:
        """Return all PodGroups and CompositePodGroups of a tree, its root first; () if there is no such tree."""
        top = self._composites.get(root)
        if top is None or self._roots[True, root] != root:
            return ()
        return (top, *(group for group, _ in groups_below_with_depth(root, self.child_groups)))

    def child_groups(self, parent: str) -> Sequence[TreeGroup]:
        """Return the child groups of a CompositePodGroup sorted by name, all PodGroups first."""
        below = self._children.get(parent, {})
        return [below[address] for address in sorted(below)]

    def _update(self, addresses: set[tuple[bool, str]]) -> TreeChangeEffects:
        """Recompute the groups at these addresses, and the gangs of all trees that they are or were in."""
        roots: set[str] = set()
        for address in addresses:
            roots |= self._replace_group(address)
        moved: set[str] = set()
        tree_roots = TreeRootIndex(self._composites)
        for address in self._below(addresses):
            roots |= self._update_root(address, tree_roots, moved)
        return TreeChangeEffects({root: self._gang(root) for root in sorted(roots)}, frozenset(moved))

    def _replace_group(self, address: tuple[bool, str]) -> set[str]:
        """Show the version of a group that counts, and return the root that it had."""
        is_composite, key = address
        shown = self._composites if is_composite else self._pod_groups
        before = shown.pop(key, None)
        if before is not None:
            siblings = self._children[before.parent_key]
            siblings.pop(address, None)
            if not siblings:
                del self._children[before.parent_key]
        origins = (self._by_origin[origin] for origin in sorted(self._by_origin))
        after = next((groups[address] for groups in origins if address in groups), None)
        if after is not None:
            shown[key] = after
            self._children.setdefault(after.parent_key, {})[address] = after
        return {self._roots[address]} if address in self._roots else set()

    def _below(self, addresses: Iterable[tuple[bool, str]]) -> set[tuple[bool, str]]:
        """Return the addresses, and those of all groups below them."""
        affected = set(addresses)
        waiting = [key for is_composite, key in affected if is_composite]
        while waiting:
            below = {_address(group) for group in self.child_groups(waiting.pop())} - affected
            affected |= below
            waiting += [key for is_composite, key in below if is_composite]
        return affected

    def _update_root(self, address: tuple[bool, str], tree_roots: TreeRootIndex, moved: set[str]) -> set[str]:
        """Recompute the root of a group, and return the roots that it has and had. A moved PodGroup is noted."""
        is_composite, key = address
        group = (self._composites if is_composite else self._pod_groups).get(key)
        before = self._roots.pop(address, None)
        after = tree_roots.root_key_of(group) if group is not None else None
        if after is not None:
            self._roots[address] = after
        if before != after and not is_composite:
            moved.add(key)
        return {root for root in (before, after) if root is not None}

    def _gang(self, root: str) -> PodGroup | None:
        top = self._composites.get(root)
        is_root = top is not None and self._roots.get((True, root)) == root
        if top is None or not is_root:
            return None
        try:
            return convert_tree_to_pod_group(top, self.child_groups)
        except ValidationError as error:
            return _refused(top, invalid_tree_fields(error, top, self.child_groups))


def _refused(top: TreeGroup, problems: Iterable[InvalidTreeField]) -> PodGroup:
    """Return the PodGroup of a tree with invalid values, which an annotation names, so that it is refused."""
    problem = "; ".join(map(str, problems))
    marks = source_annotations(top.source, top.api_version, kind=top.kind, problem=problem)
    meta = {"name": top.name, "namespace": top.namespace, "annotations": marks}
    return PodGroup.model_validate({"metadata": meta, "spec": {}})


def _address(group: TreeGroup) -> tuple[bool, str]:
    return group.is_composite, group.key
