"""Event handlers, which pass objects from reflectors to the cluster state and set invalid objects aside."""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from pydantic import BaseModel

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.validation import FieldError
from batchsched.api.decision import SetAside
from batchsched.api.external.pod_group import ExternalPodGroup
from batchsched.api.json_errors import to_field_error
from batchsched.api.snapshot import ObjectKind
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import ENVELOPE_DECODER, Document, format_kind_and_name
from batchsched.ports.cluster import SetAsideObject

_LOG: Final = logging.getLogger(__name__)
# Commands configure no logging and print the objects that are set aside. Without a handler, Python would print each
# warning here in addition. `run` has a handler of the root logger, which receives the warnings as before.
_LOG.addHandler(logging.NullHandler())
# All other kinds must be listed before the first session. Nodes and pods are counted. Without namespaces, budgets,
# CSINodes or attachments, the scheduler would break hard constraints. Without priority classes, queues or topologies it
# would prefer the wrong gangs. A missing optional kind leaves pods pending at worst: an unknown claim or PodGroup is
# refused, and a pod with an unknown owner belongs to a PodGroup that does not exist.
_CLAIMS: Final = "pods with claims that depend on them wait"
_DEVICES: Final = "pods with ResourceClaims that need them wait"
_SPREAD: Final = "their pods are spread by their own constraints only, not by the default ones"
OPTIONAL_KINDS: Final = {
    "persistent_volumes": _CLAIMS,
    "persistent_volume_claims": _CLAIMS,
    "storage_classes": _CLAIMS,
    "csi_drivers": "volumes are provisioned without a look at the capacity that is left, and pods with volumes are "
    "placed on nodes without the driver",
    "csi_storage_capacities": _CLAIMS,
    "device_classes": _DEVICES,
    "resource_slices": _DEVICES,
    "resource_claims": "pods with ResourceClaims are refused",
    "resource_claim_templates": _DEVICES,
    "device_taint_rules": "devices are allocated without the taints of DeviceTaintRules",
    "node_resource_topologies": "pods are placed without regard to NUMA zones",
    "services": _SPREAD,
    "replication_controllers": _SPREAD,
    "replica_sets": _SPREAD,
    "stateful_sets": _SPREAD,
}
"""The consequence of denied access to an optional kind, by its field of Snapshot."""


class ObjectIdentity(msgspec.Struct):
    """The name, namespace and uid that identify a Kubernetes object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class ObjectStore(Protocol):
    """The interface of the stores to which event handlers pass objects, such as the cluster state."""

    def put(self, changed: Any, /) -> None:
        """Add an object to the store, or update it."""
        ...

    def remove(self, deleted: Any, /) -> None:
        """Remove a deleted object from the store."""
        ...

    def replace(self, kind: type, listed: Iterable[Any], /) -> None:
        """Replace all stored objects of a kind with the objects of a complete new list."""
        ...


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """An object that cannot be decoded or fails validation.

    Args:
      key: The key of the object within its kind.
      meta: The part of the metadata that could be read.
      why: The entry for the field `setAside` of decisions, with the invalid field and the message.
    """

    key: str
    meta: ObjectIdentity
    why: SetAside


class EventHandler:
    """An event handler that decodes watched objects of one kind, and passes the valid objects to a store.

    Invalid objects are set aside. The event handler is an `ObjectHandler` for the objects that `decode` returns.

    Args:
      kind: The kind of the objects.
      cache: The store that receives the objects.
      decoder: The decoder, shared by all kinds.
      changed: Called after each change of the store.
    """

    def __init__(
        self, kind: ObjectKind, cache: ObjectStore, decoder: Decoder, changed: Callable[[], None]
    ) -> None:
        self._kind = kind
        self._cache = cache
        self._decoder = decoder
        self._changed = changed
        self.set_aside_objects: dict[str, SetAsideObject] = {}
        """The invalid objects by key."""

    def decode(self, raw: bytes) -> Any:
        """Decode an object from the JSON of the API server; return an `InvalidObject` if it is invalid."""
        try:
            document = Document("", "", raw, ENVELOPE_DECODER.decode(raw))
            return self._decoder.decode(document, self._kind)
        except ObjectDecodeError as refused:
            return self._unusable(read_identity(raw), *refused.complaints)
        except (ValueError, RecursionError) as error:  # no JSON, not UTF-8, or nested too deeply
            return self._unusable(read_identity(raw), to_field_error(error))

    def add_or_update_from_json(self, raw: bytes) -> None:
        """Decode an object from the JSON of the API server, and add it to the store or update it."""
        self.on_add_or_update(self.decode(raw))

    def on_replace(self, objects: Sequence[Any]) -> None:
        """Replace all stored objects of this kind with the objects of a complete new list."""
        before, self.set_aside_objects = self.set_aside_objects, {}
        for listed_object in objects:
            if isinstance(listed_object, InvalidObject):
                self._put_aside(listed_object, before)
        self._cache.replace(
            self._kind.type,
            [listed_object for listed_object in objects if not isinstance(listed_object, InvalidObject)],
        )
        self._changed()

    def on_add_or_update(self, changed_object: Any) -> None:
        """Add an object to the store or update it; if it is invalid, remove it and set it aside."""
        if isinstance(changed_object, InvalidObject):
            self._put_aside(changed_object, self.set_aside_objects)
            # No uid is passed, since the state ignores a deleted uid, and a later version of this object may
            # be valid.
            self._cache.remove(_bare(self._kind, changed_object.meta, uid=""))
        else:
            self._cache.put(changed_object)
            self._put_back(self._kind.object_key(changed_object.metadata))
        self._changed()

    def on_delete(self, deleted_object: Any) -> None:
        """Remove a deleted object from the store; the argument is its last known version."""
        last = (
            _bare(self._kind, deleted_object.meta, deleted_object.meta.uid)
            if isinstance(deleted_object, InvalidObject)
            else deleted_object
        )
        self._put_back(self._kind.object_key(last.metadata))
        self._cache.remove(last)
        self._changed()

    def set_object_aside(self, item: Any, problem: FieldError) -> None:
        """Set an object aside after an exception: remove the object from the store, and record the problem.

        The exception was raised while the object was decoded, or while it was passed to the store.
        """
        if isinstance(item, InvalidObject):
            meta = item.meta
        elif isinstance(item, bytes):
            meta = read_identity(item)
        else:
            meta = ObjectIdentity(item.metadata.name, item.metadata.namespace, item.metadata.uid)
        self.on_add_or_update(self._unusable(meta, problem))

    def _unusable(self, meta: ObjectIdentity, first: FieldError, *further: FieldError) -> InvalidObject:
        """Return the record of an invalid object: its first invalid field, and any further ones in the message."""
        key = self._kind.object_key(ObjectMeta(name=meta.name, namespace=meta.namespace))
        message = "; ".join((first.message, *(str(error) for error in further)))
        namespace = (meta.namespace or "default") if self._kind.namespaced else ""
        title = format_kind_and_name(self._kind.name, namespace, meta.name)
        why = SetAside(file="", object=title, field=first.field, message=message)
        return InvalidObject(key, meta, why)

    def _put_aside(self, invalid: InvalidObject, already_reported: Container[str]) -> None:
        if invalid.key not in already_reported:
            log_set_aside(invalid.why)
        meta = invalid.meta
        self.set_aside_objects[invalid.key] = SetAsideObject(invalid.why, meta.namespace, meta.name, meta.uid)

    def _put_back(self, key: str) -> None:
        if self.set_aside_objects:
            self.set_aside_objects.pop(key, None)


def log_set_aside(why: SetAside) -> None:
    """Log a warning that an object is set aside.

    Commands do not show this warning, because they print the objects that are set aside.
    """
    _LOG.warning("%s is set aside: %s", why.object, why.field_and_message)


class _UncheckedIdentity(msgspec.Struct):
    name: Any = ""
    namespace: Any = ""
    uid: Any = ""


class _Named(msgspec.Struct):
    metadata: _UncheckedIdentity = msgspec.field(default_factory=_UncheckedIdentity)


def read_identity(raw: bytes) -> ObjectIdentity:
    """Return the name, namespace and uid in the JSON of an object; each value that cannot be read is ""."""
    try:
        meta = msgspec.json.decode(raw, type=_Named).metadata
    except (ValueError, RecursionError):  # no JSON, not UTF-8, or nested too deeply
        return ObjectIdentity()
    return ObjectIdentity(
        *(value if isinstance(value, str) else "" for value in (meta.name, meta.namespace, meta.uid))
    )


def _bare(kind: ObjectKind, meta: ObjectIdentity, uid: str) -> Any:
    """Return an object of a kind with only metadata, for its removal from a store.

    External PodGroups become PodGroups of batchsched.
    """
    if issubclass(kind.type, BaseModel) or issubclass(kind.type, ExternalPodGroup):
        custom = kind.type if issubclass(kind.type, BaseModel) else PodGroup
        named = CustomMeta.model_construct(name=meta.name, namespace=meta.namespace, uid=uid)
        return custom.model_construct(metadata=named)
    return kind.type(metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=uid))
