"""Writes a Snapshot as a `List` of Kubernetes manifests, and reads it back."""

from typing import Any, Final

import msgspec
from pydantic import BaseModel

from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME, OBJECT_KINDS, ObjectKind, Snapshot, api_group
from batchsched.errors import InvalidInput
from batchsched.manifests.decode import Decoder, ObjectDecodeError
from batchsched.manifests.documents import split_documents

_ENCODER: Final = msgspec.json.Encoder()


def encode_snapshot_as_json(snapshot: Snapshot) -> bytes:
    """Return the objects of a Snapshot as JSON, a `List` of Kubernetes manifests.

    Held gangs and objects that were set aside have no manifest and are left out.
    """
    items = b",\n".join(
        _object(written_object, kind)
        for kind in OBJECT_KINDS
        for written_object in getattr(snapshot, kind.field)
    )
    return b'{"apiVersion":"v1","kind":"List","items":[\n' + items + b"\n]}\n"


def decode_snapshot_from_json(data: bytes, file: str = "") -> Snapshot:
    """Read a Snapshot from JSON that `encode_snapshot_as_json` wrote, without setting defaults and without validation.

    Raises:
      InvalidInput: the text contains objects that `encode_snapshot_as_json` does not write.
    """
    decoder = Decoder(trusted=True)
    objects: dict[str, list[Any]] = {kind.field: [] for kind in OBJECT_KINDS}
    for document in split_documents(data, file):
        if isinstance(document, InvalidInput):
            raise document
        envelope = document.envelope
        if envelope.items is not None:
            continue  # an empty list
        kind = KIND_BY_GROUP_AND_NAME.get((api_group(envelope.api_version), envelope.kind))
        if kind is None:
            raise InvalidInput(
                f"{envelope.kind!r} has no place in a snapshot", file=file, object=document.place
            )
        try:
            objects[kind.field].append(decoder.decode(document, kind))
        except ObjectDecodeError as refused:
            raise InvalidInput(str(refused), file=file, object=f"{kind.name} ({document.place})") from refused
    fields: dict[str, Any] = {name: tuple(values) for name, values in objects.items()}
    return Snapshot(**fields)


def _object(written_object: msgspec.Struct | BaseModel, kind: ObjectKind) -> bytes:
    if isinstance(written_object, BaseModel):
        body = written_object.model_dump_json(
            by_alias=True, exclude_unset=True, exclude={"api_version", "kind"}
        ).encode()
    else:
        body = _ENCODER.encode(written_object)
    head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.name}"'.encode()
    return head + (b"," if len(body) > len(b"{}") else b"") + body[1:]
