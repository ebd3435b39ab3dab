"""JSON Schema of the input of `read`: one object, or a `List` of objects."""

from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from batchsched.api.kinds import ALL, ObjectKind

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/{name}"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the input: all kinds that are read, and lists of them."""
    structs = [kind.type for kind in ALL if not issubclass(kind.type, BaseModel)]
    _, components = msgspec.json.schema_components(structs, schema_hook=_anything, ref_template=_REFERENCE)
    models = [kind.type for kind in ALL if issubclass(kind.type, BaseModel)]
    _, custom = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template="#/$defs/{model}"
    )
    definitions = {**components, **custom["$defs"]}
    items = [_typed(kind) for kind in ALL]
    return {
        "$schema": DIALECT,
        "title": "Snapshot",
        "description": "Kubernetes manifests that batchsched reads: an object, or a List of objects.",
        "anyOf": [*items, {"$ref": "#/$defs/List"}],
        "$defs": {
            **dict(sorted(definitions.items())),
            "List": {
                "type": "object",
                "properties": {
                    "apiVersion": {"const": "v1"},
                    "kind": {"const": "List"},
                    "items": {"type": "array", "items": {"anyOf": items}},
                },
                "required": ["apiVersion", "kind", "items"],
            },
        },
    }


def _anything(kind: type) -> dict[str, Any]:
    """Return the schema of values that are passed through unread.

    Raises:
      NotImplementedError: the type is not `object`; msgspec then reports its own error.
    """
    if kind is not object:
        raise NotImplementedError
    return {"description": "Anything; it is not looked at."}


def _typed(kind: ObjectKind) -> dict[str, Any]:
    return {
        "allOf": [{"$ref": f"#/$defs/{kind.type.__name__}"}],
        "properties": {"apiVersion": {"const": kind.api_version}, "kind": {"const": kind.name}},
        "required": ["apiVersion", "kind", "metadata"],
    }
