"""The names of the fields of Kubernetes objects, from the models of the `kubernetes` package.

batchsched warns of other fields in files. Commands read the names from a generated file, since an import of the package
takes longer than a small decision.
"""

import json
import re
from typing import Any, Final

import kubernetes.client.models

from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.snapshot import OBJECT_KINDS
from batchsched.podgrouper.rules import OWNERS

_CORE_GROUPS: Final = ("", "apps", "batch", "policy")
_PARTS_OF_CUSTOM_RESOURCES: Final = ("V1JobTemplateSpec", "V1PodTemplateSpec", "V1ObjectMeta")
"""Types that custom resources contain, such as the pod templates of a PyTorchJob."""
_FIELDS_OF_EARLIER_VERSIONS: Final = {"V1Device": ("nodeAllocatableResourceMappings",)}
"""Fields, by type, that Kubernetes 1.36 has and the models do not have; their values are not checked."""
_CONTAINER: Final = re.compile(r"(List|Dict)\[(?:str, *)?(\w+)\]")
_MARKS: Final = {"List": "[]", "Dict": "{}"}
"""How the file marks a list, and a mapping from names, of values of a type."""


def known_fields() -> str:
    """Return the type of each kind, and the fields of each type with the type of their values, as JSON."""
    kinds = {
        f"{kind.api_version}/{kind.name}": name
        for kind in (*OBJECT_KINDS, *EXTERNAL_KINDS, *OWNERS)
        if (name := _model_of_kind(kind.api_version, kind.name))
    }
    types: dict[str, dict[str, str | None]] = {}
    missing = [*kinds.values(), *_PARTS_OF_CUSTOM_RESOURCES]
    while missing:
        name = missing.pop()
        if name not in types:
            types[name] = _fields(getattr(kubernetes.client.models, name))
            types[name] |= dict.fromkeys(_FIELDS_OF_EARLIER_VERSIONS.get(name, ()))
            missing += [field_type.lstrip("[]{}") for field_type in types[name].values() if field_type]
    lines = [
        f"{json.dumps(name)}: {json.dumps(fields, sort_keys=True)}" for name, fields in sorted(types.items())
    ]
    text = ",\n".join(lines)
    return f'{{"kinds": {json.dumps(kinds, indent=0, sort_keys=True)},\n"types": {{\n{text}\n}}}}\n'


def _model_of_kind(api_version: str, kind: str) -> str:
    """Return the name of the model of a kind, or "" for a kind that is not part of Kubernetes."""
    group, _, version = api_version.rpartition("/")
    if group not in _CORE_GROUPS and (not group.endswith(".k8s.io") or group.endswith(".x-k8s.io")):
        return ""
    prefix = group.partition(".")[0].capitalize() or "Core"
    names = (f"{prefix}{version.capitalize()}{kind}", f"{version.capitalize()}{kind}")
    return next((name for name in names if _is_model(name)), "")


def _is_model(name: str) -> bool:
    return hasattr(getattr(kubernetes.client.models, name, None), "attribute_map")


def _fields(model: Any) -> dict[str, str | None]:
    """Return the fields of a model, each with the model of its values, or None if they are not models."""
    fields: dict[str, str | None] = {}
    for attribute, name in model.attribute_map.items():
        declared = model.openapi_types[attribute]
        container = _CONTAINER.fullmatch(declared)
        value_type = container[2] if container else declared
        mark = _MARKS[container[1]] if container else ""
        fields[name] = f"{mark}{value_type}" if _is_model(value_type) else None
    return fields
