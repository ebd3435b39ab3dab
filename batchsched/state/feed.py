"""The feed: keeps a scheduler abreast of a cache, by what changed where that will do.

A scheduler follows pods and PodGroups one by one, and is told all nodes when one changed. For anything else that
changed it is made anew from a Snapshot; so it is when it fell too far behind, and when a pod asks for a resource, or
a node offers one, that nobody named before. Now and then it is made anew in any case: what it worked out of pods that
are gone is forgotten so. Of a node, our own plugins read neither annotations nor conditions, which change all the time
on some clusters.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.requests import requests
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import HeldGang, Snapshot
from batchsched.ports.scheduler import ClusterChanges, Scheduler
from batchsched.state.change_log import Change
from batchsched.state.cluster_state import NODES, PODS, ClusterState
from batchsched.state.store import alike

GROUPS = "pod_groups"
FOLLOWED = frozenset({PODS, GROUPS, NODES})
MANY: Final = 100_000
"""Changes that a scheduler follows in any case."""
OFTEN: Final = 4
"""Changes for each pod that it follows; making it anew costs no more than following these did."""


class Feed:
    """A scheduler that knows what a cache knows, whenever it is asked for.

    Args:
      cache: what is known of the cluster.
      make: makes a scheduler from a Snapshot.
      whole: nodes are read as a whole, by others than our own plugins.
      many: changes that a scheduler follows in any case, before it is made anew.
    """

    def __init__(
        self,
        cache: ClusterState,
        make: Callable[[Snapshot], Scheduler],
        *,
        whole: bool = False,
        many: int = MANY,
    ) -> None:
        self._cache = cache
        self._make = make
        self._whole = whole
        self._many = many
        self._followed = 0
        self._scheduler: Scheduler | None = None
        self._generation = 0
        self._resources = Resources()

    def scheduler(self, held: tuple[HeldGang, ...] = ()) -> Scheduler:
        """Return the scheduler, brought up to date.

        Args:
          held: the gangs that wait at Permit; a cache does not know them.
        """
        cache = self._cache
        changes = cache.changes(self._generation)
        if self._scheduler is None or changes is None or not self._will_do(changes):
            snapshot = cache.snapshot()
            self._resources = Resources(snapshot)
            self._scheduler = self._make(snapshot)
            self._followed = 0
        else:
            nodes_changed = any(change.field == NODES and self._is_read(change) for change in changes)
            self._scheduler.apply(_collected(changes, cache, cache.every(NODES) if nodes_changed else None))
            self._followed += len(changes)
        self._generation = cache.generation
        self._scheduler.hold(held)
        return self._scheduler

    def _will_do(self, changes: Iterable[Change]) -> bool:
        """Tell whether the scheduler that is there can follow."""
        if self._followed > max(self._many, OFTEN * self._cache.size(PODS)):
            return False
        return all(self._can_follow(one) for one in changes)

    def _can_follow(self, change: Change) -> bool:
        if change.field not in FOLLOWED:
            return False
        if change.after is None or change.field == GROUPS:
            return True
        if change.field == NODES:
            return self._resources.offered(change.after)
        return _binds(change) or self._resources.hold(change.after)  # who waited asked for what is known

    def _is_read(self, change: Change) -> bool:
        """Tell whether a node changed in something that a decision may depend on."""
        return self._whole or not _unread(change.before, change.after)


def _unread(before: Node | None, after: Node | None) -> bool:
    """Tell whether a node changed in nothing that a decision of ours depends on."""
    return before is not None and after is not None and alike(_read(before), _read(after))


def _read(node: Node) -> Node:
    """Return what is read of a node."""
    return replace(
        node, metadata=replace(node.metadata, annotations=None), status=replace(node.status, conditions=None)
    )


class Resources:
    """The names of resources that nodes offer or pods ask for; pods that share a spec are read once."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        snapshot = snapshot or Snapshot()
        # The specs alone: pods come and go.
        self._specs: dict[int, PodSpec] = {}
        self._names: set[str] = set()
        for node in snapshot.nodes:
            self._names.update(node.offered)
        for pod in snapshot.pods:
            if id(pod.spec) not in self._specs:
                self._specs[id(pod.spec)] = pod.spec
                self._names.update(requests(pod))

    def offered(self, node: Node) -> bool:
        """Tell whether all that a node offers has a name that is known."""
        return self._names.issuperset(node.offered)

    def hold(self, pod: Pod) -> bool:
        """Tell whether all that a pod asks for has a name that is known."""
        return id(pod.spec) in self._specs or self._names.issuperset(requests(pod))


def _collected(
    changes: Iterable[Change], cache: ClusterState, nodes: Sequence[Node] | None
) -> ClusterChanges:
    """Sort changes of pods and PodGroups by what a scheduler has to do; `nodes` are given if one changed."""
    added: list[Pod] = []
    removed: list[Pod] = []
    bound: list[Pod] = []
    groups: list[PodGroup] = []
    removed_groups: list[str] = []
    for change in changes:
        if change.field == NODES:
            continue
        if change.field == GROUPS:
            if change.after is None:
                removed_groups.append(change.key)
            else:
                groups.append(change.after)
        elif _binds(change) and cache.has_node(change.after.node):
            bound.append(change.after)
        else:
            if change.before is not None:
                removed.append(change.before)
            if change.after is not None:
                added.append(change.after)
    return ClusterChanges(nodes, groups, removed, bound, added, removed_groups)


def _binds(change: Change) -> bool:
    """Tell whether a change only gives a waiting pod its node."""
    before, after = change.before, change.after
    if before is None or after is None or before.node or not after.node:
        return False
    return bool(before.labels == after.labels and before.metadata.uid == after.metadata.uid)
