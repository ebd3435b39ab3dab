"""Warnings about unknown fields: fields that Kubernetes does not have, such as `spec.paralelism` of a Job.

An API server drops such a field and warns. Without a warning, the object would be read as if the field were absent.
Objects of a cluster are not checked: they have no such fields.
"""

import difflib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import Any, Final

import msgspec

from batchsched.api.crd.validation import field_path
from batchsched.api.snapshot import api_group
from batchsched.manifests.decode import FILE_KIND_BY_GROUP_AND_NAME
from batchsched.manifests.documents import Document, Found

_CLOSE: Final = 0.8
"""The ratio of difflib from which a field of the same level is suggested before one of another level."""
_SIMILAR: Final = 0.6
"""The ratio of difflib from which a field of the same level is suggested if no other level has the unknown name."""
_MAX_KNOWN_SPECS: Final = 65536
"""The largest number of specs that a check remembers as free of unknown fields."""
_MAX_NAMED_FIELDS: Final = 20
"""The largest number of warnings of one file that name a field."""
_MAX_SHOWN_LENGTH: Final = 60
"""The largest number of characters of a name in a warning."""
_METADATA: Final = "V1ObjectMeta"
_POD_TEMPLATE: Final = "V1PodTemplateSpec"
_POD_SPEC: Final = "V1PodSpec"
_JOB_TEMPLATE: Final = "V1JobTemplateSpec"
_FIELDS_OF_CLUSTER: Final = ("status", "managedFields")
"""Fields that the cluster writes; fields in them are not suggested."""
_WRITTEN_STATUS: Final = {("V1Node", "allocatable"), ("V1Node", "capacity")}
"""Types with the fields of their status that users write in files."""
_LIST, _MAPPING = "[]", "{}"
_UNDECLARED: Final = ""

Path = tuple[str | int, ...]


class FieldTable(msgspec.Struct, frozen=True):
    """The table of all fields of Kubernetes objects, read from the generated file `known_fields.json`.

    Args:
      kinds: the type of each kind, by `apiVersion/kind`.
      types: the fields of each type with the type of their values. `[]` marks a list of values of the type, `{}` a
        mapping from names to them; None: the values have no fields.
    """

    kinds: dict[str, str]
    types: dict[str, dict[str, str | None]]


@dataclass(frozen=True, slots=True)
class _Level:
    """A mapping inside an object, such as a pod's spec, with a type that determines its fields.

    Args:
      path: the names and indexes that lead from the object to the mapping.
      type_name: the type that has its fields.
    """

    path: Path
    type_name: str


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field of an object in a file that the Kubernetes API does not define at this position.

    Args:
      name: the name of the field.
      levels: the mappings that contain the field, from the outermost to the innermost.
    """

    name: str
    levels: tuple[_Level, ...]

    @property
    def path(self) -> Path:
        """The names and indexes that lead from the object to the field."""
        return *self.levels[-1].path, self.name


@dataclass(slots=True)
class _Places:
    """The objects in one file that have the same unknown field: the first object, and their number."""

    first_object: str
    field: UnknownField
    count: int = 0


class UnknownFieldCheck:
    """The check that finds the unknown fields of objects in files, and yields warnings about them.

    If several objects of one kind in a file have the same unknown field, they share one warning.

    Args:
      owner_kinds: API groups and kinds of owners of pods, which are namespaced.
    """

    def __init__(self, owner_kinds: Collection[tuple[str, str]]) -> None:
        self._owner_kinds = frozenset(owner_kinds)
        self._places: dict[tuple[str, str, str], _Places] = {}
        # Hashes of kinds with specs, instead of the JSON, which is long. Pods of one template have the same spec.
        self._known_specs: set[int] = set()

    def record_unknown_fields(self, document: Document) -> None:
        """Search one object for unknown fields, and record them; skip kinds that batchsched does not read."""
        envelope = document.envelope
        name = (api_group(envelope.api_version), envelope.kind)
        kind = FILE_KIND_BY_GROUP_AND_NAME.get(name)
        if kind is None and name not in self._owner_kinds:
            return
        decoders = _strict_decoders(envelope.api_version, envelope.kind)
        # msgspec is faster than a walk through the values, and nearly all objects have no unknown field.
        try:
            decoders.decode_outer(document.raw if decoders.decode_spec else envelope.metadata)
            if decoders.decode_spec is None:
                if b'"containers"' not in bytes(document.raw):
                    return
            else:
                digest = hash((envelope.api_version, envelope.kind, bytes(envelope.spec)))
                if digest not in self._known_specs:
                    decoders.decode_spec(envelope.spec)
                    self._add_known_spec(digest)
                return
        except (ValueError, RecursionError):
            pass  # an unknown field, or a value that the decoder sets aside
        self._search(document, namespaced=kind is None or kind.namespaced)

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each unknown field that was found, with the number of objects that have it.

        For a file with many unknown fields, one further warning states how many are not listed.
        """
        number_by_file: Counter[str] = Counter()
        for (file, _, path), places in self._places.items():
            number_by_file[file] += 1
            if number_by_file[file] > _MAX_NAMED_FIELDS:
                continue
            more = f" and {places.count - 1} more" if places.count > 1 else ""
            meant = _find_meant_field(places.field)
            hint = f"; did you mean {meant}?" if meant else ""
            yield f"{file}: {places.first_object}{more}: {path}: unknown field has no effect{hint}"
        for file, number in number_by_file.items():
            if number > _MAX_NAMED_FIELDS:
                yield f"{file}: unknown fields that have no effect: {number - _MAX_NAMED_FIELDS:,} more"

    def _add_known_spec(self, digest: int) -> None:
        if len(self._known_specs) >= _MAX_KNOWN_SPECS:
            self._known_specs.clear()
        self._known_specs.add(digest)

    def _search(self, document: Document, *, namespaced: bool) -> None:
        envelope = document.envelope
        try:
            manifest = msgspec.json.decode(document.raw)
            unknown = tuple(_unknown_fields(manifest, _type_of_kind(envelope.api_version, envelope.kind)))
        except (ValueError, RecursionError):  # not UTF-8, or nested too deeply
            return
        for field in unknown:
            key = document.file, envelope.kind, _readable_path(field.path)
            title = document.kind_and_name(namespaced=namespaced)
            self._places.setdefault(key, _Places(title, field)).count += 1


def unknown_field_warnings(
    documents: Iterable[Found], owner_kinds: Collection[tuple[str, str]]
) -> Iterator[str]:
    """Search all objects in input files for unknown fields, and yield the warnings.

    Args:
      documents: the objects; kinds that batchsched does not read are skipped.
      owner_kinds: API groups and kinds of owners of pods, which are namespaced.
    """
    check = UnknownFieldCheck(owner_kinds)
    for document in documents:
        if isinstance(document, Document):
            check.record_unknown_fields(document)
    yield from check.warnings()


@cache
def field_table() -> FieldTable:
    """Return the table of all fields of Kubernetes objects; it is read once from `known_fields.json`."""
    content = files(__package__).joinpath("known_fields.json").read_bytes()
    return msgspec.json.decode(content, type=FieldTable)


def _type_of_kind(api_version: object, kind: object) -> str | None:
    """Return the type of a kind of Kubernetes, or None for a custom resource."""
    return field_table().kinds.get(f"{api_version}/{kind}")


Decode = Callable[[msgspec.Raw | bytes], object]


@dataclass(frozen=True, slots=True)
class _StrictDecoders:
    """Functions that decode the objects of a kind and raise an error for an unknown field.

    Args:
      decode_outer: decodes an object without the fields of its spec; of a custom resource, the metadata.
      decode_spec: decodes a spec; None for a custom resource.
    """

    decode_outer: Decode
    decode_spec: Decode | None


@cache
def _strict_decoders(api_version: str, kind: str) -> _StrictDecoders:
    type_name = _type_of_kind(api_version, kind)
    if type_name is None:
        return _StrictDecoders(msgspec.json.Decoder(_strict_type(_METADATA)).decode, None)
    spec_type = field_table().types[type_name].get("spec")
    return _StrictDecoders(
        msgspec.json.Decoder(_strict_struct(type_name, skipped="spec")).decode,
        msgspec.json.Decoder(_strict_type(spec_type) if spec_type else object).decode,
    )


@cache
def _strict_type(type_name: str) -> Any:
    return _strict_struct(type_name)


def _strict_struct(type_name: str, skipped: str = "") -> Any:
    names, fields = {}, []
    for index, (name, declared) in enumerate(field_table().types[type_name].items()):
        names[f"field_{index}"] = name
        annotation = msgspec.Raw if declared is None or name == skipped else _annotation(declared)
        fields.append((f"field_{index}", annotation, None))
    return msgspec.defstruct(type_name, fields, forbid_unknown_fields=True, rename=names, gc=False)


def _annotation(declared: str) -> Any:
    value: Any = _strict_type(declared.removeprefix(_LIST).removeprefix(_MAPPING)) | None
    if declared.startswith(_LIST):
        value = GenericAlias(list, (value,)) | None
    elif declared.startswith(_MAPPING):
        value = GenericAlias(dict, (str, value)) | None
    return value


def _unknown_fields(manifest: Mapping[str, Any], type_name: str | None) -> Iterator[UnknownField]:
    """Yield the unknown fields of an object.

    Args:
      manifest: the object.
      type_name: the type of its kind. None for a custom resource: its metadata and its parts that Kubernetes defines
        are checked.
    """
    if type_name is not None:
        parts: Iterable[tuple[Path, str, Any]] = [((), type_name, manifest)]
    else:
        parts = [
            (("metadata",), _METADATA, manifest.get("metadata")),
            *_parts_of_kubernetes(manifest.get("spec"), ("spec",)),
        ]
    for path, part_type, part in parts:
        yield from _walk(part, (_Level(path, part_type),))


def _walk(value: object, levels: tuple[_Level, ...]) -> Iterator[UnknownField]:
    """Yield the unknown fields in a value; `levels` are the levels that lead to the value and include it."""
    level = levels[-1]
    fields = field_table().types[level.type_name]
    for name, part in value.items() if isinstance(value, dict) else ():
        declared = fields.get(name, _UNDECLARED)
        if declared == _UNDECLARED:
            yield UnknownField(name, levels)
        elif declared is not None:
            part_type = declared.removeprefix(_LIST).removeprefix(_MAPPING)
            for key, item in _items(part, declared):
                yield from _walk(item, (*levels, _Level((*level.path, name, *key), part_type)))


def _items(value: object, declared: str) -> Iterator[tuple[Path, object]]:
    """Yield (path, value) for each value of a field: itself, or the items of a list or mapping."""
    if declared.startswith(_LIST):
        for index, item in enumerate(value) if isinstance(value, list) else ():
            yield (index,), item
    elif declared.startswith(_MAPPING):
        for name, item in value.items() if isinstance(value, dict) else ():
            yield (name,), item
    else:
        yield (), value


def _parts_of_kubernetes(value: object, path: Path) -> Iterator[tuple[Path, str, Any]]:
    """Yield (path, type, value) for each Kubernetes object or template in a part of a custom resource."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _parts_of_kubernetes(item, (*path, index))
    elif isinstance(value, dict):
        is_template = str(path[-1]).lower().endswith("template")
        type_name = _type_of_part(value, is_template=is_template)
        if type_name is not None:
            yield path, type_name, value
        elif _is_like_pod_template(value) and "kind" not in value:
            # Such as an override of a TrainJob, which has its own fields and metadata and spec of pods.
            yield (*path, "metadata"), _METADATA, value.get("metadata")
            yield (*path, "spec"), _POD_SPEC, value["spec"]
        else:
            for name, part in value.items():
                yield from _parts_of_kubernetes(part, (*path, name))


def _type_of_part(value: Mapping[str, Any], *, is_template: bool) -> str | None:
    """Return the type of a mapping in a custom resource if Kubernetes defines all its fields; otherwise None."""
    if "kind" in value:
        is_object = "metadata" in value or "spec" in value  # other mappings with a kind are references
        return _type_of_kind(value.get("apiVersion"), value["kind"]) if is_object else None
    if not is_template:
        return None
    if _is_like_pod_template(value):
        return _POD_TEMPLATE
    spec = value.get("spec")
    job_pods = spec.get("template") if isinstance(spec, dict) else None
    return _JOB_TEMPLATE if isinstance(job_pods, dict) and _is_like_pod_template(job_pods) else None


def _is_like_pod_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _readable_path(path: Path) -> str:
    """Format a path for a message: quote names with characters that cannot be printed, and cut long names."""
    return field_path([part if isinstance(part, int) else _readable_name(part) for part in path])


def _readable_name(name: str) -> str:
    start = name[:_MAX_SHOWN_LENGTH]
    shown = start if start and start.isprintable() else repr(start)
    return shown if start == name else f"{shown}..."


def _find_meant_field(field: UnknownField) -> str:
    """Return the known field that the user probably meant, or "" if there is none.

    It is a similar name at this level, or the same name at another level.
    """
    siblings = field_table().types[field.levels[-1].type_name]
    return (
        next(iter(difflib.get_close_matches(field.name, siblings, n=1, cutoff=_CLOSE)), "")
        or _nearest_namesake(field)
        or next(iter(difflib.get_close_matches(field.name, siblings, n=1, cutoff=_SIMILAR)), "")
    )


def _nearest_namesake(field: UnknownField) -> str:
    """Return the path of the nearest known field with the same name at another level, or ""."""
    namesakes = []
    for levels_up, level in enumerate(reversed(field.levels)):
        below = _find_below(field.name, level.type_name)
        if below:
            namesakes.append((levels_up + len(below), levels_up, _readable_path((*level.path, *below))))
    return min(namesakes)[-1] if namesakes else ""


def _find_below(name: str, root_type: str) -> tuple[str, ...]:
    """Return the shortest path from a type to a field of this name that users write, or ()."""
    types = field_table().types
    levels: deque[tuple[tuple[str, ...], str]] = deque([((), root_type)])
    seen = {root_type}
    while levels:
        path, type_name = levels.popleft()
        if name in types[type_name]:
            return (*path, name)
        for field, declared in types[type_name].items():
            part_type = (declared or "").removeprefix(_LIST).removeprefix(_MAPPING)
            is_written = field not in _FIELDS_OF_CLUSTER or (type_name, name) in _WRITTEN_STATUS
            if part_type and part_type not in seen and is_written:
                seen.add(part_type)
                levels.append(((*path, f"{field}{'[*]' if declared != part_type else ''}"), part_type))
    return ()
