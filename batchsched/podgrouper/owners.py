"""The owners of pods, as the API shows them: what is kept of each, and who owns whom."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod
from batchsched.podgrouper.rules import GROUPED, Grouping, OwnerKind, grouping
from batchsched.podgrouper.workloads import LEADER_WORKER_SET

_LOG: Final = logging.getLogger(__name__)
_LONGEST: Final = 63
"""Characters of a PodGroup's name: pods carry it in a label."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Who owns something.

    Args:
      group, kind: of the owner.
      namespace, name: of the owner.
      uid: "" where only the name is known.
    """

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def grouped(self) -> bool:
        """True for a kind whose pods are gangs."""
        return (self.group, self.kind) in GROUPED

    def group_name(self, index: str = "") -> str:
        """Return the name of the PodGroup, which no user would choose: it ends in a hash of the owner's uid."""
        mark = hashlib.sha256(self.uid.encode()).hexdigest()[:8]
        whole = "-".join(part for part in (self.kind.lower(), self.name, index) if part)
        return f"{whole[: _LONGEST - len(mark) - 1].rstrip('-._')}-{mark}"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner.

    Args:
      ref: who it is.
      kind: what is known of its kind.
      created: when, as the API wrote it.
      above: its own controller.
      grouping: what its gangs need, None where each pod is for itself.
    """

    ref: Ref
    kind: OwnerKind
    created: str | None
    above: Ref | None
    grouping: Grouping | None

    def places_as(self, other: "Owner") -> bool:
        """Tell whether pods belong to the same gangs under both states of an owner."""
        mine, theirs = self.grouping, other.grouping
        if self.above != other.above or (mine is None) != (theirs is None):
            return False
        return mine is None or theirs is None or _marks(mine) == _marks(theirs)


def _marks(one: Grouping) -> tuple[tuple[str, ...], str]:
    return one.sub_group_labels, one.gang_label


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def read(kind: OwnerKind, raw: bytes) -> Owner | None:
    """Return what is kept of an owner; None for what is no object."""
    try:
        meta = msgspec.json.decode(raw, type=_Head).metadata
        manifest = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    namespace = meta.namespace or "default"
    ref = Ref(kind.group, kind.name, namespace, meta.name, meta.uid)
    found = grouping(kind.rule, manifest)
    if found is not None and found.problem:
        _LOG.warning("%s %s/%s: %s", kind.name, namespace, meta.name, found.problem)
    return Owner(ref, kind, meta.creation_timestamp, controller(meta), found)


def controller(meta: ObjectMeta) -> Ref | None:
    """Return who controls an object, None for nobody."""
    for one in meta.owner_references or ():
        if one.controller:
            return Ref(_group(one), one.kind, meta.namespace or "default", one.name, one.uid)
    return None


def _group(reference: OwnerReference) -> str:
    return reference.api_version.rpartition("/")[0]


def owner_of(pod: Pod) -> Ref | None:
    """Return the owner of a pod that may make it a member of a gang, None where it is for itself.

    Workers of a LeaderWorkerSet are owned by a StatefulSet of their leader, a pod; they name the set in a label.
    """
    found = controller(pod.metadata)
    if found is None or not found.grouped:
        return None
    name = pod.metadata.label(LEADER_WORKER_SET)
    if name and found.kind == "StatefulSet":
        return Ref("leaderworkerset.x-k8s.io", "LeaderWorkerSet", pod.namespace, name, "")
    return found


Changed = Callable[[Owner | None, Owner | None], None]
"""Hears of an owner before and after."""


class Owners:
    """All owners that are known.

    Args:
      changed: hears of each that came, went or changed.
    """

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._by_uid: dict[str, Owner] = {}
        self._by_name: dict[tuple[str, str, str], Owner] = {}
        self._below: dict[str, set[str]] = {}

    def find(self, ref: Ref) -> Owner | None:
        """Return an owner; one that is known by name only may be another one tomorrow."""
        if ref.uid:
            return self._by_uid.get(ref.uid)
        return self._by_name.get((ref.kind, ref.namespace, ref.name))

    def chain(self, ref: Ref | None) -> Iterator[tuple[Ref, Owner | None]]:
        """Yield the owners from one upwards, as far as they are of kinds whose pods are gangs, and known."""
        seen: set[Ref] = set()
        while ref is not None and ref.grouped and ref not in seen:
            seen.add(ref)
            owner = self.find(ref)
            yield (ref if owner is None else owner.ref), owner
            ref = owner.above if owner is not None else None

    def family(self, uid: str) -> Iterator[str]:
        """Yield the uid of an owner, and of all owners below it."""
        yield uid
        for child in sorted(self._below.get(uid, ())):
            yield from self.family(child)

    def put(self, owner: Owner) -> None:
        """Take in an owner, or its new state."""
        before = self._by_uid.get(owner.ref.uid)
        self._unlink(before)
        self._by_uid[owner.ref.uid] = owner
        self._by_name[owner.ref.kind, owner.ref.namespace, owner.ref.name] = owner
        if owner.above is not None:
            self._below.setdefault(owner.above.uid, set()).add(owner.ref.uid)
        self._changed(before, owner)

    def remove(self, uid: str) -> None:
        """Forget an owner."""
        before = self._by_uid.pop(uid, None)
        if before is None:
            return
        self._unlink(before)
        name = (before.ref.kind, before.ref.namespace, before.ref.name)
        if self._by_name.get(name) is before:
            del self._by_name[name]
        self._changed(before, None)

    def _unlink(self, owner: Owner | None) -> None:
        if owner is None or owner.above is None:
            return
        siblings = self._below.get(owner.above.uid, set())
        siblings.discard(owner.ref.uid)
        if not siblings:
            self._below.pop(owner.above.uid, None)


class OwnerSink:
    """Takes the owners of one kind in; implements `ports.feed.Sink`.

    Args:
      owners: takes them in.
      changed: is called after each change.
    """

    def __init__(self, owners: Owners, changed: Callable[[], None]) -> None:
        self._owners = owners
        self._changed = changed
        self._uids: set[str] = set()

    def replaced(self, objects: Sequence[Owner]) -> None:
        """Take all there are."""
        there = {one.ref.uid for one in objects}
        for uid in sorted(self._uids - there):
            self._owners.remove(uid)
        for one in objects:
            self._owners.put(one)
        self._uids = there
        self._changed()

    def changed(self, found: Owner) -> None:
        """Take one that is new or has changed."""
        self._uids.add(found.ref.uid)
        self._owners.put(found)
        self._changed()

    def gone(self, found: Owner) -> None:
        """Take one that is gone."""
        self._uids.discard(found.ref.uid)
        self._owners.remove(found.ref.uid)
        self._changed()
