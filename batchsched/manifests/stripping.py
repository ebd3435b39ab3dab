"""Removes from Kubernetes objects the fields that no decision reads, such as environment variables and commands.

The types of `api.core` state which fields decisions read, so a field that they lack is left out. The values of other
fields are kept as they are, also if they are invalid: an invalid object must be set aside for the same reason later.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect
from pydantic import BaseModel

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.external.kai import KAI_ANNOTATION
from batchsched.api.snapshot import ObjectKind
from batchsched.api.unsupported_fields import UNSUPPORTED_ANNOTATIONS

_READ_ANNOTATIONS: Final = frozenset({KAI_ANNOTATION, *UNSUPPORTED_ANNOTATIONS})
_READ_ANNOTATION_DOMAINS: Final = (
    "scheduling.batchsched.dev",
    "kueue.x-k8s.io",
    "kai.scheduler",
    "scheduling.k8s.io",
    "scheduling.volcano.sh",
    "volcano.sh",
    "leaderworkerset.sigs.k8s.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
    "pv.kubernetes.io",
    "storage.alpha.kubernetes.io",
)
"""The prefixes of annotations that decisions read. Others may contain whole manifests, as for `kubectl apply`."""


def keep_fields_that_decisions_read(manifest: Mapping[str, Any], kind: ObjectKind) -> dict[str, Any]:
    """Return an object reduced to its apiVersion, its kind, and the fields on which decisions depend."""
    if issubclass(kind.type, BaseModel):  # the API server knows all fields of these kinds, and none is free
        kept = {name: value for name, value in manifest.items() if name in ("spec", "status")}
        kept["metadata"] = keep_fields_of_class(manifest.get("metadata"), ObjectMeta)
    else:
        kept = keep_fields_of_class(manifest, kind.type)
    return {"apiVersion": kind.api_version, "kind": kind.name, **kept}


def keep_fields_of_class(value: Any, kind: type[msgspec.Struct]) -> Any:
    """Return a part of an object, such as a pod's spec, with only the fields that a class declares.

    Args:
      value: the part of the object, as plain Python values.
      kind: the class, such as `PodSpec`.
    """
    return _strip(value, _type_of(kind))


@cache
def _type_of(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


@cache
def _fields_of(kind: type[msgspec.Struct]) -> Mapping[str, inspect.Type]:
    described = _type_of(kind)
    assert isinstance(described, inspect.StructType)
    return {field.encode_name: field.type for field in described.fields}


def _strip(value: Any, described: inspect.Type) -> Any:
    match described:
        case inspect.StructType() if isinstance(value, dict):
            fields = _fields_of(described.cls)
            kept = {name: _strip(value[name], fields[name]) for name in value if name in fields}
            if described.cls is ObjectMeta and isinstance(kept.get("annotations"), dict):
                kept["annotations"] = _read_annotations(kept["annotations"])
            return kept
        case inspect.VarTupleType() | inspect.ListType() if isinstance(value, list):
            return [_strip(item, described.item_type) for item in value]
        case inspect.DictType() if isinstance(value, dict):
            return {name: _strip(part, described.value_type) for name, part in value.items()}
        case inspect.UnionType():
            for option in described.types:
                if isinstance(value, dict | list) and not isinstance(option, inspect.NoneType):
                    return _strip(value, option)
            return value
        case _:
            return value


def _read_annotations(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: text
        for name, text in annotations.items()
        if name in _READ_ANNOTATIONS or name.partition("/")[0] in _READ_ANNOTATION_DOMAINS
    }
