"""Which PodGroup counts if users, owners of pods and other schedulers define PodGroups of the same name.

The origins are PodGroups of users, PodGroups that the grouper derives from owners, and PodGroups of other schedulers.
If several have the same name, the PodGroup of the user counts, then the derived one, then the first external one. A
PodGroup that the grouper wrote to the API is a copy of a derived one, and counts only until the owner is known.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchsched.api.crd.podgroup import PodGroup
from batchsched.state.cluster_state import ClusterState

OWNER_LABEL: Final = "scheduling.batchsched.dev/owner"
"""The label of PodGroups that the grouper wrote: the uid of the owner."""
FROM_USERS: Final = 0
"""The origin of PodGroups that users created."""
DERIVED: Final = 1
"""The origin of PodGroups that owners need."""
WRITTEN: Final = 2
"""The origin of PodGroups that the grouper wrote to the API."""
EXTERNAL: Final = 3
"""The first origin of external PodGroups."""


class PodGroupIndex:
    """An index of all PodGroups by origin: users, owners of pods, the pod grouper, or another scheduler.

    Args:
      cache: receives for each name the PodGroup that counts.
      external: how many external origins there are.
    """

    def __init__(self, cache: ClusterState, external: int = 0) -> None:
        self._cache = cache
        self._by_origin: tuple[dict[str, PodGroup], ...] = tuple({} for _ in range(EXTERNAL + external))
        self.touched: set[str] = set()
        """Names, `namespace/name`, of changed PodGroups that are derived or written. `PodGroupWriter` clears the set.

        A standby replica has no `PodGroupWriter`. So the set contains only PodGroups that exist."""

    def groups_of_origin(self, origin: int) -> Mapping[str, PodGroup]:
        """Return the PodGroups of one origin, such as users or the pod grouper, by `namespace/name`."""
        return self._by_origin[origin]

    def derived_pod_group(self, key: str) -> PodGroup | None:
        """Return the derived PodGroup of this `namespace/name`, or None if its owner needs none.

        While pods of the gang have nodes, the API server refuses another queue. So the PodGroup has the queue of its
        copy in the API until then, whatever queue the owner names.
        """
        derived, written = self._by_origin[DERIVED].get(key), self._by_origin[WRITTEN].get(key)
        has_placed_pods = written is not None and written.status is not None and written.status.placed > 0
        if (
            derived is None
            or written is None
            or not has_placed_pods
            or derived.spec.queue == written.spec.queue
        ):
            return derived
        spec = derived.spec.model_copy(update={"queue": written.spec.queue})
        return derived.model_copy(update={"spec": spec})

    def put_group_of_origin(self, origin: int, group: PodGroup) -> None:
        """Add or update a PodGroup of one origin, such as users, the pod grouper or another scheduler."""
        self._by_origin[origin][group.key] = group
        self._show(group.key)

    def remove_group_of_origin(self, origin: int, key: str) -> None:
        """Remove the PodGroup of this `namespace/name` that came from one origin, such as users."""
        if self._by_origin[origin].pop(key, None) is not None:
            self._show(key)

    def replace_groups_of_origin(self, origin: int, listed: Iterable[PodGroup]) -> None:
        """Replace all PodGroups of one origin, such as another scheduler, by a complete list."""
        groups = self._by_origin[origin]
        before = set(groups)
        groups.clear()
        groups.update((group.key, group) for group in listed)
        for key in sorted(before | set(groups)):
            self._show(key)

    def _show(self, key: str) -> None:
        if key in self._by_origin[DERIVED] or key in self._by_origin[WRITTEN]:
            self.touched.add(key)
        else:
            self.touched.discard(key)
        group = self._counting(key)
        if group is not None:
            self._cache.put(group, is_latest=True)
        else:
            previous = self._cache.get("pod_groups", key)
            if previous is not None:  # without its uid, since another origin may add the same object again
                without_uid = previous.metadata.model_copy(update={"uid": ""})
                self._cache.remove(previous.model_copy(update={"metadata": without_uid}))

    def _counting(self, key: str) -> PodGroup | None:
        group = next((groups[key] for groups in self._by_origin if key in groups), None)
        written = self._by_origin[WRITTEN].get(key)
        if group is None or written is None or group is not self._by_origin[DERIVED].get(key):
            return group
        # The writer of its status must name the object in the API.
        of_object = {
            name: getattr(written.metadata, name) for name in ("uid", "generation", "resource_version")
        }
        meta = group.metadata.model_copy(update=of_object)
        derived = self.derived_pod_group(key) or group
        return derived.model_copy(update={"metadata": meta, "status": written.status})


class PodGroupStore:
    """The store for the PodGroups in the API that belong to batchsched, or to one other scheduler.

    PodGroups of batchsched have two origins: users, and the grouper, which marks what it wrote with
    `OWNER_LABEL`. A user takes over a written PodGroup by removing the label.

    Args:
      groups: all PodGroups.
      external: the index of the other scheduler among the external origins; None for batchsched.
    """

    def __init__(self, groups: PodGroupIndex, external: int | None = None) -> None:
        self._groups = groups
        self._origins = (FROM_USERS, WRITTEN) if external is None else (EXTERNAL + external,)

    def put(self, group: PodGroup) -> None:
        """Add or update a PodGroup that a user, the pod grouper or another scheduler created in the API."""
        for origin in self._origins:
            if origin != self._origin_of(group):
                self._groups.remove_group_of_origin(origin, group.key)
        self._groups.put_group_of_origin(self._origin_of(group), group)

    def remove(self, group: PodGroup) -> None:
        """Remove a PodGroup that was deleted in the API."""
        for origin in self._origins:
            self._groups.remove_group_of_origin(origin, group.key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Replace all PodGroups in this store by a complete list from the API server."""
        groups = tuple(listed)
        for origin in self._origins:
            self._groups.replace_groups_of_origin(
                origin, [group for group in groups if self._origin_of(group) == origin]
            )

    def _origin_of(self, group: PodGroup) -> int:
        return self._origins[-1] if OWNER_LABEL in group.metadata.labels else self._origins[0]
