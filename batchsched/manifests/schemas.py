"""Generates schemas from the models: CustomResourceDefinitions, and the JSON Schema of manifests.

In a CustomResourceDefinition, the JSON Schema of pydantic becomes a structural schema: references are inlined, and
`X or null` becomes X, because the API server drops nulls. Unknown fields are not listed: the API server prunes them, or
rejects them under strict validation, the default of kubectl. Validation rules between fields are defined next to the
validators of the models.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from batchsched.api.crd.base import GROUP
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.crd.queue import Queue
from batchsched.api.crd.topology import Topology
from batchsched.api.snapshot import OBJECT_KINDS, ObjectKind

Json = dict[str, Any]
CATEGORY: Final = "batchsched"
_DROPPED: Final = ("title", "additionalProperties", "$defs")
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column that `kubectl get` shows for a custom resource.

    Args:
      name: the heading.
      path: JSON path of the value.
      type: type of the value.
      description: the description of the column.
      wide: shown only with `-o wide`.
    """

    name: str
    path: str
    type: str
    description: str
    wide: bool = False

    def as_crd_entry(self) -> Json:
        """Return the column as an item of `additionalPrinterColumns` in a CustomResourceDefinition."""
        column: Json = {
            "name": self.name,
            "type": self.type,
            "description": self.description,
            "jsonPath": self.path,
        }
        return {**column, "priority": 1} if self.wide else column


@dataclass(frozen=True, slots=True)
class CrdDefinition:
    """The definition of a custom resource of batchsched: its pydantic model, names and printer columns.

    Args:
      model: the pydantic model.
      plural, short: plural and short name.
      namespaced: whether the kind is namespaced.
      columns: the columns of `kubectl get`.
    """

    model: type[BaseModel]
    plural: str
    short: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]

    @property
    def kind(self) -> str:
        """The kind of the custom resource, such as `PodGroup`."""
        return self.model.__name__

    def as_manifest(self) -> Json:
        """Return the manifest of the CustomResourceDefinition."""
        schema = _schema(self.model)
        status = "status" in schema["properties"]
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": list(self.short),
                    "categories": [CATEGORY],
                },
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [
                    {
                        "name": "v1alpha1",
                        "served": True,
                        "storage": True,
                        "additionalPrinterColumns": [column.as_crd_entry() for column in self.columns],
                        **({"subresources": {"status": {}}} if status else {}),
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }


_AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was made.")
_REASON: Final = '.status.conditions[?(@.type=="Scheduled")].reason'
_ACTIVE: Final = '.status.conditions[?(@.type=="Active")].status'
DEFINITIONS: Final = (
    CrdDefinition(
        PodGroup,
        "podgroups",
        ("pg",),
        namespaced=True,
        columns=(
            PrinterColumn("Phase", ".status.phase", "string", "Where the gang is in its life."),
            PrinterColumn(
                "MinMember", ".spec.minMember", "integer", "How many pods must run for any to run."
            ),
            PrinterColumn("Placed", ".status.placed", "integer", "Pods that have a node."),
            PrinterColumn("Running", ".status.running", "integer", "Pods that run."),
            PrinterColumn("Queue", ".status.queue", "string", "The Queue to which it belongs."),
            PrinterColumn("Reason", _REASON, "string", "Why it is, or is not, scheduled.", wide=True),
            PrinterColumn(
                "Position", ".status.queuePosition", "integer", "Its position in its queue.", wide=True
            ),
            PrinterColumn("Start", ".status.estimatedStartTime", "string", "The estimated start.", wide=True),
            _AGE,
        ),
    ),
    CrdDefinition(
        Queue,
        "queues",
        ("bq",),
        namespaced=False,
        columns=(
            PrinterColumn("Parent", ".spec.parent", "string", "The queue above it."),
            PrinterColumn("Weight", ".spec.weight", "number", "How surplus is divided between siblings."),
            PrinterColumn("CPU", ".status.allocated.cpu", "string", "CPU that its pods have."),
            PrinterColumn("Memory", ".status.allocated.memory", "string", "Memory that its pods have."),
            PrinterColumn("GPU", r".status.allocated.nvidia\.com/gpu", "string", "GPUs that its pods have."),
            PrinterColumn("Pending", ".status.pending", "integer", "PodGroups that wait."),
            PrinterColumn("Active", _ACTIVE, "string", "Whether it takes part.", wide=True),
            _AGE,
        ),
    ),
    CrdDefinition(
        Topology,
        "topologies",
        (),
        namespaced=False,
        columns=(
            PrinterColumn("Levels", ".spec.levels[*].name", "string", "From the widest to the narrowest."),
            _AGE,
        ),
    ),
)


def pod_group_crd_yaml() -> str:
    """Return the CustomResourceDefinition of PodGroup as YAML."""
    return _text(DEFINITIONS[0])


def queue_crd_yaml() -> str:
    """Return the CustomResourceDefinition of Queue as YAML."""
    return _text(DEFINITIONS[1])


def topology_crd_yaml() -> str:
    """Return the CustomResourceDefinition of Topology as YAML."""
    return _text(DEFINITIONS[2])


def _text(definition: CrdDefinition) -> str:
    head = "# Generated from the models by `make generate`; edits are lost.\n"
    return head + yaml.safe_dump(definition.as_manifest(), sort_keys=False, width=_WIDTH, allow_unicode=True)


def _schema(model: type[BaseModel]) -> Json:
    """Return the structural schema of a custom resource, which the API server requires."""
    whole = model.model_json_schema(by_alias=True)
    parts: Json = whole.get("$defs", {})
    fields = {name: _structural(part, parts) for name, part in whole["properties"].items()}
    fields["apiVersion"], fields["kind"] = {"type": "string"}, {"type": "string"}
    fields["metadata"] = {"type": "object"}
    if "properties" not in fields.get("status", {}):
        fields.pop("status", None)
    # If a whole spec is absent, the defaults of its fields are set as well.
    required = [name for name in whole.get("required", ()) if name != "metadata"]
    if "spec" not in required:
        fields["spec"]["default"] = {}
    rules = {key: value for key, value in whole.items() if key.startswith("x-kubernetes-")}
    return {
        "description": whole["description"],
        "type": "object",
        **({"required": required} if required else {}),
        "properties": fields,
        **rules,
    }


def _structural(schema: Json, parts: Json) -> Json:
    """Convert a part of a JSON Schema to a structural schema."""
    schema = _resolved(schema, parts)
    if "integer" in _types(schema.get("anyOf", ())):
        return {**schema, "x-kubernetes-int-or-string": True}
    structural = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "default" in structural and structural["default"] in (None, "", [], ()):
        del structural["default"]
    if "description" in structural:
        structural["description"] = " ".join(structural["description"].split())
    values = schema.get("additionalProperties")
    if "properties" in structural:
        structural["properties"] = {
            name: _structural(part, parts) for name, part in structural["properties"].items()
        }
    elif isinstance(values, dict):
        structural["additionalProperties"] = _structural(values, parts)
    elif structural.get("type") == "object":
        structural["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in structural:
        structural["items"] = _structural(structural["items"], parts)
    return structural


def _resolved(schema: Json, parts: Json) -> Json:
    """Return a schema with inlined references and without null; keys next to a reference take precedence."""
    siblings = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "allOf")}
    if "$ref" in schema:
        return _resolved({**parts[schema["$ref"].rpartition("/")[2]], **siblings}, parts)
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        return _resolved({**choices[0], **siblings}, parts)
    return schema


def _types(schemas: Any) -> set[str]:
    return {choice.get("type", "") for choice in schemas}


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE: Final = "#/$defs/{name}"


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema of one manifest that batchsched reads: an object of a known kind, or a List."""
    structs = [kind.type for kind in OBJECT_KINDS if not issubclass(kind.type, BaseModel)]
    _, components = msgspec.json.schema_components(structs, schema_hook=_anything, ref_template=_REFERENCE)
    models = [kind.type for kind in OBJECT_KINDS if issubclass(kind.type, BaseModel)]
    _, custom = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template="#/$defs/{model}"
    )
    definitions = {**components, **custom["$defs"]}
    items = [_typed(kind) for kind in OBJECT_KINDS]
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
    """Return the schema that allows any value, for fields that batchsched does not interpret.

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
