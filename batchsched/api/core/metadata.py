"""Metadata that every Kubernetes object carries, and the base of all decoded objects."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

EMPTY_LABELS: Final[Mapping[str, str]] = {}
LONGEST_LABEL: Final = 63
"""Maximum length of a label value, and so of every name that pods refer to in a label."""
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class KubernetesValue(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The base class of all decoded Kubernetes values. A value is immutable, and unknown fields are ignored.

    `gc=False` excludes values from garbage collection: they contain no cycles, and a cluster has millions of them.
    """


class OwnerReference(KubernetesValue, frozen=True, gc=False):
    """A reference to the owner of a Kubernetes object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(KubernetesValue, frozen=True, gc=False):
    """The metadata of a Kubernetes object: names, labels, annotations, owners and times."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    resource_version: str = ""
    generation: int = 0

    @property
    def controller_owner(self) -> OwnerReference | None:
        """The owner that is the controller of the object (`controller: true`); None if it has no controller."""
        # A session asks most pods, and some claims and pods several times: no generator for each.
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None

    def is_controlled_by(self, uid: str) -> bool:
        """Return whether the controller of the object has this UID."""
        controller = self.controller_owner
        return controller is not None and controller.uid == uid

    def label(self, key: str) -> str | None:
        """Return the value of a label of the object, or None if the object lacks the label."""
        return self.labels.get(key) if self.labels else None

    def annotation(self, key: str) -> str | None:
        """Return the value of an annotation of the object, or None if the object lacks the annotation."""
        return self.annotations.get(key) if self.annotations else None


class KubernetesObject(KubernetesValue, frozen=True, gc=False):
    """The base class of all decoded Kubernetes objects that have metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """The name of the object, unique in the cluster, or in the namespace for namespaced kinds."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the object, empty if it has none."""
        return self.metadata.labels or EMPTY_LABELS


def parse_timestamp(timestamp: str | None, default: float = 0.0) -> float:
    """Parse an RFC 3339 time into seconds since 1970; return `default` if the time is missing or invalid."""
    if not timestamp:
        return default
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return default
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def format_timestamp(moment: float) -> str:
    """Format seconds since 1970 as Kubernetes does, in UTC with whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=65536)
def is_label_value(text: str) -> bool:
    """Return whether the API server accepts a text as the value of a label.

    Source: `IsValidLabelValue` in `pkg/util/validation` of k8s.io/apimachinery.
    """
    return not text or (len(text) <= LONGEST_LABEL and _LABEL_VALUE.fullmatch(text) is not None)
