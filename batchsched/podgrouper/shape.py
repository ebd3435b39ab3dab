"""What the owners of pods have in common: parts that make pods, and how many of these are needed together.

Owners are read as JSON: they belong to others, and a field of theirs that is not what it should be counts as not
stated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodsOf:
    """A part of an owner that makes equal pods.

    Args:
      name: of the part, as its pods name it in a label.
      pods: that it makes.
      minimum: that are needed together; no more than `pods`.
      template: of its pods.
      gone: pods that have done their work and do not come again.
    """

    name: str
    pods: int
    minimum: int
    template: Manifest = field(default_factory=dict)
    gone: int = 0

    @property
    def labels(self) -> Manifest:
        """The labels that its pods get from the template."""
        return mapping(mapping(self.template.get("metadata")).get("labels"))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a gang of an owner looks like.

    Args:
      parts: at least one.
      sub_group_labels: labels of its pods, the first that is there names the part.
      gang_label: pods with different values of this label are different gangs; "": all pods are one.
      wishes: fields of PodGroupSpec that the owner states in words of its own.
    """

    parts: tuple[PodsOf, ...]
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    wishes: Manifest = field(default_factory=dict)

    @property
    def pods(self) -> int:
        """Pods of one gang."""
        return sum(part.pods for part in self.parts)

    @property
    def left(self) -> int:
        """Pods of one gang that run, or may still come."""
        return sum(part.pods - part.gone for part in self.parts)


def mapping(found: object) -> Manifest:
    """Return a mapping, an empty one for anything else."""
    return found if isinstance(found, dict) else {}


def listed(found: object) -> list[Manifest]:
    """Return the mappings of a list, none for anything else."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def count(found: object, default: int = 0) -> int:
    """Return a number of pods, the default for anything else; never less than 0."""
    return max(0, found) if isinstance(found, int) and not isinstance(found, bool) else default


def text(found: object) -> str:
    """Return a text, "" for anything else."""
    return found if isinstance(found, str) else ""


def spec_of(manifest: Manifest) -> Manifest:
    """Return the spec of an object."""
    return mapping(manifest.get("spec"))


def status_of(manifest: Manifest) -> Manifest:
    """Return the status of an object."""
    return mapping(manifest.get("status"))
