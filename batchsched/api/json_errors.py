"""Errors of the JSON decoder as field errors: the field, what was expected there, and what was found.

The decoder names types of JSON and Python, and writes paths in a notation of its own. Users read manifests, so the
messages have the words and the paths of other field errors.
"""

import re
from typing import Final

import msgspec

from batchsched.api.crd.validation import FieldError

_NOT_UTF8: Final = "contains bytes that are not UTF-8 text"
MAX_MESSAGE_CHARACTERS: Final = 200
"""Maximum length of a message: users write the objects, and the decoder may quote a value."""
_LOCATED: Final = re.compile(r"(?P<message>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_TYPE_MISMATCH: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_NULL: Final = "null"
_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    _NULL: "nothing",
}
"""What users call the types of the decoder."""
_UNQUOTED: Final = frozenset({"int", "float", "bool"})
"""Types that YAML makes of values such as `7` and `true`, unless they are in quotes."""


def to_field_error(error: Exception, field: str = "") -> FieldError:
    """Convert an exception to a FieldError, which states the field that could not be decoded, and the reason.

    Args:
      error: the exception of msgspec for JSON text or for values that were read from it; of any other exception, the
        text is kept.
      field: the path of the decoded JSON in its object, "" for the object itself.
    """
    if isinstance(error, RecursionError):
        return FieldError(field, "is nested too deeply")
    if isinstance(error, UnicodeDecodeError):  # msgspec raises it for a string inside JSON
        return FieldError(field, _NOT_UTF8)
    if not isinstance(error, msgspec.DecodeError):  # such as a number with too many digits
        return FieldError(field, _cut(str(error)))
    match = _LOCATED.fullmatch(str(error))
    assert match is not None, "the pattern matches every text"
    message, path = match["message"], _join_path(field, (match["path"] or "").replace("[...]", "[*]"))
    if not isinstance(error, msgspec.ValidationError):
        return FieldError(
            path, _cut(f"is not JSON: {_lower_first(message.removeprefix('JSON is malformed: '))}")
        )
    missing = _MISSING.fullmatch(message)
    if missing:
        return FieldError(_join_path(path, missing[1]), "is required; add it")
    mismatch = _TYPE_MISMATCH.fullmatch(message)
    if mismatch:
        return FieldError(path, _mismatch_message(mismatch[1].split(" | "), mismatch[2]))
    return FieldError(path, _cut(_lower_first(message.replace("`", ""))))


def _mismatch_message(expected_types: list[str], found_type: str) -> str:
    # A field that may be absent needs no other advice than one that may not, and a whole number is a number.
    redundant = {_NULL, *(("int",) if "float" in expected_types else ())}
    kept_types = [name for name in expected_types if name not in redundant] or expected_types
    expected = [_WORDS.get(name, name) for name in kept_types]
    found_text = "a decimal number" if found_type == "float" else _WORDS.get(found_type, found_type)
    advice = "; put it in quotes" if kept_types == ["str"] and found_type in _UNQUOTED else ""
    return _cut(f"expected {' or '.join(expected)}, found {found_text}{advice}")


def _join_path(parent: str, child: str) -> str:
    separator = "." if parent and child and not child.startswith("[") else ""
    return f"{parent}{separator}{child}"


def _lower_first(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"


def _cut(message: str) -> str:
    return message[:MAX_MESSAGE_CHARACTERS]
