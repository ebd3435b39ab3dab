"""The owners of pods, such as Jobs, reduced to what the pod grouper needs, and the chains of owners."""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from batchsched.api.core.metadata import ObjectMeta, OwnerReference
from batchsched.api.core.pod import Pod
from batchsched.api.crd.validation import FieldError
from batchsched.api.decision import SetAside
from batchsched.api.gang import gang_key_of_pod
from batchsched.api.json_errors import to_field_error
from batchsched.api.owner_keys import (
    SPARK_APPLICATION,
    SPARK_ROLE,
    ineffective_template_metadata_key_warnings,
    is_spark_driver_without_application,
)
from batchsched.errors import InvalidInput
from batchsched.manifests.decode import ObjectDecodeError, check_namespace_and_name
from batchsched.manifests.documents import format_kind_and_name
from batchsched.podgrouper.grove_rules import PART_OF, POD_GANG
from batchsched.podgrouper.rules import (
    KNOWN_OWNER_KINDS,
    OwnerGangSettings,
    OwnerKind,
    OwnerKinds,
    PodGroupTemplate,
    no_gang_shape,
    read_owner_gang_settings,
)
from batchsched.podgrouper.shape import OwnerGangShape, mapping_or_empty, spec_of
from batchsched.podgrouper.spark_rules import EXECUTOR, spark_driver_gang_shape
from batchsched.podgrouper.workload_rules import LEADER_WORKER_SET
from batchsched.ports.cluster import SetAsideObject
from batchsched.runner.event_handlers import log_set_aside, read_identity

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
    def is_pod(self) -> bool:
        """Whether the owner is itself a pod, such as a Spark driver."""
        return (self.group, self.kind) == ("", "Pod")

    def pod_group_name(self, index: str = "") -> str:
        """Return the name of the PodGroup that the pod grouper derives from the owner.

        A hash of the owner's uid in the name prevents collisions with PodGroups of users.
        """
        mark = hashlib.sha256(self.uid.encode()).hexdigest()[:8]
        whole = "-".join(part for part in (self.kind.lower(), self.name, index) if part)
        return f"{whole[: _MAX_NAME_CHARACTERS - len(mark) - 1].rstrip('-._')}-{mark}"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner of pods, such as a Job, with only the properties that determine the gangs of its pods.

    Args:
      ref: the reference to the owner.
      kind: its kind.
      created: the creationTimestamp.
      above: the reference to its own controller; None if it has no controller.
      gang_settings: what determines the PodGroups of its pods.
      grouping: the template of its PodGroups, without fields from owners above it; None if its pods form no gang.
    """

    ref: OwnerReferenceKey
    kind: OwnerKind
    created: str | None
    above: OwnerReferenceKey | None
    gang_settings: OwnerGangSettings
    grouping: PodGroupTemplate | None

    @property
    def kind_and_name(self) -> str:
        """The kind, namespace and name of the owner, for messages."""
        return f"{self.ref.kind} {self.ref.namespace}/{self.ref.name}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about labels, annotations and fields of the owner that are invalid or have no effect."""
        problem = self.grouping.problem if self.grouping is not None else self.gang_settings.problem
        return (*([problem] if problem else ()), *self.gang_settings.warnings)

    def has_same_gangs(self, other: "Owner") -> bool:
        """Return whether another version of this owner divides its pods into the same gangs."""
        before, after = self.grouping, other.grouping
        if self.above != other.above or (before is None) != (after is None):
            return False
        if before is None or after is None:
            return self.gang_settings == other.gang_settings
        return _labels_of(before) == _labels_of(after)


def _labels_of(template: PodGroupTemplate) -> tuple[tuple[str, ...], str]:
    return template.sub_group_labels, template.gang_label


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def decode_owner(kind: OwnerKind, raw: bytes) -> Owner:
    """Decode an owner of pods, such as a Job, from its JSON.

    Raises:
      msgspec.DecodeError: the JSON is not an object of the API.
    """
    meta = msgspec.json.decode(raw, type=_Head).metadata
    manifest = msgspec.json.decode(raw)
    namespace = meta.namespace or "default"
    ref = OwnerReferenceKey(kind.group, kind.name, namespace, meta.name, meta.uid)
    settings = read_owner_gang_settings(kind.rule, manifest)
    template = settings.build_pod_group_template({})
    return Owner(ref, kind, meta.creation_timestamp, controller_reference(meta), settings, template)


def decode_owner_of_file(kind: OwnerKind, raw: bytes, file: str, title: str) -> Owner:
    """Decode an owner of pods, such as a Job, from the JSON of an object in a file.

    Args:
      kind: its kind.
      raw: its JSON.
      file: the name of the file.
      title: its kind, namespace and name, for the message of an error.

    Raises:
      InvalidInput: the JSON is not an object of the API, or has no valid name. The exception names the file, the object
        and the field.
    """
    try:
        owner = decode_owner(kind, raw)
        if owner.ref.name:  # otherwise it gets one, as with generateName
            check_namespace_and_name(owner.ref.namespace, owner.ref.name)
    except msgspec.DecodeError as error:
        invalid = to_field_error(error)
        raise InvalidInput(invalid.message, file=file, object=title, field=invalid.field) from error
    except ObjectDecodeError as error:
        invalid = error.complaints[0]
        raise InvalidInput(invalid.message, file=file, object=title, field=invalid.field) from error
    return owner


def owner_and_pod_template_warnings(owner: Owner, raw: bytes) -> Iterator[str]:
    """Yield a sentence for each ineffective label or annotation of an owner or of its pod template.

    Call it for owners without pods. If there are pods, the keys of the pod template are found on them.

    Args:
      owner: the owner.
      raw: its JSON.
    """
    yield from owner.warnings
    template = mapping_or_empty(spec_of(msgspec.json.decode(raw)).get("template"))
    yield from ineffective_template_metadata_key_warnings(mapping_or_empty(template.get("metadata")))


POD_OWNER: Final = OwnerKind("Pod", "v1", no_gang_shape)
"""The kind of a driver of Spark that no SparkApplication owns."""


def read_spark_driver_as_owner(pod: Pod) -> Owner | None:
    """Return a Spark driver as the owner of its executors, unless a SparkApplication created the driver.

    Return None for all other pods, and for a driver without a UID. A SparkApplication is itself the owner of its
    driver and its executors.
    """
    if not is_spark_driver_without_application(pod) or not pod.metadata.uid:
        return None
    shape: OwnerGangShape = spark_driver_gang_shape(pod)
    ref = OwnerReferenceKey("", "Pod", pod.namespace, pod.name, pod.metadata.uid)
    meta = {"labels": dict(pod.labels), "annotations": dict(pod.metadata.annotations or {})}
    settings = read_owner_gang_settings(lambda _: shape, {"metadata": meta})
    above = controller_reference(pod.metadata)
    created = pod.metadata.creation_timestamp
    return Owner(ref, POD_OWNER, created, above, settings, settings.build_pod_group_template({}))


def controller_reference(meta: ObjectMeta) -> OwnerReferenceKey | None:
    """Return the reference to the controller of an object (`controller: true`), or None if it has no controller."""
    owner = meta.controller_owner
    if owner is None:
        return None
    return OwnerReferenceKey(_group(owner), owner.kind, meta.namespace or "default", owner.name, owner.uid)


def _group(reference: OwnerReference) -> str:
    return reference.api_version.rpartition("/")[0]


OWNER_KIND_BY_LOWER_NAME: Final = {
    form: kind.name for kind in KNOWN_OWNER_KINDS.all for form in (kind.name.lower(), f"{kind.name.lower()}s")
}
"""The kinds of owners, by their names and plurals in lower case, such as `job` and `jobs`."""
_PARTS_OF_NAMES: Final = {
    "TrainJob": (("JobSet", ""),),
    "RayService": (("RayCluster", r"-(raycluster-)?[a-z0-9]+"),),
}
"""Owners without gangs of their own: the kind that they create, and what is appended to their name."""
_INDEXES: Final = {"LeaderWorkerSet": r"(-\d+)?", "PodCliqueSet": r"-\S+"}
"""What distinguishes the names of several gangs of one owner; other owners have a single gang."""


def gang_keys_of_owner(pods: Iterable[Pod], namespace: str, name: str, kind: str = "") -> set[str]:
    """Return the gangs (`namespace/name`) to which the pods of an owner, such as a Job, belong.

    Args:
      pods: All pods; the owner itself need not be known.
      namespace: The namespace of the owner.
      name: Its name.
      kind: Its kind; "" for any kind that forms gangs.
    """
    kinds = {kind} if kind else set(KNOWN_OWNER_KINDS.names)
    names = [pod_group_name_pattern(owner_kind, name) for owner_kind in kinds]
    names += [
        pod_group_name_pattern(child, name, ending)
        for owner_kind in kinds
        for child, ending in _PARTS_OF_NAMES.get(owner_kind, ())
    ]
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


def pod_group_name_pattern(kind: str, name: str, ending: str = "") -> re.Pattern[str]:
    """Return a pattern that matches the PodGroup names which the pod grouper derives from an owner.

    Args:
      kind: the kind of the owner.
      name: its name.
      ending: a pattern of what follows the name of the owner.
    """
    hash_length = 8
    stem = f"{kind.lower()}-{name}"[: _MAX_NAME_CHARACTERS - hash_length - 1].rstrip("-._")
    index = _INDEXES.get(kind, "")
    return re.compile(rf"{re.escape(stem)}{ending}{index}-[0-9a-f]{{{hash_length}}}")


def gang_owner_reference_of_pod(pod: Pod, kinds: OwnerKinds = KNOWN_OWNER_KINDS) -> OwnerReferenceKey | None:
    """Return the reference to the owner that may determine a pod's gang, or None if there is no such owner.

    This is the controller, or an owner in labels of the pod where the chain of controllers does not lead to it: the
    workers of a LeaderWorkerSet belong to a StatefulSet of their leader, the executors of Spark to their driver, and
    the pods of Grove to a PodClique.
    """
    owner = controller_reference(pod.metadata)
    named = _find_owner_by_labels(pod, owner)
    if named is not None:
        return named
    return owner if owner is not None and (owner.group, owner.kind) in kinds.by_group_and_name else None


def _find_owner_by_labels(pod: Pod, owner: OwnerReferenceKey | None) -> OwnerReferenceKey | None:
    """Return the owner that the labels of a pod name, or None if its controller counts."""
    labels, kind = pod.labels, owner.kind if owner is not None else ""
    if kind == "StatefulSet" and labels.get(LEADER_WORKER_SET):
        name = labels[LEADER_WORKER_SET]
        return OwnerReferenceKey("leaderworkerset.x-k8s.io", "LeaderWorkerSet", pod.namespace, name, "")
    if kind == "PodClique" and labels.get(POD_GANG) and labels.get(PART_OF):
        return OwnerReferenceKey("grove.io", "PodCliqueSet", pod.namespace, labels[PART_OF], "")
    if SPARK_ROLE not in labels:
        return None
    if labels.get(SPARK_APPLICATION) and kind in ("Pod", "SparkApplication"):
        name = labels[SPARK_APPLICATION]
        return OwnerReferenceKey("sparkoperator.k8s.io", "SparkApplication", pod.namespace, name, "")
    if is_spark_driver_without_application(pod) and pod.metadata.uid:
        return OwnerReferenceKey("", "Pod", pod.namespace, pod.name, pod.metadata.uid)
    return owner if owner is not None and owner.is_pod and labels[SPARK_ROLE] == EXECUTOR else None


Changed = Callable[[Owner | None, Owner | None], None]
"""Receives the previous and the new version of an owner."""


class Owners:
    """All known owners of pods, with the owners above and below each of them.

    Args:
      changed: is called for each owner that was added, changed or deleted.
      kinds: the kinds of owners that form gangs.
    """

    def __init__(self, changed: Changed, kinds: OwnerKinds = KNOWN_OWNER_KINDS) -> None:
        self._changed = changed
        self._kinds = kinds
        self._by_uid: dict[str, Owner] = {}
        self._by_name: dict[tuple[str, str, str], Owner] = {}
        self._below: dict[str, set[str]] = {}
        self._inherited: dict[str, tuple[Owner, Mapping[str, Any], PodGroupTemplate | None]] = {}

    def pod_group_template_of(self, owner: Owner, inherited: Mapping[str, Any]) -> PodGroupTemplate | None:
        """Return the template for an owner's PodGroups, with fields inherited from the owners above it."""
        if not inherited:
            return owner.grouping
        # All pods of an owner ask for the same template.
        last = self._inherited.get(owner.ref.uid)
        if last is None or last[0] is not owner or last[1] != inherited:
            last = owner, dict(inherited), owner.gang_settings.build_pod_group_template(inherited)
            self._inherited[owner.ref.uid] = last
        return last[2]

    def resolve_owner_reference(self, ref: OwnerReferenceKey) -> Owner | None:
        """Return the owner to which a reference points, or None if the owner is unknown.

        A reference without uid points to the owner that has this kind and name at present.
        """
        if ref.uid:
            owner = self._by_uid.get(ref.uid)
            # A reference reaches into its own namespace only; otherwise users could change gangs of other namespaces.
            return owner if owner is None or ref.namespace in ("", owner.ref.namespace) else None
        return self._by_name.get((ref.kind, ref.namespace, ref.name))

    def owner_and_ancestors(
        self, ref: OwnerReferenceKey | None
    ) -> Iterator[tuple[OwnerReferenceKey, Owner | None]]:
        """Yield an owner and the owners above it (a Job, its JobSet, …), as long as they are known and may form gangs.

        Users write ownerReferences: they may form cycles or long chains. Each owner is yielded once, and at most
        `MAX_OWNER_DEPTH` owners are.
        """
        seen: set[OwnerReferenceKey] = set()
        while ref is not None and ref not in seen and len(seen) < MAX_OWNER_DEPTH:
            owner = self.resolve_owner_reference(ref)
            # A pod that owns pods is known only if it is a driver of Spark.
            if owner is None and (ref.group, ref.kind) not in self._kinds.by_group_and_name:
                return
            seen.add(ref)
            yield (ref if owner is None else owner.ref), owner
            ref = owner.above if owner is not None else None

    def descendants(self, uid: str) -> Iterator[OwnerReferenceKey]:
        """Yield the references to all owners below an owner, each once, down to `MAX_OWNER_DEPTH` levels."""
        seen = {uid}
        level = [uid]
        for _ in range(MAX_OWNER_DEPTH):
            yield from (self._by_uid[below].ref for below in level if below != uid and below in self._by_uid)
            children = {child for parent in level for child in self._below.get(parent, ())}
            level = sorted(children - seen)
            seen.update(level)

    def put_owner(self, owner: Owner) -> None:
        """Add an owner of pods, or replace the owner that has the same uid."""
        before = self._by_uid.get(owner.ref.uid)
        if before == owner:
            return
        self._unlink(before)
        self._by_uid[owner.ref.uid] = owner
        self._by_name[owner.ref.kind, owner.ref.namespace, owner.ref.name] = owner
        if owner.above is not None:
            self._below.setdefault(owner.above.uid, set()).add(owner.ref.uid)
        self._changed(before, owner)

    def remove_owner(self, uid: str) -> None:
        """Remove the owner of pods that has this uid."""
        before = self._by_uid.pop(uid, None)
        self._inherited.pop(uid, None)
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
    """The handler that receives all objects of one owner kind, such as Job, and passes them to `Owners`.

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
        self._logged_before_list: set[str] = set()
        """The owners that were set aside before the last list: a list reports them again, but the log does not."""

    def on_replace(self, objects: Sequence[Owner]) -> None:
        """Replace all known owners of one kind, such as all Jobs, by a complete list from the API server."""
        uids = {owner.ref.uid for owner in objects}
        for uid in sorted(self._uids - uids):
            self._owners.remove_owner(uid)
        for owner in objects:
            self._put_owner(owner)
        self._uids = uids
        self._logged_before_list = set(self.set_aside_objects)
        self.set_aside_objects.clear()
        self._changed()

    def on_add_or_update(self, item: Owner) -> None:
        """Add or update an owner of pods, such as a Job, after a watch event."""
        self._uids.add(item.ref.uid)
        self._put_owner(item)
        self._put_back(item)
        self._changed()

    def _put_back(self, owner: Owner) -> None:
        """Forget that an owner was set aside, because it is valid now, or deleted."""
        key = f"{owner.ref.namespace}/{owner.ref.name}"
        self.set_aside_objects.pop(key, None)
        self._logged_before_list.discard(key)

    def _put_owner(self, owner: Owner) -> None:
        """Add or update an owner, and log its warnings if they are new: a Job changes with each of its pods."""
        before = self._owners.resolve_owner_reference(owner.ref)
        for warning in owner.warnings:
            if before is None or warning not in before.warnings:
                _LOG.warning("%s: %s", owner.kind_and_name, warning)
        self._owners.put_owner(owner)

    def on_delete(self, item: Owner) -> None:
        """Remove an owner of pods, such as a Job, after its deletion."""
        self._put_back(item)
        self._uids.discard(item.ref.uid)
        self._owners.remove_owner(item.ref.uid)
        self._changed()

    def set_object_aside(self, item: bytes | Owner, problem: FieldError) -> None:
        """Remove an invalid owner of pods, such as a Job, from the known owners, and record the problem.

        Its pods stay pending like those of an unknown owner.
        """
        meta = item.ref if isinstance(item, Owner) else read_identity(item)
        key = f"{meta.namespace}/{meta.name}"
        title = format_kind_and_name(self._kind, meta.namespace, meta.name)
        why = SetAside("", title, problem.field, problem.message)
        if key not in self.set_aside_objects and key not in self._logged_before_list:
            log_set_aside(why)
        self.set_aside_objects[key] = SetAsideObject(why, meta.namespace, meta.name, meta.uid)
        self._uids.discard(meta.uid)
        self._owners.remove_owner(meta.uid)
        self._changed()
