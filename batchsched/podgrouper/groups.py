"""PodGroups from several sources in one cache: what users made, what owners call for, what others define.

Where several have one name, one counts: what a user made as ours, then what an owner calls for, then the first of the
others. What we wrote ourselves is a copy of what an owner calls for, and counts only until the owner is known.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchsched.api.crd.podgroup import PodGroup
from batchsched.state.cluster_state import ClusterState

OWNER_LABEL: Final = "scheduling.batchsched.dev/owner"
"""The label of PodGroups that we wrote: the uid of the owner that calls for them."""
STATED: Final = 0
MADE: Final = 1
WRITTEN: Final = 2
OTHERS: Final = 3
"""The first source of those that others define."""


class PodGroupSources:
    """All PodGroups, by source.

    Args:
      cache: gets the one of each name that counts.
      others: how many other sources there are.
    """

    def __init__(self, cache: ClusterState, others: int = 0) -> None:
        self._cache = cache
        self._sources: tuple[dict[str, PodGroup], ...] = tuple({} for _ in range(OTHERS + others))
        self.touched: set[str] = set()
        """Names, `namespace/name`, of which something changed that we may have to write; whoever writes clears it."""

    def of(self, source: int) -> Mapping[str, PodGroup]:
        """Return the PodGroups of a source by `namespace/name`."""
        return self._sources[source]

    def put(self, source: int, group: PodGroup) -> None:
        """Take in a PodGroup."""
        self._sources[source][group.key] = group
        self._show(group.key)

    def remove(self, source: int, key: str) -> None:
        """Forget the PodGroup of a source."""
        if self._sources[source].pop(key, None) is not None:
            self._show(key)

    def replace(self, source: int, listed: Iterable[PodGroup]) -> None:
        """Take in all there are of a source."""
        found = self._sources[source]
        before = set(found)
        found.clear()
        found.update((group.key, group) for group in listed)
        for key in sorted(before | set(found)):
            self._show(key)

    def _show(self, key: str) -> None:
        self.touched.add(key)
        group = self._counting(key)
        if group is not None:
            self._cache.put(group)
        else:
            known = self._cache.get("pod_groups", key)
            if known is not None:  # not for good: another source may show it again, as it was
                nameless = known.metadata.model_copy(update={"uid": ""})
                self._cache.remove(known.model_copy(update={"metadata": nameless}))

    def _counting(self, key: str) -> PodGroup | None:
        group = next((one[key] for one in self._sources if key in one), None)
        written = self._sources[WRITTEN].get(key)
        if group is None or written is None or group is not self._sources[MADE].get(key):
            return group
        # Whoever writes its status has to name the object that is in the API.
        known = {"uid": written.metadata.uid, "generation": written.metadata.generation}
        meta = group.metadata.model_copy(update=known)
        return group.model_copy(update={"metadata": meta, "status": written.status})


class StatedGroups:
    """Takes in PodGroups of ours as the API has them: users', and those that we wrote."""

    def __init__(self, groups: PodGroupSources) -> None:
        self._groups = groups

    def put(self, found: PodGroup) -> None:
        """Take in a PodGroup; a user takes one over by removing our label."""
        source = _source(found)
        self._groups.remove(STATED + WRITTEN - source, found.key)
        self._groups.put(source, found)

    def remove(self, gone: PodGroup) -> None:
        """Forget a PodGroup."""
        for source in (STATED, WRITTEN):
            self._groups.remove(source, gone.key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Take in all there are."""
        every = tuple(listed)
        for source in (STATED, WRITTEN):
            self._groups.replace(source, [one for one in every if _source(one) == source])


def _source(group: PodGroup) -> int:
    return WRITTEN if OWNER_LABEL in group.metadata.labels else STATED


class OtherGroups:
    """Takes in PodGroups that others define.

    Args:
      groups: all PodGroups.
      number: of the source among the others.
    """

    def __init__(self, groups: PodGroupSources, number: int) -> None:
        self._groups = groups
        self._source = OTHERS + number

    def put(self, found: PodGroup) -> None:
        """Take in a PodGroup."""
        self._groups.put(self._source, found)

    def remove(self, gone: PodGroup) -> None:
        """Forget a PodGroup."""
        self._groups.remove(self._source, gone.key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Take in all there are."""
        self._groups.replace(self._source, listed)
