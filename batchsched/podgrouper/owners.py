"""The owners of pods: what the grouper keeps of each, and the chains of owners."""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod
from batchsched.api.decision import SetAside
from batchsched.api.gang import gang_key_of_pod
from batchsched.podgrouper.rules import (
    LEADER_WORKER_SET,
    OWNER_BY_GROUP_AND_NAME,
    OWNERS,
    OwnerKind,
    PodGroupTemplate,
    derive_pod_group_template,
)
from batchsched.ports.cluster import SetAsideObject
from batchsched.runner.event_handlers import read_identity

_LOG: Final = logging.getLogger(__name__)
_MAX_NAME_CHARACTERS: Final = 63
"""The longest name of a PodGroup, because pods carry it in a label."""
MAX_OWNER_DEPTH: Final = 16
"""Owners above or below one owner that are followed. Known workload kinds need four at most."""


@dataclass(frozen=True, slots=True)
class OwnerReferenceKey:
    """A reference to an owner of pods, such as a Job, by kind, name and uid.

    Args:
      group, kind: the API group and the kind of the owner.
      namespace, name: the namespace and the name of the owner.
      uid: "" if only the name is known.
    """

    group: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def forms_gangs(self) -> bool:
        """Whether the pods of an owner of this kind may form gangs."""
        return (self.group, self.kind) in OWNER_BY_GROUP_AND_NAME

    def pod_group_name(self, index: str = "") -> str:
        """Return the name of the PodGroup that the pod grouper derives from the owner.

        A hash of the owner's uid prevents collisions with names of users.
        """
        mark = hashlib.sha256(self.uid.encode()).hexdigest()[:8]
        whole = "-".join(part for part in (self.kind.lower(), self.name, index) if part)
        return f"{whole[: _MAX_NAME_CHARACTERS - len(mark) - 1].rstrip('-._')}-{mark}"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner of pods, such as a Job, reduced to what determines the gangs of its pods.

    Args:
      ref: the reference to it.
      kind: its kind.
      created: the creationTimestamp.
      above: its own controller.
      grouping: the template of its PodGroups, None if its pods form no gang.
    """

    ref: OwnerReferenceKey
    kind: OwnerKind
    created: str | None
    above: OwnerReferenceKey | None
    grouping: PodGroupTemplate | None

    def has_same_gangs(self, other: "Owner") -> bool:
        """Return whether another version of this owner divides its pods into the same gangs."""
        before, after = self.grouping, other.grouping
        if self.above != other.above or (before is None) != (after is None):
            return False
        return before is None or after is None or _labels_of(before) == _labels_of(after)


def _labels_of(needs: PodGroupTemplate) -> tuple[tuple[str, ...], str]:
    return needs.sub_group_labels, needs.gang_label


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def read_owner(kind: OwnerKind, raw: bytes) -> Owner:
    """Decode an owner of pods, such as a Job, from its JSON.

    Raises:
      msgspec.DecodeError: the JSON is not an object of the API.
    """
    meta = msgspec.json.decode(raw, type=_Head).metadata
    manifest = msgspec.json.decode(raw)
    namespace = meta.namespace or "default"
    ref = OwnerReferenceKey(kind.group, kind.name, namespace, meta.name, meta.uid)
    needs = derive_pod_group_template(kind.rule, manifest)
    if needs is not None and needs.problem:
        _LOG.warning("%s %s/%s: %s", kind.name, namespace, meta.name, needs.problem)
    return Owner(ref, kind, meta.creation_timestamp, controller_reference(meta), needs)


def controller_reference(meta: ObjectMeta) -> OwnerReferenceKey | None:
    """Return the reference to the controller of an object (`controller: true`), or None if it has no controller."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return OwnerReferenceKey(
                _group(owner), owner.kind, meta.namespace or "default", owner.name, owner.uid
            )
    return None


def _group(reference: OwnerReference) -> str:
    return reference.api_version.rpartition("/")[0]


OWNER_KIND_BY_LOWER_NAME: Final = {
    form: kind.name for kind in OWNERS for form in (kind.name.lower(), f"{kind.name.lower()}s")
}
"""The kinds of owners, by their names and plurals in lower case, such as `job` and `jobs`."""


def gangs_of_owner(pods: Iterable[Pod], namespace: str, name: str, kind: str = "") -> set[str]:
    """Return the gangs (`namespace/name`) to which the pods of an owner, such as a Job, belong.

    Args:
      pods: All pods; the owner itself need not be known.
      namespace: The namespace of the owner.
      name: Its name.
      kind: Its kind; "" for any kind that forms gangs.
    """
    kinds = {kind} if kind else {owner_kind.name for owner_kind in OWNERS}
    names = [derived_name_pattern(owner_kind, name) for owner_kind in kinds]
    found_gangs = set()
    for pod in pods:
        if pod.namespace != namespace:
            continue
        gang = gang_key_of_pod(pod)
        controller = controller_reference(pod.metadata)
        is_owned = controller is not None and controller.name == name and controller.kind in kinds
        if is_owned or any(pattern.fullmatch(gang.partition("/")[2]) for pattern in names):
            found_gangs.add(gang)
    return found_gangs


def derived_name_pattern(kind: str, name: str) -> re.Pattern[str]:
    """Return a pattern that matches the PodGroup names which the pod grouper derives from an owner."""
    hash_length = 8
    stem = f"{kind.lower()}-{name}"[: _MAX_NAME_CHARACTERS - hash_length - 1].rstrip("-._")
    # Other owners have a single gang.
    index = r"(-\d+)?" if kind == "LeaderWorkerSet" else ""
    return re.compile(rf"{re.escape(stem)}{index}-[0-9a-f]{{{hash_length}}}")


def owner_of(pod: Pod) -> OwnerReferenceKey | None:
    """Return the reference to a pod's controller, or None if the pods of this kind of controller form no gangs.

    The workers of a LeaderWorkerSet belong to a StatefulSet that their leader pod owns. A label names the
    LeaderWorkerSet.
    """
    owner = controller_reference(pod.metadata)
    if owner is None or not owner.forms_gangs:
        return None
    name = pod.metadata.label(LEADER_WORKER_SET)
    if name and owner.kind == "StatefulSet":
        return OwnerReferenceKey("leaderworkerset.x-k8s.io", "LeaderWorkerSet", pod.namespace, name, "")
    return owner


Changed = Callable[[Owner | None, Owner | None], None]
"""Receives the previous and the new version of an owner."""


class Owners:
    """All known owners of pods, with the owners above and below each of them.

    Args:
      changed: is called for each owner that was added, changed or deleted.
    """

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._by_uid: dict[str, Owner] = {}
        self._by_name: dict[tuple[str, str, str], Owner] = {}
        self._below: dict[str, set[str]] = {}

    def find(self, ref: OwnerReferenceKey) -> Owner | None:
        """Return the owner to which a reference points, or None if the owner is unknown.

        A reference without uid points to the present owner of that name.
        """
        if ref.uid:
            owner = self._by_uid.get(ref.uid)
            # A reference reaches into its own namespace only; otherwise users could change gangs of other namespaces.
            return owner if owner is None or ref.namespace in ("", owner.ref.namespace) else None
        return self._by_name.get((ref.kind, ref.namespace, ref.name))

    def with_ancestors(
        self, ref: OwnerReferenceKey | None
    ) -> Iterator[tuple[OwnerReferenceKey, Owner | None]]:
        """Yield an owner and the owners above it (a Job, its JobSet, …), as long as they are known and may form gangs.

        Users write ownerReferences: they may form cycles or long chains. Each owner is yielded once, and at most
        `MAX_OWNER_DEPTH` owners are.
        """
        seen: set[OwnerReferenceKey] = set()
        while ref is not None and ref.forms_gangs and ref not in seen and len(seen) < MAX_OWNER_DEPTH:
            seen.add(ref)
            owner = self.find(ref)
            yield (ref if owner is None else owner.ref), owner
            ref = owner.above if owner is not None else None

    def descendants(self, uid: str) -> Iterator[str]:
        """Yield the uids of an owner and of all owners below it, each once, down to `MAX_OWNER_DEPTH` levels."""
        seen = {uid}
        level = [uid]
        for _ in range(MAX_OWNER_DEPTH):
            yield from level
            children = {child for parent in level for child in self._below.get(parent, ())}
            level = sorted(children - seen)
            seen.update(level)

    def put(self, owner: Owner) -> None:
        """Add an owner of pods, or replace the owner that has the same uid."""
        before = self._by_uid.get(owner.ref.uid)
        self._unlink(before)
        self._by_uid[owner.ref.uid] = owner
        self._by_name[owner.ref.kind, owner.ref.namespace, owner.ref.name] = owner
        if owner.above is not None:
            self._below.setdefault(owner.above.uid, set()).add(owner.ref.uid)
        self._changed(before, owner)

    def remove(self, uid: str) -> None:
        """Remove the owner of pods that has this uid."""
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


class OwnerHandler:
    """Receives all objects of one owner kind, such as Job, from their reflector, and passes them to `Owners`.

    It implements `ports.cluster.ObjectHandler`.

    Args:
      owners: receives the objects.
      changed: is called after each change.
      kind: the name of the kind, for messages.
    """

    def __init__(self, owners: Owners, changed: Callable[[], None], kind: str = "") -> None:
        self._owners = owners
        self._changed = changed
        self._kind = kind
        self._uids: set[str] = set()
        self.set_aside_objects: dict[str, SetAsideObject] = {}
        """The owners that could not be read or handled, by `namespace/name`."""

    def on_replace(self, objects: Sequence[Owner]) -> None:
        """Replace all known owners of one kind, such as all Jobs, by a complete list of the API server."""
        self.set_aside_objects.clear()
        uids = {owner.ref.uid for owner in objects}
        for uid in sorted(self._uids - uids):
            self._owners.remove(uid)
        for owner in objects:
            self._owners.put(owner)
        self._uids = uids
        self._changed()

    def on_change(self, item: Owner) -> None:
        """Add or update an owner of pods, such as a Job, after a watch event."""
        self._uids.add(item.ref.uid)
        self._owners.put(item)
        self.set_aside_objects.pop(f"{item.ref.namespace}/{item.ref.name}", None)
        self._changed()

    def on_delete(self, item: Owner) -> None:
        """Remove an owner of pods, such as a Job, after its deletion."""
        self.set_aside_objects.pop(f"{item.ref.namespace}/{item.ref.name}", None)
        self._uids.discard(item.ref.uid)
        self._owners.remove(item.ref.uid)
        self._changed()

    def set_object_aside(self, item: bytes | Owner, problem: str) -> None:
        """Stop using an owner of pods, such as a Job, because it cannot be read or handled, and record the problem.

        Its pods stay pending like those of an unknown owner.
        """
        meta = item.ref if isinstance(item, Owner) else read_identity(item)
        key = f"{meta.namespace}/{meta.name}"
        if key not in self.set_aside_objects:
            _LOG.warning("%s %s is set aside: %s", self._kind, key, problem)
        why = SetAside("", f"{self._kind} {key}", "", problem)
        self.set_aside_objects[key] = SetAsideObject(why, meta.namespace, meta.name, meta.uid)
        self._uids.discard(meta.uid)
        self._owners.remove(meta.uid)
        self._changed()
