"""Drift: where a cache and a fresh list of the API disagree.

A difference that lasts is a defect, of the cache or of the watch; one that is gone a moment later was an event on its
way. The comparison is a function of values: whoever asks lists the API, and asks again before he worries.

Source: `CacheComparer` of kube-scheduler's backend/cache/debugger, which compares names; here fields are, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from batchsched.api.core.pod import Pod
from batchsched.api.kinds import ALL, ObjectKind
from batchsched.api.snapshot import Snapshot
from batchsched.state.assumed_pods import AssumedPod
from batchsched.state.semantic_equality import STATUS, alike

PATIENCE: Final = 60.0
"""Seconds after which an assumed pod is worth a question."""
_SHOWN: Final = 60
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One field of one object; a value is as JSON writes it, and empty where the field is not there."""

    object: str
    field: str
    cached: str
    listed: str


@dataclass(frozen=True, slots=True)
class StateComparison:
    """What a cache has wrong. Objects are named as `Kind namespace/name`.

    Args:
      missing: objects of the API that the cache does not have.
      redundant: objects of the cache that the API does not have.
      differing: fields that are not the same.
      overdue: pods that have been assumed for longer than they should.
    """

    missing: tuple[str, ...] = ()
    redundant: tuple[str, ...] = ()
    differing: tuple[StateDifference, ...] = ()
    overdue: tuple[AssumedPod, ...] = ()

    @property
    def none(self) -> bool:
        """True when the cache and the API agree."""
        return not (self.missing or self.redundant or self.differing or self.overdue)

    def text(self) -> str:
        """Write the report, one line a finding."""
        if self.none:
            return "the cache agrees with the API"
        lines = [f"missing in the cache: {name}" for name in self.missing]
        lines += [f"redundant in the cache: {name}" for name in self.redundant]
        lines += [
            f"different: {one.object}: {one.field}: cached {one.cached or 'nothing'}, listed {one.listed or 'nothing'}"
            for one in self.differing
        ]
        lines += [
            f"assumed for too long: Pod {one.pod} on {one.assumption.node}, since {one.assumption.since:.0f}"
            + ("" if one.assumption.deadline is None else ", its binding has finished")
            for one in self.overdue
        ]
        return "\n".join(lines)


def drift(
    cached: Snapshot,
    listed: Snapshot,
    scheduler_names: frozenset[str],
    assumed: Sequence[AssumedPod] = (),
    overdue_since: float = float("-inf"),
) -> StateComparison:
    """Compare what a cache was told with a fresh list.

    Args:
      cached: `Cache.listed()`.
      listed: the objects of the API, all pods included: those that do not count are left out here.
      scheduler_names: whose waiting pods count.
      assumed: `Cache.assumed()`.
      overdue_since: seconds since 1970; a pod assumed before should have been confirmed. Such as now - PATIENCE.
    """
    missing: list[str] = []
    redundant: list[str] = []
    differing: list[StateDifference] = []
    for kind in ALL:
        here, there = _by_key(kind, cached, scheduler_names), _by_key(kind, listed, scheduler_names)
        missing += [_named(kind, key) for key in sorted(there.keys() - here.keys())]
        redundant += [_named(kind, key) for key in sorted(here.keys() - there.keys())]
        for key in sorted(here.keys() & there.keys()):
            if not alike(here[key], there[key]):
                differing += _differences(_named(kind, key), here[key], there[key])
    overdue = tuple(one for one in assumed if one.assumption.since < overdue_since)
    return StateComparison(tuple(missing), tuple(redundant), tuple(differing), overdue)


def _by_key(kind: ObjectKind, snapshot: Snapshot, scheduler_names: frozenset[str]) -> dict[str, Any]:
    objects = getattr(snapshot, kind.field)
    return {
        kind.key(one.metadata): one
        for one in objects
        if not isinstance(one, Pod) or one.counts(scheduler_names)
    }


def _named(kind: ObjectKind, key: str) -> str:
    return f"{kind.name} {key}"


def _differences(name: str, cached: Any, listed: Any) -> Iterator[StateDifference]:
    old, new = _fields(cached), _fields(listed)
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield StateDifference(name, path, old.get(path, "")[:_SHOWN], new.get(path, "")[:_SHOWN])


def _fields(found: Any) -> dict[str, str]:
    """Return the leaves of an object by their path, but those that make no difference."""
    if isinstance(found, BaseModel):
        plain = found.model_dump(mode="json", by_alias=True, exclude={STATUS})
    else:
        plain = msgspec.to_builtins(found)
    return {path: text for path, text in _leaves(plain, "") if path != "metadata.resourceVersion"}


def _leaves(plain: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list | tuple):
        for at, value in enumerate(plain):
            yield from _leaves(value, f"{path}[{at}]")
    else:
        yield path, msgspec.json.encode(plain).decode()
