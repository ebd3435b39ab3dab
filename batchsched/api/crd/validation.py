"""Converts pydantic's validation errors into messages for users: one per field.

Each message has a path as in the manifest (`spec.subGroups[0].minMember`), the expected value and the value found.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_OWN_FIELD: Final = re.compile(r"([^\s:]+): (.+)", re.DOTALL)
_LONGEST_SHOWN: Final = 60
_MOST_NAMED: Final = 30
"""Maximum number of known names in a message: all fields of any object, but not the PodGroups of a cluster."""
_EXPECTED: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of a sensible size",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of fields to values",
    "model_attributes_type": "a mapping of fields to values",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field.

    Args:
      field: the path, "" for the object as a whole.
      message: the expected value and the value found.
    """

    field: str
    message: str


def complaints(error: ValidationError, model: type[BaseModel]) -> tuple[FieldError, ...]:
    """Convert pydantic's errors for an object of `model`, in their order."""
    details = error.errors(include_url=False)
    # pydantic counts only the valid items of a list, so a list of invalid items is also reported as "too short".
    spoilt = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return tuple(
        _complaint(detail, model)
        for detail in details
        if not (detail["type"] == "too_short" and detail["loc"] in spoilt)
    )


def path(parts: Sequence[str | int]) -> str:
    """Format a path inside an object: `spec.levels[1].name`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest the most similar known name, or list the known names (the first ones, if there are many)."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    if not known:
        return "nothing is expected here"
    more = f" and {len(known) - _MOST_NAMED:,} more" if len(known) > _MOST_NAMED else ""
    return f"known are {', '.join(sorted(known)[:_MOST_NAMED])}{more}"


def _complaint(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    location = detail["loc"]
    if detail["type"] == "extra_forbidden":
        owner = _model_at(model, location[:-1])
        known = _aliases(owner) if owner else ()
        return FieldError(path(location), f"unknown field; {nearest(str(location[-1]), known)}")
    if detail["type"] == "value_error":
        message = str(detail.get("ctx", {}).get("error", detail["msg"]))
        own = _OWN_FIELD.fullmatch(message)
        if own:
            return FieldError(path((*location, own[1])), own[2])
        return FieldError(path(location), message)
    return FieldError(path(location), _sentence(detail))


def _sentence(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    found = f"found {_shown(detail['input'])}"
    if kind == "missing":
        return "is required; add it"
    if kind in ("string_too_short", "too_short"):
        return f"must not be empty; {found}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, {found}"
    if kind == "literal_error":
        return f"expected {context['expected']}, {found}"
    if kind == "greater_than_equal":
        return f"expected {_number(context['ge'])} or more, {found}"
    if kind == "greater_than":
        return f"expected more than {_number(context['gt'])}, {found}"
    if kind == "less_than_equal":
        return f"expected {_number(context['le'])} or less, {found}"
    if kind == "less_than":
        return f"expected less than {_number(context['lt'])}, {found}"
    return f"{detail['msg']}, {found}"


def _number(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _aliases(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    here: type[BaseModel] | None = model
    for part in location:
        if here is None:
            return None
        if isinstance(part, int):
            continue
        found = [field for name, field in here.model_fields.items() if part in (name, field.alias)]
        here = _model_in(found[0].annotation) if found else None
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside `X | None`, `tuple[X, ...]` and similar annotations, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, tuple, list):
        for inner in get_args(annotation):
            found = _model_in(inner)
            if found:
                return found
    return None
