"""Receives the groups and the pods of the Workload API of Kubernetes, and makes one gang of each tree of groups.

Pods name a PodGroup of Kubernetes, which may be in a tree. They get the labels of the gang of that tree before they
enter the cluster state, and again if a group that arrives later moves them to another gang.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from msgspec.structs import replace

from batchsched.api.core.pod import Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.conversion import scheduling_group_key
from batchsched.api.external.group_tree import TreeGroup
from batchsched.podgrouper.pod_group_index import EXTERNAL, PodGroupIndex
from batchsched.state.group_trees import GroupTrees, TreeChangeEffects


class PodStore(Protocol):
    """The interface of a store that receives pods after `TreeLabelingPodStore` has added their gang labels."""

    def put(self, pod: Pod, /) -> None:
        """Add a pod to the store, or update it."""
        ...

    def remove(self, pod: Pod, /) -> None:
        """Remove a deleted pod from the store."""
        ...

    def replace(self, kind: type, listed: Iterable[Any], /) -> None:
        """Replace all pods in the store by a complete list."""
        ...


class TreeLabelingPodStore:
    """The store that adds gang labels to pods below CompositePodGroups and passes all pods to another store.

    Args:
      trees: the groups of all trees.
      store: the other store, such as a `GangAssigningPodStore`.
      scheduler_names: pods with these scheduler names get labels.
      is_outdated: returns whether a pod is older than the one in the cluster state, or was deleted.
    """

    def __init__(
        self,
        trees: GroupTrees,
        store: PodStore,
        scheduler_names: Collection[str],
        is_outdated: Callable[[Pod], bool],
    ) -> None:
        self._trees = trees
        self._store = store
        self._is_outdated = is_outdated
        self._names = frozenset(scheduler_names)
        self._pods: dict[str, dict[str, Pod]] = {}
        """By PodGroup of Kubernetes: its pods by key, as they are in the API."""
        self._group_of: dict[str, str] = {}
        """By pod: the PodGroup of Kubernetes under which it is in `_pods`."""

    def put(self, pod: Pod) -> None:
        """Pass a pod to `GangAssigningPodStore`, with gang labels if the pod is below a CompositePodGroup.

        An outdated version is ignored: `relabel_pods` would show it again.
        """
        if self._is_outdated(pod):
            return
        self._store.put(self._record_and_label(pod))

    def remove(self, pod: Pod) -> None:
        """Remove a deleted pod from this store and from `GangAssigningPodStore`."""
        self._forget(pod.key)
        self._store.remove(pod)

    def replace(self, kind: type, listed: Iterable[Pod]) -> None:
        """Replace all pods by a complete list, add their gang labels, and pass them to `GangAssigningPodStore`."""
        self._pods.clear()
        self._group_of.clear()
        self._store.replace(kind, [self._record_and_label(pod) for pod in listed])

    def relabel_pods(self, pod_groups: Iterable[str]) -> None:
        """Pass the pods of the given PodGroups to `GangAssigningPodStore` again, with labels for their present gangs.

        Call this method after a tree of groups has changed.
        """
        for key in sorted(pod_groups):
            for pod in list(self._pods.get(key, {}).values()):
                # Without a version: the labels change here, and not the object in the API.
                unversioned = replace(pod, metadata=replace(pod.metadata, resource_version=""))
                self._store.put(self._trees.with_gang_labels(unversioned))

    def _record_and_label(self, pod: Pod) -> Pod:
        """Record a pod that names a PodGroup of Kubernetes, and return it with the labels of its gang."""
        self._forget(pod.key)
        key = scheduling_group_key(pod)
        if not key or pod.spec.scheduler_name not in self._names:
            return pod
        self._pods.setdefault(key, {})[pod.key] = pod
        self._group_of[pod.key] = key
        return self._trees.with_gang_labels(pod)

    def _forget(self, pod_key: str) -> None:
        group = self._group_of.pop(pod_key, None)
        if group is None:
            return
        del self._pods[group][pod_key]
        if not self._pods[group]:
            del self._pods[group]


class KubernetesGroupStore:
    """The store for the PodGroups or CompositePodGroups of one version of Kubernetes' Workload API.

    Args:
      trees: receives the groups of trees.
      groups: receives the PodGroups, and the gangs of trees.
      pods: the pods, which may move to another gang.
      number: the index of the kind in `EXTERNAL_KINDS`.
      gangs: the index of the kind under which the gangs of trees are stored.
      is_composite: whether the kind is CompositePodGroup.
    """

    def __init__(
        self,
        trees: GroupTrees,
        groups: PodGroupIndex,
        pods: TreeLabelingPodStore,
        number: int,
        gangs: int,
        *,
        is_composite: bool,
    ) -> None:
        self._trees = trees
        self._groups = groups
        self._pods = pods
        self._number = number
        self._origin = EXTERNAL + number
        self._gangs = EXTERNAL + gangs
        self._is_composite = is_composite

    def put(self, group: PodGroup | TreeGroup) -> None:
        """Add or update a PodGroup or CompositePodGroup of Kubernetes."""
        if isinstance(group, TreeGroup):
            if not self._is_composite:
                self._groups.remove_group_of_origin(self._origin, group.key)
            self._apply(self._trees.put_group(self._number, group))
        else:
            self._apply(self._trees.remove_group(self._number, group.key, is_composite=self._is_composite))
            self._groups.put_group_of_origin(self._origin, group)

    def remove(self, group: PodGroup | TreeGroup) -> None:
        """Remove a deleted PodGroup or CompositePodGroup of Kubernetes."""
        if not self._is_composite:
            self._groups.remove_group_of_origin(self._origin, group.key)
        self._apply(self._trees.remove_group(self._number, group.key, is_composite=self._is_composite))

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Replace all PodGroups, or all CompositePodGroups, by a complete list from the API server."""
        groups = tuple(listed)
        if not self._is_composite:
            flat = [group for group in groups if isinstance(group, PodGroup)]
            self._groups.replace_groups_of_origin(self._origin, flat)
        self._apply(
            self._trees.replace_groups_of_origin(
                self._number, [group for group in groups if isinstance(group, TreeGroup)]
            )
        )

    def _apply(self, change: TreeChangeEffects) -> None:
        for key, gang in change.gangs.items():
            if gang is None:
                self._groups.remove_group_of_origin(self._gangs, key)
            else:
                self._groups.put_group_of_origin(self._gangs, gang)
        self._pods.relabel_pods(change.pod_groups)
