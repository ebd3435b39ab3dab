"""Keeps a scheduler up to date with the cluster state: passes changes on to it, or creates it again.

A scheduler follows changes of pods, PodGroups, nodes, NodeResourceTopologies and the objects of Dynamic Resource
Allocation. It is replaced by a new one, made from a Snapshot, in these cases: another kind of object changed; too many
objects changed; a resource name is new; or the number of followed changes, or the size of the specs of new pods,
exceeds a limit. A new scheduler then costs no more, and frees caches of deleted pods.

The results of plugins of other packages may depend on devices in ways that the tables do not know. With such plugins,
only pods, PodGroups and nodes are followed.

The profile's own plugins read neither annotations nor conditions of nodes, which change often on some clusters. Nodes
that changed in nothing else are not reported.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import FOLLOWED_FIELDS, HeldGang, Snapshot
from batchsched.ports.cluster import ClusterChanges, Scheduler
from batchsched.state.cluster_state import NODES, PODS, ClusterState
from batchsched.state.resource_names import ResourceColumnNames
from batchsched.state.store import ObjectChange, are_equal_for_scheduling

GROUPS = "pod_groups"
CLAIMS = "resource_claims"
FOLLOWED = frozenset({PODS, GROUPS, NODES})
MIN_FOLLOWED_CHANGES: Final = 25_000
"""A scheduler follows at least this number of changes before it is replaced; each spec of its own leaves 5 KB."""
MAX_CHANGES_PER_POD: Final = 4
"""Changes for each pod of the cluster after which a scheduler is replaced; following them cost as much as that."""
MIN_FOLLOWED_SPEC_BYTES: Final = 4 * 2**20
"""A scheduler follows at least these bytes of JSON of new specs before it is replaced. It keeps all of these specs, and
decoded they take up to four times as much."""
SPEC_BYTES_PER_POD: Final = 512
"""Bytes of new specs for each pod of the cluster after which a scheduler is replaced."""


class UpToDateScheduler:
    """The component that passes changes of the cluster state to a scheduler, or creates a new scheduler.

    Args:
      cache: the cluster state.
      make: makes a scheduler from a Snapshot.
      whole_nodes: True if plugins of other packages or extenders may read any field of nodes and devices.
      ignored_fields: the kinds of objects, by their field in Snapshot, on which no decision of the scheduler depends.
      min_followed_changes: the least number of changes that a scheduler follows before it is replaced.
    """

    def __init__(
        self,
        cache: ClusterState,
        make: Callable[[Snapshot], Scheduler],
        *,
        whole_nodes: bool = False,
        ignored_fields: frozenset[str] = frozenset(),
        min_followed_changes: int = MIN_FOLLOWED_CHANGES,
    ) -> None:
        self._cache = cache
        self._make = make
        self._whole_nodes = whole_nodes
        self._ignored_fields = ignored_fields
        self._min_followed_changes = min_followed_changes
        self._followed = 0
        self._scheduler: Scheduler | None = None
        self._changes = cache.create_change_reader()
        self._resources = ResourceColumnNames(Snapshot())

    def updated_scheduler(self, held: tuple[HeldGang, ...] = ()) -> Scheduler:
        """Return a scheduler that has received all changes of the cluster state.

        Args:
          held: the gangs that wait at Permit; the cluster state does not contain them.
        """
        cache = self._cache
        changes = self._changes.read_changes()
        if changes is not None and self._ignored_fields:
            changes = tuple(change for change in changes if change.field not in self._ignored_fields)
        if self._scheduler is None or changes is None or not self._can_follow_all(changes):
            # If `make` raises, the next call starts again: the changes of this call were read.
            self._scheduler = None
            snapshot = cache.snapshot()
            self._resources = ResourceColumnNames(snapshot)
            self._scheduler = self._make(snapshot)
            self._followed = 0
        else:
            nodes_changed = any(change.field == NODES and self._is_read(change) for change in changes)
            self._scheduler.apply_changes(
                _collected(changes, cache, cache.list_objects(NODES) if nodes_changed else None)
            )
            self._followed += len(changes)
            for change in changes:
                if change.field == PODS and change.before is not None and change.after is None:
                    self._resources.add_kept_spec_bytes_of_removed_pod(change.before)
        self._scheduler.set_waiting_gangs(held)
        return self._scheduler

    def unread_changes(self) -> tuple[ObjectChange, ...] | None:
        """Return the changes since the last call of `updated_scheduler`, or None if there were too many."""
        return self._changes.unread_changes()

    def _can_follow_all(self, changes: Iterable[ObjectChange]) -> bool:
        """Return whether the present scheduler can follow these changes."""
        pod_count = self._cache.count_objects(PODS)
        if self._followed > max(self._min_followed_changes, MAX_CHANGES_PER_POD * pod_count):
            return False
        if self._resources.kept_spec_bytes > max(MIN_FOLLOWED_SPEC_BYTES, SPEC_BYTES_PER_POD * pod_count):
            return False
        return all(self._can_follow(change) for change in changes)

    def _can_follow(self, change: ObjectChange) -> bool:
        if change.field in FOLLOWED_FIELDS:
            return not self._whole_nodes
        if change.field not in FOLLOWED:
            return False
        if change.after is None or change.field == GROUPS:
            return True
        if change.field == NODES:
            return self._resources.has_columns_for_node(change.after)
        # A pod that only got its node was pending before: its resource names are known.
        return _binds(change) or self._resources.has_columns_for_pod(change.after)

    def _is_read(self, change: ObjectChange) -> bool:
        """Return whether a node changed in something on which a decision may depend."""
        return self._whole_nodes or not _differs_unread_only(change.before, change.after)


def _differs_unread_only(before: Node | None, after: Node | None) -> bool:
    """Return whether two versions of a node are equal in all that the profile's own plugins read."""
    return (
        before is not None
        and after is not None
        and are_equal_for_scheduling(_read_part(before), _read_part(after))
    )


def _read_part(node: Node) -> Node:
    """Return a node without what no plugin of the profile reads."""
    return replace(
        node, metadata=replace(node.metadata, annotations=None), status=replace(node.status, conditions=None)
    )


def _collected(
    changes: Sequence[ObjectChange], cache: ClusterState, nodes: Sequence[Node] | None
) -> ClusterChanges:
    """Sort changes by what a scheduler has to do; `nodes` are given if one changed."""
    added: list[Pod] = []
    removed: list[Pod] = []
    bound: list[Pod] = []
    for change in changes:
        if change.field != PODS:
            continue
        if _binds(change) and cache.has_node(change.after.node_name):
            bound.append(change.after)
        else:
            if change.before is not None:
                removed.append(change.before)
            if change.after is not None:
                added.append(change.after)
    groups, removed_groups = _present_and_removed(GROUPS, changes)
    claims, removed_claims = _present_and_removed(CLAIMS, changes)
    followed_fields = {change.field for change in changes} & FOLLOWED_FIELDS
    return ClusterChanges(
        nodes,
        groups,
        removed,
        bound,
        added,
        removed_groups,
        claims=claims,
        removed_claims=removed_claims,
        objects={field: cache.list_objects(field) for field in followed_fields},
    )


def _present_and_removed(field: str, changes: Iterable[ObjectChange]) -> tuple[list[Any], list[str]]:
    """Return the changed objects of one kind, and the keys of those that were removed."""
    of_kind = [change for change in changes if change.field == field]
    return (
        [change.after for change in of_kind if change.after is not None],
        [change.key for change in of_kind if change.after is None],
    )


def _binds(change: ObjectChange) -> bool:
    """Return whether a change only binds a pending pod to a node."""
    before, after = change.before, change.after
    if before is None or after is None or before.node_name or not after.node_name:
        return False
    return bool(before.labels == after.labels and before.metadata.uid == after.metadata.uid)
