"""Validation of custom resources: messages for users, and checks over several objects.

pydantic's validation errors become one message per field, with a path as in the manifest
(`spec.subGroups[0].minMember`), the expected value and the value found. The checks over several objects find invalid
queue trees, and subgroups that a PodGroup does not define.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import override

from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import DEFAULT_QUEUE, PodGroup
from batchsched.api.crd.queue import Queue

_OWN_FIELD: Final = re.compile(r"([^\s:]+): (.+)", re.DOTALL)
_LONGEST_SHOWN: Final = 60
_MOST_NAMED: Final = 30
"""Maximum number of known names in a message: all fields of any object, but not the PodGroups of a cluster."""
_MOST_COMPARED: Final = 1000
"""Maximum number of known names to which an unknown name is compared."""
_LEAST_SIMILARITY: Final = 0.6
"""The ratio of difflib from which a known name is suggested for an unknown one."""
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


_EXPECTED_BY_BOUND: Final = {
    "ge": "{} or more",
    "gt": "more than {}",
    "le": "{} or less",
    "lt": "less than {}",
}
"""Expected values by the name under which pydantic reports a bound."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """An invalid field of an object, with the expected value and the value found.

    Args:
      field: the path, "" for the object as a whole.
      message: the expected value and the value found.
    """

    field: str
    message: str

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def field_errors(error: ValidationError, model: type[BaseModel]) -> tuple[FieldError, ...]:
    """Convert a pydantic validation error of an object into one message per invalid field."""
    details = error.errors(include_url=False)
    # pydantic counts only the valid items of a list, so a list of invalid items is also reported as "too short".
    spoilt = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return tuple(
        _complaint(detail, model)
        for detail in details
        if not (detail["type"] == "too_short" and detail["loc"] in spoilt)
    )


def field_path(parts: Sequence[str | int]) -> str:
    """Format the names and indexes that lead to a field as a path, such as `spec.levels[1].name`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def suggest_name(name: str, known_names: Sequence[str]) -> str:
    """Return advice for an unknown name: the most similar known name, or otherwise a list of known names."""
    suggestion = _did_you_mean(name, known_names)
    if suggestion:
        return suggestion
    if not known_names:
        return "none is known"
    more = f" and {len(known_names) - _MOST_NAMED:,} more" if len(known_names) > _MOST_NAMED else ""
    return f"known are {', '.join(sorted(known_names)[:_MOST_NAMED])}{more}"


def similar_name_hint(name: str, known_names: Collection[str]) -> str:
    """Return ` (did you mean X?)` for an unknown name if a known name is similar; otherwise "".

    More than a thousand known names are not compared: a session may write one hint for each gang.
    """
    if len(known_names) > _MOST_COMPARED:
        return ""
    suggestion = _did_you_mean(name, known_names)
    return f" ({suggestion})" if suggestion else ""


def _did_you_mean(name: str, known_names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known_names, n=1, cutoff=_LEAST_SIMILARITY)
    return f"did you mean {close[0]}?" if close else ""


def _complaint(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    location = detail["loc"]
    if detail["type"] == "extra_forbidden":
        owner = _model_at(model, location[:-1])
        known_names = _aliases(owner) if owner else ()
        return FieldError(
            field_path(location), f"unknown field; {suggest_name(str(location[-1]), known_names)}"
        )
    if detail["type"] == "value_error":
        message = str(detail.get("ctx", {}).get("error", detail["msg"]))
        own = _OWN_FIELD.fullmatch(message)
        if own:
            return FieldError(field_path((*location, own[1])), own[2])
        return FieldError(field_path(location), message)
    return FieldError(field_path(location), _sentence(detail))


def _sentence(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    found_text = f"found {_shown(detail['input'])}"
    if kind == "missing":
        return "is required; add it"
    if kind in ("string_too_short", "too_short"):
        return f"must not be empty; {found_text}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, {found_text}"
    if kind == "literal_error":
        return f"expected {context['expected']}, {found_text}"
    for bound, expected in _EXPECTED_BY_BOUND.items():
        if bound in context:
            return f"expected {expected.format(_number(context[bound]))}, {found_text}"
    return f"{detail['msg']}, {found_text}"


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
    model_at_part: type[BaseModel] | None = model
    for part in location:
        if model_at_part is None:
            return None
        if isinstance(part, int):
            continue
        fields = [field for name, field in model_at_part.model_fields.items() if part in (name, field.alias)]
        model_at_part = _model_in(fields[0].annotation) if fields else None
    return model_at_part


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside `X | None`, `tuple[X, ...]` and similar annotations, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, tuple, list):
        for inner in get_args(annotation):
            inner_model = _model_in(inner)
            if inner_model:
                return inner_model
    return None


def excluded_queue_reasons(queues: Sequence[Queue]) -> dict[str, str]:
    """Return the queues that cannot be part of the queue tree, as a dict from queue name to the reason.

    These queues are the queues of a cycle, queues with a missing parent, and all queues below them.
    """
    parents = {queue.name: queue.spec.parent for queue in queues}
    reasons: dict[str, str] = {}
    settled: set[str] = set()
    for start in parents:
        trail: list[str] = []
        name: str | None = start
        while name in parents and name not in settled and name not in trail:
            trail.append(name)
            name = parents[name]
        if name in trail:
            cycle = trail[trail.index(name) :]
            _refuse_cycle(cycle, reasons)
        for queue_name in reversed(trail):
            if queue_name not in reasons:
                _refuse_child(queue_name, parents, reasons)
            settled.add(queue_name)
    return reasons


def _refuse_cycle(cycle: Sequence[str], reasons: dict[str, str]) -> None:
    way = " → ".join((*cycle, cycle[0]))
    for name in cycle:
        reasons[name] = f"the parents form a cycle ({way}); give one of these queues another parent, or none"


def _refuse_child(name: str, parents: Mapping[str, str | None], reasons: dict[str, str]) -> None:
    parent = parents[name]
    if parent is None:
        return
    if parent not in parents and parent != DEFAULT_QUEUE:
        reasons[name] = (
            f"the parent {parent!r} does not exist{similar_name_hint(parent, tuple(parents))}; make it, or leave out "
            "the parent"
        )
    elif parent in reasons:
        reasons[name] = f"the parent {parent!r} was set aside; set that one right first"


def unknown_sub_group_warnings(pods: Iterable[Pod], groups: Iterable[PodGroup]) -> list[str]:
    """Return one warning for each PodGroup with pods that name a subGroup which the PodGroup does not have."""
    sub_groups_by_key = {group.key: {sub.name for sub in group.spec.sub_groups} for group in groups}
    unknown_labels: dict[str, Counter[str]] = {}
    for pod in pods:
        label = pod.metadata.label(SUB_GROUP_LABEL)
        if label is None:
            continue
        key = f"{pod.namespace}/{pod.metadata.label(POD_GROUP_LABEL)}"
        if key in sub_groups_by_key and label not in sub_groups_by_key[key]:
            unknown_labels.setdefault(key, Counter())[label] += 1
    warnings = []
    for key, labels in unknown_labels.items():
        named = ", ".join(f"{label!r} ({count} pods)" for label, count in sorted(labels.items()))
        have = ", ".join(sorted(sub_groups_by_key[key])) or "none"
        warnings.append(
            f"PodGroup {key}: the label {SUB_GROUP_LABEL} names sub-groups it does not have: {named}; "
            f"it has {have}. These pods count for minMember only"
        )
    return warnings
