"""A cache that remembers what scheduling does not read, and reports do: pods that ended, and status as it stands."""

from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from typing_extensions import override

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.kinds import ALL
from batchsched.state.cluster_state import PODS, ClusterState

SUCCEEDED: Final = "Succeeded"
_KINDS: Final = {kind.type: kind for kind in ALL}
Status = dict[str, Any]


class ObservedState(ClusterState):
    """Remembers ends of pods by gang, and the status of custom resources."""

    def __init__(self, scheduler_names: Iterable[str], ttl_seconds: float = 0.0) -> None:
        super().__init__(scheduler_names, ttl_seconds)
        self._gangs: dict[str, dict[str, bool]] = {}
        self._statuses: dict[tuple[str, str], tuple[str, BaseModel | None]] = {}
        self.changed: set[str] = set()
        """Gangs of which a pod ended, an ended one is gone, or a binding was confirmed, since somebody emptied this."""

    def ends(self, gang: str) -> tuple[int, int]:
        """Return how many pods of a gang, `namespace/name`, succeeded, and how many failed."""
        ends = self._gangs.get(gang)
        if not ends:
            return 0, 0
        good = sum(ends.values())
        return good, len(ends) - good

    def status(self, field: str, key: str, uid: str) -> Status:
        """Return the status of a custom resource as the API showed it last, {} where it has none."""
        seen, status = self._statuses.get((field, key), ("", None))
        if status is None or seen != uid:
            return {}
        return status.model_dump(mode="json", by_alias=True, exclude_none=True)

    @override
    def put(self, found: Any, version: str | None = None) -> None:
        self._see(found)
        assumed = isinstance(found, Pod) and self.is_assumed(found.key)
        super().put(found, version)
        if assumed and not self.is_assumed(
            found.key
        ):  # no change to a session: it counted on its node already
            self.changed.add(_gang(found))

    @override
    def remove(self, gone: Any) -> None:
        if isinstance(gone, Pod):
            self._forget(gone)
        elif isinstance(gone, BaseModel):
            self._statuses.pop(_place(gone), None)
        super().remove(gone)

    @override
    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        found = list(listed)
        field = _KINDS[kind].field
        if field == PODS:
            self.changed.update(self._gangs)
            self._gangs.clear()
        self._statuses = {place: one for place, one in self._statuses.items() if place[0] != field}
        for one in found:
            self._see(one)
        super().replace(kind, found)

    def _see(self, found: Any) -> None:
        if isinstance(found, Pod):
            if found.finished:
                self._ended(found)
            elif self._gangs:  # another pod of its name
                self._forget(found)
        elif isinstance(found, BaseModel):
            uid, status = _uid(found), getattr(found, "status", None)
            if isinstance(status, BaseModel):
                self._statuses[_place(found)] = (uid, status)

    def _ended(self, pod: Pod) -> None:
        gang = _gang(pod)
        if gang:
            good = pod.status.phase == SUCCEEDED
            ends = self._gangs.setdefault(gang, {})
            if ends.get(pod.key) is not good:
                ends[pod.key] = good
                self.changed.add(gang)

    def _forget(self, pod: Pod) -> None:
        gang = _gang(pod)
        ends = self._gangs.get(gang)
        if ends is not None and ends.pop(pod.key, None) is not None:
            self.changed.add(gang)
            if not ends:
                del self._gangs[gang]


def _gang(pod: Pod) -> str:
    name = pod.labels.get(POD_GROUP_LABEL)
    return f"{pod.namespace}/{name}" if name else ""


def _place(found: Any) -> tuple[str, str]:
    kind = _KINDS[type(found)]
    return kind.field, kind.key(found.metadata)


def _uid(found: Any) -> str:
    uid: str = found.metadata.uid
    return uid
