"""The shape of a gang: the parts of an owner that create pods, and how many of these are needed together.

Owners are objects of other projects and are read as JSON. A field with an unexpected type counts as missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """A part of an owner that creates equal pods.

    Args:
      name: the name of the part in a label of its pods.
      pods: the number of its pods.
      minimum: the number of pods that are needed together; at most `pods`.
      template: the pod template.
      finished: the number of pods that have finished and are not created again.
    """

    name: str
    pods: int
    minimum: int
    template: Manifest = field(default_factory=dict)
    finished: int = 0

    @property
    def labels(self) -> Manifest:
        """The labels of the pod template."""
        return mapping(mapping(self.template.get("metadata")).get("labels"))


@dataclass(frozen=True, slots=True)
class Shape:
    """The pods of one gang of an owner.

    Args:
      parts: at least one part.
      sub_group_labels: the first of these labels that a pod has names its part.
      gang_label: pods with different values of this label belong to different gangs; "": all pods are one gang.
      wishes: fields of PodGroupSpec that follow from fields of the owner.
    """

    parts: tuple[OwnerPart, ...]
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    wishes: Manifest = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """The number of pods of one gang."""
        return sum(part.pods for part in self.parts)

    @property
    def unfinished(self) -> int:
        """The number of pods of one gang that run or are still to be created."""
        return sum(part.pods - part.finished for part in self.parts)


def mapping(value: object) -> Manifest:
    """Return a mapping, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Manifest]:
    """Return the mappings of a list, or none for any other value."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def count(value: object, default: int = 0) -> int:
    """Return a number of pods, 0 or more, or the default for any other value."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else default


def text(value: object) -> str:
    """Return a text, or "" for any other value."""
    return value if isinstance(value, str) else ""


def spec_of(manifest: Manifest) -> Manifest:
    """Return the spec of an object."""
    return mapping(manifest.get("spec"))


def status_of(manifest: Manifest) -> Manifest:
    """Return the status of an object."""
    return mapping(manifest.get("status"))
