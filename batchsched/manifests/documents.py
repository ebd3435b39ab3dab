"""Splits the content of files (YAML, JSON, JSON Lines, lists) into single Kubernetes objects.

Every object is returned as JSON bytes that are split at its top-level fields only: fields that are not needed are
never decoded, and equal pod specs can be recognized by their bytes.

YAML is read as Kubernetes does: times remain strings, a repeated key is an error, and a document that expands too far
through aliases is rejected before it is expanded. Errors name the line.
"""

import codecs
import json
import re
from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from batchsched.api.json_errors import to_field_error
from batchsched.errors import InvalidInput

_START: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_ONLY_COMMENTS: Final = re.compile(r"(?:\s*(?:[#%][^\n]*)?\n)*\s*(?:[#%][^\n]*)?")
_MERGE: Final = "tag:yaml.org,2002:merge"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_INT: Final = "tag:yaml.org,2002:int"
_MOST_VALUES: Final = 5_000_000
_DEEPEST: Final = 500
_OPENERS: Final = ("[", "{", "- ", "? ", "-\t", "?\t", "\n" + " " * _DEEPEST)


class _Loader(yaml.CSafeLoader):
    """PyYAML's safe loader, which here reads no times and no base-60 numbers, and rejects repeated keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIMESTAMP, _INT)]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    @override
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        pairs = list(node.value) if isinstance(node, yaml.MappingNode) else []
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(pairs) and all(key.tag != _MERGE for key, _ in pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if str(key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is stated twice", key.start_mark
                    )
                seen.add(str(key.value))
        return mapping


_Loader.add_implicit_resolver(
    _INT,
    re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|(?:0|[1-9][0-9_]*))$"),
    list("-+0123456789"),
)


def yaml_documents(text: str, file: str) -> Iterator[Any | InvalidInput]:
    """Parse YAML text and yield each document as plain Python values, or the error of an invalid document.

    The text is split at `---` lines before parsing, so an invalid document does not affect the others.
    """
    starts = [0, *(match.start() for match in _START.finditer(text)), len(text)]
    line = 1
    for start, end in pairwise(starts):
        chunk = text[start:end]
        if not _ONLY_COMMENTS.fullmatch(chunk):
            yield from _chunk(chunk, line, file)
        line += chunk.count("\n")


def _chunk(chunk: str, line: int, file: str) -> Iterator[Any | InvalidInput]:
    try:
        _refuse_depth(chunk)
        for value in yaml.load_all(chunk, Loader=_Loader):
            if "*" in chunk and _size(value, {}) > _MOST_VALUES:
                yield InvalidInput(f"line {line}: aliases make this document too large", file=file)
            elif value is not None:
                yield value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        error_line = line + (mark.line if mark else 0)
        yield InvalidInput(f"line {error_line}: is not YAML: {error.problem}", file=file)
    except yaml.YAMLError as error:
        yield InvalidInput(f"line {line}: is not YAML: {str(error).splitlines()[0]}", file=file)
    except RecursionError:
        yield InvalidInput(f"line {line}: is nested more than {_DEEPEST} levels deep", file=file)
    except (ValueError, TypeError, OverflowError) as error:
        yield InvalidInput(f"line {line}: is not YAML that Kubernetes reads: {error}", file=file)


def _refuse_depth(chunk: str) -> None:
    """Raise RecursionError for a document that is nested too deeply.

    The C loader recurses on the C stack without a check and would end the process. Its events do not recurse; they
    are counted only if the text has enough opening brackets for such a depth.
    """
    if sum(chunk.count(opener) for opener in _OPENERS) < _DEEPEST and _OPENERS[-1] not in chunk:
        return
    depth = 0
    for event in yaml.parse(chunk, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _size(value: Any, size_by_id: dict[int, int]) -> int:
    """Count the values in a YAML document if each alias is expanded, as in JSON."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in size_by_id:
        return size_by_id[id(value)]
    size_by_id[id(value)] = _MOST_VALUES + 1  # found again below itself, it never ends
    parts = value.values() if isinstance(value, dict) else value
    size_by_id[id(value)] = 1 + sum(_size(part, size_by_id) for part in parts)
    return size_by_id[id(value)]


EXPECTED: Final = "expected a Kubernetes object: a mapping with apiVersion, kind and metadata"
_BOM: Final = b"\xef\xbb\xbf"
LIST: Final = "List"
_NAME: Final = re.compile(r"[^\s/\x00-\x1f\x7f]{1,253}")
_MAX_SHOWN_NAME: Final = 60
"""Characters of a name that a message shows if no object can have this name."""
_MAX_SHOWN_BYTES: Final = 40
"""Bytes of JSON that a message shows of a value that is not an object."""


class Envelope(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The top-level fields of a Kubernetes object, such as metadata and spec, as JSON that is not decoded."""

    api_version: str = ""
    kind: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")
    items: list[msgspec.Raw] | None = None


class _ObjectName(msgspec.Struct):
    """The name of an object; other fields of the metadata are skipped, so they need not be UTF-8."""

    name: Any = ""
    namespace: Any = ""


class Document(msgspec.Struct, frozen=True, gc=False):
    """One Kubernetes object in an input file, as JSON; only its top-level fields have been parsed.

    Args:
      file: the file.
      place: the position in the file, for objects without a name: "document 3".
      raw: the whole object as JSON.
      envelope: its top-level fields.
    """

    file: str
    place: str
    raw: msgspec.Raw | bytes
    envelope: Envelope

    def kind_and_name(self, *, namespaced: bool) -> str:
        """Return the kind, namespace and name of the object for messages, as far as its metadata can be read."""
        kind = self.envelope.kind
        try:
            metadata = msgspec.json.decode(self.envelope.metadata, type=_ObjectName)
        except (ValueError, RecursionError):  # no JSON, not UTF-8, or nested too deeply
            metadata = _ObjectName()
        name = metadata.name
        if not isinstance(name, str) or not name:
            return f"{kind} ({self.place})"
        return format_kind_and_name(kind, (metadata.namespace or "default") if namespaced else "", name)


def can_be_object_name(text: str) -> bool:
    """Return whether a text follows the rules for object names that are common to all kinds."""
    return _NAME.fullmatch(text) is not None


def _readable_name(name: Any) -> str:
    """Return a name for use in a message; a text that cannot be an object name is quoted and cut off.

    Names of files are not checked: line breaks and escape sequences would change the output of a command.
    """
    if isinstance(name, str) and can_be_object_name(name) and name.isprintable():
        return name
    text = str(name)
    return repr(text if len(text) <= _MAX_SHOWN_NAME else f"{text[:_MAX_SHOWN_NAME]}...")


def format_kind_and_name(kind: str, namespace: Any, name: Any) -> str:
    """Return the kind, namespace and name of an object for messages.

    Args:
      kind: its kind.
      namespace: its namespace, "" if the kind has none.
      name: its name.
    """
    return f"{kind} {f'{_readable_name(namespace)}/' if namespace else ''}{_readable_name(name)}"


def not_an_object_error(
    error: Exception, raw: msgspec.Raw | bytes, file: str, object_name: str
) -> InvalidInput:
    """Return the error that describes why a JSON text is not a Kubernetes object.

    Args:
      error: the exception that `ENVELOPE_DECODER` raised.
      raw: the JSON text.
      file: the file.
      object_name: the object or its position in the file.
    """
    invalid = to_field_error(error)
    if invalid.field or not isinstance(error, msgspec.ValidationError):
        return InvalidInput(invalid.message, file=file, object=object_name, field=invalid.field)
    found_text = bytes(memoryview(raw)[:_MAX_SHOWN_BYTES]).decode(errors="replace")
    return InvalidInput(f"{EXPECTED}; found {found_text!r}", file=file, object=object_name)


Found = Document | InvalidInput
_UTF_16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
ENVELOPE_DECODER: Final = msgspec.json.Decoder(Envelope)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])


def split_documents(data: bytes, file: str) -> Iterator[Found]:
    """Yield the objects in the content of a YAML or JSON file; yield the items of a List one by one.

    For an invalid object, its error is yielded.
    """
    text = data.removeprefix(_BOM).lstrip()
    try:
        if data.startswith(_UTF_16_MARKS):
            yield InvalidInput("is UTF-16 text, as PowerShell's `>` writes it; save it as UTF-8", file=file)
        elif b"\0" in data:
            yield InvalidInput("is binary data; expected YAML or JSON text", file=file)
        elif text[:1] in (b"{", b"["):
            yield from _json(text, file)
        else:
            yield from _yaml(data.removeprefix(_BOM), file)
    except RecursionError:
        yield InvalidInput("is nested too deeply", file=file)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        yield InvalidInput(f"{place}: is not JSON: {error.msg}", file=file)
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        yield InvalidInput(f"is not UTF-8 text ({place}); expected YAML or JSON, possibly gzipped", file=file)


def _json(data: bytes, file: str) -> Iterator[Found]:
    try:
        yield from _opened(data, file, "document 1")
        return
    except msgspec.DecodeError:
        pass  # Not one JSON text: JSON Lines, several texts, YAML that begins with a brace, or broken.
    lines = data.splitlines()
    if len(lines) > 1 and any(_is_object(line) for line in lines):
        yield from _json_lines(lines, file)
    elif file.removesuffix(".gz").endswith((".json", ".jsonl", ".ndjson")):
        yield from _json_texts(data.decode(), file)
    else:
        yield from _yaml(data, file)


def _opened(raw: msgspec.Raw | bytes, file: str, place: str) -> Iterator[Found]:
    """Yield the object in a JSON text, or the items if it is a list or an array.

    An empty list is yielded as an object.

    Raises:
      msgspec.DecodeError: the text is not a single JSON value. In that case nothing was yielded.
    """
    if bytes(memoryview(raw)[:1]) == b"[":
        yield from _items(_ARRAY.decode(raw), file, "", "")
    else:
        yield from _objects(raw, file, place, "", "")


def _items(items: list[msgspec.Raw], file: str, api_version: str, kind: str) -> Iterator[Found]:
    for number, raw in enumerate(items, start=1):
        yield from _objects(raw, file, f"item {number}", api_version, kind)


def _objects(raw: msgspec.Raw | bytes, file: str, place: str, api_version: str, kind: str) -> Iterator[Found]:
    """Yield an object, or the items of a list.

    An object without kind gets the given apiVersion and kind, because items of a typed list (PodList) may omit them.
    """
    try:
        envelope = ENVELOPE_DECODER.decode(raw)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        yield not_an_object_error(error, raw, file, f"({place})")
        return
    if kind and not envelope.kind:
        envelope = msgspec.structs.replace(envelope, api_version=api_version, kind=kind)
    if not envelope.kind.endswith(LIST):
        yield Document(file, place, raw, envelope)
    elif not envelope.items:
        yield Document(file, place, raw, msgspec.structs.replace(envelope, kind=LIST, items=[]))
    else:
        item_kind = envelope.kind.removesuffix(LIST)
        yield from _items(envelope.items, file, envelope.api_version if item_kind else "", item_kind)


def _is_object(line: bytes) -> bool:
    try:
        ENVELOPE_DECODER.decode(line)
    except (msgspec.ValidationError, UnicodeDecodeError):
        return line.lstrip()[:1] == b"{"
    except msgspec.DecodeError:
        return False
    return True


def _json_lines(lines: list[bytes], file: str) -> Iterator[Found]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield from _opened(line.strip(), file, f"line {number}")
        except (msgspec.DecodeError, RecursionError) as error:
            yield InvalidInput(f"line {number}: is not JSON: {error}", file=file)


def _json_texts(text: str, file: str) -> Iterator[Found]:
    """Yield the objects of concatenated JSON values, as two runs of `kubectl get -o json` write them."""
    decoder, position, number = json.JSONDecoder(), 0, 0
    while position < len(text):
        number += 1
        value, position = decoder.raw_decode(text, position)
        yield from _value(value, file, number)
        while position < len(text) and text[position].isspace():
            position += 1


def _yaml(data: bytes, file: str) -> Iterator[Found]:
    for number, value in enumerate(yaml_documents(data.decode(), file), start=1):
        if isinstance(value, InvalidInput):
            yield value
        else:
            yield from _value(value, file, number)


def _value(value: Any, file: str, number: int) -> Iterator[Found]:
    place = f"document {number}"
    if not isinstance(value, dict | list):
        yield InvalidInput(f"{EXPECTED}; found {str(value)[:40]!r}", file=file, object=f"({place})")
        return
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        yield InvalidInput(f"has no meaning in JSON: {error}", file=file, object=f"({place})")
        return
    yield from _opened(raw, file, place)
