"""Decodes and validates single Kubernetes objects; pods with equal specs share one decoded spec.

Pods of one template have the same spec. It is decoded and validated once and shared, so that memory stays small and a
session can group pods by the identity of their specs. A service reads an unbounded number of specs, so a spec is
dropped once no pod refers to it.
"""

import hashlib
from collections import Counter
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodSpec, PodStatus, keys_of_unreferenced_pod_specs
from batchsched.api.core.pod_field_limits import LARGE_SPEC_BYTES, reduce_pending_spec_above_field_limit
from batchsched.api.core.volume import StorageClass
from batchsched.api.crd.base import without_nulls
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.topology import Topology
from batchsched.api.crd.validation import FieldError, field_errors
from batchsched.api.external.conversion import (
    EXTERNAL_KIND_BY_GROUP_AND_NAME,
    convert_to_pod_group_or_tree_group,
)
from batchsched.api.external.hyper_node import HYPER_NODE_KIND
from batchsched.api.external.pod_group import ExternalPodGroup
from batchsched.api.external.topology import EXTERNAL_TOPOLOGY_KINDS, ExternalTopology, convert_topology
from batchsched.api.json_errors import to_field_error
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME, ObjectKind
from batchsched.errors import InvalidInput
from batchsched.manifests import api_server, creation_checks
from batchsched.manifests.api_server import pod_spec_with_defaults, storage_class_with_default_binding_mode
from batchsched.manifests.documents import Document, can_be_object_name
from batchsched.manifests.object_checks import check_object_at_every_write

Object = msgspec.Struct | BaseModel
FILE_KIND_BY_GROUP_AND_NAME: Final = (
    {(kind.group, kind.name): kind for kind in (*EXTERNAL_TOPOLOGY_KINDS, HYPER_NODE_KIND)}
    | EXTERNAL_KIND_BY_GROUP_AND_NAME
    | KIND_BY_GROUP_AND_NAME
)
"""The kinds of objects that are read from files: those of a Snapshot, and those of other schedulers."""
_MAX_CACHED_STATUS_BYTES: Final = 64
"""Maximum size in bytes of a pod status that is cached, such as `{"phase":"Pending"}`."""
_MAX_CACHED_STATUSES: Final = 1024
_MAX_CACHED_SPECS: Final = 16384
_MAX_UNUSED_SPEC_BYTES: Final = 16 * 2**20
"""Bytes of JSON of new specs after which unused specs are dropped; decoded, they take up to four times that."""
_PODS_BETWEEN_DROPS: Final = 4096
"""Number of decoded pods after which unused specs are dropped, so that those of deleted pods do not stay for hours. If
many specs are cached, it is an eighth of them, since the work at the start must not grow with their square."""


class ObjectDecodeError(Exception):
    """Raised if an object of the input is invalid, with an error for each invalid field.

    The reader of the input then sets the object aside.
    """

    def __init__(self, field_errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(str(complaint) for complaint in field_errors))
        self.complaints = field_errors


class Decoder:
    """The decoder and validator of Kubernetes objects; pods with equal specs share one decoded spec.

    Args:
      trusted: the objects were validated before; they are decoded without setting defaults or validating specs.
      from_files: the objects come from files, so that no API server has accepted them.
    """

    def __init__(self, *, trusted: bool = False, from_files: bool = False) -> None:
        self._trusted = trusted
        self._from_files = from_files
        self._decoders: dict[type, msgspec.json.Decoder[Any]] = {}
        # Keyed by digest, because the JSON of a spec is longer than the values that are kept.
        self._specs: dict[bytes, PodSpec] = {}
        self._canonical: dict[bytes, PodSpec] = {}
        self._new_spec_bytes = 0
        """Bytes of JSON of the specs that became canonical since unused ones were dropped."""
        self._decoded_pods = 0
        """The number of pods decoded since unused specs were dropped."""
        self._statuses: dict[bytes, PodStatus] = {}

    def decode(self, document: Document, kind: ObjectKind) -> Any:
        """Decode and validate one Kubernetes object in an input file.

        A PodGroup of another project becomes a batchsched PodGroup, or a part of one.

        Raises:
          ObjectDecodeError: the object is invalid.
        """
        try:
            decoded = self._decoded(document, kind)
            if self._from_files and decoded.metadata.name:
                # It checks names more strictly than `check_namespace_and_name`.
                creation_checks.check_object_at_creation(decoded)
                return decoded
        except InvalidInput as error:
            raise ObjectDecodeError((FieldError(error.field, error.message),)) from error
        except ValidationError as error:
            converted = Topology if issubclass(kind.type, ExternalTopology) else PodGroup
            model = kind.type if issubclass(kind.type, BaseModel) else converted
            raise ObjectDecodeError(field_errors(error, model)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ObjectDecodeError((to_field_error(error),)) from error
        check_namespace_and_name(decoded.metadata.namespace, decoded.metadata.name)
        return decoded

    def _decoded(self, document: Document, kind: ObjectKind) -> Any:
        if kind.type is Pod:
            return self._pod(document)
        if issubclass(kind.type, BaseModel):
            return kind.type.model_validate(without_nulls(msgspec.json.decode(document.raw)))
        decoded = self._read(document.raw, kind.type, "")
        check_object_at_every_write(decoded)
        if isinstance(decoded, ExternalPodGroup):
            return convert_to_pod_group_or_tree_group(decoded)
        if isinstance(decoded, ExternalTopology):
            return convert_topology(decoded)
        if isinstance(decoded, StorageClass) and not self._trusted:
            return storage_class_with_default_binding_mode(decoded)
        return decoded

    def _pod(self, document: Document) -> Pod:
        envelope = document.envelope
        return Pod(
            metadata=self._read(envelope.metadata, ObjectMeta, "metadata"),
            spec=self._spec(envelope.spec),
            status=self._status(envelope.status),
        )

    def _spec(self, raw: msgspec.Raw) -> PodSpec:
        self._decoded_pods += 1
        if (
            self._decoded_pods >= max(_PODS_BETWEEN_DROPS, len(self._canonical) // 8)
            or len(self._specs) >= _MAX_CACHED_SPECS
            or self._new_spec_bytes >= _MAX_UNUSED_SPEC_BYTES
        ):
            self._drop_unused_specs()
        key = hashlib.sha256(raw).digest()
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = self._new_spec(raw)
        return spec

    def _drop_unused_specs(self) -> None:
        """Drop the cached specs that no pod uses, with their digests; of too many digests, drop all."""
        if len(self._specs) >= _MAX_CACHED_SPECS:
            self._specs.clear()
        self._decoded_pods = self._new_spec_bytes = 0
        digest_counts = Counter(map(id, self._specs.values()))
        unused = {
            id(self._canonical.pop(key))
            for key in keys_of_unreferenced_pod_specs(self._canonical, digest_counts)
        }
        self._specs = {digest: spec for digest, spec in self._specs.items() if id(spec) not in unused}

    def _new_spec(self, raw: msgspec.Raw) -> PodSpec:
        """Decode and validate a pod spec; specs that differ only in ignored fields become one shared value.

        Raises:
          InvalidInput, ObjectDecodeError: the spec is invalid.
        """
        spec: PodSpec = self._read(raw, PodSpec, "spec")
        if not self._trusted:
            spec = pod_spec_with_defaults(spec)
            api_server.check_pod_spec(spec)
        if self._from_files:
            creation_checks.check_pod_spec_at_creation(spec)
        # Most specs are small: comparing each with the limits would make the first list of a cluster slower.
        if not self._trusted and memoryview(raw).nbytes >= LARGE_SPEC_BYTES:
            spec = reduce_pending_spec_above_field_limit(spec)
        encoded = msgspec.json.encode(spec)
        canonical = self._canonical.setdefault(hashlib.sha256(encoded).digest(), spec)
        if canonical is spec:
            self._new_spec_bytes += len(encoded)
        return canonical

    def _status(self, raw: msgspec.Raw) -> PodStatus:
        key = bytes(raw) if memoryview(raw).nbytes <= _MAX_CACHED_STATUS_BYTES else None
        if key is not None and key in self._statuses:
            return self._statuses[key]
        status: PodStatus = self._read(raw, PodStatus, "status")
        api_server.check_pod_status(status)
        if key is not None:
            if len(self._statuses) >= _MAX_CACHED_STATUSES:
                self._statuses.clear()
            self._statuses[key] = status
        return status

    def _read(self, raw: msgspec.Raw | bytes, kind: type[Any], field: str) -> Any:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        try:
            try:
                return decoder.decode(raw)
            except msgspec.ValidationError:
                # msgspec accepts null only for fields of a type that allows it.
                return msgspec.convert(without_nulls(msgspec.json.decode(raw)), kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ObjectDecodeError((to_field_error(error, field),)) from error


def check_namespace_and_name(namespace: str | None, name: str) -> None:
    """Check that the namespace and the name of an object follow the rules for names.

    Raises:
      ObjectDecodeError: the name or the namespace is not valid.
    """
    for field, text in (("metadata.name", name), ("metadata.namespace", namespace or "default")):
        if not can_be_object_name(text):
            raise ObjectDecodeError((FieldError(field, _name_problem(text)),))


def _name_problem(name: str) -> str:
    if not name:
        return "is required; add it (generateName alone names nothing before the API server does)"
    return f"{name[:60]!r} is no name; expected 1 to 253 characters without blanks and slashes"
