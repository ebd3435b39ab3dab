"""The shape of an owner of pods: its parts that create pods, and how many of these pods are needed together.

The modules of rules return one shape for each owner, such as a Job. Owners are read as JSON, because most are objects
of other projects. A field with an unexpected type counts as missing.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from batchsched.api.crd.base import LARGEST_INT32
from batchsched.errors import InvalidInput

Manifest = Mapping[str, Any]
MAX_SHOWN_CHARACTERS: Final = 40
"""Characters of an invalid value that a message quotes."""

MOST_ADDED_PODS: Final = 100_000
"""Maximum number of pods that the owners in files add to a cluster; larger clusters have not been tried."""


@dataclass(frozen=True, slots=True)
class OwnerPart:
    """A part of an owner, such as the workers of a PyTorchJob, that creates equal pods.

    Args:
      name: the name of the part in a label of its pods.
      pods: the number of its pods.
      minimum: the number of pods that are needed together; at most `pods`.
      template: the pod template.
      finished: the number of pods that have finished and are not created again.
      field: the path of the template in the owner.
      topology: the topology of the part, as fields of a subGroup.
      parent: the name of the `ColocatedParts` that contains the part; "" without one.
    """

    name: str
    pods: int
    minimum: int
    template: Manifest = field(default_factory=dict)
    finished: int = 0
    field: str = "spec.template"
    topology: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parent: str = ""

    @property
    def template_labels(self) -> Manifest:
        """The labels in the pod template of this part of the owner."""
        return mapping_or_empty(mapping_or_empty(self.template.get("metadata")).get("labels"))

    @property
    def template_annotations(self) -> Manifest:
        """The annotations in the pod template of this part of the owner."""
        return mapping_or_empty(mapping_or_empty(self.template.get("metadata")).get("annotations"))

    def create_pods(
        self, name_prefix: str, labels: Mapping[str, str], owner: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the pods that a controller would create for this part, as manifests without a namespace.

        Args:
          name_prefix: the prefix of the pods' names, before their number.
          labels: labels in addition to those of the pod template.
          owner: the reference to the owner of the pods.
        """
        for number in range(self.pods):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name_prefix}-{number}",
                    "labels": {**self.template_labels, **labels},
                    "annotations": dict(self.template_annotations),
                    "ownerReferences": [owner],
                },
                "spec": dict(mapping_or_empty(self.template.get("spec"))),
            }


@dataclass(frozen=True, slots=True)
class ColocatedParts:
    """Owner parts, such as the leader and the workers of one replica, that are placed together in one topology domain.

    Args:
      name: the name that its parts state as their parent.
      topology: the topology of the parts together, as fields of a subGroup.
    """

    name: str
    topology: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GangVariant:
    """An additional gang of an owner, with parts that differ from the parts of the owner's first gang.

    In Grove, the replicas of a scaling group beyond its minimum form such gangs.

    Args:
      parts: the parts of the gang.
      spec_fields: fields of PodGroupSpec that replace those of the first gang.
    """

    parts: tuple[OwnerPart, ...]
    spec_fields: Manifest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnerGangShape:
    """How the pods of an owner, such as a JobSet, form gangs: its parts, and the labels that assign pods to parts.

    Args:
      parts: at least one part.
      sub_group_labels: the first of these labels that a pod has names its part.
      gang_label: pods with different values of this label belong to different gangs; "": all pods are one gang.
      spec_fields: fields of PodGroupSpec that follow from fields of the owner.
      groups: groups of parts with a topology of their own.
      variants: the other gangs of the owner, by the name of the variant that `OwnerKind.read_membership` returns.
      is_optional: the pods run independently; they are a gang only if labels or annotations of an owner state fields.
      most_member: the largest number of pods that exist before one of them runs; None: all pods.
      problem: a value of the owner that is not as expected, as a sentence; "" without one.
    """

    parts: tuple[OwnerPart, ...]
    sub_group_labels: tuple[str, ...] = ()
    gang_label: str = ""
    spec_fields: Manifest = field(default_factory=dict)
    groups: tuple[ColocatedParts, ...] = ()
    variants: Mapping[str, GangVariant] = field(default_factory=dict)
    is_optional: bool = False
    most_member: int | None = None
    problem: str = ""

    @property
    def pod_count_per_gang(self) -> int:
        """The number of pods of one gang of the owner."""
        return sum(part.pods for part in self.parts)

    @property
    def unfinished_pod_count_per_gang(self) -> int:
        """The number of unfinished pods of one gang of the owner, including pods that do not exist yet."""
        return sum(part.pods - part.finished for part in self.parts)

    def without_pod_templates(self) -> "OwnerGangShape":
        """Return the shape without the pod templates of its parts, which are large."""
        return replace(
            self,
            parts=tuple(replace(part, template={}) for part in self.parts),
            variants={
                name: replace(variant, parts=tuple(replace(part, template={}) for part in variant.parts))
                for name, variant in self.variants.items()
            },
        )


def mapping_or_empty(value: object) -> Manifest:
    """Return a value of a manifest if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, dict) else {}


def mapping_entries_of_list(value: object) -> list[Manifest]:
    """Return the mappings in a list of a manifest, or an empty list if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def pod_count_or_default(value: object, default: int = 0) -> int:
    """Return a value of a manifest as a number of pods if it is an integer, otherwise the default.

    The API stores these numbers in 32 bits; a value out of range becomes the nearest one.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return min(max(0, value), LARGEST_INT32)


def raise_if_too_many_pods(pods: int, most: int = MOST_ADDED_PODS, more: str = "") -> None:
    """Raise `InvalidInput` if an owner in a file adds more pods to a cluster than are allowed.

    Args:
      pods: the number of pods.
      most: the number of pods that may be added.
      more: a word such as " more" after the allowed number in the message, if other owners have added pods.

    Raises:
      InvalidInput: the owner makes too many pods.
    """
    if pods > most:
        raise InvalidInput(f"makes {pods:,} pods; expected at most {most:,}{more}", field="spec")


def text_or_empty(value: object) -> str:
    """Return a value of a manifest if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""


def spec_of(manifest: Manifest) -> Manifest:
    """Return the spec in a manifest, or an empty mapping if it has none."""
    return mapping_or_empty(manifest.get("spec"))


def status_of(manifest: Manifest) -> Manifest:
    """Return the status in a manifest, or an empty mapping if it has none."""
    return mapping_or_empty(manifest.get("status"))
