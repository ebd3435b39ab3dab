"""Reads YAML as Kubernetes does: one value per document; errors name the line.

Times remain strings, a repeated key is an error, and a document that expands too far through aliases is rejected
before it is expanded.
"""

import re
from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Any, Final

import yaml
from typing_extensions import override

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
    """The safe loader without times and base-60 numbers; repeated keys are errors."""

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


def documents(text: str, file: str) -> Iterator[Any | InvalidInput]:
    """Yield each document as plain values; for an invalid document, yield its error.

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
        at = line + (mark.line if mark else 0)
        yield InvalidInput(f"line {at}: is not YAML: {error.problem}", file=file)
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


def _size(value: Any, known: dict[int, int]) -> int:
    """Count the values of a document as JSON would write them, each alias in full."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = _MOST_VALUES + 1  # found again below itself, it never ends
    parts = value.values() if isinstance(value, dict) else value
    known[id(value)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(value)]
