"""The API path of each kind of object."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batchsched.api.snapshot import OBJECT_KINDS, ObjectKind


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection of the API.

    Args:
      api_version: group and version, "v1" for the core group.
      plural: the last part of the path, such as "pods".
      kind: the kind of its objects, such as "Pod".
      namespaced: whether its objects belong to namespaces.
    """

    api_version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """The plural and the group as kubectl accepts them: `jobs.batch`, or `pods` for the core group."""
        return ".".join(part for part in (self.plural, self.group) if part)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, of an object, or of a subresource."""
        parts = ["/apis" if "/" in self.api_version else "/api", self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, name, subresource]
        return "/".join(part for part in parts if part)


def plural(kind: str) -> str:
    """Return the plural of a kind as the API forms it."""
    small = kind.lower()
    if small.endswith(("s", "x")):
        return small + "es"
    if small.endswith("y"):
        return small[:-1] + "ies"
    return small + "s"


def resource(kind: ObjectKind) -> Resource:
    """Return the collection of a kind."""
    return Resource(kind.api_version, plural(kind.name), kind.name, kind.namespaced)


def resources() -> Iterator[tuple[ObjectKind, Resource]]:
    """Yield each kind of a Snapshot with its collection."""
    for kind in OBJECT_KINDS:
        yield kind, resource(kind)


PODS: Final = Resource("v1", "pods", "Pod", namespaced=True)
EVENTS: Final = Resource("events.k8s.io/v1", "events", "Event", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io/v1", "leases", "Lease", namespaced=True)
