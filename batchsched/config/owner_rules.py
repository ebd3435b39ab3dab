"""The schema of owner rules, by which the pod grouper forms gangs for owner kinds that it does not know.

A rule states where an object of the kind has its numbers of pods, its queue and its priority: by paths of fields.
"""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from batchsched.api.crd.base import LARGEST_INT32, StrictModel

_STEP: Final = re.compile(r"\.(?P<name>[A-Za-z_][\w-]*)|\['(?P<quoted>[^']+)'\]|\[(?P<index>\d+)\]")
FieldSteps = tuple[str | int, ...]
"""The names of fields, and the indexes in lists, that lead to a field."""


def parse_field_path(text: str) -> FieldSteps:
    """Parse a field path, such as `.spec.groups[0].replicas` or `.metadata.labels['example.com/team']`.

    Raises:
      ValueError: the text is not a path.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            break
        index = match["index"]
        steps.append(int(index) if index is not None else match["name"] or match["quoted"])
        position = match.end()
    if not steps or position < len(text):
        raise ValueError(
            "expected a path such as .spec.replicas or .metadata.labels['example.com/team'], "
            f"found {text[:60]!r}"
        )
    return tuple(steps)


def _check_path(text: str) -> str:
    parse_field_path(text)
    return text


FieldPath = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_path)]
Count = Annotated[int, Field(ge=0, le=LARGEST_INT32, strict=True)]


class OwnerPartRule(StrictModel):
    """The fields of an owner that state the number, the minimum and the template of a part's pods."""

    each: FieldPath | None = None
    """Path of a list or a mapping: each of its entries is a part, and the other paths begin at the entry."""
    name: str = ""
    """Name of the part, which is the name of its subgroup. With `each`: the path of the name in an entry of a list. The
    entries of a mapping have their keys as names."""
    replicas: Count | FieldPath = 1
    """Number of pods of the part, or the path of the number. If the field is missing: 1."""
    min_member: Count | FieldPath | None = None
    """Number of pods that are needed together, or the path of the number. Default: all pods of the part."""
    template: FieldPath | None = None
    """Path of the pod template, from which `what-if` and `decide` create pods, and which can name a queue."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        if self.each is not None and self.name:
            try:
                parse_field_path(self.name)
            except ValueError as error:
                raise ValueError(f"name: with each, {error}") from error
        return self


class OwnerRule(StrictModel):
    """A rule by which the pod grouper forms gangs from the pods of one kind of owner, instead of a built-in rule."""

    api_version: str = Field(min_length=1, pattern=r"^[a-z0-9.-]+/v[a-z0-9]+$")
    """API version of the kind, such as `example.com/v1`."""
    kind: str = Field(min_length=1, pattern=r"^[A-Z][A-Za-z0-9]*$")
    """Kind, as in the ownerReferences of its pods."""
    resource: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    """Plural name of the resource in the API. Default: the kind in lower case with s, es or ies."""
    parts: tuple[OwnerPartRule, ...] = Field(default=(), max_length=100)
    """Parts that create pods. Without parts, the pods form no gang of the owner, and its labels and annotations apply
    to the owners and pods below it."""
    min_member: Count | FieldPath | None = None
    """Number of pods of the gang that are needed together, or the path of the number. Default: the sum of the parts."""
    suspended: FieldPath | None = None
    """Path of a field that is true while the owner has no pods."""
    queue: FieldPath | None = None
    """Path of the name of the queue, also as a label: `.metadata.labels['example.com/team']`."""
    priority_class_name: FieldPath | None = None
    """Path of the name of a PriorityClass, which can only lower the priority."""
    sub_group_label: str = Field(default="", max_length=317)
    """Label of the pods; its value is the name of their part."""
    gang_label: str = Field(default="", max_length=317)
    """Label of the pods: pods with different values of it belong to different gangs."""

    @model_validator(mode="after")
    def _parts_can_be_told_apart(self) -> Self:
        if self.sub_group_label and any(not part.name and part.each is None for part in self.parts):
            raise ValueError(
                "parts: with subGroupLabel, each part needs a name, the value of the label; add the names"
            )
        if not self.parts and self.min_member is not None:
            raise ValueError("minMember: a rule without parts forms no gang; add parts")
        return self
