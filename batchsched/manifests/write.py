"""A Snapshot as Kubernetes manifests: one `List`, which `read` turns back into an equal Snapshot."""

from typing import Any, Final

import msgspec
from pydantic import BaseModel

from batchsched.manifests.kinds import ALL, Kind
from batchsched.model.snapshot import Snapshot

_ENCODER: Final = msgspec.json.Encoder()


def to_json(snapshot: Snapshot) -> bytes:
    """Write the objects of a snapshot as a `List` of Kubernetes manifests.

    Gangs that are held and objects that were set aside are no manifests; they are left out.
    """
    items = b",\n".join(_object(one, kind) for kind in ALL for one in getattr(snapshot, kind.field))
    return b'{"apiVersion":"v1","kind":"List","items":[\n' + items + b"\n]}\n"


def to_manifests(snapshot: Snapshot) -> dict[str, Any]:
    """Return the same `List` as plain values."""
    plain: dict[str, Any] = msgspec.json.decode(to_json(snapshot))
    return plain


def _object(one: msgspec.Struct | BaseModel, kind: Kind) -> bytes:
    if isinstance(one, BaseModel):
        body = one.model_dump_json(
            by_alias=True, exclude_unset=True, exclude={"api_version", "kind"}
        ).encode()
    else:
        body = _ENCODER.encode(one)
    head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.name}"'.encode()
    return head + (b"," if len(body) > len(b"{}") else b"") + body[1:]
