"""The kinds of owners with an owner rule in the configuration, and how these rules form gangs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from batchsched.api.crd.base import LARGEST_INT32
from batchsched.config.owner_rules import FieldSteps, OwnerPartRule, OwnerRule, parse_field_path
from batchsched.podgrouper.rules import OwnerKind, OwnerKinds, no_gang_shape
from batchsched.podgrouper.shape import (
    MAX_SHOWN_CHARACTERS,
    Manifest,
    OwnerGangShape,
    OwnerPart,
    mapping_or_empty,
    pod_count_or_default,
    text_or_empty,
)

_MISSING: Final = object()


def built_in_and_configured_owner_kinds(rules: Sequence[OwnerRule]) -> OwnerKinds:
    """Return the kinds of owners that form gangs, including the kinds with a rule in the configuration."""
    return OwnerKinds(tuple(_kind_of(rule) for rule in rules))


def _kind_of(rule: OwnerRule) -> OwnerKind:
    shape = partial(configured_gang_shape, rule=rule)
    return OwnerKind(
        rule.kind,
        rule.api_version,
        shape if rule.parts else no_gang_shape,
        resource=rule.resource,
        read_paths=tuple(_read_paths(rule)),
    )


def _read_paths(rule: OwnerRule) -> Iterator[FieldSteps]:
    """Yield the paths that a rule reads. All entries of a list or a mapping of parts are read."""
    for path in (rule.min_member, rule.suspended, rule.queue, rule.priority_class_name):
        if isinstance(path, str):
            yield parse_field_path(path)
    for part in rule.parts:
        if part.each is not None:
            yield parse_field_path(part.each)
            continue
        for path in (part.replicas, part.min_member, part.template):
            if isinstance(path, str):
                yield parse_field_path(path)


@dataclass(slots=True)
class _Reading:
    """Reads fields of one owner, and keeps a sentence about the first field that is not as expected."""

    problem: str = field(default="")

    def read_pod_count(self, number: int | str | None, value: object, default: int) -> int:
        """Return the number of pods that an owner rule states as a number or as the path of a field."""
        if number is None or isinstance(number, int):
            return default if number is None else number
        field_value = find_field_value(value, parse_field_path(number))
        if field_value is _MISSING or field_value is None:
            return default
        if isinstance(field_value, str) and field_value.isascii() and field_value.isdigit():
            return min(int(field_value[:11]), LARGEST_INT32)  # a label is a text
        if not isinstance(field_value, int) or isinstance(field_value, bool) or field_value < 0:
            shown = str(field_value)[:MAX_SHOWN_CHARACTERS]
            self.problem = self.problem or f"{number}: expected a whole number, 0 or more; found {shown!r}"
            return default
        return pod_count_or_default(field_value, default)


def configured_gang_shape(manifest: Manifest, rule: OwnerRule) -> OwnerGangShape | None:
    """Return how the pods of an owner form gangs according to an owner rule of the configuration.

    The result is None if the owner is suspended, or if the rule finds no part of the owner.
    """
    if rule.suspended is not None and find_field_value(manifest, parse_field_path(rule.suspended)) is True:
        return None
    reading = _Reading()
    parts = tuple(part for stated in rule.parts for part in _parts(manifest, stated, reading))
    spec_fields: dict[str, Any] = {}
    for path, field_name in ((rule.queue, "queue"), (rule.priority_class_name, "priorityClassName")):
        text = text_or_empty(find_field_value(manifest, parse_field_path(path))) if path is not None else ""
        if text:
            spec_fields[field_name] = text
    least = reading.read_pod_count(rule.min_member, manifest, 0)
    if least:
        spec_fields["minMember"] = least
    labels = (rule.sub_group_label,) if rule.sub_group_label else ()
    return (
        OwnerGangShape(parts, labels, rule.gang_label, spec_fields, problem=reading.problem)
        if parts
        else None
    )


def _parts(manifest: Manifest, rule: OwnerPartRule, reading: _Reading) -> Iterator[OwnerPart]:
    """Yield the parts of an owner that a rule for parts describes."""
    if rule.each is None:
        yield _part(manifest, rule.name, rule, reading, "")
        return
    entries = find_field_value(manifest, parse_field_path(rule.each))
    path = rule.each.removeprefix(".")
    if isinstance(entries, dict):
        for name in sorted(entries):
            yield _part(entries[name], name, rule, reading, f"{path}.{name}")
    elif isinstance(entries, list):
        for index, entry in enumerate(entries):
            steps = parse_field_path(rule.name) if rule.name else ()
            name = text_or_empty(find_field_value(entry, steps)) if steps else str(index)
            yield _part(entry, name, rule, reading, f"{path}[{index}]")
    elif entries is not _MISSING:
        reading.problem = reading.problem or f"{rule.each}: expected a list or a mapping of parts"


def _part(value: object, name: str, rule: OwnerPartRule, reading: _Reading, prefix: str) -> OwnerPart:
    pods = reading.read_pod_count(rule.replicas, value, 1)
    needed = min(pods, reading.read_pod_count(rule.min_member, value, pods))
    if rule.template is None:
        return OwnerPart(name, pods, needed, field=prefix or "spec")
    template = mapping_or_empty(find_field_value(value, parse_field_path(rule.template)))
    return OwnerPart(name, pods, needed, template, field=f"{prefix}{rule.template}".removeprefix("."))


def find_field_value(value: object, steps: FieldSteps) -> Any:
    """Return the value in a manifest at a path of keys and indexes, or `_MISSING` if there is none."""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return _MISSING
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return _MISSING
    return value
