"""Metadata that every Kubernetes object carries, and the base of all decoded objects."""

from datetime import UTC, datetime

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """The base of all decoded Kubernetes values: frozen, compared by content, unknown fields passed over.

    `gc=False` keeps them out of the garbage collector: they hold no cycles, and a cluster has millions.
    """


class OwnerReference(Value, frozen=True, gc=False):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Value, frozen=True, gc=False):
    """Name, labels and times of an object."""

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

    def label(self, key: str) -> str | None:
        """Return a label's value, or None."""
        return self.labels.get(key) if self.labels else None

    def annotation(self, key: str) -> str | None:
        """Return an annotation's value, or None."""
        return self.annotations.get(key) if self.annotations else None


def seconds(timestamp: str | None, default: float = 0.0) -> float:
    """Read an RFC 3339 time as seconds since 1970; a missing or unreadable one is the default."""
    if not timestamp:
        return default
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return default
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def timestamp(moment: float) -> str:
    """Write seconds since 1970 as Kubernetes does, in UTC with whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
