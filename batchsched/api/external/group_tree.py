"""Trees of groups of Kubernetes: a CompositePodGroup and all groups below it become one PodGroup of batchsched.

The CompositePodGroup without a parent becomes the PodGroup, and the groups below become its subgroups. Pods name a
PodGroup of Kubernetes, which is a subgroup without children. Until a tree has as many groups as `minGroupCount` asks
for, a placeholder without pods stands for each missing group, so that the gang lacks pods.

The functions take and return values: `state.group_trees` keeps the groups of a live cluster, and `manifests.reader`
those of files.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from typing_extensions import override

from batchsched.api.core.metadata import LONGEST_LABEL, ObjectMeta
from batchsched.api.crd.podgroup import MOST_SUBGROUPS, PodGroup
from batchsched.api.crd.validation import field_errors
from batchsched.api.external.kubernetes import (
    MOST_TREE_LEVELS,
    CompositePodGroup,
    UpstreamPodGroup,
    convert_topology_constraints,
)
from batchsched.api.external.pod_group import Spec, build_pod_group, without_none
from batchsched.api.snapshot import api_group

COMPOSITE: Final = "CompositePodGroup"
_DIGEST_LENGTH: Final = 8
_MISSING: Final = "/missing"
"""Suffix of the subgroup for the groups that a CompositePodGroup waits for."""
_SUBGROUP_FIELD: Final = re.compile(r"spec\.subGroups\[(\d+)\]\.(.+)")
_SOURCE_FIELDS: Final = {
    "minMember": "spec.schedulingPolicy.gang.minCount",
    "minSubGroups": "spec.schedulingPolicy.gang.minGroupCount",
    "spec.minSubGroups": "spec.schedulingPolicy.gang.minGroupCount",
    "topology.required": "spec.schedulingConstraints.topology[0].key",
    "spec.topology.required": "spec.schedulingConstraints.topology[0].key",
    "name": "metadata.name",
    "parent": "spec.parentCompositePodGroupName",
}
"""Field of a batchsched PodGroup, or of a subgroup of it → the field of the group of Kubernetes that it comes from."""


@dataclass(frozen=True, slots=True)
class TreeGroup:
    """A group in a tree: a CompositePodGroup, or a PodGroup of Kubernetes that has a CompositePodGroup as parent.

    Args:
      source: the object as it was read.
      api_version: its `apiVersion`.
    """

    source: CompositePodGroup | UpstreamPodGroup
    api_version: str

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the PodGroup or CompositePodGroup."""
        return self.source.metadata

    @property
    def is_composite(self) -> bool:
        """Whether the object is a CompositePodGroup, which contains groups instead of pods."""
        return isinstance(self.source, CompositePodGroup)

    @property
    def kind(self) -> str:
        """The kind of the group: PodGroup or CompositePodGroup."""
        return COMPOSITE if self.is_composite else "PodGroup"

    @property
    def name(self) -> str:
        """The name of the PodGroup or CompositePodGroup."""
        return self.source.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the PodGroup or CompositePodGroup, `default` if missing."""
        return self.source.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """The `namespace/name` of the PodGroup or CompositePodGroup."""
        return f"{self.namespace}/{self.name}"

    @property
    def parent_key(self) -> str:
        """The `namespace/name` of the parent, a CompositePodGroup; "" if it has none."""
        parent = self.source.spec.parent_composite_pod_group_name
        return f"{self.namespace}/{parent}" if parent else ""

    @property
    def minimum_pod_or_group_count(self) -> int:
        """The number of pods of a PodGroup, or of groups directly below a CompositePodGroup, that must run.

        The number is 1 for the scheduling policy `basic`.
        """
        if isinstance(self.source, CompositePodGroup):
            groups = self.source.spec.scheduling_policy.gang
            return max(1, groups.min_group_count) if groups is not None else 1
        pods = self.source.spec.scheduling_policy.gang
        return max(1, pods.min_count) if pods is not None else 1

    @property
    def workload_name(self) -> str:
        """The name of the Workload from which the group was created; "" if it names none."""
        reference = self.source.spec.workload_ref
        return reference.workload_name if reference is not None else ""

    @property
    def conditions(self) -> Sequence[dict[str, Any]]:
        """The conditions in the status of the PodGroup or CompositePodGroup, unchanged."""
        return self.source.stated_conditions

    @property
    def converted_subgroup_name(self) -> str:
        """The name of the batchsched subgroup to which the PodGroup or CompositePodGroup is converted."""
        return subgroup_name(self.name, is_composite=self.is_composite)


Children = Callable[[str], Sequence[TreeGroup]]
"""Returns the groups that name a CompositePodGroup, by its `namespace/name`, as their parent."""


def composite_group_with_missing_groups(subgroup: str) -> str:
    """Return the CompositePodGroup of which a placeholder counts the missing groups; "" for other subgroups.

    The result is also "" if the name of the subgroup is shortened.
    """
    return subgroup.removesuffix(_MISSING) if subgroup.endswith(_MISSING) else ""


def subgroup_name(name: str, *, is_composite: bool = False) -> str:
    """Return the name of the subgroup to which a PodGroup or CompositePodGroup of Kubernetes is converted.

    The name is short enough for a label value. A PodGroup and a CompositePodGroup with equal names get different names.
    """
    full = f"composite/{name}" if is_composite else name
    if len(full) <= LONGEST_LABEL:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{full[: LONGEST_LABEL - _DIGEST_LENGTH - 1]}-{digest}"


class TreeRootIndex:
    """An index that finds the CompositePodGroup at the top of the tree of a PodGroup or CompositePodGroup.

    The index follows each parent once, however many groups are below it.

    Args:
      composites: the CompositePodGroups by `namespace/name`.
    """

    def __init__(self, composites: Mapping[str, TreeGroup]) -> None:
        self.composites = composites
        self._root_key_of: dict[str, str] = {}
        """The root of each CompositePodGroup that was passed on the way to a root; it may not exist yet."""

    def root_key_of(self, group: TreeGroup) -> str:
        """Return the `namespace/name` of the CompositePodGroup at the top of a group's tree.

        If a group names a missing parent, the result is the key of this missing CompositePodGroup. Parents that form a
        cycle have no top; the first of them by name counts as the root.
        """
        chain: dict[str, None] = {}
        key = group.key if group.is_composite else group.parent_key
        root = self._root_key_of.get(key, "")
        while not root:
            chain[key] = None
            above = self.composites.get(key)
            parent = above.parent_key if above is not None else ""
            if parent in chain:
                passed = list(chain)
                root = min(passed[passed.index(parent) :])
            else:
                root = self._root_key_of.get(parent, "") if parent else key
            key = parent
        self._root_key_of.update(dict.fromkeys(chain, root))
        return root


def groups_below_with_depth(root: str, children: Children) -> Iterator[tuple[TreeGroup, int]]:
    """Yield all PodGroups and CompositePodGroups below a CompositePodGroup with their depth, parents first.

    The root has depth 1.
    """
    seen, level = {root}, [root]
    depth = 1
    while level:
        depth += 1
        below = [group for key in level for group in children(key) if _is_new(group, seen)]
        yield from ((group, depth) for group in below)
        level = [group.key for group in below if group.is_composite]
        seen.update(level)


def _is_new(group: TreeGroup, seen: set[str]) -> bool:
    return not group.is_composite or group.key not in seen


def convert_tree_to_pod_group(root: TreeGroup, children: Children) -> PodGroup:
    """Convert a CompositePodGroup, with all groups below it, to one batchsched PodGroup.

    If the tree has an invalid layout or an unsupported field, an annotation of the PodGroup names the problem, so that
    the gang is refused.

    Args:
      root: the CompositePodGroup at the top.
      children: returns the groups directly below a CompositePodGroup.

    Raises:
      pydantic.ValidationError: a group has values that no PodGroup of batchsched allows: see `invalid_tree_fields`.
    """
    below = tuple(groups_below_with_depth(root.key, children))
    problem = _problem_of(root, below)
    spec = {} if problem else _spec(root, [group for group, _ in below], children)
    sources = [group.source for group, _ in below]
    return build_pod_group(
        root.source, root.api_version, spec, kind=root.kind, problem=problem, below=sources
    )


def _spec(root: TreeGroup, below: Sequence[TreeGroup], children: Children) -> Spec:
    """Return the spec of the gang. A tree is evicted as a whole if any group in it is."""
    source = root.source.spec
    composites = [root, *(group for group in below if group.is_composite)]
    parts = [
        *(_subgroup(group, root, children) for group in below),
        *(part for group in composites for part in _placeholder(group, root, children)),
    ]
    whole = any(group.source.spec.is_evicted_as_whole for group in (root, *below))
    return {
        "minSubGroups": _least_groups(root, children),
        "subGroups": parts or None,
        "topology": convert_topology_constraints(source.topology_constraint_keys),
        "priorityClassName": source.priority_class_name or None,
        "preemptionPolicy": source.preemption_policy,
        "disruptionMode": "Gang" if whole else "Elastic",
    }


def _subgroup(group: TreeGroup, root: TreeGroup, children: Children) -> Spec:
    below_root = group.parent_key == root.key
    parent = group.parent_key.rpartition("/")[2]
    return without_none(
        name=group.converted_subgroup_name,
        parent=None if below_root else subgroup_name(parent, is_composite=True),
        minMember=None if group.is_composite else group.minimum_pod_or_group_count,
        minSubGroups=_least_groups(group, children) if group.is_composite else None,
        topology=convert_topology_constraints(group.source.spec.topology_constraint_keys),
    )


def _least_groups(group: TreeGroup, children: Children) -> int | None:
    """Return the number of groups directly below a group that must run; None for all."""
    return (
        group.minimum_pod_or_group_count
        if group.minimum_pod_or_group_count < len(children(group.key))
        else None
    )


def _placeholder(group: TreeGroup, root: TreeGroup, children: Children) -> Iterator[Spec]:
    """Yield a subgroup without pods for the groups that a CompositePodGroup waits for."""
    missing = group.minimum_pod_or_group_count - len(children(group.key))
    if missing > 0:
        yield without_none(
            name=subgroup_name(f"{group.name}{_MISSING}"),
            parent=None if group is root else group.converted_subgroup_name,
            minMember=missing,
        )


def _problem_of(root: TreeGroup, below: Sequence[tuple[TreeGroup, int]]) -> str:
    """Return a sentence about why a tree cannot be placed; "" if it can.

    Source: the invalid layouts that `CompositePodGroupStatus` of k8s.io/api/scheduling/v1alpha3 names.
    """
    groups = (root, *(group for group, _ in below))
    workloads = sorted({group.workload_name for group in groups if group.workload_name})
    if root.parent_key:
        return f"{_named(root)}: spec.parentCompositePodGroupName: the parents form a cycle; delete one of the groups"
    if len(workloads) > 1:
        return (
            f"{_named(root)}: spec.workloadRef.workloadName: the groups of one tree name the Workloads "
            f"{', '.join(workloads)}; use one"
        )
    for group, depth in below:
        if depth > MOST_TREE_LEVELS:
            return (
                f"{_named(group)}: spec.parentCompositePodGroupName: the tree is deeper than {MOST_TREE_LEVELS} "
                "levels; remove a level"
            )
    if len(below) >= MOST_SUBGROUPS:
        return f"{_named(root)}: the tree has more than {MOST_SUBGROUPS} groups; divide it"
    fields = ((group, group.source.describe_unsupported_field()) for group in groups)
    return next((f"{_named(group)}: {field}" for group, field in fields if field), "")


def _named(group: TreeGroup) -> str:
    return f"{group.kind} {group.name} of {api_group(group.api_version)}"


@dataclass(frozen=True, slots=True)
class InvalidTreeField:
    """An invalid field of a PodGroup or CompositePodGroup that prevents the conversion of its tree to a gang.

    Args:
      group: the PodGroup or CompositePodGroup.
      field: the path of the field in the group.
      message: the expected value and the value found.
    """

    group: TreeGroup
    field: str
    message: str

    @override
    def __str__(self) -> str:
        return f"{_named(self.group)}: {self.field}: {self.message}"


def invalid_tree_fields(
    error: ValidationError, root: TreeGroup, children: Children
) -> tuple[InvalidTreeField, ...]:
    """Find the invalid fields of PodGroups and CompositePodGroups in a tree that could not be converted.

    Args:
      error: the error that `convert_tree_to_pod_group` raised for the tree.
      root: the CompositePodGroup at the top of the tree.
      children: returns the groups directly below a group.
    """
    below = [group for group, _ in groups_below_with_depth(root.key, children)]
    incomplete = [
        group for group in (root, *below) if group.is_composite and any(_placeholder(group, root, children))
    ]
    problems = []
    for field_error in field_errors(error, PodGroup):
        path = _SUBGROUP_FIELD.fullmatch(field_error.field)
        group, field = ((*below, *incomplete)[int(path[1])], path[2]) if path else (root, field_error.field)
        if group.is_composite and field == "minMember":  # of a placeholder
            field = "minSubGroups"
        problems.append(InvalidTreeField(group, _SOURCE_FIELDS.get(field, field), field_error.message))
    return tuple(problems)


@dataclass(frozen=True, slots=True)
class ConvertedTrees:
    """The gangs to which CompositePodGroups in input files were converted, and the problems that were found.

    Args:
      gangs: the batchsched PodGroup of each tree that could be converted.
      places: `namespace/name` of a PodGroup of Kubernetes → the name of its gang, and the name of its subgroup.
      problems: the invalid fields of the groups of all other trees.
    """

    gangs: tuple[PodGroup, ...]
    places: Mapping[str, tuple[str, str]]
    problems: tuple[InvalidTreeField, ...]


def convert_trees_to_pod_groups(groups: Iterable[TreeGroup]) -> ConvertedTrees:
    """Convert each tree of groups to one batchsched PodGroup, and list the invalid fields of all other trees.

    The result also states the gang and subgroup to which the pods of each PodGroup of Kubernetes belong.

    Args:
      groups: the groups of all trees.
    """
    listed = sorted(groups, key=lambda group: (group.is_composite, group.key))
    below: dict[str, list[TreeGroup]] = {}
    for group in listed:
        below.setdefault(group.parent_key, []).append(group)

    def groups_with_parent(key: str) -> Sequence[TreeGroup]:
        return below.get(key, ())

    roots = TreeRootIndex({group.key: group for group in listed if group.is_composite})
    gangs: list[PodGroup] = []
    problems: list[InvalidTreeField] = []
    for key, group in roots.composites.items():
        if roots.root_key_of(group) == key:
            try:
                gangs.append(convert_tree_to_pod_group(group, groups_with_parent))
            except ValidationError as error:
                problems += invalid_tree_fields(error, group, groups_with_parent)
    places = {
        group.key: (roots.root_key_of(group).rpartition("/")[2], group.converted_subgroup_name)
        for group in listed
        if not group.is_composite
    }
    return ConvertedTrees(tuple(gangs), places, tuple(problems))
