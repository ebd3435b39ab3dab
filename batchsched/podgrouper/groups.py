"""PodGroups of several sources in one cluster state.

The sources are PodGroups of users, PodGroups that the grouper derives from owners, and PodGroups of other schedulers.
If several have the same name, that of the user counts, then the derived one, then the first external one. A PodGroup
that the grouper wrote to the API is a copy of a derived one, and counts only until the owner is known.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchsched.api.crd.podgroup import PodGroup
from batchsched.state.cluster_state import ClusterState

OWNER_LABEL: Final = "scheduling.batchsched.dev/owner"
"""The label of PodGroups that the grouper wrote: the uid of the owner."""
FROM_USERS: Final = 0
"""The source of PodGroups that users created."""
DERIVED: Final = 1
"""The source of PodGroups that owners need."""
WRITTEN: Final = 2
"""The source of PodGroups that the grouper wrote to the API."""
EXTERNAL: Final = 3
"""The first source of external PodGroups."""


class PodGroupSources:
    """All PodGroups by their source: users, owners of pods, the pod grouper, or other schedulers.

    Args:
      cache: receives for each name the PodGroup that counts.
      external: the number of external sources.
    """

    def __init__(self, cache: ClusterState, external: int = 0) -> None:
        self._cache = cache
        self._sources: tuple[dict[str, PodGroup], ...] = tuple({} for _ in range(EXTERNAL + external))
        self.touched: set[str] = set()
        """Names, `namespace/name`, of changed PodGroups. `PodGroupWriter` writes them to the API and clears the set."""

    def groups_of(self, source: int) -> Mapping[str, PodGroup]:
        """Return the PodGroups of one source by `namespace/name`."""
        return self._sources[source]

    def put(self, source: int, group: PodGroup) -> None:
        """Add a PodGroup to one source, or update it there."""
        self._sources[source][group.key] = group
        self._show(group.key)

    def remove(self, source: int, key: str) -> None:
        """Remove the PodGroup with this `namespace/name` from one source."""
        if self._sources[source].pop(key, None) is not None:
            self._show(key)

    def replace(self, source: int, listed: Iterable[PodGroup]) -> None:
        """Replace all PodGroups of one source by a complete list."""
        groups = self._sources[source]
        before = set(groups)
        groups.clear()
        groups.update((group.key, group) for group in listed)
        for key in sorted(before | set(groups)):
            self._show(key)

    def _show(self, key: str) -> None:
        self.touched.add(key)
        group = self._counting(key)
        if group is not None:
            self._cache.put(group)
        else:
            previous = self._cache.get("pod_groups", key)
            if previous is not None:  # without its uid, since another source may add the same object again
                without_uid = previous.metadata.model_copy(update={"uid": ""})
                self._cache.remove(previous.model_copy(update={"metadata": without_uid}))

    def _counting(self, key: str) -> PodGroup | None:
        group = next((groups[key] for groups in self._sources if key in groups), None)
        written = self._sources[WRITTEN].get(key)
        if group is None or written is None or group is not self._sources[DERIVED].get(key):
            return group
        # The writer of its status must name the object in the API.
        identity = {"uid": written.metadata.uid, "generation": written.metadata.generation}
        meta = group.metadata.model_copy(update=identity)
        return group.model_copy(update={"metadata": meta, "status": written.status})


class PodGroupStore:
    """Receives the PodGroups that exist in the API: those of batchsched, or those of one other scheduler.

    PodGroups of batchsched have two sources: users, and the grouper, which marks what it wrote with
    `OWNER_LABEL`. A user takes over a written PodGroup by removing the label.

    Args:
      groups: all PodGroups.
      external: the number of the other scheduler among the external sources; None for batchsched.
    """

    def __init__(self, groups: PodGroupSources, external: int | None = None) -> None:
        self._groups = groups
        self._sources = (FROM_USERS, WRITTEN) if external is None else (EXTERNAL + external,)

    def put(self, group: PodGroup) -> None:
        """Add a PodGroup of the API to its source, or update it there."""
        for source in self._sources:
            if source != self._source_of(group):
                self._groups.remove(source, group.key)
        self._groups.put(self._source_of(group), group)

    def remove(self, group: PodGroup) -> None:
        """Remove a deleted PodGroup from its source."""
        for source in self._sources:
            self._groups.remove(source, group.key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Replace all PodGroups of batchsched, or of the one other scheduler, by a complete list of the API server."""
        groups = tuple(listed)
        for source in self._sources:
            self._groups.replace(source, [group for group in groups if self._source_of(group) == source])

    def _source_of(self, group: PodGroup) -> int:
        return self._sources[-1] if OWNER_LABEL in group.metadata.labels else self._sources[0]
